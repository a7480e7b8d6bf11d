use super::*;
use crate::adapter::{Closure, Float8, cast_465_to_nan};
use plumbline_reference::Cpu;
use plumbline_reference::format::{
    ALL, BF16, E4M3FN, E4M3FNUZ, E5M2, F16, F32, F64, NanPolicy, Policy, Rounding,
};
use plumbline_reference::ops::{Cast, Relu, Silu};

fn sweep(cast: Cast, backend: &dyn Backend, inputs: Range<u64>) -> Findings {
    let oracle = Oracle::Staircase(Staircase::new(&cast));
    let variant = backend.variants(&cast.into()).remove(0);
    Sweep { op: cast.into(), backend, variant: &variant, oracle: &oracle, nan: NanJudge::Bits, inputs }
        .run(&|_| ())
        .unwrap()
}

#[test]
fn the_staircase_is_the_definition_on_every_16_bit_input_under_every_policy() {
    for from in [F16, BF16] {
        for to in ALL.into_iter().filter(|to| to.storage_bits == 8) {
            for (i, policy) in policies().enumerate() {
                // Each pair meets every fifth policy, all of them meet every policy.
                if i % 5 != (to.bias as usize + from.fraction_bits as usize) % 5 {
                    continue;
                }
                let cast = Cast::new(from, to).with_policy(policy);
                let inputs = Sweep::all_inputs(from).unwrap();
                let variant = "parallel";
                let oracle = Oracle::Staircase(Staircase::new(&cast));
                let findings = Sweep {
                    op: cast.into(),
                    backend: &Cpu,
                    variant,
                    oracle: &oracle,
                    nan: NanJudge::Bits,
                    inputs,
                }
                .run(&|_| ())
                .unwrap();
                assert_eq!((findings.inputs, findings.mismatched()), (65_536, 0), "{cast:?}: {findings:?}");
            }
        }
    }
}

#[test]
fn wide_staircases_are_the_definition_around_their_ends() {
    for to in [E4M3FN, E4M3FNUZ, F16, BF16] {
        for start in [0, 0x3f80_0000, 0x7f7f_0000, 0x7fff_0000, 0xff7f_0000, 0xffff_0000] {
            let findings = sweep(Cast::new(F32, to), &Cpu, start..(start + 0x20000).min(1 << 32));
            assert_eq!(findings.mismatches, BTreeMap::new(), "{to} from {start:#x}");
        }
    }
}

#[test]
fn a_fault_is_counted_by_kind_with_its_first_input() {
    // 464 and 496 as f32; the fault lies strictly between.
    let findings = sweep(Cast::new(F32, E4M3FN), &cast_465_to_nan(), 0x43e0_0000..0x4400_0000);
    let expected = Mismatches { count: 0x0f_ffff, first: (0x43e8_0001, 0x7e, 0x7f) };
    assert_eq!(findings.mismatches, BTreeMap::from([(Fault::NanMade, expected)]));
}

#[test]
fn a_digest_tells_results_apart_and_does_not_depend_on_threads() {
    let cast = Cast::new(F32, E4M3FN);
    let inputs = 0x3f80_0000..0x3f90_0003;
    let whole = sweep(cast, &Cpu, inputs.clone());
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one_thread.install(|| sweep(cast, &Cpu, inputs.clone())), whole);
    let flipped = Closure::elementwise("flip", cast, |x| {
        E4M3FN.encode(F32.decode(x), &Policy::default(), 0) ^ u64::from(x == 0x3f8f_ffff)
    });
    assert_ne!(sweep(cast, &flipped, inputs).digest, whole.digest);
}

#[test]
fn a_staircase_has_the_digest_and_the_results_of_what_it_stands_for() {
    for (cast, inputs) in [
        (Cast::new(F32, E4M3FN), 0x3f80_0000..0x3f85_0003),
        (Cast::new(F16, E5M2), 0..0x1_0000),
        (Cast::new(E4M3FN, F16), 0..0x100),
    ] {
        let staircase = Staircase::new(&cast);
        assert_eq!(staircase.digest(inputs.clone()), sweep(cast, &Cpu, inputs.clone()).digest, "{cast:?}");
        for index in inputs.step_by(101) {
            let right = cast.to.encode(cast.from.decode(cast.from.code_at(index)), &cast.policy(), 0);
            assert_eq!(staircase.result(index), right, "{cast:?} of {index:#x}");
        }
    }
}

#[test]
fn results_that_nothing_judges_are_digested() {
    let (cast, inputs) = (Cast::new(F32, E4M3FN), 0x3f80_0000..0x3f85_0003);
    let judged = sweep(cast, &Cpu, inputs.clone());
    let (oracle, nan) = (&Oracle::Nothing, NanJudge::Bits);
    let digested = Sweep { op: cast.into(), backend: &Cpu, variant: "definition", oracle, nan, inputs };
    assert_eq!(digested.run(&|_| ()).unwrap(), judged);
}

#[test]
fn a_foreign_nan_need_only_be_nan() {
    let nans = 0x7f80_0001..0x7f81_0001;
    let cast = Cast { nan: NanPolicy::SignKept, ..Cast::new(F32, E5M2) };
    let oracle = Oracle::Backend { backend: &Float8, variant: Float8.variants(&cast.into()).remove(0) };
    let mismatched = |nan| {
        let sweep = Sweep {
            op: cast.into(),
            backend: &Cpu,
            variant: "parallel",
            oracle: &oracle,
            nan,
            inputs: nans.clone(),
        };
        sweep.run(&|_| ()).unwrap().mismatched()
    };
    assert_eq!((mismatched(NanJudge::Class), mismatched(NanJudge::Bits)), (0, 0x1_0000));
}

#[test]
fn what_cannot_be_swept_is_an_error() {
    assert!(matches!(Sweep::all_inputs(F64), Err(SweepError::TooWide(_))));
    let cast = Cast { rounding: Rounding::Stochastic, ..Cast::new(F32, E4M3FN) };
    let oracle = Oracle::Backend { backend: &Cpu, variant: "definition".to_owned() };
    let sweep = Sweep {
        op: cast.into(),
        backend: &Cpu,
        variant: "parallel",
        oracle: &oracle,
        nan: NanJudge::Bits,
        inputs: 0..16,
    };
    assert!(matches!(sweep.run(&|_| ()), Err(SweepError::NotPointwise("cast"))));
}

#[test]
fn a_function_is_swept_too() {
    let (op, inputs) = (Op::from(Silu { from: BF16, to: BF16 }), Sweep::all_inputs(BF16).unwrap());
    let oracle = Oracle::Backend { backend: &Cpu, variant: "definition".to_owned() };
    let mismatches = |backend: &dyn Backend| {
        let (op, inputs, nan) = (op.clone(), inputs.clone(), NanJudge::Bits);
        let variant = &backend.variants(&op)[0];
        Sweep { op, backend, variant, oracle: &oracle, nan, inputs }.run(&|_| ()).unwrap().mismatches
    };
    assert_eq!(mismatches(&Cpu), BTreeMap::new());
    let relu = Closure::new("relu", op.clone(), |inputs| {
        Cpu.run(&Relu { from: BF16, to: BF16 }.into(), "definition", inputs)
    });
    assert!(!mismatches(&relu).is_empty());
}
