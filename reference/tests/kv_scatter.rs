//! `kv_scatter`: rows go where the formula says, and positions that do not fit are refused.

use plumbline_reference::format::{BF16, E4M3FN, F32, F64};
use plumbline_reference::ops::{KvScatter, Op};
use plumbline_reference::{DType, Path, Tensor, TensorType};

fn inputs(dtype: DType, [tokens, heads, max_len, dim]: [usize; 4], positions: &[u64]) -> [Tensor; 3] {
    let filled = |shape: [usize; 3], first: usize| {
        let mask = dtype.code_mask();
        let code = |i: usize| ((first + i) as u64).wrapping_mul(0x9e37_79b9) & mask;
        Tensor::from_fn(TensorType::new(dtype, shape), Path::Definition, code).expect("fits")
    };
    [
        filled([tokens, heads, dim], 1000),
        Tensor::from_codes(TensorType::new(DType::U32, [tokens]), positions).expect("fits"),
        filled([heads, max_len, dim], 0),
    ]
}

#[test]
fn rows_lie_at_their_positions_and_the_rest_stays() {
    for dtype in [DType::U8, E4M3FN.into(), BF16.into(), F32.into(), DType::U32] {
        let op: Op = KvScatter { dtype }.into();
        let positions = [6, 0, 3];
        let inputs = inputs(dtype, [3, 2, 7, 5], &positions);
        for path in [Path::Definition, Path::Parallel] {
            let new = op.evaluate(&inputs, path).expect("fits").remove(0);
            let mut right: Vec<_> = inputs[2].codes().collect();
            for (token, &position) in positions.iter().enumerate() {
                for head in 0..2 {
                    for column in 0..5 {
                        right[(head * 7 + position as usize) * 5 + column] =
                            inputs[0].code((token * 2 + head) * 5 + column);
                    }
                }
            }
            assert_eq!(new.codes().collect::<Vec<_>>(), right, "{dtype}");
        }
        assert_eq!(op.sources(&inputs, 0, (7 + 3) * 5 + 4), [(0, (2 * 2 + 1) * 5 + 4), (1, 2)]);
        assert_eq!(op.sources(&inputs, 0, 5), [(2, 5)]);
    }
}

#[test]
fn positions_that_do_not_fit_are_refused_by_token() {
    let op: Op = KvScatter { dtype: F32.into() }.into();
    let error = |positions: &[u64]| {
        let inputs = inputs(F32.into(), [positions.len(), 2, 7, 5], positions);
        op.evaluate(&inputs, Path::Parallel).expect_err("is refused").to_string()
    };
    assert_eq!(error(&[1, 7]), "kv_scatter: `positions[1]` is 7, expected a position below max_len, 7");
    assert_eq!(
        error(&[0xffff_ffff]),
        "kv_scatter: `positions[0]` is 4294967295, expected a position below max_len, 7"
    );
    assert_eq!(
        error(&[5, 1, 5]),
        "kv_scatter: `positions[2]` is 5, expected another position than that of token 0"
    );
}

#[test]
fn nothing_may_be_scattered() {
    let op: Op = KvScatter { dtype: F32.into() }.into();
    for extents in [[0, 2, 7, 5], [0, 2, 0, 5], [0, 0, 7, 5], [0, 2, 7, 0]] {
        let inputs = inputs(F32.into(), extents, &[]);
        let new = op.evaluate(&inputs, Path::Parallel).expect("fits").remove(0);
        assert_eq!(new.bytes(), inputs[2].bytes());
    }
}

#[test]
fn errors_name_what_does_not_fit() {
    let error = |dtype: DType, shapes: [&[usize]; 3]| {
        let types = [
            TensorType::new(dtype, shapes[0]),
            TensorType::new(DType::U32, shapes[1]),
            TensorType::new(dtype, shapes[2]),
        ];
        Op::from(KvScatter { dtype }).signature(&types).expect_err("does not fit").to_string()
    };
    let f32 = DType::from(F32);
    assert!(error(f32, [&[3, 2, 5], &[4], &[2, 7, 5]]).contains("`positions` has shape [4], expected [3]"));
    assert!(
        error(f32, [&[3, 2, 5], &[3], &[1, 7, 5]])
            .contains("`cache` has shape [1, 7, 5], expected [2, max_len, 5]")
    );
    assert!(error(f32, [&[3, 10], &[3], &[2, 7, 5]]).contains("expected [tokens, kv_heads, head_dim]"));
    assert!(error(F64.into(), [&[3, 2, 5], &[3], &[2, 7, 5]]).contains("expected one of 1, 2 or 4 bytes"));
}
