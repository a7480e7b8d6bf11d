//! What is written is read, on files made at random.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_gguf::{
    ALIGNMENT_KEY, ALL, Array, MAX_DEPTH, MAX_TEXT, Model, ShapeError, Type, Value, ValueType, WriteError,
    Writer,
};
use proptest::prelude::*;
use proptest::sample::select;
use std::fs;

/// A value of that type, every bit pattern of numbers among them.
fn value(ty: ValueType, depth: usize) -> BoxedStrategy<Value> {
    match ty {
        ValueType::U8 => any::<u8>().prop_map(Value::from).boxed(),
        ValueType::I8 => any::<i8>().prop_map(Value::from).boxed(),
        ValueType::U16 => any::<u16>().prop_map(Value::from).boxed(),
        ValueType::I16 => any::<i16>().prop_map(Value::from).boxed(),
        ValueType::U32 => any::<u32>().prop_map(Value::from).boxed(),
        ValueType::I32 => any::<i32>().prop_map(Value::from).boxed(),
        ValueType::F32 => any::<u32>().prop_map(|bits| f32::from_bits(bits).into()).boxed(),
        ValueType::Bool => any::<bool>().prop_map(Value::from).boxed(),
        ValueType::String => text().prop_map(Value::from).boxed(),
        ValueType::Array => array(depth + 1).prop_map(Value::from).boxed(),
        ValueType::U64 => any::<u64>().prop_map(Value::from).boxed(),
        ValueType::I64 => any::<i64>().prop_map(Value::from).boxed(),
        ValueType::F64 => any::<u64>().prop_map(|bits| f64::from_bits(bits).into()).boxed(),
    }
}

