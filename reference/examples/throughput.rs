//! How fast each path of the reference is, the definition too: `cargo run --release --example
//! throughput`. `cargo xtask bench` compares the fastest with other crates.
//!
//! Billions of elements per second on two threads: the median of interleaved rounds, and
//! in brackets the best, which a busy machine disturbs less. 2^15 elements are one task, so
//! they tell the speed of one thread in its cache.
//! `into` writes to memory that is there already; the others are what the backend
//! does, new memory for each result.

use plumbline_reference::fast::{Conversion, Simd};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format, Policy};
use plumbline_reference::ops::{Absmax, Cast, Decode, Op};
use plumbline_reference::{Path, Tensor, TensorError, TensorType};
use std::time::{Duration, Instant};

const THREADS: usize = 2;

struct Measured<'a> {
    name: String,
    work: Box<dyn Fn() + Sync + Send + 'a>,
    /// Whether it is too slow to be repeated often.
    slow: bool,
    times: Vec<f64>,
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build()?;
    for log2 in [15, 20, 26] {
        for op in operations() {
            pool.install(|| measure(&op, log2))?;
        }
    }
    Ok(())
}

fn operations() -> Vec<Op> {
    let casts = [E4M3FN, E5M2, F16, BF16].map(|to| Op::from(Cast::new(F32, to)));
    let decodes =
        [(E4M3FN, F32), (F16, F32), (BF16, F32), (E4M3FN, F16)].map(|(from, to)| Decode { from, to }.into());
    let absmax = [F32, F16]
        .map(|from| Absmax { from, nan: Default::default(), granularity: Default::default() }.into());
    casts.into_iter().chain(decodes).chain(absmax).collect()
}

/// Normal numbers of moderate size, as activations are.
fn input(format: Format, n: usize) -> Result<Tensor, TensorError> {
    let code = |i: usize| {
        let value = (i.wrapping_mul(2_654_435_761) % 8191) as f32 / 1024.0 - 4.0;
        format.encode(value.into(), &Policy::default(), 0)
    };
    Tensor::from_fn(TensorType::new(format, [n]), Path::Parallel, code)
}

fn name(op: &Op) -> String {
    match op {
        Op::Cast(op) => format!("{} to {}", op.from, op.to),
        Op::Decode(op) => format!("{} to {}", op.from, op.to),
        Op::Absmax(op) => format!("absmax of {}", op.from),
        _ => op.name().to_owned(),
    }
}

fn conversion(op: &Op) -> Option<(Conversion, Format, Format)> {
    match op {
        Op::Cast(cast) => Some((Conversion::cast(cast.from, cast.to, &cast.policy())?, cast.from, cast.to)),
        Op::Decode(op) => Some((Conversion::decode(op.from, op.to)?, op.from, op.to)),
        _ => None,
    }
}

fn measure(op: &Op, log2: u32) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let n = 1usize << log2;
    let from = match op {
        Op::Cast(op) => op.from,
        Op::Decode(op) => op.from,
        Op::Absmax(op) => op.from,
        _ => return Ok(()),
    };
    let inputs = [input(from, n)?];
    let inputs = &inputs;
    let mut measured = Vec::new();
    if let Some((conversion, _, to)) = conversion(op) {
        for simd in Simd::all() {
            let y = std::sync::Mutex::new(vec![0; n * to.storage_bits as usize / 8]);
            let work = move || {
                let mut y = y.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                conversion.convert_parallel(simd, inputs[0].bytes(), &[], &mut y);
            };
            measured.push(Measured {
                name: format!("{} into", simd.name()),
                work: Box::new(work),
                slow: false,
                times: vec![],
            });
        }
    }
    let simd = Simd::all().map(|simd| (simd.name(), Path::Simd(simd)));
    for (name, path) in simd.chain([("parallel", Path::Parallel), ("definition", Path::Definition)]) {
        let work = move || {
            let outputs = op.evaluate(inputs, path);
            assert!(outputs.is_ok());
        };
        let slow = !matches!(path, Path::Simd(_));
        measured.push(Measured { name: name.to_owned(), work: Box::new(work), slow, times: vec![] });
    }

    let budget = Duration::from_millis(600);
    let start = Instant::now();
    for round in 0.. {
        for measured in &mut measured {
            if !(measured.slow && round > 1) {
                let start = Instant::now();
                (measured.work)();
                measured.times.push(start.elapsed().as_secs_f64());
            }
        }
        if round > 5 && start.elapsed() > budget {
            break;
        }
    }
    print!("2^{log2} {:<18}", name(op));
    for Measured { name, times, .. } in &mut measured {
        times.sort_by(f64::total_cmp);
        let rate = |seconds: f64| n as f64 / seconds / 1e9;
        print!("  {name} {:.2} ({:.2})", rate(times[times.len() / 2]), rate(times[0]));
    }
    println!();
    Ok(())
}
