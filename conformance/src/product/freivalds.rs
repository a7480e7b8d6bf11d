//! Freivalds' check of a product of integers: `y * x = a * (b * x)` for a random vector x.
//!
//! It reads every element and costs M*N + M*K + K*N multiplications in place of M*N*K.
//! Arithmetic is modulo the prime 2^61 - 1, and x is uniform, so a row with any wrong element
//! is accepted with probability 2^-61: wrong integers below 2^60 differ modulo the prime.
//!
//! It needs inputs that are integers and sums that stay exact, whatever the order: in the
//! accumulator (f32: 2^24, f16: 2^11, that of FP8 tensor cores: 2^13) and in the output.

use crate::seed::mix;
use plumbline_reference::Tensor;
use plumbline_reference::format::{Format, Value};
use plumbline_reference::ops::gemm::{Compute, Gemm, GemmScale, Geometry};
use rayon::prelude::*;

/// 2^61 - 1.
const P: u64 = (1 << 61) - 1;

/// A row that fails, and the right codes of its elements.
pub(super) struct Row {
    /// Position of its first element.
    pub(super) first: usize,
    pub(super) right: Vec<u64>,
}

/// What the check found.
pub(super) struct Found {
    /// Rows that fail.
    pub(super) rows: usize,
    /// The first of them, in full.
    pub(super) examined: Vec<Row>,
}

/// Rows that are computed in full where they fail.
const EXAMINED: usize = 8;

/// Integers of a product.
struct Integers {
    a: Vec<i64>,
    b: Vec<i64>,
    c: Vec<i64>,
    bias: Vec<i64>,
    /// alpha * scale_a, per row.
    rows: Vec<i64>,
    /// scale_b, per column.
    columns: Vec<i64>,
    beta: i64,
    scale_out: i64,
}

/// Checks an output. The error says what makes the check impossible for these inputs.
pub(super) fn check(gemm: &Gemm, inputs: &[Tensor], got: &Tensor, seed: u64) -> Result<Found, String> {
    let geometry = Geometry::of(gemm, inputs);
    if got.is_empty() {
        return Ok(Found { rows: 0, examined: Vec::new() });
    }
    let integers = Integers::of(gemm, inputs, &geometry)?;
    integers.check_range(gemm, &geometry)?;
    let x: Vec<u64> = (0..geometry.n as u64).map(|i| mix(seed, i) % P).collect();
    let mut failing = Vec::new();
    for batch in 0..geometry.batch {
        failing.extend(integers.failing(gemm, &geometry, batch, &x, got));
    }
    let examined = failing.iter().take(EXAMINED).map(|&row| integers.row(gemm, &geometry, row));
    Ok(Found { rows: failing.len(), examined: examined.collect() })
}

fn integer(value: Value) -> Option<i64> {
    match value {
        Value::Finite { significand: 0, .. } => Some(0),
        Value::Finite { negative, significand, exponent } => {
            let magnitude = if exponent >= 0 {
                (exponent < 40 && significand < 1 << 20).then(|| (significand as i64) << exponent)
            } else {
                let shift = exponent.unsigned_abs();
                (shift < 64 && significand.trailing_zeros() >= shift).then(|| (significand >> shift) as i64)
            };
            magnitude.map(|magnitude| if negative { -magnitude } else { magnitude })
        }
        Value::Nan { .. } | Value::Infinite { .. } => None,
    }
}

fn tensor(what: &str, format: Format, tensor: &Tensor) -> Result<Vec<i64>, String> {
    let element = |i| integer(format.decode(tensor.code(i)));
    let all: Option<Vec<_>> = (0..tensor.len()).into_par_iter().map(element).collect();
    all.ok_or_else(|| format!("{what} holds numbers that are no integers; use the class `integers`"))
}

impl Integers {
    fn of(gemm: &Gemm, inputs: &[Tensor], geometry: &Geometry) -> Result<Self, String> {
        let number = |what: &str, x: f32| {
            integer(Value::from(x)).ok_or_else(|| format!("{what} is {x}, which is no integer"))
        };
        let f32s = plumbline_reference::format::F32;
        let given = |name: &str, format: Format| match gemm.input(inputs, name) {
            Some(given) => tensor(name, format, given),
            None => Ok(Vec::new()),
        };
        let scales = |name: &str, scale: GemmScale, extent: usize| -> Result<Vec<i64>, String> {
            let scales = given(name, f32s)?;
            Ok(match (scale, scales.first()) {
                (GemmScale::Row, _) => scales,
                (GemmScale::Tensor, Some(&scale)) => vec![scale; extent],
                _ => vec![1; extent],
            })
        };
        let alpha = number("alpha", gemm.alpha.0)?;
        let rows = scales("scale_a", gemm.scale_a, geometry.m)?;
        Ok(Self {
            a: tensor("a", gemm.a, &inputs[0])?,
            b: tensor("b", gemm.b, &inputs[1])?,
            c: match gemm.c {
                Some(format) if gemm.reads_c() => given("c", format)?,
                _ => Vec::new(),
            },
            bias: gemm.bias.map_or(Ok(Vec::new()), |format| given("bias", format))?,
            rows: rows.into_iter().map(|scale| scale * alpha).collect(),
            columns: scales("scale_b", gemm.scale_b, geometry.n)?,
            beta: number("beta", gemm.beta.0)?,
            scale_out: given("scale_out", f32s)?.first().copied().unwrap_or(1),
        })
    }

