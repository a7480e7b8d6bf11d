//! What fuzzing starts from: small files of every kind. Written anew where
//! `PLUMBLINE_WRITE_SEEDS` is set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use plumbline_gguf::{ALL, Array, Model, Value, ValueType, Writer};
use std::fs;
use std::path::Path;

fn seeds() -> [(&'static str, Writer); 4] {
    let empty = Writer::new();
    let scalars: [Value; 12] = [
        1u8.into(),
        (-1i8).into(),
        2u16.into(),
        (-2i16).into(),
        3u32.into(),
        (-3i32).into(),
        1.5f32.into(),
        true.into(),
        "text".into(),
        4u64.into(),
        (-4i64).into(),
        2.5f64.into(),
    ];
    let mut metadata = Writer::new().metadata("general.architecture", "llama").alignment(16);
    for value in scalars {
        let ty = value.ty();
        let array = Array::new(ty, [value.clone(), value.clone()]).unwrap();
        let nested = Array::new(ValueType::Array, [array.clone().into(), array.clone().into()]).unwrap();
        metadata = metadata
            .metadata(format!("one.{ty}"), value)
            .metadata(format!("two.{ty}"), array)
            .metadata(format!("four.{ty}"), nested);
    }
    let mut types = Writer::new().alignment(8);
    for ty in ALL {
        let data: Vec<_> = (0..ty.block_bytes).map(|byte| byte as u8).collect();
        types = types.tensor(ty.name, *ty, [ty.block_values], data);
    }
    let mut shapes = Writer::new().version(2).metadata("general.name", "shapes");
    for shape in [&[][..], &[3], &[2, 3], &[2, 0, 3], &[1, 2, 3, 4]] {
        let name = format!("{}d.{}", shape.len(), shape.contains(&0));
        shapes = shapes.zeros(name, plumbline_gguf::Type::F16, shape);
    }
    [("empty", empty), ("metadata", metadata), ("types", types), ("shapes", shapes)]
}

#[test]
fn seeds_are_what_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, writer) in seeds() {
        let (path, bytes) = (folder.join(format!("{name}.gguf")), writer.to_bytes().unwrap());
        if std::env::var_os("PLUMBLINE_WRITE_SEEDS").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).unwrap() == bytes, "{name}: set PLUMBLINE_WRITE_SEEDS to write it anew");
        let model = Model::parse(bytes).unwrap();
        assert_eq!(model.tensors().is_empty(), !matches!(name, "types" | "shapes"));
    }
}
