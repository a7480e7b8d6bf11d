//! Every malformed file is an error that says what is wrong, where, and what to do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_gguf::{Array, Error, Model, Problem, ShapeError, Type, Value, ValueType, What, Writer};
use std::time::{Duration, Instant};

/// A file as bytes, written piece by piece.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(entries)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    /// A tensor's record, dimensions as in files: the innermost first.
    fn record(self, name: &str, dimensions: &[u64], ty: u32, offset: u64) -> Self {
        let raw = self.text(name.as_bytes()).u32(dimensions.len() as u32);
        dimensions.iter().fold(raw, |raw, &n| raw.u64(n)).u32(ty).u64(offset)
    }

    /// Zeros up to a multiple of the default alignment, and some bytes of data.
    fn data(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + bytes, 0);
        self
    }

    fn parse(&self) -> Result<Model, Error> {
        Model::parse(&self.0[..])
    }

    /// Refused at that byte with a message that has these parts.
    #[track_caller]
    fn refused(&self, at: usize, parts: &[&str]) -> Problem {
        let error = self.parse().expect_err("it is malformed");
        let text = error.to_string();
        assert!(text.starts_with(&format!("byte {at}: ")), "{text}");
        for part in parts {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
        assert!(!text.contains(char::is_control), "{text:?}");
        error.problem
    }
}

/// Where the first entry or record begins.
const HEADER: usize = 24;

#[test]
fn the_raw_file_is_good() {
    let model = Raw::new(1, 1).text(b"k").u32(0).bytes(&[7]).record("w", &[3, 2], 0, 0).data(24).parse();
    let model = model.unwrap();
    assert_eq!(model.value("k"), Some(&Value::U8(7)));
    let tensor = model.tensor("w").unwrap();
    assert_eq!((tensor.ty(), tensor.shape(), tensor.data().len()), (Type::F32, &[2, 3][..], 24));
    assert_eq!((tensor.offset(), model.data_offset(), model.alignment()), (96, 96, 32));
}

#[test]
fn cut_off_anywhere() {
    let texts = Array::new(ValueType::String, ["a", "bc"].map(Value::from)).unwrap();
    let nested = Array::new(ValueType::Array, [texts.clone().into()]).unwrap();
    let file = Writer::new()
        .metadata("text", "value")
        .metadata("texts", texts)
        .metadata("nested", nested)
        .metadata("flag", true)
        .tensor("a", Type::Q8_0, [2, 32], vec![1; 68])
        .tensor("b", Type::F32, [8], vec![2; 32])
        .to_bytes()
        .unwrap();
    assert!(Model::parse(&file[..]).is_ok());
    for length in 0..file.len() {
        let error = Model::parse(&file[..length]).expect_err("it is cut off");
        assert!(error.at <= length, "{length}: {error}");
        assert!(
            matches!(
                error.problem,
                Problem::Truncated { .. } | Problem::Count { .. } | Problem::PastEnd { .. }
            ),
            "{length}: {error}"
        );
    }
}

