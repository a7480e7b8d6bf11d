//! Freivalds' check of a product of integers: `y * x = a * (b * x)` for a random vector x.
//!
//! It reads every element and costs M*N + M*K + K*N multiplications in place of M*N*K.
//! Arithmetic is modulo the prime 2^61 - 1, and x is uniform, so a row with any wrong element
//! is accepted with probability 2^-61: wrong integers below 2^60 differ modulo the prime.
//!
//! It needs inputs that are integers and sums that stay exact, whatever the order: in the
//! accumulator (f32: 2^24, f16: 2^11, that of FP8 tensor cores: 2^13) and in the output.

use super::integers::{Integers, Matrix, NONE, integer};
use crate::seed::mix;
use plumbline_reference::Tensor;
use plumbline_reference::format::{F32, Format, Value};
use plumbline_reference::ops::gemm::{Compute, Gemm, GemmScale, Geometry};
use rayon::prelude::*;

/// 2^61 - 1.
const P: i64 = (1 << 61) - 1;

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

/// An input that holds integers alone.
struct Input<'a> {
    integers: Integers<'a>,
    /// The largest magnitude.
    largest: u32,
}

impl<'a> Input<'a> {
    fn of(name: &str, tensor: &'a Tensor, format: Format) -> Result<Self, String> {
        let integers = Integers::of(tensor, format);
        match integers.largest() {
            Some(largest) => Ok(Self { integers, largest }),
            None => Err(format!("{name} holds numbers that are no integers; use the class `integers`")),
        }
    }
}

/// Inputs of a product.
struct Inputs<'a> {
    a: Input<'a>,
    b: Input<'a>,
    c: Option<Input<'a>>,
    /// Empty where there is none.
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
    let inputs = Inputs::of(gemm, inputs, &geometry)?;
    inputs.check_range(gemm, &geometry)?;
    let got = Integers::of(got, gemm.out);
    let x: Vec<_> = (0..geometry.n as u64).map(|i| modular(mix(seed, i).into())).collect();
    let batches = 0..geometry.batch;
    let failing: Vec<_> = batches.flat_map(|batch| inputs.failing(&geometry, batch, &x, &got)).collect();
    let examined = failing.iter().take(EXAMINED).map(|&row| inputs.row(gemm, &geometry, row));
    Ok(Found { rows: failing.len(), examined: examined.collect() })
}

impl<'a> Inputs<'a> {
    fn of(gemm: &Gemm, inputs: &'a [Tensor], geometry: &Geometry) -> Result<Self, String> {
        let number = |what: &str, x: f32| {
            let number = integer(x.into()).map(i64::from);
            number.ok_or_else(|| format!("{what} is {x}, which is no integer"))
        };
        let given = |name: &str, format: Format| match gemm.input(inputs, name) {
            Some(tensor) => Input::of(name, tensor, format).map(Some),
            None => Ok(None),
        };
        let all = |name: &str, format: Format| {
            given(name, format).map(|input| input.map(|input| input.integers.all()))
        };
        let scales = |name: &str, scale: GemmScale, extent: usize| {
            let scales = all(name, F32)?;
            Ok::<_, String>(match (scale, scales) {
                (GemmScale::Row, Some(scales)) => scales,
                (GemmScale::Tensor, Some(scale)) => vec![scale[0]; extent],
                _ => vec![1; extent],
            })
        };
        let alpha = number("alpha", gemm.alpha.0)?;
        let rows = scales("scale_a", gemm.scale_a, geometry.m)?;
        Ok(Self {
            a: Input::of("a", &inputs[0], gemm.a)?,
            b: Input::of("b", &inputs[1], gemm.b)?,
            c: match gemm.c {
                Some(format) if gemm.reads_c() => given("c", format)?,
                _ => None,
            },
            bias: gemm.bias.map_or(Ok(None), |format| all("bias", format))?.unwrap_or_default(),
            rows: rows.into_iter().map(|scale| scale * alpha).collect(),
            columns: scales("scale_b", gemm.scale_b, geometry.n)?,
            beta: number("beta", gemm.beta.0)?,
            scale_out: all("scale_out", F32)?.map_or(1, |scale| scale[0]),
        })
    }

