//! A case that has been checked, and what it is built into: inputs and the right
//! outputs.

use crate::adapter::Playback;
use crate::case::{Against, CaseSpec, Class, Criterion, ExpectSpec, NanJudge, TensorSpec};
use crate::generate::{Request, generate};
use crate::load::LoadError;
use crate::locate::{Step, line_of};
use crate::recording::Recordings;
use crate::seed;
use plumbline_reference::{Backend, DType, Path as Evaluation, Tensor, TensorType};
use std::path::Path;
use std::sync::Arc;

/// Where in which file something stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) file: Arc<Path>,
    pub(crate) text: Arc<str>,
    pub(crate) path: Vec<Step>,
}

/// One case: named, checked, cheap until it is built.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name with the file's: `cast/edges/f32/e4m3fn`.
    pub name: String,
    /// What the file says, matrix values filled in.
    pub spec: CaseSpec,
    pub(crate) place: Place,
    inputs: Vec<Input>,
    expected: Option<Vec<Expected>>,
}

#[derive(Clone, Debug)]
enum Input {
    Given(Tensor),
    Generated { ty: TensorType, has_shape: bool, class: Class, lanes: usize, seed: Option<u64> },
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
}

/// A case made concrete.
#[derive(Clone, Debug)]
pub struct Built {
    /// The inputs.
    pub inputs: Vec<Tensor>,
    /// The right outputs.
    pub expected: Vec<Expected>,
}

impl Case {
    pub(crate) fn new(
        name: String,
        spec: CaseSpec,
        place: Place,
        recordings: &mut Recordings,
    ) -> Result<Self, LoadError> {
        check_criterion(spec.judge)
            .map_err(|why| place.error(Some(&spec.name), &[Step::Key("judge".into())], &why))?;
        let field = |name: &str, i| [Step::Key(name.into()), Step::Index(i)];
        let mut inputs = Vec::with_capacity(spec.inputs.len());
        for (i, input) in spec.inputs.iter().enumerate() {
            let resolved = resolve_input(input, &place.file, recordings);
            inputs.push(resolved.map_err(|why| place.error(Some(&spec.name), &field("inputs", i), &why))?);
        }
        let types: Vec<_> = inputs.iter().map(Input::ty).collect();
        let outputs = (spec.op.signature(&types))
            .map_err(|error| place.error(Some(&spec.name), &[Step::Key("op".into())], &error.to_string()))?;
        let expected = match &spec.expect {
            None => None,
            Some(specs) if specs.len() != outputs.len() => {
                let why =
                    format!("{} outputs given, {} gives {}", specs.len(), spec.op.name(), outputs.len());
                return Err(place.error(Some(&spec.name), &[Step::Key("expect".into())], &why));
            }
            Some(specs) => {
                // Inputs whose class sets its own length have no shape to compare with.
                let shaped = inputs.iter().all(Input::has_shape);
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
        Ok(Self { name, spec, place, inputs, expected })
    }

    /// File and line of the case.
    #[must_use]
    pub fn origin(&self) -> String {
        let line = line_of(&self.place.text, &self.place.path).unwrap_or(1);
        format!("{}:{line}", self.place.file.display())
    }

    /// Whether the case itself says what is right, so that even the reference's
    /// definition can be judged by it.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        self.expected.is_some() || self.spec.against != Against::Definition
    }

    /// Makes the inputs and the right outputs.
    pub fn build(&self, run_seed: u64, h200: &Playback) -> Result<Built, LoadError> {
        let failed = |field: &[Step], why: String| self.place.error(Some(&self.spec.name), field, &why);
        let case_seed = seed::of_case(&self.name, run_seed);

        // Classes may look at given inputs (scales) and at the first input's shape, so
        // the given ones come first, then the others in order.
        let mut inputs: Vec<Option<Tensor>> = self
            .inputs
            .iter()
            .map(|input| match input {
                Input::Given(tensor) => Some(tensor.clone()),
                Input::Generated { .. } => None,
            })
            .collect();
        for (i, input) in self.inputs.iter().enumerate() {
            let Input::Generated { ty, has_shape, class, lanes, seed: own_seed } = input else { continue };
            let request = Request {
                class,
                dtype: ty.dtype,
                shape: has_shape.then_some(&ty.shape),
                lanes: *lanes,
                seed: own_seed.unwrap_or_else(|| seed::mix(case_seed, i as u64)),
                op: &self.spec.op,
                others: &inputs,
            };
            let tensor = generate(&request).map_err(|error| {
                failed(
                    &[Step::Key("inputs".into()), Step::Index(i), Step::Key("generate".into())],
                    error.to_string(),
                )
            })?;
            inputs[i] = Some(tensor);
        }
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();

        let expected = match &self.expected {
            Some(expected) => expected.clone(),
            None => {
                let op = &self.spec.op;
                let outputs = match self.spec.against {
                    Against::Definition => {
                        op.evaluate(&inputs, Evaluation::Definition).map_err(|error| error.to_string())
                    }
                    Against::H200 => {
                        h200.run(op, Playback::VARIANT, &inputs).map_err(|error| error.to_string())
                    }
                };
                let outputs = outputs.map_err(|why| failed(&[Step::Key("op".into())], why))?;
                let expected = |tensor: Tensor| Expected {
                    ty: tensor.ty().clone(),
                    values: Values::Dense(tensor),
                    criterion: self.spec.judge,
                    nan: None,
                };
                outputs.into_iter().map(expected).collect()
            }
        };
        Ok(Built { inputs, expected })
    }
}

impl Input {
    /// The type, with a stand-in shape where the class sets its own length.
    fn ty(&self) -> TensorType {
        match self {
            Self::Given(tensor) => tensor.ty().clone(),
            Self::Generated { ty, .. } => ty.clone(),
        }
    }

