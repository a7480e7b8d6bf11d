//! A case that has been checked, and what it is built into: inputs and the right
//! outputs.

mod blocks;
mod call;
mod check;

use crate::adapter::Playback;
use crate::case::{Against, CaseSpec, Class, Criterion, ExpectSpec, NanJudge, TensorSpec};
use crate::coverage::{self, Exercised};
use crate::generate::{Request, generate};
use crate::load::LoadError;
use crate::locate::Step;
use crate::recording::Recordings;
use crate::seed;
use crate::strides;
use crate::weights::Rows;
use blocks::{check_blocks, resolve_rows};
use check::{check_output_strides, check_refused, check_refused_values, check_span};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::Op;
use plumbline_reference::{Backend, DType, Path as Evaluation, Tensor, TensorError, TensorType};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

pub(crate) use blocks::shape_in_elements;
pub(crate) use check::{MAX_CASE_BYTES, check_criterion, check_product, check_size};

/// Where in which file something stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: Arc<Path>,
    pub(crate) text: Arc<str>,
    pub(crate) path: Vec<Step>,
}

impl Place {
    /// No place.
    fn none() -> Self {
        Self { file: Path::new("a call").into(), text: "".into(), path: Vec::new() }
    }
}

/// One case: named, checked, cheap until it is built.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name with the file's: `cast/edges/f32/e4m3fn`.
    pub name: String,
    /// What the file says, matrix values filled in.
    pub spec: CaseSpec,
    pub(crate) place: Place,
    line: usize,
    inputs: Vec<Input>,
    expected: Option<Vec<Right>>,
    /// The last build and its seed, as long as some trial holds it: the trials of a case
    /// follow one another.
    built: Arc<Mutex<(u64, Weak<Built>)>>,
}

#[derive(Clone, Debug)]
enum Input {
    Given(Tensor),
    Rows(Rows),
    Generated {
        ty: TensorType,
        has_shape: bool,
        blocks: Option<BlockFormat>,
        class: Class,
        lanes: usize,
        seed: Option<u64>,
        strides: Option<Vec<usize>>,
    },
}

/// A right output.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The values, all of them or those at some positions.
    pub values: Values,
    /// Element type and shape of the whole output.
    pub ty: TensorType,
    /// When the output is right.
    pub criterion: Criterion,
    /// How NaNs compare, where the case says.
    pub nan: Option<NanJudge>,
    /// The reference's definition computed the values, so that what it rounded is known;
    /// otherwise the values themselves are all there is.
    pub computed: bool,
}

/// The values of a right output.
#[derive(Clone, Debug)]
pub enum Values {
    /// Every element.
    Dense(Tensor),
    /// Elements at row-major linear positions.
    Sparse {
        /// The positions.
        at: Vec<usize>,
        /// The values there.
        values: Tensor,
    },
    /// None: the criterion itself says what is right.
    Derived,
}

/// A right output as a case gives it.
#[derive(Clone, Debug)]
struct Right {
    values: Given,
    ty: TensorType,
    criterion: Criterion,
    nan: Option<NanJudge>,
}

#[derive(Clone, Debug)]
enum Given {
    Values(Values),
    /// This code, everywhere. It becomes a tensor when the case is built.
    All(u64),
}

impl Right {
    fn build(&self) -> Result<Expected, TensorError> {
        let Self { values, ty, criterion, nan } = self.clone();
        let values = match values {
            Given::Values(values) => values,
            Given::All(code) => Values::Dense(Tensor::from_fn(ty.clone(), Evaluation::fastest(), |_| code)?),
        };
        Ok(Expected { values, ty, criterion, nan, computed: false })
    }
}

/// A case made concrete.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The right outputs.
    pub expected: Vec<Expected>,
    /// Strides of the outputs; none, or `None`, for outputs without gaps.
    pub output_strides: Vec<Option<Vec<usize>>>,
    pub(crate) exercised: OnceLock<Exercised>,
}

impl Built {
    /// What a call of the operation exercises.
    pub fn exercised(&self, op: &Op) -> &Exercised {
        self.exercised.get_or_init(|| Exercised::of(op, &self.inputs, &self.expected, &self.output_strides))
    }
}

