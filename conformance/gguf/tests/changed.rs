//! A mapped file that is written to meanwhile. It shows where the system lets files be written
//! that are mapped.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_gguf::{Array, Model, Problem, Value, ValueType, WriteError, Writer};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the text. Its first is the one that changes: a check of the whole takes so long
/// that the byte is another one before a copy can be made.
const LENGTH: usize = 1 << 20;
const ROUNDS: usize = 500;

/// Writes a text to a file, as the value of `text` and as the element of `texts`, and says
/// where the two begin.
fn write(path: &Path) -> [u64; 2] {
    let text = "a".repeat(LENGTH);
    let texts = Array::new(ValueType::String, [Value::from(text.clone())]).unwrap();
    Writer::new().metadata("text", text).metadata("texts", texts).write(path).unwrap();
    let bytes = fs::read(path).unwrap();
    let starts: Vec<_> = (1..bytes.len()).filter(|&at| bytes[at..].starts_with(&[b'a'; 16])).collect();
    let starts = starts.iter().filter(|&&at| bytes[at - 1] != b'a').map(|&at| at as u64);
    starts.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn texts_are_utf8_whatever_another_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let starts = write(&path);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let ended = AtomicBool::new(false);
    let (mut read, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for byte in [0xff, b'a'] {
                    starts.iter().for_each(|&at| file.write_all_at(&[byte], at).unwrap());
                }
            }
        });
        let checked = (0..ROUNDS).all(|_| match Model::open(&path) {
            Ok(model) => {
                read += 1;
                let array = model.value("texts").cloned();
                let elements: Vec<_> = match &array {
                    Some(Value::Array(array)) => array.iter().collect(),
                    _ => Vec::new(),
                };
                let texts = elements.iter().chain(model.value("text")).filter_map(Value::as_str);
                texts.into_iter().all(|text| str::from_utf8(text.as_bytes()).is_ok())
            }
            Err(error) => {
                refused += 1;
                error.to_string().ends_with("model.gguf")
            }
        });
        ended.store(true, Ordering::Relaxed);
        assert!(checked, "a text is not UTF-8, or the error names no file");
    });
    assert!(read > 0 && refused > 0, "the file was read {read} times and refused {refused} times");
}

#[test]
fn an_array_that_changed_ends_early_and_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let texts = Array::new(ValueType::String, ["one", "two", "six"].map(Value::from)).unwrap();
    let flags = Array::new(ValueType::Bool, [true, false].map(Value::from)).unwrap();
    Writer::new().metadata("texts", texts).metadata("flags", flags).write(&path).unwrap();
    let (model, bytes) = (Model::open(&path).unwrap(), fs::read(&path).unwrap());
    let at = |part: &[u8]| bytes.windows(part.len()).position(|window| window == part).unwrap() as u64;
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff], at(b"two")).unwrap();
    file.write_all_at(&[2], at(b"flags") + 21).unwrap();
    let array = |key| match model.value(key) {
        Some(Value::Array(array)) => array,
        other => panic!("{other:?}"),
    };
    assert_eq!(array("texts").iter().collect::<Vec<_>>(), [Value::from("one")]);
    let mut elements = array("texts").iter();
    assert_eq!((elements.next().is_some(), elements.next(), elements.next()), (true, None, None));
    assert_eq!(array("flags").iter().count(), 0);
    for key in ["texts", "flags"] {
        let error = Writer::new().metadata(key, array(key).clone()).to_bytes().unwrap_err();
        assert!(matches!(error, WriteError::Changed(_)), "{error}");
        assert!(error.to_string().contains("read that file anew"), "{error}");
    }
    let problem = Model::parse(fs::read(&path).unwrap()).unwrap_err().problem;
    assert!(matches!(problem, Problem::Utf8 { .. }), "{problem}");
}
