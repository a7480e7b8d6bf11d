//! Right ways to compute a product of blocks are within its bound, wrong ones are not.

use super::{BlockProduct, Judged, Row, Rows, offset};
use crate::case::Class;
use crate::generate::{Request, generate};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::format::{F32, Value};
use plumbline_reference::ops::gemv::warp_order;
use plumbline_reference::ops::{Activations, Gemv, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};

const N: usize = 8;
const K: usize = 1024;

fn made(op: &Op, input: usize, class: &Class, blocks: Option<BlockFormat>, outer: &[usize]) -> Tensor {
    let (dtype, inner) = match blocks {
        Some(format) => (DType::U8, vec![K / format.values(), format.bytes()]),
        None => (F32.into(), vec![K]),
    };
    let shape = [outer, &inner].concat();
    let request = Request {
        class,
        dtype,
        shape: Some(&shape),
        blocks,
        lanes: 1,
        seed: 5 + input as u64,
        op,
        input,
        others: &[],
    };
    generate(&request).unwrap()
}

fn inputs(op: &Gemv, weights: &Class, activations: &Class) -> Vec<Tensor> {
    let (any, blocks) = (op.clone().into(), op.activations.blocks());
    vec![made(&any, 0, weights, Some(op.weights), &[N]), made(&any, 1, activations, blocks, &[])]
}

fn judged(op: &Gemv, inputs: &[Tensor], y: &[f32]) -> Judged {
    let codes: Vec<_> = y.iter().map(|y| u64::from(y.to_bits())).collect();
    let y = Tensor::from_codes(TensorType::new(F32, [y.len()]), &codes).unwrap();
    BlockProduct::of(&op.clone().into(), inputs).unwrap().judge(&y)
}

fn passes(judged: &Judged) -> bool {
    judged.wrong.is_empty() && judged.impossible.is_none()
}

/// Activations as f32, as an implementation that decodes them has them.
fn decoded(x: &Row) -> Vec<f32> {
    match x {
        Row::Numbers(x) => x.iter().map(|&x| x as f32).collect(),
        Row::Blocks(format, blocks) => {
            blocks.iter().flat_map(|block| (0..format.values()).map(|j| block.value(j) as f32)).collect()
        }
    }
}

/// A way to compute an element.
type Way = fn(&Row, &Row) -> f32;

const WAYS: [(&str, Way); 5] = [
    ("decoded, ascending", |w, x| {
        decoded(w).iter().zip(decoded(x)).fold(0.0, |sum, (w, x)| w.mul_add(x, sum))
    }),
    ("decoded, descending", |w, x| {
        decoded(w).iter().zip(decoded(x)).rev().fold(0.0, |sum, (w, x)| sum + w * x)
    }),
    ("step by step", |w, x| each(w, x, |[d, s, p, o, m, min], x, sum| sum + (d * s * (p - o) + m * min) * x)),
    ("every addend alone", |w, x| {
        each(w, x, |[d, s, p, o, m, min], x, sum| sum + d * (s * (p * x)) - s * (d * o) * x + m * (min * x))
    }),
    ("factored", |w, x| {
        let (Row::Blocks(format, blocks), x) = (w, decoded(x)) else { return f32::NAN };
        let o = offset(*format) as f32;
        let of_block = |(block, x): (&super::Unpacked, &[f32])| {
            let (mut products, mut mins) = (0f32, 0f32);
            for (group, x) in x.chunks(block.group).enumerate() {
                let quants = &block.quants[group * block.group..];
                let px: f32 = quants.iter().zip(x).map(|(&q, x)| (f32::from(q) + o) * x).sum();
                let sum: f32 = x.iter().sum();
                products += f32::from(block.scales[group]) * (px - o * sum);
                mins += f32::from(block.mins[group]) * sum;
            }
            block.d as f32 * products + block.m.unwrap_or(0.0) as f32 * mins
        };
        blocks.iter().zip(x.chunks(format.values())).map(of_block).sum()
    }),
];

