use super::process::{Failed, Failure, Process};
use super::*;
use crate::case::Criterion;
use crate::coverage::{Codes, Exercised, LayoutClass, ShapeClass, ValueClass};
use crate::judge::{Checked, Element, Fault, OutputVerdict, Scalar};
use crate::memory::MemoryFault;
use crate::report::failure;
use crate::seed::mix;
use crate::verdict::Outcome;
use plumbline_reference::DType;
use plumbline_reference::format::{E4M3FN, F32};
use plumbline_reference::ops::Cast;
use std::process::Command;
use std::time::Duration;

/// Every kind of fault, as its schema lists them.
fn faults() -> Vec<Fault> {
    let schema = schemars::schema_for!(Fault).to_value();
    let names = schema["oneOf"].as_array().unwrap().iter().map(|kind| kind["const"].clone());
    names.map(|name| serde_json::from_value(name).unwrap()).collect()
}

fn element(fault: Fault) -> Element {
    let scalar = |name: &str, dtype: DType, code| Scalar {
        name: name.to_owned(),
        dtype,
        bits: dtype.hex(code),
        value: dtype.describe(code),
    };
    Element {
        index: 3,
        coordinates: vec![1, 1],
        inputs: vec![scalar("x[1, 1]", F32.into(), 0x43e8_8000)],
        expected: scalar("expected", E4M3FN.into(), 0x7e),
        actual: scalar("actual", E4M3FN.into(), 0x7f),
        fault,
        note: None,
    }
}

fn output(fault: Fault, criterion: Criterion, max_error_over_bound: Option<f64>) -> OutputVerdict {
    OutputVerdict {
        output: 1,
        check: Some(Checked { buffer: "y".to_owned(), step: "steps[3]".to_owned() }),
        criterion,
        ok: false,
        bit_exact: false,
        elements: 4,
        mismatches: 2,
        faults: [(fault, 2)].into(),
        max_error_over_bound,
        first: Some(element(Fault::Value)),
        worst: Some(element(fault)),
        shape: None,
        explanation: None,
        guarantee: None,
        notes: None,
    }
}

fn verdict(outputs: Vec<OutputVerdict>) -> Verdict {
    let tensor = || "output 0".to_owned();
    Verdict {
        trial: "b/v/c".to_owned(),
        case: "c".to_owned(),
        origin: "c.yaml:1".to_owned(),
        about: Some("\"quotes\", \u{e9} and\nlines".to_owned()),
        op: Some(Cast::new(F32, E4M3FN).into()),
        ops: vec![Cast::new(E4M3FN, F32).into()],
        oracle: Some(crate::case::Against::Definition),
        refusal: true,
        backend: "b".to_owned(),
        variant: "v".to_owned(),
        device: "d".to_owned(),
        seed: u64::MAX,
        outcome: Outcome::Fail,
        outputs,
        memory: vec![
            MemoryFault::OutOfBounds { tensor: tensor(), offset: -1, len: 4 },
            MemoryFault::InputChanged { tensor: tensor(), index: 1 },
            MemoryFault::Unwritten { tensor: tensor(), count: 1, index: 2 },
            MemoryFault::Unstable { tensor: tensor(), count: 1, index: 3 },
        ],
        message: Some("why".to_owned()),
        stderr: Some("two\nlines".to_owned()),
        waiver: Some("reason (link)".to_owned()),
        how: [("algorithm".to_owned(), "66".to_owned())].into(),
        exercised: Some(exercised()),
        elements: 4,
        millis: 5,
        replay: "plumbline conform".to_owned(),
    }
}

fn exercised() -> Exercised {
    let mut codes = Codes::default();
    [0, 1, 0x7e, 0x80, 0xff].into_iter().for_each(|code| codes.insert(code));
    let x = || "x".to_owned();
    Exercised {
        dtypes: [(x(), "f32".to_owned())].into(),
        layouts: [(x(), [LayoutClass::Contiguous].into())].into(),
        shapes: [(x(), ShapeClass::ALL.iter().copied().collect())].into(),
        values: [(x(), ValueClass::ALL.iter().copied().collect())].into(),
        codes: [(x(), codes)].into(),
    }
}

/// Asserts that a verdict is the same after the trip, in both kinds of report.
fn assert_travels(verdict: Verdict) {
    let (line, text) = (serde_json::to_string(&verdict).unwrap(), failure(&verdict));
    let answer = Answer::Judged { verdict: Box::new(verdict), retire: false };
    let sent = serde_json::to_string(&answer).unwrap();
    let Answer::Judged { verdict: back, .. } = serde_json::from_str(&sent).unwrap() else {
        panic!("no verdict: {sent}")
    };
    assert_eq!(serde_json::to_string(&back).unwrap(), line);
    assert_eq!(failure(&back), text);
}

