//! Tensors: what is made, what is refused, and where elements lie.

use plumbline_reference::format::{ALL, E4M3FN, F16, F32, F64};
use plumbline_reference::{DType, MAX_BYTES, Path, Tensor, TensorType, position};

fn ty(dtype: impl Into<DType>, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape)
}

#[test]
fn codes_and_bytes_are_little_endian() {
    let halves = Tensor::from_codes(ty(F16, &[2]), &[0x1234, 0xabcd]).unwrap();
    assert_eq!(halves.bytes(), [0x34, 0x12, 0xcd, 0xab]);
    let double = Tensor::from_codes(ty(F64, &[]), &[0x0102_0304_0506_0708]).unwrap();
    assert_eq!(double.bytes(), [8, 7, 6, 5, 4, 3, 2, 1]);
    for tensor in [halves, double] {
        let again = Tensor::from_bytes(tensor.ty().clone(), tensor.bytes().to_vec()).unwrap();
        assert!(again.codes().eq(tensor.codes()));
    }
}

#[test]
fn every_element_type_keeps_its_codes() {
    let dtypes = ALL.into_iter().map(DType::Float).chain([DType::U8, DType::U32]);
    for dtype in dtypes {
        let codes = [0, dtype.code_mask(), 0x5a5a_5a5a_5a5a_5a5a & dtype.code_mask()];
        let tensor = Tensor::from_codes(ty(dtype, &[3]), &codes).unwrap();
        assert!(tensor.codes().eq(codes), "{dtype}");
        assert_eq!(tensor.bytes().len(), 3 * dtype.bytes(), "{dtype}");
        assert_eq!(DType::by_name(dtype.name()), Some(dtype));
    }
}

#[test]
fn a_wrong_number_of_elements_or_bytes_is_refused() {
    let refusal = Tensor::from_codes(ty(F32, &[2, 3]), &[0; 5]).unwrap_err();
    assert_eq!(refusal.to_string(), "5 elements given, but shape [2, 3] holds 6");
    for bytes in [0, 23, 25] {
        let refusal = Tensor::from_bytes(ty(F32, &[2, 3]), vec![0; bytes]).unwrap_err();
        assert_eq!(refusal.to_string(), format!("{bytes} bytes given, but f32[2, 3] takes 24"));
    }
}

#[test]
fn a_tensor_that_is_too_large_is_refused() {
    let most = MAX_BYTES / 4;
    assert_eq!(ty(F32, &[most]).elements(), Ok(most));
    for shape in [&[most + 1][..], &[most, 2], &[usize::MAX], &[usize::MAX, usize::MAX]] {
        let message =
            format!("shape {shape:?} of f32 needs more than 8 GiB, the largest tensor that is made");
        assert_eq!(ty(F32, shape).elements().unwrap_err().to_string(), message);
        assert!(Tensor::from_fn(ty(F32, shape), Path::Parallel, |_| 0).is_err());
        assert!(Tensor::from_bytes(ty(F32, shape), vec![]).is_err());
        assert!(Tensor::from_strided(ty(F32, shape), vec![0; shape.len()], vec![0; 4]).is_err());
    }
}

#[test]
fn one_extent_of_zero_empties_a_tensor() {
    for shape in [&[0][..], &[0, usize::MAX, usize::MAX], &[usize::MAX, usize::MAX, 0], &[3, 0, 2]] {
        assert_eq!(ty(F32, shape).elements(), Ok(0), "{shape:?}");
        let tensor = Tensor::from_bytes(ty(F32, shape), vec![]).unwrap();
        assert!(tensor.is_empty());
        assert_eq!(tensor.codes().count(), 0);
        assert_eq!(tensor.to_contiguous(), tensor);
    }
    let scalar = Tensor::from_codes(ty(F32, &[]), &[7]).unwrap();
    assert_eq!((scalar.len(), scalar.code(0)), (1, 7));
}

