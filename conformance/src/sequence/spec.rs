//! What a sequence says: the schema, one type per YAML mapping.
//!
//! A sequence is a list of steps on named buffers. Its buffers have types and nothing else until
//! they are allocated; what they hold at a `check` is what the reference gives when it takes the
//! same steps.

use crate::case::{Class, Criterion, Profile, Scalar};
use plumbline_reference::DType;
use plumbline_reference::block::BlockFormat;
use plumbline_reference::ops::Op;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One sequence of calls, or with a `matrix` one per combination.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceSpec {
    /// Unique within the file. Values of the matrix are appended.
    pub name: String,
    /// What the sequence is about, and a link if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Dimensions to combine. `$name` in `buffers` and `steps` stands for the value of dimension
    /// `name`, and `${name}` for it within a longer text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matrix: BTreeMap<String, Vec<Scalar>>,
    /// The buffers by their names.
    pub buffers: BTreeMap<String, BufferSpec>,
    /// What happens, in this order.
    pub steps: Vec<StepSpec>,
    /// The smallest profile that runs the sequence.
    #[serde(default)]
    pub profile: Profile,
}

/// The type of a buffer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// The bytes are GGML blocks of this format. The last dimension of `shape` then counts
    /// values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockFormat>,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
// Steps are few and rarely moved.
#[allow(clippy::large_enum_variant)]
pub enum StepSpec {
    /// Gives buffers memory, whose contents are unknown.
    Allocate(AllocateSpec),
    /// Gives the memory of buffers back, once the work on them is done.
    Free(Names),
    /// Puts values into a buffer, in place: after what is queued on stream 0, and before what
    /// will be queued on any stream.
    Write(WriteSpec),
    /// Queues a call.
    Call(CallSpec),
    /// Records work as a graph, without doing it. The graph keeps the addresses of the buffers.
    Capture(CaptureSpec),
    /// Queues the work of a graph.
    Replay(ReplaySpec),
    /// Waits for the work on a stream, or on all.
    Wait(WaitSpec),
    /// `[from, to]`: what is queued on stream `to` from now on begins when what is queued on
    /// stream `from` until now has ended.
    Order([u32; 2]),
    /// Compares what a buffer holds, once the work on it is done.
    Check(CheckSpec),
    /// Takes steps again and again.
    Repeat(RepeatSpec),
}

/// One name or several.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write the name of a buffer, or a list of them")]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Names {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// What to allocate.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write the name of a buffer, a list of them, or `{buffer: NAME, at: NAME}`, where `at` is freed"
)]
pub enum AllocateSpec {
    /// Anywhere.
    Anywhere(Names),
    /// In the memory of another.
    At(AtSpec),
}

/// A buffer in memory that another had.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AtSpec {
    /// The buffer.
    pub buffer: String,
    /// The one that was freed and has its memory no more. A backend is not made to give the
    /// same memory again; what is right does not depend on it.
    pub at: String,
}

/// Values of a buffer: exactly one of `bits` and `generate`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteSpec {
    /// The buffer.
    pub buffer: String,
    /// Bit patterns in row-major order, as quoted hex with all digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<Vec<String>>,
    /// A class of inputs, made for the first call that reads the buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<Class>,
    /// Seed of the class. Left out: derived from the step, the sequence's name and the run's
    /// seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallSpec {
    /// The operation and its parameters.
    pub op: Op,
    /// The buffers it reads, in the operation's order.
    pub inputs: Vec<String>,
    /// The buffers it writes, in the operation's order.
    pub outputs: Vec<String>,
    /// The stream that it is queued on.
    #[serde(default)]
    pub stream: u32,
    /// Whether it may use a workspace, where the backend has one.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub workspace: bool,
}

const fn yes() -> bool {
    true
}

/// A graph.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureSpec {
    /// Its name. A later graph of the same name takes its place.
    pub graph: String,
    /// Its work, `call` and `write` steps. What a write puts into its buffer at every replay is
    /// what it would have put there when it was recorded.
    pub steps: Vec<StepSpec>,
}

/// A replay of a graph.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    /// The graph.
    pub graph: String,
    /// How often.
    #[serde(default = "one")]
    pub times: u32,
    /// The stream that its work is queued on.
    #[serde(default)]
    pub stream: u32,
}

const fn one() -> u32 {
    1
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write the number of a stream, or `all`")]
pub enum WaitSpec {
    /// One stream.
    Stream(u32),
    /// Every stream.
    All(All),
}

/// All streams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum All {
    /// All streams.
    All,
}

/// A comparison.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckSpec {
    /// The buffer.
    pub buffer: String,
    /// When its contents are right.
    #[serde(default)]
    pub judge: Criterion,
    /// Compare with what this buffer holds, bit for bit, and not with what the reference has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
}

/// Steps to be taken several times.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatSpec {
    /// How often.
    pub times: u32,
    /// The steps.
    pub steps: Vec<StepSpec>,
}