#[test]
fn magic_and_version() {
    Raw(Vec::new()).refused(0, &["ends inside the magic", "4 bytes where 0 are left", "fetch"]);
    Raw(b"PK\x03\x04....".to_vec()).refused(0, &[r#"begins with "PK\x03\x04""#, "give a GGUF file"]);
    let version = |version| Raw(b"GGUF".to_vec()).u32(version).u64(0).u64(0);
    assert!(version(2).parse().is_ok());
    for number in [0, 1, 4, 0x0001_0003] {
        version(number).refused(4, &[&format!("version {number} "), "convert the model again"]);
    }
    version(3u32.swap_bytes()).refused(4, &["version 3 ", "big-endian", "gguf_convert_endian.py"]);
}

#[test]
fn counts_that_no_bytes_back() {
    for count in [1, u64::from(u32::MAX), u64::MAX / 24, u64::MAX] {
        Raw::new(count, 0).refused(8, &[&format!("{count} tensors do not fit into the 8 bytes"), "fetch"]);
        Raw::new(0, count).refused(16, &[&format!("{count} metadata entries"), "0 bytes"]);
        let array = |element| Raw::new(0, 1).text(b"key").u32(9).u32(element).u64(count).bytes(&[]);
        array(0).refused(HEADER + 19, &[&format!("{count} values")]);
        array(8).refused(HEADER + 19, &[&format!("{count} texts")]);
        array(9).refused(HEADER + 19, &[&format!("{count} arrays")]);
    }
    let key = |length| Raw::new(0, 1).u64(length).bytes(&[b'k'; 8]);
    key(9).refused(HEADER + 8, &["inside the key of metadata entry 0", "9 bytes where 8 are left"]);
    key(u64::MAX).refused(HEADER, &["key of metadata entry 0", "more than 65535"]);
    let text = |length| Raw::new(0, 1).text(b"key").u32(8).u64(length);
    text(1).refused(HEADER + 23, &["the value of `key`", "1 bytes where 0 are left"]);
    text(u64::MAX).refused(HEADER + 15, &["the value of `key`", "more than the 64 MiB"]);
}

#[test]
fn values() {
    let value = |ty, bytes: &[u8]| Raw::new(0, 1).text(b"key").u32(ty).bytes(bytes);
    for ty in [13, 255, u32::MAX] {
        value(ty, &[0]).refused(HEADER + 11, &["the value of `key`", &format!("value type {ty}"), "0 to 12"]);
    }
    value(7, &[2]).refused(HEADER + 15, &["a bool of 2"]);
    value(8, b"\x03\0\0\0\0\0\0\0a\xffb").refused(HEADER + 24, &["the value of `key` is not UTF-8"]);
    let array = |element: u32, count: u64, bytes: &[u8]| {
        Raw::new(0, 1).text(b"key").u32(9).u32(element).u64(count).bytes(bytes)
    };
    array(13, 0, &[]).refused(HEADER + 15, &["value type 13"]);
    array(7, 3, &[0, 1, 5]).refused(HEADER + 29, &["a bool of 5"]);
    array(8, 1, b"\x01\0\0\0\0\0\0\0\xff").refused(HEADER + 35, &["not UTF-8"]);
    Raw::new(0, 1)
        .text(b"k\xc3")
        .u32(0)
        .bytes(&[0])
        .refused(HEADER + 9, &["key of metadata entry 0", "UTF-8"]);
    let twice = Raw::new(0, 2).text(b"a\n").u32(0).bytes(&[0]).text(b"a\n").u32(0).bytes(&[0]);
    twice.refused(HEADER + 15, &[r"the key `a\n` is there twice"]);
}

#[test]
fn arrays_in_arrays() {
    let nested = |depth: usize| {
        let raw = Raw::new(0, 1).text(b"key").u32(9);
        (1..depth).fold(raw, |raw, _| raw.u32(9).u64(1)).u32(0).u64(1).bytes(&[5])
    };
    let model = nested(8).parse().unwrap();
    let mut value = model.value("key").unwrap().clone();
    for _ in 0..8 {
        let Value::Array(array) = value else { panic!("{value:?}") };
        assert_eq!(array.len(), 1);
        value = array.iter().next().unwrap();
    }
    assert_eq!(value, Value::U8(5));
    nested(9).refused(HEADER + 15 + 8 * 12, &["the value of `key` nests arrays deeper than 8"]);
    // Deeper than any stack.
    nested(1_000_000).refused(HEADER + 15 + 8 * 12, &["deeper than 8"]);
}

#[test]
fn alignment() {
    let alignment = |ty, bytes: &[u8]| Raw::new(0, 1).text(b"general.alignment").u32(ty).bytes(bytes);
    for wrong in [0u32, 3, 33, u32::MAX] {
        alignment(4, &wrong.to_le_bytes())
            .refused(HEADER + 29, &[&format!("general.alignment is {wrong}, not a power of two"), "32"]);
    }
    alignment(10, &[32, 0, 0, 0, 0, 0, 0, 0]).refused(HEADER + 25, &["of type u64, not u32"]);
    assert_eq!(alignment(4, &(1u32 << 31).to_le_bytes()).parse().unwrap().alignment(), 1 << 31);
    let at = |offset| Raw::new(1, 0).record("w", &[1], 0, offset).data(100);
    assert!(at(64).parse().is_ok());
    at(4).refused(HEADER + 25, &["tensor `w` begins 4 bytes into the data", "multiple of 32"]);
}

#[test]
fn dimensions_and_types() {
    let tensor = |dimensions: &[u64], ty| Raw::new(1, 0).record("w", dimensions, ty, 0).data(1024);
    assert!(tensor(&[1; 4], 0).parse().is_ok());
    tensor(&[1; 5], 0).refused(HEADER + 9, &["tensor `w` has 5 dimensions", "at most 4"]);
    for number in [43, u32::MAX] {
        tensor(&[1], number).refused(HEADER + 21, &[&format!("unknown type {number}"), "up to 42"]);
    }
    for (number, name, instead) in
        [(4, "q4_2", "q4_0"), (33, "q4_0_8_8", "q4_0"), (38, "iq4_nl_8_8", "iq4_nl")]
    {
        tensor(&[1], number).refused(HEADER + 21, &[name, "removed from ggml", &format!("to {instead}")]);
    }
    tensor(&[48, 2], 8).refused(HEADER + 9, &["`w` of type q8_0 has rows of 48 values", "blocks of 32"]);
    let too_large = |dimensions: &[u64], ty| {
        let problem = tensor(dimensions, ty).refused(HEADER + 9, &["more bytes than a machine can address"]);
        assert!(matches!(problem, Problem::Shape { problem: ShapeError::TooLarge, .. }), "{problem:?}");
    };
    too_large(&[u64::MAX], 0);
    too_large(&[1 << 32, 1 << 32], 24);
    too_large(&[1 << 16; 4], 0);
    too_large(&[1 << 62], 0);
    too_large(&[256, 1 << 57], 14);
    assert!(tensor(&[u64::MAX - 255, u64::MAX, 0], 14).parse().unwrap().tensors()[0].data().is_empty());
}

#[test]
fn data_outside_the_file() {
    let tensor = |values, offset, data| Raw::new(1, 0).record("w", &[values], 0, offset).data(data);
    assert!(tensor(16, 32, 96).parse().is_ok());
    let end = tensor(16, 32, 95);
    end.refused(
        HEADER + 25,
        &["tensor `w` takes 64 bytes from byte 96 on, but the file ends at 159", "fetch"],
    );
    let beyond = u64::MAX - 31;
    tensor(16, beyond, 64).refused(HEADER + 25, &[&format!("from byte {}", u128::from(beyond) + 64)]);
    tensor(1 << 60, 0, 64).refused(HEADER + 25, &[&format!("takes {} bytes", 1u64 << 62)]);
    // An empty tensor has a place too.
    tensor(0, 128, 64).refused(HEADER + 25, &["takes 0 bytes from byte 192 on"]);
    assert!(tensor(0, 64, 64).parse().is_ok());
}

#[test]
fn tensors_in_one_place() {
    let pair = |a: (&str, u64, u64), b: (&str, u64, u64)| {
        Raw::new(2, 0).record(a.0, &[a.1], 0, a.2).record(b.0, &[b.1], 0, b.2).data(1024)
    };
    assert!(pair(("a", 8, 32), ("b", 8, 0)).parse().is_ok());
    pair(("a", 8, 0), ("a", 8, 32)).refused(HEADER + 33, &["tensor `a` is there twice"]);
    pair(("a", 8, 0), ("b", 8, 0)).refused(HEADER + 58, &["tensors `a` and `b` overlap"]);
    pair(("a", 8, 32), ("b", 9, 0)).refused(HEADER + 25, &["tensors `b` and `a` overlap"]);
    // A long one over several short ones, an empty one inside another.
    assert!(pair(("a", 64, 0), ("b", 0, 32)).parse().is_ok());
    let long =
        Raw::new(3, 0).record("c", &[1], 0, 128).record("a", &[64], 0, 0).record("b", &[1], 0, 64).data(1024);
    long.refused(HEADER + 33 * 2 + 25, &["tensors `a` and `b` overlap"]);
}

#[test]
fn hostile_names_are_one_short_line() {
    let name = format!("\x1b[31m\n\r\u{202e}{}", "x".repeat(1000));
    let problem = Raw::new(1, 0)
        .record(&name, &[1; 5], 0, 0)
        .refused(HEADER + 8 + name.len(), &[r"\u{1b}[31m\n\r\u{202e}x", "..."]);
    assert!(problem.to_string().len() < 300);
    let what = What::Value(name.into());
    assert!(what.to_string().len() < 120, "{what}");
}

#[test]
fn many_of_everything_takes_no_time() {
    let count = 100_000u64;
    let mut raw = Raw::new(count, count + 1).text(b"texts").u32(9).u32(8).u64(count);
    raw = (0..count).fold(raw, |raw, _| raw.text(b"t"));
    raw = (0..count).fold(raw, |raw, index| raw.text(format!("{index}").as_bytes()).u32(0).bytes(&[0]));
    let good = (0..count)
        .fold(raw.clone(), |raw, index| raw.record(&format!("{index}"), &[8], 0, (count - 1 - index) * 32));
    let overlapping =
        (0..count).fold(raw, |raw, index| raw.record(&format!("{index}"), &[8], 0, index / 2 * 32));
    let start = Instant::now();
    let model = good.data(32 * count as usize).parse().unwrap();
    assert_eq!((model.tensors().len(), model.metadata().len()), (100_000, 100_001));
    let problem = overlapping.data(32 * count as usize).parse().unwrap_err().problem;
    assert!(matches!(problem, Problem::Overlap { .. }), "{problem}");
    // What compares all pairs takes 10^10 steps and minutes.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
