//! How long it takes to judge a product of 8192 x 8192 x 8192.

use super::{Criterion, verdict};
use plumbline_conformance::load::load;
use plumbline_reference::format::F32;
use plumbline_reference::{Path, Tensor, TensorType};
use std::time::{Duration, Instant};

const EXTENT: usize = 8192;
/// Numbers of a row of a that are not zero.
const PER_ROW: usize = 4;

const CASE: &str = "
cases:
  - name: fp8
    op: {gemm: {a: e4m3fn, b: e4m3fn, out: f32, transpose_b: true}}
    inputs:
      - {dtype: e4m3fn, shape: [8192, 8192], generate: {sparse_integers: {max: 4, per_row: 4}}}
      - {dtype: e4m3fn, shape: [8192, 8192], generate: {integers: {max: 4}}}
    judge: freivalds
";

#[test]
#[ignore = "measures time; run it in release and on a quiet machine"]
fn a_product_of_8192_is_judged_in_seconds() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cases.yaml"), CASE).unwrap();
    let case = load(&folder.path().join("cases.yaml")).unwrap().remove(0);
    let built = case.build(0).unwrap();
    let [a, b] = &built.inputs[..] else { panic!("two inputs") };
    let number = |tensor: &Tensor, i: usize| {
        let format = tensor.dtype().format().unwrap();
        format.to_f64(tensor.code(i)) as f32
    };
    let rows: Vec<Vec<_>> = (0..EXTENT)
        .map(|m| {
            let terms = (0..EXTENT).filter(|k| a.code(m * EXTENT + k) != 0);
            terms.map(|k| (k, number(a, m * EXTENT + k))).collect()
        })
        .collect();
    assert!(rows.iter().all(|row| row.len() == PER_ROW));
    let numbers: Vec<_> = (0..256).map(|code| b.dtype().format().unwrap().to_f64(code) as f32).collect();
    let element = |i: usize| {
        let (m, n) = (i / EXTENT, i % EXTENT);
        let products = rows[m].iter().map(|&(k, a)| a * numbers[usize::from(b.bytes()[n * EXTENT + k])]);
        products.sum::<f32>().to_bits().into()
    };
    // Sums start from +0.
    let positive = |i: usize| if element(i) == 0x8000_0000 { 0 } else { element(i) };
    let y = Tensor::from_fn(TensorType::new(F32, [EXTENT, EXTENT]), Path::Parallel, positive).unwrap();
    let mut total = Duration::ZERO;
    for criterion in [Criterion::Freivalds, Criterion::Explained, Criterion::Bound] {
        let start = Instant::now();
        let verdict = verdict(&case, &built, criterion, &y);
        println!("{criterion:?}: {:.1?}, {:?}", start.elapsed(), verdict.explanation);
        assert!(verdict.ok);
        if criterion != Criterion::Bound {
            total += start.elapsed();
        }
    }
    assert!(total <= Duration::from_secs(10), "{total:?}");
}
