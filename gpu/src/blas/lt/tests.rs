//! Descriptors need the library and no device. Where the library is missing there is nothing to
//! test.

use super::*;
use crate::blas::layout::Stored;
use crate::blas::product::{Bias, Scale, Way};
use plumbline_reference::format::{BF16, E4M3FN, E5M2, F16, F32, Format};

fn product(a: Format, b: Format, d: Format) -> Product {
    let operand = |format, transposed, i: u64| Operand {
        address: i << 20,
        format,
        stored: Stored { transposed, ld: 96, stride: 9600 },
    };
    Product {
        way: Way::CublasLt(Algorithm::First),
        compute: Compute::F32,
        fast_accumulation: true,
        extents: [32, 16, 64],
        batch: Some(3),
        a: operand(a, true, 1),
        b: operand(b, false, 2),
        c: None,
        d: operand(d, false, 3),
        alpha: 1.0,
        beta: 0.0,
        scale_a: None,
        scale_b: None,
        scale_d: None,
        bias: None,
    }
}

/// The value that an attribute of so many bytes has.
fn get<const BYTES: usize>(descriptors: &Descriptors, attribute: Attribute) -> u64 {
    let (mut value, mut written) = ([0; 8], 0);
    // SAFETY: the descriptor is valid; the function writes at most that many bytes.
    let status = unsafe {
        sys::cublasLtMatmulDescGetAttribute(
            descriptors.operation.raw,
            attribute,
            value.as_mut_ptr().cast(),
            BYTES,
            &raw mut written,
        )
    };
    assert_eq!((status.result(), written), (Ok(()), BYTES), "{attribute:?}");
    u64::from_le_bytes(value)
}

/// The value that an attribute of a layout has.
fn extent<const BYTES: usize>(layout: &Layout, attribute: LayoutAttribute) -> u64 {
    let (mut value, mut written) = ([0; 8], 0);
    // SAFETY: the descriptor is valid; the function writes at most that many bytes.
    let status = unsafe {
        sys::cublasLtMatrixLayoutGetAttribute(
            layout.raw,
            attribute,
            value.as_mut_ptr().cast(),
            BYTES,
            &raw mut written,
        )
    };
    assert_eq!((status.result(), written), (Ok(()), BYTES), "{attribute:?}");
    u64::from_le_bytes(value)
}

#[test]
#[ignore = "needs the library cuBLASLt"]
fn descriptors_say_what_the_product_says() {
    let product = Product {
        scale_a: Some(Scale { address: 0x100, is_vector: true }),
        scale_b: Some(Scale { address: 0x200, is_vector: false }),
        scale_d: Some(0x300),
        bias: Some(Bias { address: 0x400, format: BF16 }),
        ..product(E4M3FN, E5M2, E4M3FN)
    };
    let descriptors = Descriptors::new(&product).expect("descriptors");
    let pointers = [
        (Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 0x100),
        (Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 0x200),
        (Attribute::CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, 0),
        (Attribute::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, 0x300),
        (Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0x400),
        (Attribute::CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 0),
    ];
    for (attribute, expected) in pointers {
        assert_eq!(get::<8>(&descriptors, attribute), expected, "{attribute:?}");
    }
    let numbers = [
        (Attribute::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 68),
        (Attribute::CUBLASLT_MATMUL_DESC_SCALE_TYPE, 0),
        (Attribute::CUBLASLT_MATMUL_DESC_TRANSA, 1),
        (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, 0),
        (Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 3),
        (Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 0),
        (Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, 4),
        (Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 14),
    ];
    for (attribute, expected) in numbers {
        assert_eq!(get::<4>(&descriptors, attribute), expected, "{attribute:?}");
    }
    assert_eq!(get::<1>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM), 1);
    // a is 64 x 32 as it is stored; c, which is not there, is of the bias's format.
    for (layout, data_type, rows, columns) in [
        (&descriptors.a, 28, 64, 32),
        (&descriptors.b, 29, 64, 16),
        (&descriptors.c, 14, 32, 16),
        (&descriptors.d, 28, 32, 16),
    ] {
        assert_eq!(extent::<4>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_TYPE), data_type);
        assert_eq!(extent::<4>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_ORDER), 0);
        assert_eq!(extent::<8>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_ROWS), rows);
        assert_eq!(extent::<8>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_COLS), columns);
        assert_eq!(extent::<8>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_LD), 96);
        assert_eq!(extent::<4>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 3);
        assert_eq!(extent::<8>(layout, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET), 9600);
    }
}

#[test]
#[ignore = "needs the library cuBLASLt"]
fn wide_products_have_no_attributes_of_fp8() {
    let f16 = Product { compute: Compute::F16, batch: None, ..product(F16, F16, F16) };
    let descriptors = Descriptors::new(&f16).expect("descriptors");
    assert_eq!(get::<4>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), 64);
    assert_eq!(get::<4>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_SCALE_TYPE), 2);
    assert_eq!(get::<1>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM), 0);
    assert_eq!(get::<4>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE), 1);
    assert_eq!(extent::<4>(&descriptors.c, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_TYPE), 2);
    assert_eq!(extent::<4>(&descriptors.c, LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 1);
    let tf32 = Product { compute: Compute::Tf32, ..product(F32, F32, F32) };
    let descriptors = Descriptors::new(&tf32).expect("descriptors");
    assert_eq!(get::<4>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), 77);
    assert_eq!(get::<4>(&descriptors, Attribute::CUBLASLT_MATMUL_DESC_SCALE_TYPE), 0);
}

#[test]
#[ignore = "needs the library cuBLASLt"]
fn configurations_have_the_sizes_that_are_read() {
    let algorithm = sys::cublasLtMatmulAlgo_t { data: [0; 8] };
    let configuration = configuration(&algorithm).expect("configuration");
    let zeros = configuration.iter().filter(|(_, value)| value == "0").count();
    assert_eq!((zeros, &configuration[4]), (8, &("reduction", "none".to_owned())));
}
