"""Writes both files with the package gguf of llama.cpp (0.19.0): python3 gguf_py.py FOLDER"""

import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, GGUFValueType as V, GGUFWriter, quants



def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


writer = GGUFWriter(sys.argv[1] + "/gguf_py.gguf", "llama")
writer.add_custom_alignment(64)
for key, value, kind in [
    ("u8", 255, V.UINT8),
    ("i8", -128, V.INT8),
    ("u16", 65535, V.UINT16),
    ("i16", -32768, V.INT16),
    ("u32", 2**32 - 1, V.UINT32),
    ("i32", -(2**31), V.INT32),
    ("f32", 0.1, V.FLOAT32),
    ("bool", True, V.BOOL),
    ("string", "Größe\n", V.STRING),
    ("u64", 2**64 - 1, V.UINT64),
    ("i64", -(2**63), V.INT64),
    ("f64", 0.1, V.FLOAT64),
]:
    writer.add_key_value(f"test.{key}", value, kind)
writer.add_array("test.tokens", ["<s>", "", "a b", "é"])
writer.add_array("test.scores", [0.0, -1.5, 3.0])
writer.add_array("test.flags", [True, False])
writer.add_array("test.nested", [[1, 2], [3]])

values = np.arange(2 * 3 * 64, dtype=np.float32).reshape(2, 3, 64) / 4 - 40
writer.add_tensor("norm.weight", values[0, 0, :5].copy())
writer.add_tensor("cube.weight", values.astype(np.float16)[:, :, :4].copy())
for kind in [Type.Q8_0, Type.Q4_0, Type.BF16]:
    name = kind.name.lower()
    writer.add_tensor(f"{name}.weight", quants.quantize(values[0], kind), raw_dtype=kind)
writer.add_tensor("q4_k.weight", np.arange(288, dtype=np.uint32).astype(np.uint8).reshape(2, 144), raw_dtype=Type.Q4_K)
writer.add_tensor("ids", np.array([[1, -2], [3, -4]], dtype=np.int64))
finish(writer)

# Two blocks of every type. Of q8_1 the package still has the size of long ago.
writer = GGUFWriter(sys.argv[1] + "/gguf_py_types.gguf", "llama")
for kind, (_, size) in GGML_QUANT_SIZES.items():
    if kind != Type.Q8_1:
        writer.add_tensor(kind.name, np.full((2, size), kind, dtype=np.uint8), raw_dtype=kind)
finish(writer)
