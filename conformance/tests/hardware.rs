//! Recordings of devices: swept against, and judged as any backend.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Run, command, plumbline, run};
use plumbline_conformance::adapter::Playback;
use plumbline_conformance::case::NanJudge;
use plumbline_conformance::hardware::{Conversion, Recording};
use plumbline_conformance::load::load;
use plumbline_conformance::registry::Registry;
use plumbline_conformance::setup::{Selection, Subject};
use plumbline_conformance::sweep::{Oracle, Staircase, Sweep};
use plumbline_conformance::verdict::Outcome;
use plumbline_reference::backend::Device;
use plumbline_reference::format::{BF16, E4M3FN, F16, Policy};
use plumbline_reference::{Backend, Cpu, ops::Cast};
use std::path::{Path, PathBuf};

fn narrowing() -> Cast {
    Cast::new(F16, E4M3FN)
}

fn widening() -> Cast {
    Cast::new(E4M3FN, F16).with_policy(Policy::IEEE)
}

/// A device that does as the definition says, recorded.
fn recording() -> Recording {
    let conversion = |cast: Cast| {
        let inputs = Sweep::all_inputs(cast.from).unwrap();
        let variant = Cpu.variants(&cast.into()).remove(0);
        let (oracle, nan) = (&Oracle::Nothing, NanJudge::Bits);
        let sweep = Sweep { op: cast.into(), backend: &Cpu, variant: &variant, oracle, nan, inputs };
        let digest = sweep.run(&|_| ()).unwrap().digest;
        let staircase = Conversion::has_staircase(&cast).then(|| Staircase::new(&cast));
        Conversion { cast, instruction: "cvt".to_owned(), digest, staircase }
    };
    Recording {
        date: "2026-01-31".to_owned(),
        command: "cargo xtask record".to_owned(),
        version: "0.1.0".to_owned(),
        device: Device { name: "A device".to_owned(), ..Device::default() },
        conversions: [narrowing(), widening(), Cast::new(F16, BF16)].map(conversion).into(),
    }
}

/// The same of which a step of the first conversion begins one input too late.
fn with_a_wrong_step() -> Recording {
    let mut recording = recording();
    let steps = &mut recording.conversions[0].staircase;
    let mut moved = steps.as_ref().unwrap().steps().to_vec();
    moved[20].0 += 1;
    *steps = Some(Staircase::of(E4M3FN, moved));
    recording
}

fn written(recording: &Recording, folder: &Path) -> PathBuf {
    let file = folder.join("recording.json");
    recording.write(&file).unwrap();
    file
}

/// Sweeps the CPU against a recording.
fn sweep(recording: &Recording, args: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let file = written(recording, folder.path());
    run(command().args(["sweep", "cast"]).args(args).arg("--recording").arg(file))
}

const NARROWING: [&str; 4] = ["--from", "f16", "--to", "e4m3fn"];
const DIGEST_ONLY: [&str; 4] = ["--from", "f16", "--to", "bf16"];

#[test]
fn the_reference_equals_its_own_recording() {
    for args in [&NARROWING[..], &DIGEST_ONLY, &["--from", "e4m3fn", "--to", "f16", "--policies"]] {
        let run = sweep(&recording(), args);
        assert_eq!(run.code, 0, "{args:?}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().count(), 1, "{args:?}: one policy is recorded: {}", run.stdout);
        assert!(run.stdout.contains(" against hardware: "), "{}", run.stdout);
    }
}

#[test]
fn a_sweep_finds_a_wrong_step() {
    // Its digest is still that of the right results: it contradicts itself.
    let mut recording = with_a_wrong_step();
    let run = sweep(&recording, &NARROWING);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("the recording is damaged"), "{}", run.stderr);

    recording.conversions[0].digest ^= 1;
    let run = sweep(&recording, &NARROWING);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(", 1 mismatches") && run.stdout.contains("right is"), "{}", run.stdout);
}

#[test]
fn a_sweep_compares_digests_where_nothing_else_is_recorded() {
    let mut recording = recording();
    let right = recording.conversions[2].digest;
    recording.conversions[2].digest ^= 1;
    let run = sweep(&recording, &DIGEST_ONLY);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let both = format!("digest {right:016x}, recorded {:016x}", right ^ 1);
    assert!(run.stdout.contains(&both), "no `{both}` in {}", run.stdout);
    assert!(run.stdout.contains("cannot say for which inputs"), "{}", run.stdout);
}

#[test]
fn a_sweep_finds_a_digest_that_is_not_that_of_the_recorded_steps() {
    let mut recording = recording();
    recording.conversions[0].digest ^= 1;
    let run = sweep(&recording, &NARROWING);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("it is damaged"), "{}", run.stdout);
    // A part of the inputs has another digest, and is compared by steps alone.
    let part = sweep(&recording, &[&NARROWING[..], &["--partition", "1/2"]].concat());
    assert_eq!(part.code, 0, "{}{}", part.stdout, part.stderr);
}

#[test]
fn what_a_recording_cannot_answer_is_an_error() {
    let recording = recording();
    let refused = |args: &[&[&str]], why: &str| {
        let run = sweep(&recording, &args.concat());
        assert_eq!(run.code, 2, "{args:?}: {}{}", run.stdout, run.stderr);
        assert!(run.stderr.contains(why), "{args:?}: {}", run.stderr);
    };
    refused(&[&DIGEST_ONLY, &["--partition", "1/2"]], "leave out --partition");
    refused(&[&["--from", "f16", "--to", "e5m2"]], "is not recorded");
    refused(&[&["--from", "f16", "--to", "e5m2", "--policies"]], "no cast from f16 to e5m2 is recorded");
    refused(&[&["--from", "e4m3fn", "--to", "f16"]], "--policies");
    refused(&[&NARROWING, &["--against", "definition"]], "leave one of them out");
    let missing = plumbline(&["sweep", "cast", "--to", "e5m2", "--recording", "no/such.json"]);
    assert_eq!(missing.code, 2, "{}", missing.stdout);
    assert!(missing.stderr.starts_with("error: no/such.json cannot be read: "), "{}", missing.stderr);
}

/// Outcomes of the cases of `cast.yaml` that a recording does, judged by the definition.
fn judged(recording: Recording) -> Vec<(String, Outcome)> {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cases")).unwrap();
    let subject = Subject { nan: NanJudge::Bits, ..Subject::foreign(Playback::of(recording)) };
    let registry = Registry::of(cases, vec![subject], Vec::new(), &Selection::default()).unwrap();
    registry.trials.iter().map(|trial| (trial.test.name().to_owned(), trial.run().outcome)).collect()
}

#[test]
fn cases_judge_a_recording() {
    let right = judged(recording());
    for cast in ["cast/all/f16/e4m3fn", "cast/widening/e4m3fn"] {
        assert!(right.iter().any(|(case, _)| case == cast), "no {cast} among {right:?}");
    }
    assert!(right.iter().all(|(_, outcome)| *outcome == Outcome::Pass), "{right:?}");
    let wrong = judged(with_a_wrong_step());
    let failed: Vec<_> = wrong.iter().filter(|(_, outcome)| *outcome == Outcome::Fail).collect();
    assert!(failed.iter().any(|(case, _)| case == "cast/all/f16/e4m3fn"), "{wrong:?}");
}

#[test]
fn without_a_device_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = command();
    record.arg("record").arg("--out").arg(folder.path()).env("CUDA_VISIBLE_DEVICES", "-1");
    let run = run(&mut record);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.starts_with("error: no CUDA device: "), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
