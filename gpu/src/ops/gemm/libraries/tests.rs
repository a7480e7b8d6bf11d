use super::*;
use crate::blas::layout::Stored;
use crate::blas::product::Algorithm;
use crate::module::{SM_80, SM_90};
use plumbline_reference::TensorType;
use plumbline_reference::accumulate::Accumulation;
use plumbline_reference::format::{BF16, E4M3FN, F16};
use plumbline_reference::ops::Bits32;
use std::collections::HashSet;

/// Addresses of a, b, y and further inputs: far enough from each other.
const A: u64 = 1 << 20;
const B: u64 = 2 << 20;
const Y: u64 = 3 << 20;
const C: u64 = 4 << 20;
const REST: u64 = 5 << 20;

fn strided(address: u64, format: Format, shape: &[usize], strides: &[usize]) -> View {
    View { address, ty: TensorType::new(format, shape), strides: strides.to_vec() }
}

fn contiguous(address: u64, format: Format, shape: &[usize]) -> View {
    View::contiguous(address, TensorType::new(format, shape))
}

/// Strides of a matrix in either order, with a gap after each row or column.
fn strides([rows, columns]: [usize; 2], row_major: bool, gap: usize) -> [usize; 2] {
    if row_major { [columns + gap, 1] } else { [1, rows + gap] }
}

fn product(steps: Vec<Step>) -> Product {
    let mut products = steps.into_iter().filter_map(|step| match step {
        Step::Product(product) => Some(*product),
        _ => None,
    });
    products.next().expect("a product")
}

/// The address of element (i, j) of `op(matrix)` as a library finds it.
fn found(operand: &Operand, batch: usize, i: usize, j: usize) -> u64 {
    let Stored { transposed, ld, stride } = operand.stored;
    let (row, column) = if transposed { (j, i) } else { (i, j) };
    operand.address + ((batch * stride + column * ld + row) * operand.format.storage_bits as usize / 8) as u64
}

/// The address of an element of a tensor.
fn address(view: &View, batch: usize, i: usize, j: usize) -> u64 {
    let first = view.ty.shape.len() - 2;
    let batch = if first > 0 { batch * view.strides[0] } else { 0 };
    view.address + ((batch + i * view.strides[first] + j * view.strides[first + 1]) as u64 * view.width())
}

/// What the library reads and writes is what the definition does.
fn check(gemm: &Gemm, [a, b, c, y]: [&View; 4], [batch, m, n, k]: [usize; 4]) {
    let inputs = [a.clone(), b.clone(), c.clone()];
    let product = product(plan(gemm, CUBLASLT, &inputs, std::slice::from_ref(y)).expect("planned"));
    let [rows, columns, terms] = product.extents;
    assert_eq!([rows * columns, terms], [m * n, k]);
    let of = |view, transpose, batch, i, j| {
        if transpose { address(view, batch, j, i) } else { address(view, batch, i, j) }
    };
    let read_c = product.c.as_ref().expect("c");
    let mut written = HashSet::new();
    for (batch, i, j) in
        (0..batch).flat_map(|batch| (0..m).flat_map(move |i| (0..n).map(move |j| (batch, i, j))))
    {
        let d = address(y, batch, i, j);
        let at = |operand: &Operand, i, j| found(operand, batch, i, j);
        // The library's element is (i, j) or (j, i).
        let swapped = rows == n && at(&product.d, j, i) == d;
        let (row, column) = if swapped { (j, i) } else { (i, j) };
        assert_eq!(at(&product.d, row, column), d);
        assert_eq!(at(read_c, row, column), address(c, batch, i, j));
        assert!(written.insert(d));
        for k in 0..k {
            let expected = [of(a, gemm.transpose_a, batch, i, k), of(b, gemm.transpose_b, batch, k, j)];
            let read = [at(&product.a, row, k), at(&product.b, k, column)];
            assert!(read == expected || swapped && [read[1], read[0]] == expected, "{read:?} {expected:?}");
        }
    }
}

#[test]
fn libraries_find_the_elements_of_the_definition() {
    let flags = [false, true];
    let all = |bits: usize| (0..1usize << bits).map(move |mask| move |bit: usize| mask >> bit & 1 == 1);
    for is in all(6) {
        let (transpose_a, transpose_b) = (is(0), is(1));
        for (gap, [m, n, k]) in
            [(0, [3, 4, 5]), (2, [3, 4, 5]), (0, [1, 4, 5]), (3, [3, 1, 5]), (1, [2, 3, 1])]
        {
            let gemm = Gemm {
                transpose_a,
                transpose_b,
                c: Some(F32),
                beta: Bits32(2.0),
                ..Gemm::new(F32, F32, F32)
            };
            let turned =
                |rows, columns, transpose: bool| if transpose { [columns, rows] } else { [rows, columns] };
            let shapes = [turned(m, k, transpose_a), turned(k, n, transpose_b), [m, n], [m, n]];
            let orders = [is(2), is(3), is(4), is(4)];
            for is_batched in flags {
                let view = |i: usize, first| {
                    let (shape, order) = (shapes[i], orders[i]);
                    let mut strides = strides(shape, order, gap).to_vec();
                    let mut shape = shape.to_vec();
                    if is_batched {
                        // One of the operands is the same for all of the batch.
                        let is_shared = i == usize::from(is(5));
                        strides.insert(0, if is_shared { 0 } else { 100 });
                        shape.insert(0, 2);
                    }
                    strided(first, F32, &shape, &strides)
                };
                let views = [view(0, A), view(1, B), view(2, C), view(3, Y)];
                let batch = if is_batched { 2 } else { 1 };
                check(&gemm, views.each_ref(), [batch, m, n, k]);
            }
        }
    }
}