impl Case {
    pub(crate) fn new(
        name: String,
        spec: CaseSpec,
        place: Place,
        line: usize,
        recordings: &mut Recordings,
    ) -> Result<Self, LoadError> {
        check_criterion(spec.judge)
            .and_then(|()| check_product(&spec.op, spec.judge))
            .map_err(|why| place.error(Some(&spec.name), &[Step::Key("judge".into())], &why))?;
        let field = |name: &str, i| [Step::Key(name.into()), Step::Index(i)];
        let mut inputs: Vec<Input> = Vec::with_capacity(spec.inputs.len());
        for (i, input) in spec.inputs.iter().enumerate() {
            let resolved = resolve_input(input, inputs.first(), &place.file, recordings)
                .and_then(|resolved| check_blocks(&spec.op, i, input, resolved));
            inputs.push(resolved.map_err(|why| place.error(Some(&spec.name), &field("inputs", i), &why))?);
        }
        let types: Vec<_> = inputs.iter().map(Input::ty).collect();
        if spec.refused.is_some() {
            check_refused(&spec, &types, inputs.iter().all(Input::has_shape))
                .map_err(|why| place.error(Some(&spec.name), &[Step::Key("refused".into())], &why))?;
            return Ok(Self { name, spec, place, line, inputs, expected: None, built: Arc::default() });
        }
        let outputs = (spec.op.signature(&types))
            .map_err(|error| place.error(Some(&spec.name), &[Step::Key("op".into())], &error.to_string()))?;
        // Inputs whose class sets its own length have no shape to compare with.
        let shaped = inputs.iter().all(Input::has_shape);
        check_output_strides(&spec, shaped.then_some(&outputs))
            .map_err(|(steps, why)| place.error(Some(&spec.name), &steps, &why))?;
        let against = |why: &str| place.error(Some(&spec.name), &[Step::Key("against".into())], why);
        if spec.against == Against::H200 {
            Playback::h200()
                .supports(&spec.op)
                .map_err(|why| against(&format!("the recorded H200 {why}")))?;
        }
        let expected = match &spec.expect {
            None => None,
            Some(_) if spec.against != Against::Definition => {
                return Err(against("`expect` already says what is right; leave one of them out"));
            }
            Some(specs) if specs.len() != outputs.len() => {
                let why =
                    format!("{} outputs given, {} gives {}", specs.len(), spec.op.name(), outputs.len());
                return Err(place.error(Some(&spec.name), &[Step::Key("expect".into())], &why));
            }
            Some(specs) => {
                let mut expected = Vec::with_capacity(specs.len());
                for (i, (output, ty)) in specs.iter().zip(&outputs).enumerate() {
                    let resolved = resolve_expected(
                        output,
                        shaped.then_some(ty),
                        ty.dtype,
                        spec.judge,
                        &place.file,
                        recordings,
                    );
                    expected.push(
                        resolved.map_err(|why| place.error(Some(&spec.name), &field("expect", i), &why))?,
                    );
                }
                Some(expected)
            }
        };
        Ok(Self { name, spec, place, line, inputs, expected, built: Arc::default() })
    }

    /// File and line of the case.
    #[must_use]
    pub fn origin(&self) -> String {
        let file = self.place.file.display();
        // A model has no lines.
        if self.line == 0 { file.to_string() } else { format!("{file}:{}", self.line) }
    }

    /// Names of the companions, with the file's.
    pub(crate) fn companions(&self) -> impl Iterator<Item = String> {
        let file = self.name.strip_suffix(&self.spec.name).unwrap_or_default();
        self.spec.companions.iter().map(move |name| format!("{file}{name}"))
    }

    /// Who computes the right outputs; `None` where the case itself holds them, or there are none.
    #[must_use]
    pub fn oracle(&self) -> Option<Against> {
        (self.expected.is_none() && self.spec.refused.is_none()).then_some(self.spec.against)
    }

    /// Element types of its tensors by name, or the formats of their blocks.
    pub(crate) fn dtypes(&self) -> BTreeMap<String, String> {
        let types: Vec<_> = self.inputs.iter().map(Input::ty).collect();
        let outputs = self.spec.op.signature(&types).unwrap_or_default();
        coverage::dtypes(&self.spec.op, &types, &outputs)
    }

    /// About what the case costs to compute: elements, and the multiply-adds of a product.
    pub(crate) fn cost(&self) -> u64 {
        // More than any class makes that sets its own length.
        const OWN_LENGTH: f64 = (1u64 << 18) as f64;
        let types: Vec<_> = self.inputs.iter().map(Input::ty).collect();
        let elements = |ty: &TensorType| ty.shape.iter().map(|&extent| extent as f64).product::<f64>();
        let of_input = |input: &Input| if input.has_shape() { elements(&input.ty()) } else { OWN_LENGTH };
        let outputs = self.spec.op.signature(&types).unwrap_or_default();
        let output: f64 = outputs.iter().map(elements).sum();
        let all = self.inputs.iter().map(of_input).sum::<f64>() + output;
        // Of matrices m x k, k x n and m x n.
        let multiply_adds = match (&*types, is_product(&self.spec.op)) {
            ([a, b, ..], true) => (elements(a) * elements(b) * output).sqrt(),
            _ => 0.0,
        };
        (all + multiply_adds) as u64
    }