fn each(w: &Row, x: &Row, add: impl Fn([f32; 6], f32, f32) -> f32) -> f32 {
    let (Row::Blocks(format, blocks), x) = (w, decoded(x)) else { return f32::NAN };
    let o = offset(*format) as f32;
    x.iter().enumerate().fold(0.0, |sum, (k, &x)| {
        let (block, j) = (&blocks[k / format.values()], k % format.values());
        let group = j / block.group;
        let [s, q, min] = [block.scales[group], block.quants[j], block.mins[group]].map(f32::from);
        add([block.d as f32, s, q + o, o, block.m.unwrap_or(0.0) as f32, min], x, sum)
    })
}

/// Integer sums over as many values as both blocks have, then scaled, as ggml does it.
fn by_integers(w: &Row, x: &Row) -> f32 {
    let (Row::Blocks(weights, w), Row::Blocks(activations, x)) = (w, x) else { return f32::NAN };
    let run = weights.values().min(activations.values());
    (0..w.len() * weights.values() / run)
        .map(|number| {
            let first = number * run;
            let (block, other) = (&w[first / weights.values()], &x[first / activations.values()]);
            let (mut sum, mut mins) = (0i32, 0i32);
            for k in first..first + run {
                let (j, q8) = (k % weights.values(), i32::from(other.quants[k % activations.values()]));
                let group = j / block.group;
                sum += i32::from(block.scales[group]) * i32::from(block.quants[j]) * q8;
                mins += i32::from(block.mins[group]) * q8;
            }
            let (d, d8, m) = (block.d as f32, other.d as f32, block.m.unwrap_or(0.0) as f32);
            d * (d8 * sum as f32) + (m * d8) * mins as f32
        })
        .sum()
}

fn rows(op: &Gemv, inputs: &[Tensor]) -> (Vec<Row>, Row) {
    let weights = Rows::of(&inputs[0], Some(op.weights), inputs[0].shape()[0]);
    let x = Rows::of(&inputs[1], op.activations.blocks(), 1).row(0);
    ((0..inputs[0].shape()[0]).map(|n| weights.row(n)).collect(), x)
}

#[test]
fn right_ways_are_within_the_bound() {
    let mut most = (0.0, String::new());
    for weights in BlockFormat::ALL {
        for activations in Activations::ALL {
            let op = Gemv::new(weights, activations);
            let classes: &[[Class; 2]] = match activations {
                Activations::F32 => &[
                    [Class::Blocks, Class::RandomFinite],
                    [Class::Blocks, Class::WideExponents],
                    [Class::Blocks, Class::Pairs { negate: true }],
                ],
                _ => &[[Class::Blocks, Class::Blocks], [Class::BlockIntegers, Class::Blocks]],
            };
            for [of_w, of_x] in classes {
                let inputs = inputs(&op, of_w, of_x);
                let (w, x) = rows(&op, &inputs);
                let mut check = |way: &str, y: Vec<f32>| {
                    let judged = judged(&op, &inputs, &y);
                    let ratio = judged.max_error_over_bound;
                    assert!(passes(&judged), "{weights} {activations:?} {of_x:?} {way}: {ratio:?}");
                    if ratio.unwrap_or(0.0) > most.0 {
                        most = (ratio.unwrap_or(0.0), format!("{weights} {activations:?} {of_x:?} {way}"));
                    }
                };
                for (name, way) in WAYS {
                    check(name, w.iter().map(|w| way(w, &x)).collect());
                }
                if activations != Activations::F32 {
                    check("integers", w.iter().map(|w| by_integers(w, &x)).collect());
                }
                let order = Some(warp_order(weights, activations));
                let warp: Op = Gemv { accumulate: order, ..op.clone() }.into();
                let y = warp.evaluate(&inputs, Path::Parallel).unwrap();
                check("warp", y[0].codes().map(|code| f32::from_bits(code as u32)).collect());
            }
        }
    }
    println!("{most:?}");
}