fn plain(variant: &str, gemm: &Gemm, [m, n, k]: [usize; 3]) -> Result<Vec<Step>, Unsupported> {
    let shape = |rows, columns, transpose: bool| if transpose { [columns, rows] } else { [rows, columns] };
    let mut inputs = vec![
        contiguous(A, gemm.a, &shape(m, k, gemm.transpose_a)),
        contiguous(B, gemm.b, &shape(k, n, gemm.transpose_b)),
    ];
    for (i, name) in gemm.input_names().into_iter().enumerate().skip(2) {
        inputs.push(match name {
            "c" => contiguous(C, gemm.c.expect("c"), &[m, n]),
            "bias" => contiguous(REST + i as u64 * 256, gemm.bias.expect("bias"), &[n]),
            "scale_a" if gemm.scale_a == GemmScale::Row => contiguous(REST + i as u64 * 256, F32, &[m]),
            "scale_b" if gemm.scale_b == GemmScale::Row => contiguous(REST + i as u64 * 256, F32, &[n]),
            _ => contiguous(REST + i as u64 * 256, F32, &[]),
        });
    }
    plan(gemm, variant, &inputs, &[contiguous(Y, gemm.out, &[m, n])])
}

#[test]
fn nothing_to_write_is_no_step() {
    let gemm = Gemm::new(F32, F32, F32);
    for extents in [[0, 3, 4], [3, 0, 4], [0, 0, 0]] {
        for variant in LIBRARIES {
            assert!(plain(variant, &gemm, extents).expect("planned").is_empty());
        }
    }
}

