use super::super::generate;
use crate::case::Class;
use plumbline_reference::format::{
    ALL, BF16, E2M1, E4M3FN, E5M2, E8M0, F16, F32, Format, Policy, Rounding, TF32, UE4M3, Value,
};
use plumbline_reference::ops::{Op, gemm::Gemm};
use plumbline_reference::{Exact, Tensor};

const OPERANDS: [Format; 6] = [F32, TF32, F16, BF16, E4M3FN, E5M2];

/// A product with a stored as `[M, K]` and b as `[K, N]`.
fn gemm(format: Format, out: Format) -> Op {
    Gemm::new(format, format, out).into()
}

fn try_make(class: &Class, op: &Op, input: usize, format: Format, shape: &[usize]) -> Result<Tensor, String> {
    let request = super::Request {
        class,
        dtype: format.into(),
        shape: Some(shape),
        blocks: None,
        lanes: 1,
        seed: 1,
        op,
        input,
        others: &[],
    };
    generate(&request).map_err(|error| error.to_string())
}

fn make(class: &Class, op: &Op, input: usize, format: Format, shape: &[usize]) -> Vec<f64> {
    let tensor = try_make(class, op, input, format, shape).unwrap();
    tensor.codes().map(|code| format.to_f64(code)).collect()
}

/// An a of `[M, K]`, line by line.
fn rows(class: &Class, format: Format, m: usize, k: usize) -> Vec<Vec<f64>> {
    let values = make(class, &gemm(format, F32), 0, format, &[m, k]);
    values.chunks(k).map(<[f64]>::to_vec).collect()
}

/// The lines of a transposed operand, and of b, are its columns; a batch starts new ones.
#[test]
fn sums_run_along_k_of_every_operand() {
    let plain = Gemm::new(F32, F32, F32);
    let transposed = Gemm { transpose_a: true, transpose_b: true, ..plain.clone() };
    let (plain, transposed) = (Op::from(plain), Op::from(transposed));
    let class = Class::Pairs { negate: true };
    for (op, input, k_is_last) in
        [(&plain, 0, true), (&plain, 1, false), (&transposed, 0, false), (&transposed, 1, true)]
    {
        let values = make(&class, op, input, F32, &[2, 6, 8]);
        let at = |batch: usize, row: usize, column: usize| values[batch * 48 + row * 8 + column];
        let is_opposite = |first: f64, second: f64| (first / second + 1.0).abs() < 1e-6;
        for batch in 0..2 {
            for (row, column) in (0..6).flat_map(|row| (0..8).map(move |column| (row, column))) {
                if k_is_last && column % 2 == 0 {
                    assert!(is_opposite(at(batch, row, column), at(batch, row, column + 1)));
                }
                if !k_is_last && row % 2 == 0 {
                    assert!(is_opposite(at(batch, row, column), at(batch, row + 1, column)));
                }
            }
        }
        assert_ne!(values[..48], values[48..], "batches differ");
    }
}

#[test]
fn ones_are_one() {
    for format in OPERANDS {
        assert!(make(&Class::Ones, &gemm(format, F32), 0, format, &[3, 5]).iter().all(|&x| x == 1.0));
    }
}

#[test]
fn integers_fill_their_range_and_no_more() {
    for (format, max) in [(F32, 1 << 24), (BF16, 256), (F16, 2048), (E4M3FN, 16), (E5M2, 8), (E2M1, 4)] {
        let values = make(&Class::Integers { max }, &gemm(format, F32), 0, format, &[64, 65]);
        assert!(values.iter().all(|x| x.fract() == 0.0 && x.abs() <= max as f64), "{format}");
        for sign in [-1.0, 1.0] {
            let most = values.iter().map(|x| x * sign).fold(0.0, f64::max);
            assert!(most > 0.9 * max as f64, "{format}: {most}");
        }
        let why = try_make(&Class::Integers { max: max + 1 }, &gemm(format, F32), 0, format, &[2, 2]);
        assert!(why.unwrap_err().contains(&format!("has all integers up to {max}")), "{format}");
    }
    // The limit is exact: the next integer is not there.
    for format in ALL.into_iter().filter(|format| format.signed && format.fraction_bits < 11) {
        let exact = |x: u64| {
            let value = Value::Finite { negative: false, significand: x, exponent: 0 };
            format.to_f64(format.encode(value, &Policy::default(), 0)) == x as f64
        };
        let limit = (1..).find(|&x| !exact(x + 1)).unwrap();
        let integers = |max| try_make(&Class::Integers { max }, &gemm(F32, F32), 0, format, &[2, 2]);
        assert!(integers(limit).is_ok() && integers(limit + 1).is_err(), "{format} {limit}");
    }
    for format in [E8M0, UE4M3] {
        let why = try_make(&Class::Integers { max: 1 }, &gemm(F32, F32), 0, format, &[2, 2]).unwrap_err();
        assert!(why.contains("both signs"), "{why}");
    }
    assert!(try_make(&Class::Integers { max: 0 }, &gemm(F32, F32), 0, F32, &[2, 2]).is_err());
}

