use super::*;
use plumbline_reference::format::{BF16, E4M3FN, F16, F32, Policy};
use std::fs;
use std::path::Path;

/// What a device that does as the definition says is recorded as.
fn recording() -> Recording {
    let widening = Cast::new(E4M3FN, F16).with_policy(Policy::IEEE);
    let conversions = [Cast::new(F32, E4M3FN), Cast::new(F16, E4M3FN), widening, Cast::new(F16, BF16)];
    let conversion = |cast: Cast| Conversion {
        cast,
        instruction: "cvt".to_owned(),
        digest: 0x0123_4567_89ab_cdef,
        staircase: Conversion::has_staircase(&cast).then(|| Staircase::new(&cast)),
    };
    Recording {
        date: "2026-01-31".to_owned(),
        command: "cargo xtask record".to_owned(),
        version: "0.1.0".to_owned(),
        device: Device { name: "A device".to_owned(), properties: [("a".to_owned(), "b".to_owned())].into() },
        conversions: conversions.map(conversion).into(),
    }
}

fn text() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/recording.json");
    recording().write(&file).unwrap();
    fs::read_to_string(file).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.json");
    fs::write(&file, "what stood there before").unwrap();
    recording().write(&file).unwrap();
    assert_eq!(Recording::read(&file).unwrap(), recording());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
}

#[test]
fn the_file_has_bit_patterns() {
    let text = text();
    // Half of the smallest E4M3FN is the last that rounds to 0; the same in both signs.
    for part in ["\"3a800001 01\"", "\"ba800001 81\"", "\"38 3c00\"", "\"0123456789abcdef\"", "4294967296"] {
        assert!(text.contains(part), "no {part}");
    }
    // The digest alone of the last.
    assert_eq!(text.matches("\"steps\"").count(), 3);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = recording().write(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} cannot be written: ", folder.path().display())), "{error}");
    assert!(error.ends_with("choose another --out"), "{error}");
    let error = Recording::read(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} cannot be read: ", folder.path().display())), "{error}");
}

#[test]
fn a_flaw_is_named_with_its_file_and_entry() {
    let text = text();
    let is_named = |from: &str, to: &str, place: &str, why: &str| {
        assert!(text.contains(from), "no {from}");
        let error =
            Recording::parse(Path::new("a.json"), &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("a.json: {place}: ")), "{error}");
        assert!(
            error.contains(why) && error.ends_with("; record it again with `cargo xtask record`"),
            "{error}"
        );
    };
    let step = |to: &str, why: &str| is_named("\"3a800001 01\"", to, "conversions[0].steps[1]", why);
    for malformed in [
        "\"3a800001\"",
        "\"3a80001 01\"",
        "\"+a800001 01\"",
        "\"3a800001 101\"",
        "\"3a800001 01 02\"",
        "\"\"",
    ] {
        step(malformed, "is not a pattern of f32 and a code of e4m3fn of the form `00000000 00`");
    }
    step("\"00000000 01\"", "is not above the step before it");
    step("\"3a800001 00\"", "has the code of the step before it");
    is_named("\"00000000 00\",", "", "conversions[0].steps[0]", "the first step must begin at pattern 0");
    is_named("4294967296", "65536", "conversions[0].inputs", "65536, but f32 has 4294967296 codes");
    is_named("0123456789abcdef", "0123", "conversions[0].digest", "`0123` is not 16 hex digits");
    is_named(
        "plumbline.hardware/1",
        "plumbline.hardware/2",
        "schema",
        "this version reads plumbline.hardware/1",
    );
    is_named("\"f32\"", "\"f16\"", "conversions[0].inputs", "f16 has 65536 codes");
    is_named("\"f32\"", "\"f64\"", "conversions[0].op", "f64 has 2^64 codes");
    is_named("\"f32\"", "\"f31\"", "conversions[0].op.cast.from", "unknown format `f31`");
    is_named("nearest_even", "stochastic", "conversions[0].op", "stochastic rounding");
    is_named("\"instruction\"", "\"instructions\"", "conversions[0].instructions", "unknown field");
    is_named("{", "[", "line 2", "is not JSON");
}

#[test]
fn one_cast_has_one_entry() {
    let twice =
        Recording { conversions: [recording().conversions, recording().conversions].concat(), ..recording() };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twice.json");
    twice.write(&file).unwrap();
    let error = Recording::read(&file).unwrap_err().to_string();
    let part = "conversions[4].op: there is another entry of {cast: {from: f32, to: e4m3fn}}";
    assert!(error.contains(part), "{error}");
}