    fn has_shape(&self) -> bool {
        match self {
            Self::Given(_) => true,
            Self::Generated { has_shape, .. } => *has_shape,
        }
    }
}

fn resolve_input(spec: &TensorSpec, file: &Path, recordings: &mut Recordings) -> Result<Input, String> {
    let TensorSpec { dtype, shape, bits, file: recorded, tensor, generate, seed, lanes } = spec;
    let dtype = *dtype;
    let given = match (bits, recorded, generate) {
        (Some(bits), None, None) => literal(dtype, shape.as_deref(), bits)?,
        (None, Some(recorded), None) => {
            let tensor = tensor.as_deref().ok_or("`file` needs `tensor`, the name of a tensor in it")?;
            recordings.tensor(&beside(file, recorded), tensor, dtype, shape.as_deref())?
        }
        (None, None, Some(class)) => {
            let ty = TensorType::new(dtype, shape.clone().unwrap_or_else(|| vec![1]));
            ty.elements().map_err(|error| error.to_string())?;
            let lanes = lanes.unwrap_or(1);
            return Ok(Input::Generated {
                ty,
                has_shape: shape.is_some(),
                class: class.clone(),
                lanes,
                seed: *seed,
            });
        }
        _ => return Err("needs exactly one of `bits`, `file` and `generate`".to_owned()),
    };
    if seed.is_some() || lanes.is_some() {
        return Err("`seed` and `lanes` go with `generate`".to_owned());
    }
    Ok(Input::Given(given))
}

fn resolve_expected(
    spec: &ExpectSpec,
    ty: Option<&TensorType>,
    dtype: DType,
    default: Criterion,
    file: &Path,
    recordings: &mut Recordings,
) -> Result<Expected, String> {
    let ExpectSpec { shape, bits, file: recorded, tensor, values, at, judge, nan, .. } = spec;
    if spec.dtype != dtype {
        return Err(format!("dtype is {}, the operation gives {dtype}", spec.dtype));
    }
    let path = recorded.as_deref().map(|recorded| beside(file, recorded));
    let (values, own) = match (bits, path, tensor, values, at) {
        (Some(bits), None, None, None, None) => {
            let tensor = literal(dtype, shape.as_deref(), bits)?;
            let own = tensor.ty().clone();
            (Values::Dense(tensor), own)
        }
        (None, Some(path), Some(tensor), None, None) => {
            let tensor = recordings.tensor(&path, tensor, dtype, shape.as_deref())?;
            let own = tensor.ty().clone();
            (Values::Dense(tensor), own)
        }
        (None, Some(path), None, Some(values), Some(at)) => {
            let shape = shape.as_ref().ok_or("the sparse form needs `shape`, that of the whole output")?;
            let own = TensorType::new(dtype, shape.as_slice());
            let (values, at) =
                (recordings.tensor(&path, values, dtype, None)?, recordings.positions(&path, at)?);
            let elements = own.elements().map_err(|error| error.to_string())?;
            if values.len() != at.len() {
                return Err(format!("{} values at {} positions", values.len(), at.len()));
            }
            if let Some(outside) = at.iter().find(|&&position| position >= elements) {
                return Err(format!("position {outside} is outside shape {shape:?}"));
            }
            (Values::Sparse { at, values }, own)
        }
        _ => return Err("needs `bits`, or `file` and `tensor`, or `file`, `values` and `at`".to_owned()),
    };
    if let Some(ty) = ty.filter(|ty| **ty != own) {
        return Err(format!("has shape {:?}, the operation gives {:?}", own.shape, ty.shape));
    }
    let criterion = judge.unwrap_or(default);
    check_criterion(criterion)?;
    Ok(Expected { values, ty: own, criterion, nan: *nan })
}

/// A path of a case file, relative to the file.
fn beside(file: &Path, other: &Path) -> std::path::PathBuf {
    file.parent().unwrap_or(Path::new("")).join(other)
}

fn literal(dtype: DType, shape: Option<&[usize]>, bits: &[String]) -> Result<Tensor, String> {
    let shape = shape.ok_or("`bits` needs `shape`")?;
    let codes = bits.iter().map(|text| parse_code(text, dtype)).collect::<Result<Vec<_>, _>>()?;
    Tensor::from_codes(TensorType::new(dtype, shape), &codes).map_err(|error| format!("bits: {error}"))
}

/// A bit pattern of `dtype`, with all its digits.
pub(crate) fn parse_code(text: &str, dtype: DType) -> Result<u64, String> {
    let digits = 2 * dtype.bytes();
    let hex = text.strip_prefix("0x").filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let Some(hex) = hex else {
        return Err(format!(
            "bits: `{text}` is not a bit pattern; write quoted hex, like \"{}\"",
            dtype.hex(0)
        ));
    };
    if hex.len() != digits {
        let given = hex.len();
        return Err(format!("bits: `{text}` has {given} hex digits, {dtype} has {digits}"));
    }
    let code = u64::from_str_radix(hex, 16).map_err(|error| format!("bits: `{text}`: {error}"))?;
    // Padding below the fraction is ignored when read; bits above the code are a slip.
    let highest = dtype.code_mask().checked_ilog2().unwrap_or(0);
    if code.checked_ilog2().unwrap_or(0) > highest {
        return Err(format!("bits: `{text}` has bits outside the {} of {dtype}", highest + 1));
    }
    Ok(code)
}

fn check_criterion(criterion: Criterion) -> Result<(), String> {
    let tolerances = match criterion {
        Criterion::BitExact => return Ok(()),
        Criterion::Ulp(n) => [n, 0.0],
        Criterion::Allclose { rtol, atol } => [rtol, atol],
    };
    // Written so that NaN does not pass.
    if tolerances.iter().all(|tolerance| *tolerance >= 0.0 && tolerance.is_finite()) {
        Ok(())
    } else {
        Err("a tolerance is a finite number, 0 or more".to_owned())
    }
}
