use super::*;
use plumbline_reference::format::{E4M3FN, F32};

fn numbers(shape: &[usize], values: &[f32]) -> Tensor {
    let codes: Vec<_> = values.iter().map(|x| x.to_bits().into()).collect();
    Tensor::from_codes(TensorType::new(F32, shape), &codes).unwrap()
}

fn expected(values: &Values, ty: &TensorType) -> Expected {
    let (values, ty) = (values.clone(), ty.clone());
    Expected { values, ty, criterion: Criterion::BitExact, nan: None, computed: true }
}

/// The perturbations of an output that a judge is shown, and those that it accepts.
fn shown(y: &Tensor, values: &Values, judge: impl Fn(&Tensor) -> bool) -> [Vec<Perturbation>; 2] {
    let right = Output::Whole(y.clone());
    let next = numbers(y.shape(), &vec![7.0; y.len()]);
    let expected = expected(values, y.ty());
    let judged = Judged::new(NanJudge::Class, &expected, &right);
    let next = Output::Whole(next);
    let answers = answers_of(&judged, 0, &right, Some(&next), true, |wrong| judge(wrong.tensor()));
    let accepted = answers.iter().filter(|answer| !answer.rejected);
    [
        answers.iter().map(|answer| answer.perturbation).collect(),
        accepted.map(|answer| answer.perturbation).collect(),
    ]
}

fn values(y: &Tensor) -> Vec<f32> {
    y.codes().map(|code| f32::from_bits(code as u32)).collect()
}

/// Each of these judges overlooks what one perturbation does.
#[test]
fn each_perturbation_finds_a_judge_that_overlooks_it() {
    use Perturbation::*;
    let right = [1.0f32, 2.0, 3.0, -4.0];
    let y = numbers(&[2, 2], &right);
    type Judge = Box<dyn Fn(&[f32]) -> bool>;
    let all = |ok: fn(f32, f32) -> bool| -> Judge {
        Box::new(move |got| right.iter().zip(got).all(|(&right, &got)| ok(right, got)))
    };
    let sorted = |x: &[f32]| {
        let mut x = x.to_vec();
        x.sort_by(f32::total_cmp);
        x
    };
    let judges: [(Perturbation, Judge); 7] = [
        (Zeros, all(|right, got| got == right || got == 0.0)),
        (Negated, all(|right, got| got.abs() == right.abs())),
        (Scaled, all(|right, got| got == right || (got / right - 0.9).abs() <= 1e-6)),
        (Shifted, Box::new(move |got| sorted(got) == sorted(&right))),
        (Nan, all(|right, got| got == right || got.is_nan())),
        (NextSeed, all(|right, got| got == right || got == 7.0)),
        (LowBit, all(|right, got| (got - right).abs() <= 1e-6)),
    ];
    for (overlooked, judge) in judges {
        let [tried, accepted] = shown(&y, &Values::Derived, |wrong| judge(&values(wrong)));
        assert_eq!(tried, [Zeros, Negated, Scaled, Shifted, Nan, NextSeed, LowBit]);
        assert_eq!(accepted, [overlooked]);
    }
    let empty = numbers(&[0, 3], &[]);
    assert_eq!(shown(&empty, &Values::Derived, |_| true), [vec![Longer], vec![Longer]]);
}

#[test]
fn what_changes_no_judged_value_is_left_out() {
    use Perturbation::*;
    let tried = |y: &Tensor, values: &Values| shown(y, values, |_| false)[0].clone();
    // One row of zeros, whose signs are judged, or not.
    let zeros = numbers(&[1, 3], &[0.0; 3]);
    assert_eq!(tried(&zeros, &Values::Dense(zeros.clone())), [Negated, Nan, NextSeed, LowBit]);
    assert_eq!(tried(&zeros, &Values::Derived), [Nan, NextSeed, LowBit]);
    // NaNs as a class.
    let nans = numbers(&[2], &[f32::NAN; 2]);
    assert_eq!(tried(&nans, &Values::Dense(nans.clone())), [Zeros, NextSeed]);
    // The element that is judged is the same in both rows.
    let y = numbers(&[2, 2], &[1.0, 2.0, 1.0, 3.0]);
    let sparse = Values::Sparse { at: vec![0], values: numbers(&[1], &[1.0]) };
    assert!(!tried(&y, &sparse).contains(&Shifted));
    assert!(tried(&y, &Values::Dense(y.clone())).contains(&Shifted));
}

#[test]
fn numbers_of_narrow_formats_are_made_wrong_in_their_own_codes() {
    let y = Tensor::from_codes(TensorType::new(E4M3FN, [4]), &[0x7e, 0x7f, 0x80, 0x38]).unwrap();
    let codes = |perturbation: Perturbation| {
        perturbation.of(&y, None, Some(3)).map(|wrong| wrong.codes().collect::<Vec<_>>())
    };
    assert_eq!(codes(Perturbation::Negated), Some(vec![0xfe, 0x7f, 0x00, 0xb8]));
    assert_eq!(codes(Perturbation::Scaled), Some(vec![0x7d, 0x7f, 0x80, 0x36]));
    assert_eq!(codes(Perturbation::Shifted), Some(vec![0x7f, 0x80, 0x38, 0x7e]));
    assert_eq!(codes(Perturbation::LowBit), Some(vec![0x7e, 0x7f, 0x80, 0x39]));
    assert_eq!(codes(Perturbation::NextSeed), None);
    // Bytes have neither signs nor NaN.
    let bytes = Tensor::from_codes(TensorType::new(DType::U8, [2]), &[1, 2]).unwrap();
    for perturbation in [Perturbation::Negated, Perturbation::Scaled, Perturbation::Nan] {
        assert!(perturbation.of(&bytes, None, None).is_none());
    }
}

#[test]
fn a_companion_counts_where_it_rejects_the_same_perturbation_of_the_same_output() {
    let answer = |output, perturbation, rejected| Answer { output, perturbation, rejected };
    let accepts = [answer(0, Perturbation::Zeros, false), answer(0, Perturbation::Nan, true)];
    let doubted = |companion: &[Answer]| doubt("y", 0, &accepts, companion);
    assert_eq!(doubted(&[]).as_deref(), Some("y is also accepted all zeros"));
    assert!(doubted(&[answer(0, Perturbation::Zeros, false)]).is_some());
    assert!(doubted(&[answer(0, Perturbation::Nan, true)]).is_some());
    assert!(doubted(&[answer(1, Perturbation::Zeros, true)]).is_some());
    assert_eq!(doubted(&[answer(0, Perturbation::Zeros, true)]), None);
    // Nothing could be tried.
    assert!(doubt("y", 0, &[], &[]).is_some_and(|why| why.contains("cannot be wrong")));
    assert_eq!(doubt("y", 0, &[], &[answer(0, Perturbation::Nan, true)]), None);
}