#[test]
fn sparse_rows_hold_few_integers_and_together_every_place() {
    for (m, k, per_row) in [(17, 136, 8), (5, 40, 8), (40, 127, 4), (3, 5, 9), (7, 1, 1)] {
        let rows = rows(&Class::SparseIntegers { max: 4, per_row }, E4M3FN, m, k);
        for row in &rows {
            let count = row.iter().filter(|&&x| x != 0.0).count();
            assert_eq!(count, k.min(per_row as usize));
            assert!(row.iter().all(|x| x.fract() == 0.0 && x.abs() <= 4.0));
        }
        if m * per_row as usize >= k {
            assert!((0..k).all(|place| rows.iter().any(|row| row[place] != 0.0)), "{m} {k} {per_row}");
        }
    }
    // Columns of b are sparse, whichever way it is stored.
    let class = Class::SparseIntegers { max: 2, per_row: 3 };
    let b = make(&class, &gemm(F16, F16), 1, F16, &[20, 7]);
    for column in 0..7 {
        assert_eq!((0..20).filter(|row| b[row * 7 + column] != 0.0).count(), 3);
    }
    let none = Class::SparseIntegers { max: 2, per_row: 0 };
    assert!(try_make(&none, &gemm(F16, F16), 0, F16, &[2, 2]).unwrap_err().contains("at least 1"));
}

#[test]
fn wide_exponents_reach_both_ends() {
    for format in OPERANDS {
        let values = make(&Class::WideExponents, &gemm(format, F32), 0, format, &[100, 100]);
        let min_normal = 2f64.powi(format.min_exponent());
        let (least, most) =
            values.iter().map(|x| x.abs()).fold((f64::MAX, 0.0), |(a, b), x| (x.min(a), x.max(b)));
        assert!(least > 0.0 && least < min_normal / 2.0, "{format}: subnormals");
        let end = if format.exponent_bits == 8 { 60 } else { format.max_exponent() + 1 };
        let end = 2f64.powi(end);
        assert!(most < end && most >= end / 8.0, "{format}: {most}");
        assert!(values.iter().any(|&x| x < 0.0) && values.iter().any(|&x| x > 0.0));
    }
}

#[test]
fn pairs_cancel_almost_wholly() {
    for format in OPERANDS {
        let a = rows(&Class::Pairs { negate: true }, format, 16, 33);
        let b = make(&Class::Pairs { negate: false }, &gemm(format, F32), 1, format, &[33, 16]);
        let (mut sum, mut magnitude, mut exact) = (0.0, 0.0, 0);
        for (column, row) in a.iter().enumerate() {
            assert_eq!(row[32], 0.0, "the odd one");
            for k in 0..33 {
                let product = row[k] * b[k * 16 + column];
                sum += product;
                magnitude += product.abs();
                exact += usize::from(k % 2 == 0 && k < 32 && row[k] == -row[k + 1]);
            }
        }
        assert!((sum / magnitude).abs() < 2f64.powi(-(format.fraction_bits as i32)), "{format}");
        assert!((16 * 16 / 2..16 * 16).contains(&exact), "{format}: {exact} of 256 pairs are opposite");
    }
    let class = Class::Pairs { negate: true };
    assert!(try_make(&class, &gemm(F32, F32), 0, UE4M3, &[2, 2]).unwrap_err().contains("needs a sign"));
}