#[test]
fn strides_must_fit() {
    let make = |shape: &[usize], strides: &[usize], bytes| {
        Tensor::from_strided(ty(F16, shape), strides.to_vec(), vec![0; bytes])
            .map_err(|error| error.to_string())
    };
    let refusal = |strides: &str, shape: &str, bytes: usize| {
        Err(format!("strides {strides} for shape {shape} do not fit {bytes} bytes of f16"))
    };
    // The last element of [2, 3] under [4, 1] is the seventh.
    assert!(make(&[2, 3], &[4, 1], 14).is_ok());
    assert_eq!(make(&[2, 3], &[4, 1], 13), refusal("[4, 1]", "[2, 3]", 13));
    assert_eq!(make(&[2, 3], &[4], 14), refusal("[4]", "[2, 3]", 14));
    assert_eq!(make(&[2, 3], &[4, 1, 1], 14), refusal("[4, 1, 1]", "[2, 3]", 14));
    assert_eq!(make(&[0], &[], 14), refusal("[]", "[0]", 14));
    let huge = usize::MAX.to_string();
    let strides = format!("[{huge}, {huge}]");
    assert_eq!(make(&[2, 3], &[usize::MAX, usize::MAX], 14), refusal(&strides, "[2, 3]", 14));
    assert!(make(&[2, 3], &[0, 0], 2).is_ok());
    assert_eq!(make(&[2, 3], &[0, 0], 1), refusal("[0, 0]", "[2, 3]", 1));
    assert!(make(&[0, 3], &[1, 1], 0).is_ok());
    // A stride of an extent of 1 is never taken.
    assert!(make(&[1, 3], &[usize::MAX, 1], 6).is_ok());
}

#[test]
fn positions_follow_strides() {
    let shape = [2, 3, 2];
    let contiguous = ty(F32, &shape).contiguous_strides();
    assert_eq!(contiguous, [6, 2, 1]);
    assert!((0..12).all(|i| position(&shape, &contiguous, i) == i));
    let positions: Vec<_> = (0..12).map(|i| position(&shape, &[1, 100, 10], i)).collect();
    assert_eq!(positions, [0, 10, 100, 110, 200, 210, 1, 11, 101, 111, 201, 211]);
    assert_eq!(position(&[], &[], 0), 0);
}

#[test]
fn spans_reach_to_the_last_element() {
    let span = |shape: &[usize], strides: &[usize]| ty(F32, shape).span(strides);
    assert_eq!(span(&[], &[]), Some(1));
    assert_eq!(span(&[2, 3], &[3, 1]), Some(6));
    assert_eq!(span(&[2, 3], &[10, 2]), Some(15));
    assert_eq!(span(&[2, 3], &[0, 0]), Some(1));
    assert_eq!(span(&[0, 3], &[10, 2]), Some(0));
    assert_eq!(span(&[2, 3], &[10]), None);
    assert_eq!(span(&[3], &[usize::MAX]), None);
    assert_eq!(span(&[2], &[usize::MAX]), None);
    assert_eq!(span(&[2], &[usize::MAX - 1]), Some(usize::MAX));
}

#[test]
fn gaps_are_left_out_of_a_contiguous_copy() {
    let bytes = (0..12).collect();
    let strided = Tensor::from_strided(ty(E4M3FN, &[2, 3]), vec![6, 2], bytes).unwrap();
    let copy = strided.to_contiguous();
    assert_eq!(copy.bytes(), [0, 2, 4, 6, 8, 10]);
    assert_eq!(copy.strides(), [3, 1]);
    // Bytes behind the last element are no part of it.
    let longer = Tensor::from_strided(ty(E4M3FN, &[2]), vec![1], vec![1, 2, 3]).unwrap();
    assert_eq!(longer.to_contiguous().bytes(), [1, 2]);
}

#[test]
#[should_panic(expected = "element 6 of 6")]
fn an_element_outside_is_no_element() {
    let tensor = Tensor::from_strided(ty(E4M3FN, &[2, 3]), vec![6, 2], vec![0; 12]).unwrap();
    let _ = tensor.code(6);
}
