//! A device, played back from its recordings.

use super::scalar::{check_policy, check_variant, elementwise, no_conversion, no_operation};
use crate::hardware::{Conversion, Recording, RecordingError, magnitudes};
use crate::report::brief;
use crate::sweep::Staircase;
use plumbline_reference::Tensor;
use plumbline_reference::backend::{Backend, BackendError, Device, Unsupported};
use plumbline_reference::ops::{Cast, Op};
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// A device's conversion instructions, played back from recordings of the inputs at which the
/// result changes.
#[derive(Clone, Debug)]
pub struct Playback {
    device: Device,
    recorded: Arc<[Recorded]>,
}

/// What is recorded of a cast.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The cast.
    pub cast: Cast,
    /// Its results for all inputs.
    pub staircase: Option<Staircase>,
    /// The digest of its results for all inputs.
    pub digest: Option<u64>,
}

/// Why recordings cannot be played back.
#[derive(Debug, thiserror::Error)]
pub enum PlaybackError {
    /// One of them cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The one by magnitudes cannot be read.
    #[error("the recording by magnitudes: {0}")]
    Magnitudes(#[from] magnitudes::MagnitudesError),
    /// Two that give different results of the same cast.
    #[error("two recordings differ in {0}; one of them is wrong: record it again with `cargo xtask record`")]
    Disagree(String),
}

/// The recordings of an H200 that come with the project, beside the older one by magnitudes:
/// names of files in `fixtures/hardware` and what they say.
const EMBEDDED: &[(&str, &str)] = &[(
    "nvidia_h200_sm_90_cast.json",
    include_str!("../../../fixtures/hardware/nvidia_h200_sm_90_cast.json"),
)];

impl From<Conversion> for Recorded {
    fn from(conversion: Conversion) -> Self {
        let Conversion { cast, digest, staircase, .. } = conversion;
        Self { cast, staircase, digest: Some(digest) }
    }
}

impl Playback {
    /// The backend's name.
    pub const NAME: &str = "h200";
    /// Its only variant.
    pub const VARIANT: &str = "recorded";

    /// The recordings of an H200 that come with the project.
    pub fn h200() -> &'static Self {
        static H200: LazyLock<Playback> = LazyLock::new(|| {
            embedded(EMBEDDED).expect("the recordings that come with the project are whole")
        });
        &H200
    }

    /// One recording.
    #[must_use]
    pub fn of(recording: Recording) -> Self {
        let Recording { mut device, conversions, date, .. } = recording;
        device.properties.insert("source".to_owned(), format!("recording of {date}"));
        Self { device, recorded: conversions.into_iter().map(Recorded::from).collect() }
    }

    /// This one and then what another recorded of the same device. Casts that both have must
    /// be the same in both.
    pub fn and(self, later: &Self) -> Result<Self, PlaybackError> {
        let mut recorded = self.recorded.to_vec();
        for new in &*later.recorded {
            let Some(old) = recorded.iter_mut().find(|old| old.cast == new.cast) else {
                recorded.push(new.clone());
                continue;
            };
            let differ = differ(old.staircase.as_ref(), new.staircase.as_ref())
                || differ(old.digest.as_ref(), new.digest.as_ref());
            if differ {
                return Err(PlaybackError::Disagree(brief(&new.cast.into())));
            }
            old.staircase = old.staircase.take().or_else(|| new.staircase.clone());
            old.digest = old.digest.or(new.digest);
        }
        Ok(Self { device: later.device.clone(), recorded: recorded.into() })
    }

    /// What is recorded of a cast.
    #[must_use]
    pub fn recorded(&self, cast: &Cast) -> Option<&Recorded> {
        self.recorded.iter().find(|recorded| recorded.cast == *cast)
    }

    /// Every cast of which anything is recorded.
    pub fn casts(&self) -> impl Iterator<Item = &Recorded> {
        self.recorded.iter()
    }

    fn staircase(&self, op: &Op) -> Result<(&Cast, &Staircase), Unsupported> {
        let Op::Cast(cast) = op else { return Err(no_operation(op)) };
        match self.recorded(cast) {
            Some(Recorded { cast, staircase: Some(staircase), .. }) => return Ok((cast, staircase)),
            Some(_) => {
                let why = format!("has only the digest of {}; `plumbline sweep` compares it", brief(op));
                return Err(Unsupported(why));
            }
            None => (),
        }
        let mut of_formats =
            self.recorded.iter().filter(|it| (it.cast.from, it.cast.to) == (cast.from, cast.to));
        if let Some(other) = of_formats.find(|it| it.staircase.is_some()) {
            check_policy(cast.policy(), other.cast.policy())?;
        }
        Err(no_conversion(op, cast.from, cast.to))
    }
}

/// Whether both are there and differ.
fn differ<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

fn embedded(recordings: &[(&str, &str)]) -> Result<Playback, PlaybackError> {
    let first = include_str!("../../../fixtures/hardware/h200_cast_breakpoints.txt");
    let recorded = magnitudes::parse(first)?.map(|(cast, staircase)| Recorded {
        cast,
        staircase: Some(staircase),
        digest: None,
    });
    let first = Playback { device: device_by_magnitudes(), recorded: recorded.into() };
    recordings.iter().try_fold(first, |before, (name, text)| {
        before.and(&Playback::of(Recording::parse(Path::new(name), text)?))
    })
}

