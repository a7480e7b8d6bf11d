use super::operation::KINDS;
use super::sample::{Parts, Sample};
use super::shrink::{Shrinking, shrink};
use super::strategy::Samples;
use super::target::{Target, Targets};
use crate::setup::Subject;
use plumbline_reference::Cpu;
use plumbline_reference::block::mx::MxFormat;
use plumbline_reference::format::{E4M3FN, F32, Policy, Rounding};
use plumbline_reference::ops::{Absmax, AbsmaxNan, Cast, Granularity, MxQuantize, Op, ScaleOp, ScaledCast};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeSet;

fn targets() -> Vec<Target> {
    Targets::new(&[Subject::foreign(Cpu)], |_, _| Vec::new()).targets
}

pub(super) fn samples(target: &Target, count: usize) -> Vec<Sample> {
    let config = Config { failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let samples = Samples::new(&target.scope, target.kind, 0);
    (0..count).map(|_| samples.new_tree(&mut runner).unwrap().current()).collect()
}

/// The simplest sample for which `fails` holds.
fn shrunk(sample: Sample, fails: impl Fn(&Sample) -> bool) -> Sample {
    assert!(sample.fits() && fails(&sample), "{sample:?}");
    let targets = targets();
    let target = targets.iter().find(|target| target.operation() == sample.op.name()).unwrap();
    shrink(Shrinking::new(&target.scope, sample), fails)
}

fn is_nan(code: u64) -> bool {
    F32.decode(code).is_nan()
}

const NAN: u64 = 0xffff_1234;

#[test]
fn strategies_are_of_operations() {
    for kind in KINDS {
        assert!(Op::NAMES.contains(&kind.name), "{}", kind.name);
        assert!((kind.simple)().iter().all(|op| op.name() == kind.name), "{}", kind.name);
    }
}

#[test]
fn every_sample_fits_its_operation() {
    for target in targets() {
        for sample in samples(&target, 100) {
            assert_eq!(sample.op.name(), target.operation());
            assert!(sample.fits(), "{}: {sample:?}", target.name);
        }
    }
}

#[test]
fn samples_have_many_parameters_shapes_and_values() {
    let targets = targets();
    let target = targets.iter().find(|target| target.operation() == "scaled_cast").unwrap();
    let samples = samples(target, 1000);
    let distinct = |of: &dyn Fn(&Sample) -> String| samples.iter().map(of).collect::<BTreeSet<_>>().len();
    assert!(distinct(&|sample| format!("{:?}", sample.op)) > 300);
    assert!(distinct(&|sample| format!("{:?}", sample.shape)) > 100);
    assert!(distinct(&|sample| format!("{:?}", sample.codes)) > 800);
    let stochastic = |sample: &&Sample| Parts::of(&sample.op).stochastic;
    assert!(samples.iter().filter(stochastic).count() > 50);
}

#[test]
fn many_scaled_elements_land_at_midpoints() {
    let targets = targets();
    let target = targets.iter().find(|target| target.operation() == "scaled_cast").unwrap();
    let (mut near, mut all) = (0, 0);
    for sample in samples(target, 3000) {
        let Op::ScaledCast(op) = &sample.op else { continue };
        if op.to != E4M3FN || op.from != F32 || op.granularity != Granularity::Tensor {
            continue;
        }
        let inputs = sample.inputs().unwrap();
        for i in 0..sample.codes[0].len() {
            let Some(scaled) = sample.op.exact(&inputs, 0, i).filter(|x| x.is_finite() && *x != 0.0) else {
                continue;
            };
            let magnitude = scaled.abs().log2();
            if !(-6.0..8.5).contains(&magnitude) {
                continue;
            }
            // In units of half an ulp: odd at a midpoint.
            let halves = scaled.abs() / 2f64.powi(magnitude.floor() as i32 - 4);
            near += u32::from((halves - halves.round()).abs() < 1e-5 && halves.round() % 2.0 == 1.0);
            all += 1;
        }
    }
    assert!(all > 1000 && near * 4 > all, "{near} of {all}");
}

#[test]
fn one_element_and_the_simplest_bits_are_left() {
    let mut x = vec![0x3f80_0001; 300];
    x[217] = NAN;
    let op = Cast::new(F32, E4M3FN).with_policy(Policy { rounding: Rounding::Stochastic, ..Policy::IEEE });
    let random = vec![12345; 300];
    let sample = Sample { op: op.into(), shape: vec![3, 100], codes: vec![x, random] };
    let simplest = shrunk(sample, |sample| sample.codes[0].iter().copied().any(is_nan));
    // The signs and all but one of the set bits of the payload.
    let expected =
        Sample { op: Cast::new(F32, E4M3FN).into(), shape: vec![1], codes: vec![vec![0x7fc0_0000]] };
    assert_eq!(simplest, expected);
}

#[test]
fn scales_go_with_their_elements() {
    for granularity in [Granularity::Row, Granularity::Block(4)] {
        let op = ScaledCast { granularity, scale_op: ScaleOp::Divide, ..ScaledCast::new(F32, E4M3FN) };
        let groups = if granularity == Granularity::Row { 5 } else { 15 };
        let mut sample = Sample {
            op: op.into(),
            shape: vec![5, 12],
            codes: vec![(0..60).map(|i| 0x3f80_0000 + i).collect(), vec![0x4000_0000; groups]],
        };
        let per_group = 60 / groups;
        sample.codes[1][3] = 0x4120_0000;
        let x = sample.codes[0][3 * per_group + 1];
        let simplest = shrunk(sample, |sample| {
            let extent = sample.codes[0].len() / sample.codes[1].len();
            (0..sample.codes[0].len())
                .any(|i| sample.codes[0][i] == x && sample.codes[1][i / extent] == 0x4120_0000)
        });
        let expected = Sample {
            op: ScaledCast::new(F32, E4M3FN).into(),
            shape: vec![1],
            codes: vec![vec![x], vec![0x4120_0000]],
        };
        assert_eq!(simplest, expected, "{granularity:?}");
    }
}

#[test]
fn what_fails_only_with_its_parameters_and_neighbours_keeps_them() {
    let op = Op::from(Absmax { from: F32, nan: AbsmaxNan::Ignore, granularity: Granularity::Block(4) });
    let sample = Sample { op: op.clone(), shape: vec![2, 8], codes: vec![vec![0x3f80_0000; 16]] };
    let simplest = shrunk(sample, |sample| sample.op == op);
    assert_eq!(simplest, Sample { op, shape: vec![1, 4], codes: vec![vec![0; 4]] });
}

#[test]
fn a_sample_never_shrinks_to_nothing() {
    let op = Op::from(Cast::new(F32, E4M3FN));
    let sample = Sample { op: op.clone(), shape: vec![7, 9], codes: vec![vec![NAN; 63]] };
    let simplest = shrunk(sample, |_| true);
    assert_eq!(simplest, Sample { op, shape: vec![1], codes: vec![vec![0]] });
}

#[test]
fn a_block_with_a_fault_is_left_alone() {
    let op = Op::from(MxQuantize { packed: true, ..MxQuantize::new(F32, MxFormat::Nvfp4) });
    let mut x = vec![0x4049_0fdb; 2 * 48];
    x[50] = NAN;
    let sample = Sample { op, shape: vec![2, 48], codes: vec![x, vec![0x3eaa_aaab]] };
    let small = shrunk(sample, |sample| sample.codes[0].iter().any(|&code| is_nan(code)));
    // The NaN's simplest bits, the third of its block, and a scale of 1 for the tensor.
    assert_eq!(small.shape, [1, 16]);
    assert_eq!(small.codes[1], [0x3f80_0000]);
    let others = small.codes[0].iter().filter(|&&code| code != 0);
    assert!(is_nan(small.codes[0][2]) && others.count() == 1);
    assert_eq!(small.op, MxQuantize::new(F32, MxFormat::Nvfp4).into());
}
