//! Arbitrary bytes as a file: whatever parses is walked whole, and is what the crate says of
//! every file that parses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use plumbline_gguf::{MAX_DIMENSIONS, Model, Value, Writer};

fuzz_target!(|bytes: &[u8]| match Model::parse(bytes) {
    Ok(model) => {
        metadata(&model);
        tensors(&model, bytes);
        again(&model);
    }
    Err(error) => {
        assert!(error.at <= bytes.len(), "{error:?}");
        let text = error.to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
});

fn metadata(model: &Model) {
    for entry in model.metadata() {
        assert_eq!(model.value(entry.key()), Some(entry.value()));
        walk(entry.value());
    }
}

/// Every element of arrays is there, and of the array's type.
fn walk(value: &Value) {
    if let Value::Array(array) = value {
        let mut count = 0;
        for element in array {
            assert_eq!(element.ty(), array.element());
            walk(&element);
            count += 1;
        }
        assert_eq!(count, array.len());
    }
}

/// Tensors are whole, inside the file, aligned, and apart from each other.
fn tensors(model: &Model, bytes: &[u8]) {
    let mut ranges = Vec::new();
    for tensor in model.tensors() {
        assert_eq!(model.tensor(tensor.name()).map(|found| found.offset()), Some(tensor.offset()));
        assert!(tensor.shape().len() <= MAX_DIMENSIONS);
        assert_eq!(tensor.ty().bytes_of(tensor.shape()), Ok(tensor.data().len()));
        // Beside a dimension of 0 the others can be of any size.
        let values = if tensor.shape().contains(&0) { 0 } else { tensor.shape().iter().product() };
        assert_eq!(tensor.values(), values as u64);
        let range = tensor.offset()..tensor.offset() + tensor.data().len();
        assert_eq!(&bytes[range.clone()], tensor.data());
        assert!(range.start >= model.data_offset());
        assert!(range.start.is_multiple_of(model.alignment() as usize));
        if !range.is_empty() {
            ranges.push((range.start, range.end));
        }
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

/// What was read is written, and read again the same.
fn again(model: &Model) {
    // The padding of a large alignment is what takes time, and shows nothing.
    if model.alignment() > 4096 {
        return;
    }
    let mut writer = Writer::new().version(model.version());
    for entry in model.metadata() {
        writer = writer.metadata(entry.key(), entry.value().clone());
    }
    for tensor in model.tensors() {
        writer = writer.tensor(tensor.name(), tensor.ty(), tensor.shape(), tensor.data());
    }
    let written = writer.to_bytes().expect("what was read can be written");
    let read = Model::parse(written).expect("what was written can be read");
    assert_eq!((read.version(), read.alignment()), (model.version(), model.alignment()));
    assert!(read.metadata().iter().map(key_and_value).eq(model.metadata().iter().map(key_and_value)));
    assert_eq!(read.tensors().len(), model.tensors().len());
    for (read, tensor) in read.tensors().iter().zip(model.tensors()) {
        assert_eq!((read.name(), read.ty(), read.shape()), (tensor.name(), tensor.ty(), tensor.shape()));
        assert_eq!(read.data(), tensor.data());
    }
}

fn key_and_value(entry: &plumbline_gguf::Entry) -> (&str, &Value) {
    (entry.key(), entry.value())
}