#[test]
fn wrong_ones_are_beyond_it() {
    let mut missed = Vec::new();
    for weights in BlockFormat::ALL {
        for activations in Activations::ALL {
            let op = Gemv::new(weights, activations);
            let of_x = if activations == Activations::F32 { Class::RandomFinite } else { Class::Blocks };
            let inputs = inputs(&op, &Class::Blocks, &of_x);
            let (w, x) = rows(&op, &inputs);
            let products = |w: &Row| -> Vec<f64> {
                decoded(w).iter().zip(decoded(&x)).map(|(&w, x)| f64::from(w) * f64::from(x)).collect()
            };
            let mut wrong = |what: &str, is_partial: bool, y: &dyn Fn(&[f64]) -> f64| {
                let y: Vec<_> = w.iter().map(|w| y(&products(w)) as f32).collect();
                let judged = judged(&op, &inputs, &y);
                // A part of a sum may be too small to be missed, above all where factors differ most:
                // those of MXFP4 and of Q8_K. One sum of eight may be near 0.
                let least = match (what, is_partial, weights, activations) {
                    ("NaN", ..) => N,
                    (_, true, BlockFormat::Mxfp4, _) => 1,
                    (_, true, _, Activations::Q8K) => N / 2,
                    _ => N - 1,
                };
                let found = judged.wrong.len();
                if found < least {
                    missed.push(format!("{weights} {activations:?}: {what}: {found} of {N}"));
                }
                // NaN has no error.
                let ratio = judged.max_error_over_bound;
                match what {
                    "NaN" => assert_eq!(ratio, None),
                    _ => assert!(ratio.is_some_and(|ratio| ratio > 1.0), "{weights} {what}: {ratio:?}"),
                }
            };
            wrong("a tail is left out", true, &|all| all[..K - 64].iter().sum());
            wrong("values are counted twice", true, &|all| {
                all.iter().sum::<f64>() + all[64..128].iter().sum::<f64>()
            });
            wrong("the sign", false, &|all| -all.iter().sum::<f64>());
            wrong("zero", false, &|_| 0.0);
            wrong("NaN", false, &|_| f64::NAN);
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Weights of Q4_1 whose factors are these f16, and activations of one number.
fn special([d, m]: [u16; 2], qs: u8, x: f32) -> (Gemv, Vec<Tensor>) {
    let block = [&d.to_le_bytes()[..], &m.to_le_bytes(), &[qs; 16]].concat();
    let w = Tensor::from_bytes(TensorType::new(DType::U8, [1, 1, 20]), block).unwrap();
    let x = Tensor::from_codes(TensorType::new(F32, [32]), &[x.to_bits().into(); 32]).unwrap();
    (Gemv::new(BlockFormat::Q4_1, Activations::F32), vec![w, x])
}

#[test]
fn of_specials_only_what_is_sure_is_required() {
    let accepts = |(op, inputs): &(Gemv, Vec<Tensor>), y: f32| passes(&judged(op, inputs, &[y]));
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    // NaN in d, in m, in x.
    for case in [special([0x7e00, 0], 0, 1.0), special([0x3c00, 0x7e00], 0, 1.0), special([0, 0], 0, nan)] {
        assert!(accepts(&case, nan) && !accepts(&case, infinity) && !accepts(&case, 0.0));
    }
    // Infinity: some get NaN of it, and nobody the other one.
    for case in [special([0x7c00, 0], 0x11, 1.0), special([0x3c00, 0x7c00], 0, 1.0)] {
        assert!(accepts(&case, nan) && accepts(&case, infinity) && !accepts(&case, -infinity));
        assert!(!accepts(&case, 0.0) && !accepts(&case, f32::MAX));
    }
    // Zero times infinity: NaN, or an infinity where integers are added up first.
    let undecided = special([0, 0], 0, infinity);
    assert!(accepts(&undecided, nan) && accepts(&undecided, infinity) && accepts(&undecided, -infinity));
    assert!(!accepts(&undecided, 0.0));
    // Zero, exactly and positive.
    let zero = special([0x8000, 0], 0x55, 2.0);
    assert!(accepts(&zero, 0.0) && !accepts(&zero, -0.0) && !accepts(&zero, f32::from_bits(1)));
    // Products that are all -0, of 7 * -0 and 2, and of -8 * -0 all +0.
    for (qs, right) in [(0xff, true), (0x00, false)] {
        let w =
            Tensor::from_bytes(TensorType::new(DType::U8, [1, 1, 18]), [&[0, 0x80], &[qs; 16][..]].concat());
        let x = Tensor::from_codes(TensorType::new(F32, [32]), &[2f32.to_bits().into(); 32]);
        let zero = (Gemv::new(BlockFormat::Q4_0, Activations::F32), vec![w.unwrap(), x.unwrap()]);
        assert!(accepts(&zero, 0.0) && accepts(&zero, -0.0) == right);
    }
    // 32 * 65504 * 15 * 1e33 may leave the range on the way.
    let (op, inputs) = special([0x7bff, 0], 0xff, 1e33);
    let judged = judged(&op, &inputs, &[1.0]);
    assert!(judged.impossible.unwrap().contains("not bounded"));
}

#[test]
fn a_sum_of_small_numbers_may_lose_what_underflows() {
    let (op, inputs) = special([0x0001, 0x0001], 0x11, f32::from_bits(3));
    let value = f32::from_bits(3);
    // 2^-24 * 3 * 2^-149, 64 times, is half of the smallest number.
    for y in [0.0, f32::from_bits(1)] {
        assert!(passes(&judged(&op, &inputs, &[y])), "{y}");
    }
    assert!(!passes(&judged(&op, &inputs, &[value * 100.0])));
    let exact = op.exact_value(&inputs, 0, 0).value();
    assert!(matches!(exact, Value::Finite { .. }));
}

/// Factors of 0 do not keep what they are multiplied by in range.
#[test]
fn a_sum_that_leaves_the_range_under_a_factor_of_0_is_not_judged() {
    let fields = |fields: &[(&str, &str)]| {
        let field = |&(name, bits): &(&str, &str)| (name.to_owned(), vec![bits.to_owned()]);
        Class::BlockFields(fields.iter().map(field).collect())
    };
    let large = || Class::Needle { bits: format!("{:#010x}", 3e38f32.to_bits()), at: 5 };
    for (weights, of_w) in [
        // d is 0 and all quants are 15, a scale is 0, and a min is.
        (BlockFormat::Q4_0, fields(&[("qs", "0xff")])),
        (BlockFormat::Q4K, fields(&[("d", "0x3c00"), ("qs", "0xff")])),
        (BlockFormat::Q4_1, fields(&[("m", "0x0000")])),
    ] {
        let op = Gemv::new(weights, Activations::F32);
        let mut inputs = inputs(&op, &of_w, &Class::RandomFinite);
        inputs[1] = made(&op.clone().into(), 1, &large(), None, &[]);
        let (w, x) = rows(&op, &inputs);
        let ways = WAYS.map(|(name, way)| (name, w.iter().map(|w| way(w, &x)).collect::<Vec<_>>()));
        for (name, y) in &ways {
            let judged = judged(&op, &inputs, y);
            assert!(judged.wrong.is_empty(), "{weights} {name}: {y:?}");
            assert!(judged.impossible.is_some_and(|why| why.contains("not bounded")), "{weights} {name}");
        }
        let factored = &ways.iter().find(|(name, _)| *name == "factored").unwrap().1;
        assert_eq!(factored.iter().any(|y| y.is_nan()), weights != BlockFormat::Q4_1, "{factored:?}");
    }
}