#[test]
fn an_empty_sum_is_written_or_refused() {
    let gemm = Gemm::new(F16, F16, F16);
    let extents = [3, 5, 0];
    let zeros = plain(CUBLASLT, &gemm, extents).expect("planned");
    assert!(matches!(zeros[..], [Step::Zero { address: Y, bytes: 30 }]), "{zeros:?}");
    // With gaps, only the elements.
    let inputs = [contiguous(A, F16, &[3, 0]), contiguous(B, F16, &[0, 5])];
    let y = strided(Y, F16, &[3, 5], &[8, 1]);
    let rows = plan(&gemm, NO_WORKSPACE, &inputs, &[y]).expect("planned");
    let bytes: Vec<_> = rows
        .into_iter()
        .map(|step| match step {
            Step::Zero { address, bytes } => (address - Y, bytes),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bytes, [(0, 10), (16, 10), (32, 10)]);
    let refused = |gemm: Gemm| plain(CUBLASLT, &gemm, extents).is_err();
    assert!(refused(Gemm { alpha: Bits32(-1.0), ..gemm.clone() }));
    assert!(refused(Gemm { alpha: Bits32(f32::INFINITY), ..gemm.clone() }));
    assert!(refused(Gemm { alpha: Bits32(f32::NAN), ..gemm.clone() }));
    assert!(refused(Gemm { bias: Some(F16), ..gemm.clone() }));
    let with_c = Gemm { c: Some(F16), beta: Bits32(1.0), ..gemm.clone() };
    assert!(refused(with_c.clone()));
    assert!(!refused(Gemm { beta: Bits32(0.0), ..with_c.clone() }));
    // cuBLAS defines it.
    let steps = plain(CUBLAS, &with_c, extents).expect("planned");
    assert!(matches!(steps[0], Step::Copy { from: C, to: Y, bytes: 30 }));
    assert_eq!(product(steps).extents, [5, 3, 0]);
}

#[test]
fn cublas_reads_c_where_it_writes() {
    let gemm = Gemm { c: Some(F32), beta: Bits32(0.5), ..Gemm::new(F32, F32, F32) };
    let steps = plain(CUBLAS, &gemm, [3, 5, 2]).expect("planned");
    assert!(matches!(steps[0], Step::Copy { from: C, to: Y, bytes: 60 }), "{steps:?}");
    let product = product(steps);
    assert_eq!((product.c, product.beta), (None, 0.5));
    // In place there is nothing to copy, and cuBLASLt never copies.
    let views = [contiguous(A, F32, &[3, 2]), contiguous(B, F32, &[2, 5]), contiguous(Y, F32, &[3, 5])];
    assert_eq!(plan(&gemm, CUBLAS, &views, &views[2..]).expect("planned").len(), 1);
    assert_eq!(plain(CUBLASLT, &gemm, [3, 5, 2]).expect("planned").len(), 1);
    // What is not read is neither copied nor passed on.
    let unread = Gemm { beta: Bits32(-0.0), ..gemm };
    let steps = plain(CUBLAS, &unread, [3, 5, 2]).expect("planned");
    assert_eq!(steps.len(), 1);
}

#[test]
fn scales_follow_their_operands() {
    let gemm = Gemm {
        transpose_b: true,
        scale_a: GemmScale::Row,
        scale_b: GemmScale::Row,
        bias: Some(BF16),
        fast_accumulation: true,
        ..Gemm::new(E4M3FN, E4M3FN, F32)
    };
    let product = product(plain(CUBLASLT, &gemm, [16, 32, 64]).expect("planned"));
    // The library's first operand is b.
    assert_eq!((product.a.address, product.b.address), (B, A));
    assert_eq!(product.scale_a, Some(Scale { address: REST + 3 * 256, is_vector: true }));
    assert_eq!(product.scale_b, Some(Scale { address: REST + 2 * 256, is_vector: true }));
    assert_eq!(product.bias, Some(Bias { address: REST + 4 * 256, format: BF16 }));
    assert_eq!((product.extents, product.fast_accumulation), ([32, 16, 64], true));
    assert!(product.a.stored.transposed && !product.b.stored.transposed);
    assert!(product.unmet().is_empty(), "{:?}", product.unmet());
}

#[test]
fn what_fp8_lacks_is_named() {
    let unmet = |gemm: &Gemm, extents| product(plain(CUBLASLT, gemm, extents).expect("planned")).unmet();
    let nt = Gemm { transpose_b: true, ..Gemm::new(E4M3FN, E4M3FN, F32) };
    assert_eq!(unmet(&nt, [16, 32, 17]).len(), 2);
    assert_eq!(unmet(&nt, [16, 30, 64]), ["columns of the output of whole 16 bytes"]);
    assert_eq!(
        unmet(&Gemm { transpose_b: false, ..nt.clone() }, [16, 32, 64])[0],
        "K side by side in both operands"
    );
    assert!(unmet(&Gemm::new(F16, F16, F16), [3, 5, 7]).is_empty());
}

#[test]
fn scales_by_row_are_aligned() {
    let scales = GemmScale::Row;
    let gemm = Gemm { transpose_b: true, scale_a: scales, scale_b: scales, ..Gemm::new(E4M3FN, E4M3FN, F32) };
    let plan = |first, second| {
        let inputs = [
            contiguous(A, E4M3FN, &[16, 64]),
            contiguous(B, E4M3FN, &[32, 64]),
            contiguous(first, F32, &[16]),
            contiguous(second, F32, &[32]),
        ];
        plan(&gemm, CUBLASLT, &inputs, &[contiguous(Y, F32, &[16, 32])])
    };
    assert!(plan(REST, REST + 16).is_ok());
    assert!(plan(REST + 4, REST).is_err() && plan(REST, REST + 8).is_err());
}

#[test]
fn vectors_are_side_by_side() {
    let gemm = Gemm { bias: Some(F16), ..Gemm::new(F16, F16, F16) };
    let bias = |address, strides: &[usize]| {
        let inputs =
            [contiguous(A, F16, &[3, 2]), contiguous(B, F16, &[2, 5]), strided(address, F16, &[5], strides)];
        plan(&gemm, CUBLASLT, &inputs, &[contiguous(Y, F16, &[3, 5])])
    };
    assert!(bias(REST, &[1]).is_ok() && bias(REST + 2, &[1]).is_ok());
    assert!(bias(REST, &[2]).is_err());
    // A bias runs along the rows of y, which must be those of the library's columns.
    let inputs = [contiguous(A, F16, &[3, 2]), contiguous(B, F16, &[2, 5]), contiguous(REST, F16, &[5])];
    assert!(plan(&gemm, CUBLASLT, &inputs, &[strided(Y, F16, &[3, 5], &[1, 3])]).is_err());
}

#[test]
fn variants_are_what_the_libraries_take() {
    let listed = |gemm: &Gemm, arch| variants(gemm, arch).unwrap_or_default();
    assert_eq!(listed(&Gemm::new(F32, F32, F32), SM_80), LIBRARIES);
    let fp8 = Gemm::new(E4M3FN, E4M3FN, F32);
    assert_eq!(listed(&fp8, SM_90), LIBRARIES[1..]);
    assert!(listed(&fp8, SM_80).is_empty());
    assert_eq!(listed(&Gemm { bias: Some(F32), ..Gemm::new(F32, F32, F32) }, SM_90), LIBRARIES[1..]);
    let ordered = Gemm::new(F32, F32, F32).accumulated(None, Accumulation::Fma);
    assert_eq!(
        variants(&ordered, SM_90),
        Err(Unsupported("no library promises an order of accumulation".to_owned()))
    );
    let numbered = product(plain("cublaslt/7", &Gemm::new(F32, F32, F32), [3, 5, 2]).expect("planned"));
    assert_eq!(numbered.way, Way::CublasLt(Algorithm::Numbered(7)));
    assert!(plain("cublaslt/x", &Gemm::new(F32, F32, F32), [3, 5, 2]).is_err());
}
