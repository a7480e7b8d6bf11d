//! Both paths, any number of threads and any length give the same bits.

use crate::sampled::samples;
use crate::support::evaluate;
use plumbline_reference::ops::{Absmax, Granularity, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};

/// Around multiples of 16, around the 16384 elements of a task, and beyond several.
const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 16383, 16384, 16385, 100_003];

#[test]
fn definition_and_parallel_agree_at_every_length() {
    for sample in samples() {
        for n in LENGTHS {
            evaluate(sample.op.clone(), &sample.inputs(&[n]));
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for sample in samples() {
        let inputs = sample.inputs(&[100_003]);
        let expected = sample.op.evaluate(&inputs, Path::Definition).unwrap();
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let got = pool.install(|| sample.op.evaluate(&inputs, Path::Parallel)).unwrap();
            assert!(got == expected, "{} with {threads} threads", sample.op.name());
        }
    }
}

/// Element `i` of every input that has more than one, alone.
fn one_element(inputs: &[Tensor], i: usize) -> Vec<Tensor> {
    let alone = |input: &Tensor| match input.shape() {
        [] => input.clone(),
        _ => Tensor::from_codes(TensorType::new(input.dtype(), [1]), &[input.code(i)]).unwrap(),
    };
    inputs.iter().map(alone).collect()
}

#[test]
fn every_element_is_what_it_is_alone() {
    for sample in samples().into_iter().filter(|sample| sample.elementwise()) {
        let inputs = sample.inputs(&[50_000]);
        let together = &evaluate(sample.op.clone(), &inputs)[0];
        for i in (0..20).chain(16380..16390).chain(32760..32775).chain(49_990..50_000) {
            let alone = &sample.op.evaluate(&one_element(&inputs, i), Path::Definition).unwrap()[0];
            assert_eq!(together.code(i), alone.code(0), "{} element {i}", sample.op.name());
        }
    }
}

#[test]
fn rows_and_blocks_agree_on_both_paths() {
    for sample in samples() {
        let Op::Absmax(absmax) = sample.op else { continue };
        let inputs = sample.inputs(&[259, 96]);
        for granularity in [Granularity::Row, Granularity::Block(1), Granularity::Block(32)] {
            evaluate(Absmax { granularity, ..absmax }, &inputs);
        }
        evaluate(Absmax { granularity: Granularity::Row, ..absmax }, &sample.inputs(&[3, 40_000]));
    }
}

#[test]
fn a_tensor_is_filled_with_the_code_of_each_index() {
    for path in [Path::Definition, Path::Parallel] {
        for n in LENGTHS {
            let ty = TensorType::new(DType::U32, [n]);
            let tensor = Tensor::from_fn(ty, path, |i| i as u64).unwrap();
            assert!(tensor.codes().eq(0..n as u64), "{n} elements, {path:?}");
        }
    }
}