/// An array with up to two levels of others inside.
fn array(depth: usize) -> impl Strategy<Value = Array> {
    let types: Vec<_> =
        ValueType::ALL.into_iter().filter(|&ty| depth < 3 || ty != ValueType::Array).collect();
    select(types).prop_flat_map(move |ty| {
        prop::collection::vec(value(ty, depth), 0..4).prop_map(move |values| Array::new(ty, values).unwrap())
    })
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

/// Type, shape and bytes.
fn tensor() -> impl Strategy<Value = (Type, Vec<usize>, Vec<u8>)> {
    (select(ALL), prop::collection::vec(0usize..4, 0..=4)).prop_flat_map(|(ty, mut shape)| {
        match shape.last_mut() {
            Some(values) => *values *= ty.block_values,
            None if ty.block_values > 1 => shape.push(ty.block_values),
            None => {}
        }
        let bytes = ty.bytes_of(&shape).unwrap();
        (Just(ty), Just(shape), prop::collection::vec(any::<u8>(), bytes))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(
        version in 2u32..=3,
        alignment in prop::option::of(0u32..=12),
        entries in prop::collection::btree_map(
            text(), select(&ValueType::ALL[..]).prop_flat_map(|ty| value(ty, 0)), 0..6
        ),
        tensors in prop::collection::btree_map(text(), tensor(), 0..6),
    ) {
        let mut writer = Writer::new().version(version);
        for (key, value) in &entries {
            writer = writer.metadata(key, value.clone());
        }
        if let Some(log2) = alignment {
            writer = writer.alignment(1 << log2);
        }
        for (name, (ty, shape, data)) in &tensors {
            writer = writer.tensor(name, *ty, shape.clone(), data.clone());
        }
        let model = Model::parse(writer.to_bytes().unwrap()).unwrap();

        prop_assert_eq!(model.version(), version);
        prop_assert_eq!(model.alignment(), alignment.map_or(32, |log2| 1 << log2));
        let read = model.metadata().iter().map(|entry| (entry.key(), entry.value()));
        let read: Vec<_> = read.filter(|(key, _)| *key != ALIGNMENT_KEY).collect();
        prop_assert_eq!(read, entries.iter().map(|(key, value)| (&key[..], value)).collect::<Vec<_>>());
        for (key, value) in &entries {
            prop_assert_eq!(model.value(key), Some(value));
            if let Value::Array(array) = value {
                prop_assert_eq!(array.iter().count(), array.len());
                let again = Array::new(array.element(), array).unwrap();
                prop_assert_eq!(&Value::from(again), value);
            }
        }
        let read: Vec<_> = model
            .tensors()
            .iter()
            .map(|tensor| (tensor.name(), tensor.ty(), tensor.shape(), tensor.data()))
            .collect();
        let written: Vec<_> =
            tensors.iter().map(|(name, (ty, shape, data))| (&name[..], *ty, &shape[..], &data[..])).collect();
        prop_assert_eq!(read, written);
        for (name, (_, shape, data)) in &tensors {
            let tensor = model.tensor(name).unwrap();
            prop_assert_eq!(tensor.data(), &data[..]);
            prop_assert_eq!(tensor.values(), shape.iter().product::<usize>() as u64);
        }
    }

    /// A file with some bytes changed is refused, or every part of it is inside. cargo-fuzz
    /// goes further.
    #[test]
    fn changed_bytes_are_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut file = include_bytes!("data/gguf_py.gguf").to_vec();
        for (index, byte) in changes {
            let index = index.index(file.len());
            file[index] = byte;
        }
        match Model::parse(&file[..]) {
            Err(error) => prop_assert!(error.at <= file.len()),
            Ok(model) => {
                for tensor in model.tensors() {
                    let start = tensor.offset();
                    prop_assert_eq!(&file[start..start + tensor.data().len()], tensor.data());
                }
            }
        }
    }
}

#[test]
fn a_file_is_mapped_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let writer = Writer::new().tensor("w", Type::F16, [2, 2], [1, 2, 3, 4, 5, 6, 7, 8]);
    writer.write(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), writer.to_bytes().unwrap());
    let tensor = {
        let model = Model::open(&path).unwrap();
        model.tensor("w").unwrap().clone()
    };
    // It outlives the model, and is read wherever it is taken.
    std::thread::spawn(move || assert_eq!(tensor.data(), [1, 2, 3, 4, 5, 6, 7, 8])).join().unwrap();
    assert_eq!(Model::read(&path).unwrap().tensor("w").unwrap().data()[7], 8);

    fs::write(&path, "no model").unwrap();
    for error in [Model::open(&path).unwrap_err(), Model::read(&path).unwrap_err()] {
        assert!(error.to_string().ends_with("model.gguf"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(r#"begins with "no m""#), "{cause}");
    }
    let error = Model::open(folder.path().join("absent")).unwrap_err();
    assert!(error.to_string().ends_with("absent cannot be read"), "{error}");
}

/// Ten gigabytes of which the file system stores a few pages: those of Unix do so unasked.
#[cfg(unix)]
#[test]
fn a_large_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.gguf");
    let mut writer = Writer::new().metadata("general.architecture", "llama");
    for layer in 0..50 {
        writer = writer.zeros(format!("blk.{layer}.ffn_up.weight"), Type::Q4_K, [14_336, 24_576]);
    }
    let writer = writer.tensor("last", Type::F32, [1], [1, 2, 3, 4]);
    writer.write(&path).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    assert!(length > 9_900_000_000, "{length}");
    let model = Model::open(&path).unwrap();
    assert_eq!(model.tensors().len(), 51);
    for tensor in &model.tensors()[..50] {
        assert_eq!(tensor.data().len(), 14_336 * 24_576 / 256 * 144);
    }
    assert_eq!(model.tensor("last").unwrap().data(), [1, 2, 3, 4]);
    assert!(model.tensors()[49].data().ends_with(&[0; 100]));

    // Cut off by one byte before the last tensor's end.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(model.tensor("last").unwrap().offset() as u64 + 3).unwrap();
    drop(model);
    let error = Model::open(&path).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("tensor `last` takes 4 bytes"), "{cause}");
}

#[test]
fn what_cannot_be_written() {
    let refused = |writer: Writer, part: &str| {
        let text = writer.to_bytes().unwrap_err().to_string();
        assert!(text.contains(part), "no `{part}` in: {text}");
    };
    let new = Writer::new;
    refused(new().version(1), "version 1");
    refused(new().metadata("k", 1u8).metadata("k", 2u8), "`k` was given twice");
    refused(new().metadata("k".repeat(65_536), 1u8), "65535");
    refused(new().alignment(24), "power of two");
    refused(new().metadata(ALIGNMENT_KEY, 32u64), "as a u32");
    let text = || Value::from("a".repeat(MAX_TEXT + 1));
    let texts = |texts: Vec<Value>| Value::from(Array::new(ValueType::String, texts).unwrap());
    let around = |value: Value| Value::from(Array::new(value.ty(), [value]).unwrap());
    refused(new().metadata("k", text()), "a text of `k` is longer than 64 MiB");
    refused(new().metadata("k", texts(vec!["a".into(), text()])), "a text of `k` is longer than 64 MiB");
    refused(new().metadata("k", around(texts(vec![text()]))), "a text of `k` is longer than 64 MiB");
    let nested = |depth| (0..depth).fold(Value::from(1u8), |value, _| around(value));
    assert!(Model::parse(new().metadata("k", nested(MAX_DEPTH)).to_bytes().unwrap()).is_ok());
    refused(new().metadata("k", nested(MAX_DEPTH + 1)), "`k` nests arrays deeper than 8; give flatter");
    // Deeper than any stack.
    refused(new().metadata("k", nested(5_000)), "deeper than 8");
    refused(new().zeros("w", Type::F32, [1]).zeros("w", Type::F32, [1]), "`w` was given twice");
    refused(new().zeros("w", Type::F32, [1; 5]), "5 dimensions");
    refused(new().zeros("w", Type::Q4_0, [33]), "blocks of 32");
    refused(new().tensor("w", Type::F32, [2], [0; 7]), "takes 8 bytes, 7 were given");
    let large = new().zeros("a", Type::I8, [1 << 62]).zeros("b", Type::I8, [1 << 62]);
    let error = large.to_bytes().unwrap_err();
    assert!(matches!(error, WriteError::Shape { problem: ShapeError::TooLarge, .. }), "{error}");
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Writer::new().write(folder.path()).unwrap_err();
    assert!(
        error.to_string().ends_with(&format!("{} cannot be written", folder.path().display())),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());

    // What cannot be written does not cost what is there.
    let path = folder.path().join("model.gguf");
    fs::write(&path, "kept").unwrap();
    assert!(matches!(Writer::new().version(1).write(&path), Err(WriteError::Version(1))));
    assert_eq!(fs::read(&path).unwrap(), b"kept");

    // A file is written over the one that its metadata is mapped from.
    let words = Array::new(ValueType::String, ["a", "bc"].map(Value::from)).unwrap();
    Writer::new().metadata("words", words.clone()).write(&path).unwrap();
    let mapped = Model::open(&path).unwrap().value("words").unwrap().clone();
    Writer::new().metadata("again", mapped).write(&path).unwrap();
    assert_eq!(Model::read(&path).unwrap().value("again"), Some(&words.into()));
}