    /// Makes the inputs and the right outputs, or hands out those that another trial of
    /// the same case holds.
    pub fn build(&self, run_seed: u64) -> Result<Arc<Built>, LoadError> {
        let mut last = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(built)) = (last.0 == run_seed, last.1.upgrade()) {
            return Ok(built);
        }
        let built = Arc::new(self.build_anew(run_seed)?);
        *last = (run_seed, Arc::downgrade(&built));
        Ok(built)
    }

    /// Makes the inputs alone.
    pub(crate) fn inputs(&self, run_seed: u64) -> Result<Vec<Tensor>, LoadError> {
        let failed = |field: &[Step], why: String| self.place.error(Some(&self.spec.name), field, &why);
        let case_seed = seed::of_case(&self.name, run_seed);

        // Classes may look at given inputs (scales) and at the first input's shape, so
        // the given ones come first, then the others in order.
        let mut inputs: Vec<Option<Tensor>> = self
            .inputs
            .iter()
            .map(|input| match input {
                Input::Given(tensor) => Ok(Some(tensor.clone())),
                Input::Rows(rows) => rows.read().map(Some),
                Input::Generated { .. } => Ok(None),
            })
            .collect::<Result<_, _>>()
            .map_err(|why| failed(&[Step::Key("inputs".into())], why))?;
        for (i, input) in self.inputs.iter().enumerate() {
            let Input::Generated { ty, has_shape, blocks, class, lanes, seed: own_seed, strides } = input
            else {
                continue;
            };
            let request = Request {
                class,
                dtype: ty.dtype,
                shape: has_shape.then_some(&ty.shape),
                blocks: *blocks,
                lanes: *lanes,
                seed: own_seed.unwrap_or_else(|| seed::mix(case_seed, i as u64)),
                op: &self.spec.op,
                input: i,
                others: &inputs,
            };
            let field = |name: &str| [Step::Key("inputs".into()), Step::Index(i), Step::Key(name.into())];
            let tensor = generate(&request).map_err(|error| failed(&field("generate"), error.to_string()))?;
            let tensor = strides::lay_out(tensor, strides.as_deref());
            inputs[i] = Some(tensor.map_err(|why| failed(&field("strides"), why))?);
        }
        Ok(inputs.into_iter().flatten().collect())
    }

    fn build_anew(&self, run_seed: u64) -> Result<Built, LoadError> {
        let failed = |field: &[Step], why: String| self.place.error(Some(&self.spec.name), field, &why);
        let inputs = self.inputs(run_seed)?;
        let types: Vec<_> = inputs.iter().map(|input| input.ty().clone()).collect();
        if self.spec.refused.is_some() {
            check_refused_values(&self.spec, &inputs)
                .map_err(|why| failed(&[Step::Key("refused".into())], why))?;
            return Ok(Built { inputs, ..Built::default() });
        }
        let outputs = self.spec.op.signature(&types);
        let outputs = outputs.and_then(|outputs| self.spec.op.check(&inputs).map(|()| outputs));
        let outputs = outputs.map_err(|error| failed(&[Step::Key("op".into())], error.to_string()))?;
        for ty in types.iter().chain(&outputs) {
            check_size(ty).map_err(|why| failed(&[], why))?;
        }
        check_output_strides(&self.spec, Some(&outputs)).map_err(|(steps, why)| failed(&steps, why))?;
        for (i, (expected, ty)) in self.expected.iter().flatten().zip(&outputs).enumerate() {
            if expected.ty != *ty {
                let why = format!("has shape {:?}, the operation gives {:?}", expected.ty.shape, ty.shape);
                return Err(failed(&[Step::Key("expect".into()), Step::Index(i)], why));
            }
        }

        let expected: Vec<_> = match &self.expected {
            Some(expected) => (expected.iter().map(Right::build).collect::<Result<_, _>>())
                .map_err(|error| failed(&[Step::Key("expect".into())], error.to_string()))?,
            None if self.spec.judge.is_of_products() => {
                let derived = |ty: TensorType| Expected {
                    values: Values::Derived,
                    ty,
                    criterion: self.spec.judge,
                    nan: None,
                    computed: true,
                };
                outputs.into_iter().map(derived).collect()
            }
            None => {
                let op = &self.spec.op;
                let outputs = match self.spec.against {
                    Against::Definition => {
                        op.evaluate(&inputs, Evaluation::Definition).map_err(|error| error.to_string())
                    }
                    Against::H200 => Playback::h200()
                        .run(op, Playback::VARIANT, &inputs)
                        .map_err(|error| error.to_string()),
                };
                let outputs = outputs.map_err(|why| failed(&[Step::Key("op".into())], why))?;
                let expected = |tensor: Tensor| Expected {
                    ty: tensor.ty().clone(),
                    values: Values::Dense(tensor),
                    criterion: self.spec.judge,
                    nan: None,
                    computed: self.spec.against == Against::Definition,
                };
                outputs.into_iter().map(expected).collect()
            }
        };
        let output_strides = self.spec.output_strides.clone().unwrap_or_default();
        Ok(Built { inputs, expected, output_strides, ..Built::default() })
    }
}