    /// Requires sums that no order of accumulation rounds.
    fn check_range(&self, gemm: &Gemm, geometry: &Geometry) -> Result<(), String> {
        let Geometry { batch, m, n, k, .. } = *geometry;
        let largest = |all: &[i64]| all.iter().map(|x| x.unsigned_abs()).max().unwrap_or(0);
        let sums = (0..batch * m).into_par_iter().map(|row| {
            let first = row * n;
            let products = (0..k).map(|k| {
                // The largest b of that k, over its columns, is not worth a table here.
                self.a[geometry.a(first, k)].unsigned_abs()
            });
            products.sum::<u64>()
        });
        let sum = sums.max().unwrap_or(0) * largest(&self.b);
        let accumulator = match (gemm.compute, gemm.a.storage_bits, gemm.b.storage_bits) {
            (Compute::F16, ..) => 1 << 11,
            (_, 8, 8) => 1 << 13,
            _ => 1 << 24,
        };
        let scaled = sum * largest(&self.rows) * largest(&self.columns);
        let total = (scaled + self.beta.unsigned_abs() * largest(&self.c) + largest(&self.bias))
            * self.scale_out.unsigned_abs();
        let output = 1u64 << (gemm.out.fraction_bits + 1);
        if sum > accumulator || total > output.min(1 << 24) {
            return Err(format!(
                "sums may reach {sum} and outputs {total}, which need not be exact: at most {accumulator} and {} are; \
                 use smaller or fewer integers",
                output.min(1 << 24)
            ));
        }
        Ok(())
    }

    /// Rows of one product of the batch, counted over the batch, that fail.
    fn failing(&self, gemm: &Gemm, geometry: &Geometry, batch: usize, x: &[u64], got: &Tensor) -> Vec<usize> {
        let Geometry { m, n, k, .. } = *geometry;
        let first = batch * m * n;
        // b * (columns . x)
        let scaled: Vec<_> =
            x.iter().zip(&self.columns).map(|(&x, &scale)| times(modular(scale), x)).collect();
        let bx: Vec<_> = (0..k)
            .into_par_iter()
            .map(|k| dot((0..n).map(|column| self.b[geometry.b(first + column, k)]), &scaled))
            .collect();
        let bias = dot(self.bias.iter().copied(), x);
        let fails = |&row: &usize| {
            let position = first + row * n;
            let product = dot((0..k).map(|k| self.a[geometry.a(position, k)]), &bx);
            let c = if self.c.is_empty() { 0 } else { dot(self.c[position..][..n].iter().copied(), x) };
            let right =
                plus(times(modular(self.rows[row]), product), plus(times(modular(self.beta), c), bias));
            let right = times(modular(self.scale_out), right);
            let mut sum = 0;
            for (i, &x) in x.iter().enumerate() {
                let Some(y) = integer(gemm.out.decode(got.code(position + i))) else { return true };
                sum = plus(sum, times(modular(y), x));
            }
            sum != right
        };
        (0..m).into_par_iter().filter(fails).map(|row| batch * m + row).collect()
    }

    /// The right codes of a row.
    fn row(&self, gemm: &Gemm, geometry: &Geometry, row: usize) -> Row {
        let Geometry { m, n, k, .. } = *geometry;
        let first = row * n;
        let code = |i: usize| {
            let position = first + i;
            let sum: i64 =
                (0..k).map(|k| self.a[geometry.a(position, k)] * self.b[geometry.b(position, k)]).sum();
            let c = self.c.get(position).map_or(0, |c| c * self.beta);
            let bias = self.bias.get(i).copied().unwrap_or(0);
            let value = self.scale_out * (self.rows[row % m] * self.columns[i] * sum + c + bias);
            let value = Value::Finite { negative: value < 0, significand: value.unsigned_abs(), exponent: 0 };
            gemm.out.encode(value, &gemm.policy(), 0)
        };
        Row { first, right: (0..n).into_par_iter().map(code).collect() }
    }
}

fn modular(x: i64) -> u64 {
    x.rem_euclid(P as i64) as u64
}

fn plus(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= P { sum - P } else { sum }
}

fn times(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    plus((product as u64) & P, (product >> 61) as u64)
}

fn dot(integers: impl Iterator<Item = i64>, x: &[u64]) -> u64 {
    integers.zip(x).fold(0, |sum, (a, &x)| plus(sum, times(modular(a), x)))
}

#[cfg(test)]
mod tests {
    use super::{P, integer, plus, times};
    use plumbline_reference::format::Value;

    #[test]
    fn arithmetic_is_modulo_a_prime() {
        for (a, b) in [(P - 1, P - 1), (1 << 60, 3), (0, P - 1), (123_456_789, 987_654_321 << 29)] {
            let right = (u128::from(a) * u128::from(b) % u128::from(P)) as u64;
            assert_eq!(times(a, b), right);
            assert_eq!(plus(a, b % P), ((u128::from(a) + u128::from(b % P)) % u128::from(P)) as u64);
        }
    }

    #[test]
    fn only_integers_are_integers() {
        for (x, right) in
            [(0.0, Some(0)), (-3.0, Some(-3)), (0.5, None), (1048576.0, Some(1 << 20)), (f32::NAN, None)]
        {
            assert_eq!(integer(Value::from(x)), right, "{x}");
        }
    }
}
