//! Conformance as an assertion in an ordinary `#[test]`.

use crate::adapter::Closure;
use crate::case::{Class, Criterion, NanJudge};
use crate::generate::{Request, generate};
use crate::judge::{Context, OutputVerdict, judge};
use crate::report::{brief, failed_output};
use crate::source::{Expected, Values};
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, BackendError, DType, Path, Tensor, TensorType};

/// Asserts that a function computes an operation: on every edge of its formats, on
/// random bits, at awkward lengths, bit for bit (NaNs as a class). The inputs are the
/// same in every run.
///
/// The operation has one input; the function takes a slice of its elements and returns
/// the output's. Formats that Rust has no type for are given as their bits.
///
/// ```
/// use plumbline_conformance::assert_conforms;
/// use plumbline_reference::{format::{E4M3FN, F32}, ops::Cast};
///
/// fn to_e4m3(x: &[f32]) -> Vec<u8> {
///     x.iter().map(|&x| float8::F8E4M3::from_f32(x).to_bits()).collect()
/// }
/// assert_conforms!(Cast::new(F32, E4M3FN), to_e4m3);
/// ```
/// A function that is wrong panics with a report:
/// ```should_panic
/// # use plumbline_conformance::assert_conforms;
/// # use plumbline_reference::{format::{E4M3FN, F32}, ops::Cast};
/// assert_conforms!(Cast::new(F32, E4M3FN), |x: &[f32]| -> Vec<u8> { vec![0; x.len()] });
/// ```
#[macro_export]
macro_rules! assert_conforms {
    ($op:expr, $function:expr) => {
        if let Err(report) = $crate::assert::conforms($op, $function) {
            panic!("{report}");
        }
    };
}

/// An element of a slice that stands for a code.
pub trait Element: Copy + Send + Sync {
    /// Bytes of the code.
    const BYTES: usize;

    /// From the code.
    fn from_code(code: u64) -> Self;

    /// To the code.
    fn to_code(self) -> u64;
}

macro_rules! elements {
    ($($Type:ident: $from:expr, $to:expr;)*) => {
        $(impl Element for $Type {
            const BYTES: usize = size_of::<$Type>();

            fn from_code(code: u64) -> Self {
                ($from)(code)
            }

            fn to_code(self) -> u64 {
                ($to)(self)
            }
        })*
    };
}

elements! {
    u8: |code| code as u8, u64::from;
    u16: |code| code as u16, u64::from;
    u32: |code| code as u32, u64::from;
    u64: |code| code, |code| code;
    f32: |code| f32::from_bits(code as u32), |x: f32| x.to_bits().into();
    f64: f64::from_bits, f64::to_bits;
}

/// Lengths around the widths of vectors and blocks.
const LENGTHS: [usize; 14] = [0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 257, 65_537];

/// Whether `function` computes `op`, or a report of the first class of inputs on which
/// it does not. See [`assert_conforms!`](crate::assert_conforms).
pub fn conforms<I: Element, O: Element>(
    op: impl Into<Op>,
    function: impl Fn(&[I]) -> Vec<O> + Send + Sync,
) -> Result<(), String> {
    let op = op.into();
    let dtype = input_dtype(&op)?;
    check_bytes::<I>("takes", dtype)?;
    let output = op.signature(&[TensorType::new(dtype, [0])]).map_err(|error| error.to_string())?.remove(0);
    check_bytes::<O>("returns", output.dtype)?;
    let call = |op: &Op, inputs: &[Tensor]| {
        let x: Vec<I> = inputs[0].codes().map(I::from_code).collect();
        let y: Vec<u64> = function(&x).into_iter().map(O::to_code).collect();
        let ty = op.signature(&[inputs[0].ty().clone()])?.remove(0);
        Ok(vec![Tensor::from_codes(ty, &y)?])
    };
    let backend = Closure::new("function", op.clone(), |inputs: &[Tensor]| call(&op, inputs));

    let lanes = if output.dtype.bytes() == 1 { 64 } else { 1 };
    // Among random bits there is nearly always a NaN, which is all that a maximum shows.
    let class = if matches!(op, Op::Absmax(_)) { Class::RandomFinite } else { Class::RandomBits };
    let random = LENGTHS.map(|length| (class.clone(), Some(vec![length]), 1));
    for (class, shape, lanes) in [(Class::Edges, None, lanes)].into_iter().chain(random) {
        let request = Request {
            class: &class,
            dtype,
            shape: shape.as_deref(),
            blocks: None,
            lanes,
            seed: 0,
            op: &op,
            input: 0,
            others: &[None],
        };
        let x = generate(&request).map_err(|error| error.to_string())?;
        let length = x.len();
        let verdict = judge_one(&backend, &op, &[x]).map_err(|error| error.to_string())?;
        if !verdict.ok {
            let (op, report) = (brief(&op), failed_output(&verdict));
            return Err(format!(
                "does not conform to {op}\ninputs     {length} of class {class:?}\n{report}"
            ));
        }
    }
    Ok(())
}

fn judge_one(backend: &dyn Backend, op: &Op, inputs: &[Tensor]) -> Result<OutputVerdict, BackendError> {
    let right = op.evaluate(inputs, Path::Definition)?.remove(0);
    let expected = Expected {
        ty: right.ty().clone(),
        values: Values::Dense(right),
        criterion: Criterion::BitExact,
        nan: Some(NanJudge::Class),
        computed: true,
    };
    let variant = backend.variants(op).remove(0);
    let actual = backend.run(op, &variant, inputs)?.remove(0);
    Ok(judge(Context::new(op, inputs, NanJudge::Class), 0, &expected, &actual))
}

/// The element type of the only input.
fn input_dtype(op: &Op) -> Result<DType, String> {
    match op {
        Op::Cast(op) if op.rounding != plumbline_reference::format::Rounding::Stochastic => {
            Ok(op.from.into())
        }
        Op::Decode(op) => Ok(op.from.into()),
        Op::Classify(op) => Ok(op.format.into()),
        Op::Absmax(op) => Ok(op.from.into()),
        _ => Err(format!("{} has not one input; write a case file or implement Backend for it", op.name())),
    }
}

fn check_bytes<T: Element>(what: &str, dtype: DType) -> Result<(), String> {
    if T::BYTES == dtype.bytes() {
        return Ok(());
    }
    Err(format!("the function {what} elements of {} bytes, but {dtype} has {}", T::BYTES, dtype.bytes()))
}