#[test]
fn ramps_rise_or_fall_by_orders_of_magnitude() {
    for format in OPERANDS {
        for ascending in [false, true] {
            for row in rows(&Class::Ramp { ascending }, format, 5, 40) {
                let log2: Vec<_> = row.iter().map(|x| x.abs().log2().floor()).collect();
                let is_monotone =
                    log2.windows(2).all(|two| if ascending { two[0] <= two[1] } else { two[0] >= two[1] });
                assert!(is_monotone, "{format}: {log2:?}");
                let span = (log2[39] - log2[0]).abs();
                assert!(span >= f64::from(format.exponent_bits.min(6)) * 2.0, "{format}: {span}");
            }
        }
    }
}

#[test]
fn specials_are_all_there_and_leave_most_sums_finite() {
    for format in OPERANDS {
        let rows = rows(&Class::Specials, format, 256, 64);
        let has = |what: &dyn Fn(f64) -> bool| rows.iter().flatten().any(|&x| what(x));
        let max = format.to_f64(format.max_finite());
        assert!(has(&|x| x == max) && has(&|x| x == -max), "{format}: largest");
        assert!(has(&|x| x.to_bits() == 0) && has(&|x| x.to_bits() == 1 << 63), "{format}: zeros");
        let min_normal = 2f64.powi(format.min_exponent());
        assert!(has(&|x| x != 0.0 && x.abs() < min_normal), "{format}: subnormals");
        assert!(has(&f64::is_nan), "{format}: NaN");
        let infinities = has(&|x| x == f64::INFINITY) && has(&|x| x == f64::NEG_INFINITY);
        assert_eq!(infinities, format.has_infinity(), "{format}: infinities");
        let finite = rows.iter().filter(|row| row.iter().all(|x| x.is_finite())).count();
        assert!((150..256).contains(&finite), "{format}: {finite} of 256 rows are finite");
    }
}

/// How a sum lies between the two numbers of the output around it.
#[test]
fn sums_of_ties_are_midpoints_and_their_neighbours() {
    for (format, out) in [
        (F32, F16),
        (F32, BF16),
        (F32, F32),
        (F16, F16),
        (F16, F32),
        (BF16, BF16),
        (BF16, F32),
        (E4M3FN, BF16),
        (E4M3FN, F16),
        (E5M2, F16),
        (F16, E4M3FN),
        (E5M2, E5M2),
        (E4M3FN, E4M3FN),
    ] {
        let (k, n) = (40, 60);
        let op = gemm(format, out);
        let b = try_make(&Class::Ties, &op, 1, format, &[k, n]).unwrap();
        for column in 0..n {
            let mut sum = Exact::default();
            for row in 0..k {
                sum.add_sum(&Exact::from(format.decode(b.code(row * n + column))));
            }
            let round = |rounding| {
                let policy = Policy { rounding, ..Policy::default() };
                out.encode(sum.value(), &policy, 0) & !out.sign_bit()
            };
            let (even, away) = (round(Rounding::NearestEven), round(Rounding::NearestAway));
            let cut = round(Rounding::TowardZero);
            if cut == out.max_finite() {
                continue;
            }
            let next = cut + (1 << out.low_padding);
            let expected = match column % 3 {
                0 => [cut + (cut & 1), next],
                1 => [next, next],
                _ => [cut, cut],
            };
            assert_eq!([even, away], expected, "{format} to {out}, column {column}");
        }
    }
}

#[test]
fn ties_that_cannot_be_written_are_refused() {
    let refused = |op: &Op, input, format, k| try_make(&Class::Ties, op, input, format, &[k, 3]).unwrap_err();
    assert!(refused(&gemm(E4M3FN, F32), 1, E4M3FN, 40).contains("range is too small"));
    assert!(refused(&gemm(E5M2, F16), 1, E5M2, 4).contains("needs sums of 5 terms"));
    assert!(refused(&gemm(F32, F16), 2, F32, 40).contains("an operand of `gemm`"));
}
