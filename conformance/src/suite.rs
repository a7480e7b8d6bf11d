//! What trials run: cases of one call, and sequences of calls.

use crate::case::{Against, Profile};
use crate::load::LoadError;
use crate::sequence::Sequence;
use crate::setup::Subject;
use crate::source::{Case, Place};
use crate::sweep::digest;
use crate::verdict::SEQUENCE;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Op;
use std::sync::Arc;

/// A case of one call, or of several.
#[derive(Clone, Debug)]
pub enum Test {
    /// One call.
    Case(Arc<Case>),
    /// A sequence of calls.
    Sequence(Arc<Sequence>),
}

impl From<Case> for Test {
    fn from(case: Case) -> Self {
        Self::Case(Arc::new(case))
    }
}

impl From<Sequence> for Test {
    fn from(sequence: Sequence) -> Self {
        Self::Sequence(Arc::new(sequence))
    }
}

impl Test {
    /// Its name, which begins with the file's.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Case(case) => &case.name,
            Self::Sequence(sequence) => &sequence.name,
        }
    }

    /// The same under a name that begins with this.
    #[must_use]
    pub(crate) fn within(self, prefix: &str) -> Self {
        match self {
            Self::Case(case) => {
                let mut case = Arc::unwrap_or_clone(case);
                case.name = format!("{prefix}/{}", case.name);
                case.into()
            }
            Self::Sequence(sequence) => {
                let mut sequence = Arc::unwrap_or_clone(sequence);
                sequence.name = format!("{prefix}/{}", sequence.name);
                sequence.into()
            }
        }
    }

    /// File and line.
    #[must_use]
    pub fn origin(&self) -> String {
        match self {
            Self::Case(case) => case.origin(),
            Self::Sequence(sequence) => sequence.origin(),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn about(&self) -> Option<&String> {
        match self {
            Self::Case(case) => case.spec.about.as_ref(),
            Self::Sequence(sequence) => sequence.spec.about.as_ref(),
        }
    }

    /// The smallest profile that runs it.
    #[must_use]
    pub fn profile(&self) -> Profile {
        match self {
            Self::Case(case) => case.spec.profile,
            Self::Sequence(sequence) => sequence.spec.profile,
        }
    }

    /// The operation's name, or `sequence`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Case(case) => case.spec.op.name(),
            Self::Sequence(_) => SEQUENCE,
        }
    }

    /// The operations of its calls, each once.
    #[must_use]
    pub fn operations(&self) -> Vec<&Op> {
        match self {
            Self::Case(case) => vec![&case.spec.op],
            Self::Sequence(sequence) => sequence.operations(),
        }
    }

    /// Who computes what is right; `None` where the file itself says it, or there is no result.
    #[must_use]
    pub fn oracle(&self) -> Option<Against> {
        match self {
            Self::Case(case) => case.oracle(),
            Self::Sequence(_) => Some(Against::Definition),
        }
    }

    /// Makes all that it needs, so that what cannot be made shows.
    pub fn rehearse(&self, run_seed: u64) -> Result<(), LoadError> {
        match self {
            Self::Case(case) => case.build(run_seed).map(drop),
            Self::Sequence(sequence) => sequence.rehearse(run_seed),
        }
    }

    /// The ways in which a backend runs it, the usual one first, or why it does not.
    pub fn variants(&self, subject: &Subject) -> Result<Vec<String>, Unsupported> {
        match self {
            Self::Sequence(sequence) => sequence.variants(subject),
            Self::Case(case) => {
                subject.backend.supports(&case.spec.op)?;
                if case.spec.device_only && subject.devices.is_empty() {
                    return Err(Unsupported("is for devices alone".to_owned()));
                }
                Ok(subject.backend.variants(&case.spec.op))
            }
        }
    }

    /// A digest of what it says, and of the tensors that it holds.
    pub(crate) fn digest(&self) -> u64 {
        match self {
            Self::Case(case) => case.digest(),
            Self::Sequence(sequence) => digest::of(&serde_json::to_vec(&sequence.spec).unwrap_or_default()),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Case(case) => &case.place,
            Self::Sequence(sequence) => &sequence.place,
        }
    }
}
