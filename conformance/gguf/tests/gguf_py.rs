//! Files that the Python package of llama.cpp wrote, by the script beside them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_gguf::{ALL, Array, Model, Type, Value, ValueType};
use std::path::Path;

fn open(name: &str) -> Model {
    Model::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

fn model() -> Model {
    open("gguf_py.gguf")
}

#[test]
fn metadata() {
    let array = |ty, values: &[Value]| Value::from(Array::new(ty, values.to_vec()).unwrap());
    let ints =
        |values: &[i32]| array(ValueType::I32, &values.iter().map(|&value| value.into()).collect::<Vec<_>>());
    let expected: [(&str, Value); 18] = [
        ("general.architecture", "llama".into()),
        ("general.alignment", 64u32.into()),
        ("test.u8", u8::MAX.into()),
        ("test.i8", i8::MIN.into()),
        ("test.u16", u16::MAX.into()),
        ("test.i16", i16::MIN.into()),
        ("test.u32", u32::MAX.into()),
        ("test.i32", i32::MIN.into()),
        ("test.f32", 0.1f32.into()),
        ("test.bool", true.into()),
        ("test.string", "Größe\n".into()),
        ("test.u64", u64::MAX.into()),
        ("test.i64", i64::MIN.into()),
        ("test.f64", 0.1f64.into()),
        ("test.tokens", array(ValueType::String, &["<s>", "", "a b", "é"].map(Value::from))),
        ("test.scores", array(ValueType::F32, &[0f32, -1.5, 3.0].map(Value::from))),
        ("test.flags", array(ValueType::Bool, &[true, false].map(Value::from))),
        ("test.nested", array(ValueType::Array, &[ints(&[1, 2]), ints(&[3])])),
    ];
    let model = model();
    assert_eq!((model.version(), model.alignment(), model.data_offset()), (3, 64, 1024));
    let read: Vec<_> = model.metadata().iter().map(|entry| (entry.key(), entry.value().clone())).collect();
    assert_eq!(read, expected);
}

/// Names, types, shapes, offsets and sizes as that package reads them back.
#[test]
fn tensors() {
    let model = model();
    let read: Vec<_> = model
        .tensors()
        .iter()
        .map(|tensor| (tensor.name(), tensor.ty(), tensor.shape(), tensor.offset(), tensor.data().len()))
        .collect();
    let expected: [(&str, Type, &[usize], usize, usize); 7] = [
        ("norm.weight", Type::F32, &[5], 1024, 20),
        ("cube.weight", Type::F16, &[2, 3, 4], 1088, 48),
        ("q8_0.weight", Type::Q8_0, &[3, 64], 1152, 204),
        ("q4_0.weight", Type::Q4_0, &[3, 64], 1408, 108),
        ("bf16.weight", Type::BF16, &[3, 64], 1536, 384),
        ("q4_k.weight", Type::Q4_K, &[2, 256], 1920, 288),
        ("ids", Type::I64, &[2, 2], 2240, 32),
    ];
    assert_eq!(read, expected);
}

#[test]
fn data() {
    let model = model();
    let data = |name| model.tensor(name).unwrap().data();
    // -40, -39.75, ...
    let norm: Vec<_> = (0..5u8).flat_map(|i| (f32::from(i) / 4.0 - 40.0).to_le_bytes()).collect();
    assert_eq!(data("norm.weight"), norm);
    // The upper halves of the same numbers.
    assert_eq!(data("bf16.weight")[..6], [0x20, 0xc2, 0x1f, 0xc2, 0x1e, 0xc2]);
    // f16 -40, -39.75; the second row begins 64 values further on, at -24.
    assert_eq!(data("cube.weight")[..4], [0x00, 0xd1, 0xf8, 0xd0]);
    assert_eq!(data("cube.weight")[8..10], [0x00, 0xce]);
    // d = 40/127 in f16, then -127, -126, ...
    assert_eq!(data("q8_0.weight")[..4], [0x0a, 0x35, 0x81, 0x82]);
    // d = -40/-8 in f16, then both halves' first values.
    assert_eq!(data("q4_0.weight")[..3], [0x00, 0x45, 0x10]);
    assert_eq!(data("q4_k.weight"), (0..288u32).map(|i| i as u8).collect::<Vec<_>>());
    let ids: Vec<_> = [1i64, -2, 3, -4].iter().flat_map(|id| id.to_le_bytes()).collect();
    assert_eq!(data("ids"), ids);
}

/// Numbers, names and sizes of all types but two: the package lacks q2_0, and its q8_1 is not
/// ggml's. Every byte of a tensor is its type's number, so that a wrong size shows.
#[test]
fn types() {
    let model = open("gguf_py_types.gguf");
    let expected = ALL.iter().filter(|ty| !["q8_1", "q2_0"].contains(&ty.name));
    let mut end = model.data_offset();
    let mut count = 0;
    for (tensor, ty) in model.tensors().iter().zip(expected) {
        assert_eq!((tensor.ty(), tensor.name().to_lowercase()), (*ty, ty.name.to_lowercase()));
        assert_eq!(tensor.shape(), [2, ty.block_values]);
        assert_eq!(tensor.data(), vec![ty.number as u8; 2 * ty.block_bytes]);
        assert_eq!(tensor.offset(), end.next_multiple_of(32));
        end = tensor.offset() + tensor.data().len();
        count += 1;
    }
    assert_eq!((count, model.tensors().len()), (ALL.len() - 2, ALL.len() - 2));
}
