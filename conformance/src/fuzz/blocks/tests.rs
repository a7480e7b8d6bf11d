use super::super::regression::record;
use super::super::sample::Sample;
use super::super::target::{Finding, Target, Targets};
use super::super::tests::samples;
use super::{fill, is_exact, keep, types};
use crate::adapter::{DemoFault, demo_fault};
use crate::registry::Trial;
use crate::setup::Subject;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::gemv::warp_order;
use plumbline_reference::ops::{Activations, Op};
use plumbline_reference::{Cpu, Path, Tensor};
use std::collections::BTreeSet;

fn target(operation: &str) -> Target {
    let targets = Targets::new(&[Subject::foreign(Cpu)], |_, _| Vec::new()).targets;
    targets.into_iter().find(|target| target.name == format!("cpu/parallel/{operation}")).unwrap()
}

fn result(sample: &Sample) -> Tensor {
    sample.op.evaluate(&sample.inputs().unwrap(), Path::Definition).unwrap().swap_remove(0)
}

#[test]
fn samples_are_of_all_formats_and_extents() {
    for (operation, formats) in [("dequantize", 17), ("gemv", 17 * 4), ("batched_gemv", 17 * 4)] {
        let samples = samples(&target(operation), 2000);
        let distinct = |of: &dyn Fn(&Sample) -> String| samples.iter().map(of).collect::<BTreeSet<_>>().len();
        let of_formats = |sample: &Sample| match &sample.op {
            Op::Dequantize(op) => op.from.to_string(),
            Op::Gemv(op) => format!("{}{:?}", op.weights, op.activations),
            Op::BatchedGemv(op) => format!("{}{:?}", op.weights, op.activations),
            op => panic!("{op:?}"),
        };
        assert_eq!(distinct(&of_formats), formats, "{operation}");
        assert!(distinct(&|sample| format!("{:?}", sample.shape)) > 80, "{operation}");
        assert!(samples.iter().filter(|sample| sample.shape.contains(&0)).count() > 50);
        // Those of products are judged by their bound.
        let exact = samples.iter().filter(|sample| is_exact(&sample.op)).count();
        assert_eq!(exact > 100, operation != "dequantize", "{exact}");
    }
    let is_warp = |sample: &&Sample| match &sample.op {
        Op::Gemv(op) => op.accumulate == Some(warp_order(op.weights, op.activations)),
        _ => false,
    };
    let warps = samples(&target("gemv"), 1000).iter().filter(is_warp).count();
    assert!((300..900).contains(&warps), "{warps}");
}

/// An input of another length would be an operation's error, and nothing would be found.
#[test]
fn every_input_is_filled() {
    for sample in
        ["dequantize", "gemv", "batched_gemv"].map(|operation| samples(&target(operation), 300)).concat()
    {
        let types = types(&sample.op, &sample.shape).unwrap();
        let lengths: Vec<_> = types.iter().map(|ty| ty.elements().unwrap()).collect();
        for seed in 0..4 {
            let codes = fill(&sample.op, &sample.shape, seed).unwrap();
            assert_eq!(codes.iter().map(Vec::len).collect::<Vec<_>>(), lengths, "{:?}", sample.op);
        }
    }
}

/// Elements of the result are those of the rows and vectors that are kept; without some of K they
/// are other sums of the same bytes.
#[test]
fn slices_are_left_out_of_every_input_that_has_them() {
    for sample in samples(&target("batched_gemv"), 300) {
        let (m, n) = (sample.shape[0], sample.shape[1]);
        if m < 3 || n < 3 {
            continue;
        }
        let whole = result(&sample);
        let vectors = keep(&sample, 0, |i| i != 1).unwrap();
        let rows = keep(&sample, 1, |i| i > 0).unwrap();
        let element = |m: usize, column: usize| whole.code(m * n + column);
        let codes = |sample: &Sample| result(sample).codes().collect::<Vec<_>>();
        let expected: Vec<_> = (0..m).filter(|&i| i != 1).flat_map(|i| (0..n).map(move |j| (i, j))).collect();
        assert_eq!(codes(&vectors), expected.iter().map(|&(i, j)| element(i, j)).collect::<Vec<_>>());
        let expected: Vec<_> = (0..m).flat_map(|i| (1..n).map(move |j| (i, j))).collect();
        assert_eq!(codes(&rows), expected.iter().map(|&(i, j)| element(i, j)).collect::<Vec<_>>());
        if sample.shape[2] > 1 {
            let shorter = keep(&sample, 2, |i| i == 1).unwrap();
            assert!(shorter.fits(), "{shorter:?}");
        }
    }
}

fn found(fault: DemoFault, operation: &str) -> Finding {
    let subject = Subject::shared(demo_fault(fault));
    let targets = Targets::new(&[subject], |_, _| Vec::new()).targets;
    let target = targets.iter().find(|target| target.operation() == operation).unwrap();
    let finding = target.search(0).run(3000, Trial::run).unwrap_or_else(|| panic!("{fault} is not found"));
    let folder = tempfile::tempdir().unwrap();
    let regression = record(folder.path(), target, &finding).unwrap();
    assert!(!regression.known && record(folder.path(), target, &finding).unwrap().known);
    finding
}

#[test]
fn faults_are_found_and_shrunk() {
    for (fault, operation) in [
        (DemoFault::NibblesSwapped, "dequantize"),
        (DemoFault::GroupsSwapped, "dequantize"),
        (DemoFault::FifthBit, "gemv"),
        (DemoFault::HighScaleBits, "dequantize"),
        (DemoFault::MinSign, "batched_gemv"),
        (DemoFault::ShortHeader, "dequantize"),
    ] {
        let sample = found(fault, operation).sample;
        assert!(sample.shape.iter().all(|&extent| extent == 1), "{fault}: {sample:?}");
        let set = sample.codes.iter().flatten().filter(|&&code| code != 0).count();
        assert!(set <= 8, "{fault}: {set} bytes are set in {sample:?}");
    }
    assert_eq!(found(DemoFault::FirstBlockOnly, "dequantize").sample.shape, [1, 2]);
    assert_eq!(found(DemoFault::RowStride, "batched_gemv").sample.shape.iter().product::<usize>(), 2);
    let lane = found(DemoFault::LaneLost, "gemv").sample;
    assert!(lane.shape[0] == 1, "{lane:?}");
    let Op::Gemv(op) = found(DemoFault::StoredSum, "gemv").sample.op else { panic!("a product") };
    assert!(op.weights.has_mins() && op.weights != BlockFormat::Q2K && op.activations == Activations::Q8_1);
}
