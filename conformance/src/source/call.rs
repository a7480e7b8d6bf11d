//! Cases as calls that stand in no file, and their digests.

use super::{Case, Given, Input, Place, Values};
use crate::case::{Against, CaseSpec, Criterion, Profile, TensorSpec};
use crate::load::LoadError;
use crate::recording::Recordings;
use crate::sweep::digest;
use plumbline_reference::Tensor;
use plumbline_reference::ops::Op;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Case {
    /// A call that stands in no file.
    pub(crate) fn loose(op: Op, inputs: Vec<Tensor>, judge: Criterion) -> Self {
        let spec = CaseSpec {
            name: op.name().to_owned(),
            about: None,
            matrix: BTreeMap::new(),
            op,
            inputs: Vec::new(),
            output_strides: None,
            expect: None,
            refused: None,
            against: Against::Definition,
            judge,
            companions: Vec::new(),
            device_only: false,
            profile: Profile::Quick,
        };
        let inputs = inputs.into_iter().map(Input::Given).collect();
        let (name, place) = (spec.name.clone(), Place::none());
        Self { name, spec, place, line: 0, inputs, expected: None, built: Arc::default() }
    }

    /// What a file would say to make the same call: the inputs that are given, as bits.
    pub(crate) fn literal(&self) -> CaseSpec {
        let given = self.inputs.iter().filter_map(|input| match input {
            Input::Given(tensor) => Some(TensorSpec::literal(tensor)),
            Input::Rows(_) | Input::Generated { .. } => None,
        });
        CaseSpec { inputs: given.collect(), ..self.spec.clone() }
    }

    /// The call that [`Self::literal`] says.
    pub(crate) fn of_literal(spec: CaseSpec) -> Result<Self, LoadError> {
        Self::new(spec.name.clone(), spec, Place::none(), 0, &mut Recordings::default())
    }

    /// A digest of what the case says and of the tensors that come with it, those of files too.
    pub(crate) fn digest(&self) -> u64 {
        let with = |all, bytes: &[u8]| digest::followed_by(all, digest::of(bytes));
        let said = serde_json::to_vec(&self.spec).unwrap_or_default();
        let all = self.inputs.iter().fold(digest::of(&said), |all, input| match input {
            Input::Given(tensor) => with(all, tensor.bytes()),
            // What cannot be read is an error of the trial.
            Input::Rows(rows) => rows.read().map_or(all, |tensor| with(all, tensor.bytes())),
            Input::Generated { .. } => all,
        });
        self.expected.iter().flatten().fold(all, |all, right| match &right.values {
            Given::Values(Values::Dense(tensor)) => with(all, tensor.bytes()),
            Given::Values(Values::Sparse { at, values }) => {
                at.iter().fold(with(all, values.bytes()), |all, &at| digest::followed_by(all, at as u64))
            }
            Given::Values(Values::Derived) | Given::All(_) => all,
        })
    }
}