    /// Rows of `op(a)`.
    fn a(&self, geometry: &Geometry, batch: usize) -> Matrix<'_> {
        self.a.integers.matrix(geometry.rows_of_a(batch), geometry.m, geometry.k)
    }

    /// Columns of `op(b)`, each a row.
    fn b(&self, geometry: &Geometry, batch: usize) -> Matrix<'_> {
        self.b.integers.matrix(geometry.columns_of_b(batch), geometry.n, geometry.k)
    }

    /// Requires sums that no order of accumulation rounds.
    fn check_range(&self, gemm: &Gemm, geometry: &Geometry) -> Result<(), String> {
        let largest = |all: &[i64]| all.iter().map(|x| i128::from(x.unsigned_abs())).max().unwrap_or(0);
        // The largest b of each k, over its columns, is not worth a table.
        let ones = vec![1; geometry.k];
        let row = (0..geometry.batch).flat_map(|batch| self.a(geometry, batch).times(&ones, i32::abs)).max();
        let sum = row.unwrap_or(0) * i128::from(self.b.largest);
        let accumulator = match (gemm.compute, gemm.a.storage_bits, gemm.b.storage_bits) {
            (Compute::F16, ..) => 1 << 11,
            (_, 8, 8) => 1 << 13,
            _ => 1 << 24,
        };
        let operand = i128::from(self.a.largest.max(self.b.largest));
        if gemm.compute == Compute::Tf32 && operand > 1 << 11 {
            return Err(format!(
                "operands reach {operand}, and TF32 holds integers up to 2048; use smaller ones"
            ));
        }
        let output = 1 << (gemm.out.fraction_bits + 1).min(24);
        // Saturating: scales have up to 60 bits.
        let scaled = sum.saturating_mul(largest(&self.rows)).saturating_mul(largest(&self.columns));
        let c = i128::from(self.beta.abs()) * i128::from(self.c.as_ref().map_or(0, |c| c.largest));
        let total =
            scaled.saturating_add(c + largest(&self.bias)).saturating_mul(self.scale_out.abs().into());
        if sum > accumulator || total > output {
            return Err(format!(
                "sums may reach {sum} and outputs {total}, which need not be exact: at most {accumulator} and \
                 {output} are; use smaller or fewer integers"
            ));
        }
        Ok(())
    }

    /// Rows of one product of the batch, counted over the batch, that fail.
    fn failing(&self, geometry: &Geometry, batch: usize, x: &[i64], got: &Integers<'_>) -> Vec<usize> {
        let Geometry { m, n, .. } = *geometry;
        let first = batch * m * n;
        // b * (columns . x)
        let scaled: Vec<_> = x.iter().zip(&self.columns).map(|(&x, &scale)| times(scale, x)).collect();
        let bx = self.b(geometry, batch).transposed().times(&scaled, |b| b);
        let bx: Vec<_> = bx.into_iter().map(modular).collect();
        let abx = self.a(geometry, batch).times(&bx, |a| a);
        let cx = self.c.as_ref().map(|c| c.integers.matrix((first, n, 1), m, n).times(x, |c| c));
        let bias: i128 = self.bias.iter().zip(x).map(|(&bias, &x)| i128::from(bias) * i128::from(x)).sum();
        let fails = |&row: &usize| {
            let cx = cx.as_ref().map_or(0, |cx| modular(cx[row]));
            let product = times(self.rows[row], modular(abx[row]));
            let sum = i128::from(product) + i128::from(times(self.beta, cx)) + i128::from(modular(bias));
            let right = times(self.scale_out, modular(sum));
            let y = got.line(first + row * n, n);
            let yx: i128 = y.iter().zip(x).map(|(&y, &x)| i128::from(y) * i128::from(x)).sum();
            y.contains(&NONE) || modular(yx) != right
        };
        (0..m).into_par_iter().filter(fails).map(|row| batch * m + row).collect()
    }

    /// The right codes of a row.
    fn row(&self, gemm: &Gemm, geometry: &Geometry, row: usize) -> Row {
        let (first, batch, m) = (row * geometry.n, row / geometry.m, row % geometry.m);
        let sums = self.b(geometry, batch).times(&self.a(geometry, batch).row(m), |b| b);
        let c = self.c.as_ref().map(|c| c.integers.line(first, geometry.n));
        let code = |(n, sum): (usize, i128)| {
            let c = c.as_ref().map_or(0, |c| i128::from(c[n]) * i128::from(self.beta));
            let bias = i128::from(self.bias.get(n).copied().unwrap_or(0));
            let scale = i128::from(self.rows[m]) * i128::from(self.columns[n]);
            // Fits, as the range is checked.
            let value = (i128::from(self.scale_out) * (scale * sum + c + bias)) as i64;
            let value = Value::Finite { negative: value < 0, significand: value.unsigned_abs(), exponent: 0 };
            gemm.out.encode(value, &gemm.policy(), 0)
        };
        Row { first, right: sums.into_iter().enumerate().map(code).collect() }
    }
}

fn modular(x: i128) -> i64 {
    x.rem_euclid(P.into()) as i64
}

/// Modulo the prime.
fn times(a: i64, b: i64) -> i64 {
    modular(i128::from(a) * i128::from(b))
}