/// The device of the recording by magnitudes, from the comment in it.
fn device_by_magnitudes() -> Device {
    let properties = [
        ("compute capability", "9.0"),
        ("cuda", "13.0"),
        ("driver", "580.159.04"),
        ("instruction", "cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32"),
        ("source", "recording"),
    ];
    Device {
        name: "NVIDIA H200".to_owned(),
        properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    }
}

impl Backend for Playback {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn supports(&self, op: &Op) -> Result<(), Unsupported> {
        self.staircase(op).map(drop)
    }

    fn variants(&self, _: &Op) -> Vec<String> {
        vec![Self::VARIANT.to_owned()]
    }

    fn run(&self, op: &Op, variant: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let (cast, staircase) = self.staircase(op)?;
        check_variant(op, variant, &[Self::VARIANT])?;
        elementwise(op, inputs, |code| staircase.result(code >> cast.from.low_padding))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_agrees, edges};
    use super::*;
    use plumbline_reference::format::{E4M3FN, E5M2, F32, F64, NanPolicy};

    const SIGN: u64 = 1 << 31;

    fn h200() -> &'static Playback {
        Playback::h200()
    }

    #[test]
    fn every_recorded_step_is_the_definitions() {
        assert!(h200().casts().filter(|it| it.staircase.is_some()).count() >= 2);
        for Recorded { cast, staircase, .. } in h200().casts() {
            if let Some(staircase) = staircase {
                assert_eq!(staircase, &Staircase::new(cast), "{cast:?}");
            }
        }
    }

    #[test]
    fn the_recording_by_magnitudes_equals_the_reference_at_every_step_and_just_below_it() {
        for to in [E4M3FN, E5M2] {
            let cast = Cast::new(F32, to);
            let staircase = h200().recorded(&cast).and_then(|it| it.staircase.as_ref()).unwrap();
            let inputs = staircase.steps().iter().flat_map(|&(first, _)| [first, first.saturating_sub(1)]);
            let inputs: Vec<_> = inputs.collect();
            assert!(inputs.len() > 4 * 120, "the recording of {to} is short");
            assert_agrees(h200(), &cast.into(), &inputs);
        }
    }

    #[test]
    fn recording_equals_the_reference_at_edges_and_everywhere_between() {
        for to in [E4M3FN, E5M2] {
            assert_agrees(h200(), &Cast::new(F32, to).into(), &edges(F32, to));
            let sample: Vec<_> = (0..1 << 32).step_by(99_991).collect();
            assert_agrees(h200(), &Cast::new(F32, to).into(), &sample);
        }
    }

    #[test]
    fn every_nan_gives_the_positive_nan() {
        let result = |to, bits| {
            let recorded = h200().recorded(&Cast::new(F32, to)).unwrap();
            recorded.staircase.as_ref().unwrap().result(bits)
        };
        for bits in [0x7f80_0001, 0x7fff_ffff, 0xff80_0001, 0xffc0_0000, 0xffff_ffff] {
            assert_eq!((result(E4M3FN, bits), result(E5M2, bits)), (0x7f, 0x7f));
        }
        assert_eq!(result(E5M2, 0x7f80_0000 | SIGN), 0xfb);
    }

    #[test]
    fn other_casts_and_policies_are_unsupported() {
        let why = |op: Op| h200().supports(&op).unwrap_err().0;
        assert_eq!(why(Cast::new(F64, E4M3FN).into()), "has no cast from f64 to e4m3fn");
        let sign_kept = Cast { nan: NanPolicy::SignKept, ..Cast::new(F32, E4M3FN) };
        assert_eq!(why(sign_kept.into()), "implements one policy; declare nan: canonical");
    }

    fn playback(cast: Cast, staircase: Option<Staircase>, digest: Option<u64>) -> Playback {
        let recorded = [Recorded { cast, staircase, digest }];
        Playback { device: Device::default(), recorded: recorded.into() }
    }

    #[test]
    fn recordings_of_the_same_cast_must_agree() {
        let cast = Cast::new(F32, E4M3FN);
        let first = || playback(cast, Some(Staircase::new(&cast)), None);
        let same = first().and(&playback(cast, Some(Staircase::new(&cast)), Some(7))).unwrap();
        assert_eq!(same.casts().map(|it| it.digest).collect::<Vec<_>>(), [Some(7)]);
        let mut steps = Staircase::new(&cast).steps().to_vec();
        steps[9].0 += 1;
        let wrong = playback(cast, Some(Staircase::of(E4M3FN, steps)), Some(7));
        let error = first().and(&wrong).unwrap_err().to_string();
        assert!(error.starts_with("two recordings differ in {cast: {from: f32, to: e4m3fn}}; "), "{error}");
        let digest = |digest| playback(cast, None, Some(digest));
        assert!(digest(7).and(&digest(7)).is_ok() && digest(7).and(&digest(8)).is_err());
    }

    #[test]
    fn a_digest_alone_cannot_be_played_back() {
        let cast = Cast::new(F32, plumbline_reference::format::F16);
        let why = playback(cast, None, Some(7)).supports(&cast.into()).unwrap_err().0;
        assert!(why.starts_with("has only the digest of {cast: {from: f32, to: f16}}"), "{why}");
    }
}