#[test]
fn every_kind_of_fault_travels() {
    let faults = faults();
    assert!(faults.contains(&Fault::NanMade) && faults.contains(&Fault::Value));
    for fault in faults {
        assert_travels(verdict(vec![output(fault, Criterion::BitExact, None)]));
    }
    let shape = Some("output is f32 [2]".to_owned());
    let misshapen = OutputVerdict { shape, ..output(Fault::Value, Criterion::BitExact, None) };
    assert_travels(verdict(vec![misshapen]));
    for outcome in Outcome::ALL {
        let bare = Verdict { outcome, message: None, stderr: None, waiver: None, ..verdict(vec![]) };
        assert_travels(Verdict { about: None, oracle: None, memory: vec![], ..bare });
    }
}

#[test]
fn every_error_travels() {
    let infinite = output(Fault::Value, Criterion::Ulp(0.0), Some(f64::INFINITY));
    assert!(failure(&verdict(vec![infinite.clone()])).contains("at most inf of the bound"));
    assert_travels(verdict(vec![infinite]));
    for i in 0..2000 {
        let ratio = f64::from_bits(mix(1, i) >> 1);
        if ratio.is_finite() {
            let criterion = Criterion::Allclose { rtol: ratio, atol: 1.0 / 3.0 };
            assert_travels(verdict(vec![output(Fault::Rounding, criterion, Some(ratio))]));
        }
    }
}

const HELLO: &str =
    concat!(r#"{"hello":{"protocol":1,"version":""#, env!("CARGO_PKG_VERSION"), r#"","backends":{}}}"#);

/// A worker that is a shell script.
fn start(script: &str) -> Result<Process, Failed> {
    Process::start(Command::new("sh").args(["-c", script]), Duration::from_millis(500))
}

fn ask(script: &str) -> Result<Answer, Failed> {
    let request = Request::Run("t".to_owned());
    start(&format!("echo '{HELLO}'; read request; {script}"))
        .unwrap()
        .ask(&request, Duration::from_millis(500))
}

/// How a worker failed, and what it had written to standard error.
fn end<T>(result: Result<T, Failed>) -> (String, Option<String>) {
    let Failed { failure, stderr } = result.err().expect("it fails");
    (failure.words("was silent", Duration::from_millis(500)), stderr)
}

#[cfg(unix)]
#[test]
fn a_worker_that_does_not_begin_well_is_refused() {
    let (how, stderr) = end(start("echo no device >&2; exit 2"));
    assert_eq!((&*how, stderr.as_deref()), ("ended with exit code 2", Some("no device")));
    let (how, _) = end(start(&format!("echo '{}'; sleep 5", HELLO.replace(":1,", ":2,"))));
    assert_eq!(how, "speaks version 2 of the worker protocol, not 1");
    let version = env!("CARGO_PKG_VERSION");
    let (how, _) = end(start(&format!("echo '{}'; sleep 5", HELLO.replace(version, "0.0.0"))));
    assert_eq!(how, format!("is Plumbline 0.0.0, not {version}"));
    assert_eq!(end(start("exec sleep 5")).0, "was silent for 0.5 s and was killed");
    assert_eq!(end(start("exec >&-; exec sleep 5")).0, "closed its standard output and did not end");
    let missing = Process::start(&mut Command::new("/no/such/program"), Duration::from_secs(5));
    assert!(end(missing).0.starts_with("cannot be started as /no/such/program"));
}

#[cfg(unix)]
#[test]
fn what_is_no_answer_is_passed_over() {
    let answer = Answer::Judged { verdict: Box::new(verdict(vec![])), retire: true };
    let answer = serde_json::to_string(&answer).unwrap().replace('\'', "");
    let chatty = format!("echo hello from a kernel; echo '{{}}'; printf '%s\\n' '{answer}'; sleep 5");
    assert!(matches!(ask(&chatty), Ok(Answer::Judged { retire: true, .. })));
}

#[cfg(unix)]
#[test]
fn how_a_worker_ended_is_told() {
    assert_eq!(end(ask("exit 0")).0, "ended with exit code 0");
    let (how, stderr) = end(ask("echo last words >&2; kill -SEGV $$"));
    assert!(how.contains("signal: 11 (SIGSEGV)"), "{how}");
    assert_eq!(stderr.as_deref(), Some("last words"));
    assert_eq!(ask("exec sleep 5").unwrap_err().failure, Failure::Late);
    let flood = ask("yes 0123456789 | head -c 5000 >&2; exit 3").unwrap_err().stderr.unwrap();
    assert!((1000..3000).contains(&flood.len()), "{} bytes are kept", flood.len());
}