impl Input {
    /// The type, with a stand-in shape where the class sets its own length.
    fn ty(&self) -> TensorType {
        match self {
            Self::Given(tensor) => tensor.ty().clone(),
            Self::Rows(rows) => rows.ty(),
            Self::Generated { ty, .. } => ty.clone(),
        }
    }

    fn has_shape(&self) -> bool {
        match self {
            Self::Given(_) | Self::Rows(_) => true,
            Self::Generated { has_shape, .. } => *has_shape,
        }
    }
}

/// The input that a case describes; `first` is its first input, if that is another.
fn resolve_input(
    spec: &TensorSpec,
    first: Option<&Input>,
    file: &Path,
    recordings: &mut Recordings,
) -> Result<Input, String> {
    let TensorSpec { dtype, bits, file: recorded, tensor, generate, seed, lanes, strides, .. } = spec;
    if let Some(rows) = resolve_rows(spec, file, recordings)? {
        return Ok(Input::Rows(rows));
    }
    let (dtype, shape) = (*dtype, shape_in_elements(spec)?);
    let given = match (bits, recorded, generate) {
        (Some(bits), None, None) => literal(dtype, shape.as_deref(), bits)?,
        (None, Some(recorded), None) => {
            let tensor = tensor.as_deref().ok_or("`file` needs `tensor`, the name of a tensor in it")?;
            let path = beside(file, recorded);
            match (spec.blocks, shape.as_deref()) {
                (Some(_), Some(shape)) => recordings.flat(&path, tensor, &TensorType::new(dtype, shape))?,
                (_, shape) => recordings.tensor(&path, tensor, dtype, shape)?,
            }
        }
        (None, None, Some(class)) => {
            // A stand-in for what the class will give: the first input's shape, or some list.
            let stand_in = first.map_or_else(|| vec![1], |first| first.ty().shape);
            let ty = TensorType::new(dtype, shape.clone().unwrap_or(stand_in));
            check_size(&ty)?;
            let lanes = lanes.unwrap_or(1);
            if !lanes.is_power_of_two() || lanes > MAX_LANES {
                return Err(format!("lanes: {lanes} is not a power of two of at most {MAX_LANES}"));
            }
            if let Some(own) = strides {
                if shape.is_none() {
                    return Err("`strides` needs `shape`".to_owned());
                }
                check_span(&ty, own)?;
            }
            return Ok(Input::Generated {
                ty,
                has_shape: shape.is_some(),
                blocks: spec.blocks,
                strides: strides.clone(),
                class: class.clone(),
                lanes,
                seed: *seed,
            });
        }
        _ => return Err("needs exactly one of `bits`, `file` and `generate`".to_owned()),
    };
    if tensor.is_some() && recorded.is_none() {
        return Err("`tensor` goes with `file`".to_owned());
    }
    if seed.is_some() || lanes.is_some() {
        return Err("`seed` and `lanes` go with `generate`".to_owned());
    }
    if let Some(strides) = strides {
        check_span(given.ty(), strides)?;
    }
    Ok(Input::Given(strides::lay_out(given, strides.as_deref())?))
}

fn resolve_expected(
    spec: &ExpectSpec,
    ty: Option<&TensorType>,
    dtype: DType,
    default: Criterion,
    file: &Path,
    recordings: &mut Recordings,
) -> Result<Right, String> {
    let ExpectSpec { shape, bits, all, file: recorded, tensor, values, at, judge, nan, .. } = spec;
    if spec.dtype != dtype {
        return Err(format!("dtype is {}, the operation gives {dtype}", spec.dtype));
    }
    let path = recorded.as_deref().map(|recorded| beside(file, recorded));
    if bits.is_some() && all.is_some() {
        return Err("`bits` and `all` say the same; leave one of them out".to_owned());
    }
    let (values, own) = match (bits, all, path, tensor, values, at) {
        (Some(bits), None, None, None, None, None) => {
            let tensor = literal(dtype, shape.as_deref(), bits)?;
            let own = tensor.ty().clone();
            (Given::Values(Values::Dense(tensor)), own)
        }
        (None, Some(code), None, None, None, None) => {
            let own = TensorType::new(dtype, shape.as_deref().ok_or("`all` needs `shape`")?);
            check_size(&own)?;
            (Given::All(dtype.parse_hex(code).map_err(|why| format!("all: {why}"))?), own)
        }
        (None, None, Some(path), Some(tensor), None, None) => {
            let tensor = recordings.tensor(&path, tensor, dtype, shape.as_deref())?;
            let own = tensor.ty().clone();
            (Given::Values(Values::Dense(tensor)), own)
        }
        (None, None, Some(path), None, Some(values), Some(at)) => {
            let shape = shape.as_ref().ok_or("the sparse form needs `shape`, that of the whole output")?;
            let own = TensorType::new(dtype, shape.as_slice());
            let (values, at) =
                (recordings.tensor(&path, values, dtype, None)?, recordings.positions(&path, at)?);
            let elements = own.elements().map_err(|error| error.to_string())?;
            if values.len() != at.len() {
                return Err(format!("{} values at {} positions", values.len(), at.len()));
            }
            if at.is_empty() {
                return Err("`at` names no position, so nothing would be compared".to_owned());
            }
            if let Some(outside) = at.iter().find(|&&position| position >= elements) {
                return Err(format!("position {outside} is outside shape {shape:?}"));
            }
            (Given::Values(Values::Sparse { at, values }), own)
        }
        _ => {
            return Err(
                "needs `bits` or `all`, or `file` and `tensor`, or `file`, `values` and `at`".to_owned()
            );
        }
    };
    if let Some(ty) = ty.filter(|ty| **ty != own) {
        return Err(format!("has shape {:?}, the operation gives {:?}", own.shape, ty.shape));
    }
    let is_stray = |code: &u64| code & !dtype.code_mask() != 0;
    let stray = match &values {
        Given::Values(Values::Dense(tensor) | Values::Sparse { values: tensor, .. }) => {
            tensor.codes().find(is_stray)
        }
        Given::Values(Values::Derived) => None,
        Given::All(code) => Some(*code).filter(is_stray),
    };
    if let Some(stray) = stray {
        return Err(format!("{} has padding bits set, which no right output has", dtype.hex(stray)));
    }
    let criterion = judge.unwrap_or(default);
    check_criterion(criterion)?;
    if criterion.is_of_products() {
        return Err("`bound`, `explained` and `freivalds` say what is right themselves; leave out `expect`"
            .to_owned());
    }
    Ok(Right { values, ty: own, criterion, nan: *nan })
}

/// A path of a case file, relative to the file.
fn beside(file: &Path, other: &Path) -> std::path::PathBuf {
    file.parent().unwrap_or(Path::new("")).join(other)
}

fn literal(dtype: DType, shape: Option<&[usize]>, bits: &[String]) -> Result<Tensor, String> {
    let shape = shape.ok_or("`bits` needs `shape`")?;
    literal_of(&TensorType::new(dtype, shape), bits)
}

/// The tensor of that type whose elements are given as hex.
pub(crate) fn literal_of(ty: &TensorType, bits: &[String]) -> Result<Tensor, String> {
    let dtype = ty.dtype;
    let codes: Vec<_> = bits
        .iter()
        .map(|text| dtype.parse_hex(text))
        .collect::<Result<_, _>>()
        .map_err(|why| format!("bits: {why}"))?;
    Tensor::from_codes(ty.clone(), &codes).map_err(|error| format!("bits: {error}"))
}

/// Whether each element of the output is a sum of products of the first two inputs.
const fn is_product(op: &Op) -> bool {
    use Op::{Attention, BatchedGemv, Dispatch, Gemm, GemmFused, Gemv, PrefillLinear};
    matches!(
        op,
        Gemm(_) | GemmFused(_) | Gemv(_) | BatchedGemv(_) | PrefillLinear(_) | Dispatch(_) | Attention(_)
    )
}

/// More lanes than any vector has.
const MAX_LANES: usize = 1024;

#[cfg(test)]
mod tests;
