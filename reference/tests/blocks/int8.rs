//! 8-bit integers: formulas written out by hand.

use plumbline_reference::block::{BlockFormat, Int8Format, Int8Rounding};
use plumbline_reference::format::F32;
use plumbline_reference::ops::{Int8Quantize, Op};
use plumbline_reference::{Path, Tensor, TensorType};

/// The block of some values, the rest 0.
fn block(to: Int8Format, rounding: Option<Int8Rounding>, values: &[f32]) -> Vec<u8> {
    let op: Op = Int8Quantize { to, rounding }.into();
    let mut all = vec![0f32; to.blocks().values()];
    all[..values.len()].copy_from_slice(values);
    let bytes = all.into_iter().flat_map(f32::to_le_bytes).collect();
    let x = Tensor::from_bytes(TensorType::new(F32, [to.blocks().values()]), bytes).unwrap();
    op.evaluate(&[x], Path::Definition).unwrap()[0].bytes().to_vec()
}

fn integers(format: BlockFormat, block: &[u8]) -> Vec<i8> {
    let (start, field) = format.layout().field("qs");
    block[start..start + field.bytes()].iter().map(|&byte| byte as i8).collect()
}

/// [127.6, 2.5] is [127, 2] and not [-128, 3] (ROCm/aiter#4637).
#[test]
fn integers_saturate() {
    for to in Int8Format::ALL {
        let q = integers(to.blocks(), &block(to, Some(Int8Rounding::NearestEven), &[127.6, 2.5]));
        // Q8_K's largest value is -127, its factor negative.
        let sign = if to == Int8Format::Q8K { -1 } else { 1 };
        assert_eq!(q[..3], [127 * sign, 2 * sign, 0], "{to:?}");
        // 1 / d is infinite: no integer wraps.
        let tiny = f32::from_bits(100);
        let q = integers(to.blocks(), &block(to, None, &[tiny, -tiny, 0.0]));
        assert_eq!(q[..3], [127 * sign, -127 * sign, 0], "{to:?}");
    }
}

/// Where 1 / d is infinite the integers are those of the signs; in Q8_0 and Q8_1 a d that is 0 in
/// f32 makes them 0 before. The factor is 0 in any case, and what is beyond has finite ones.
#[test]
fn amax_near_zero() {
    let limit = 127.0 * 2f32.powi(-128);
    // Three units of the last place more, and d is still 2^-128.
    let limit_of_d = f32::from_bits(limit.to_bits() + 3);
    for to in Int8Format::ALL {
        let (sign, last) = if to == Int8Format::Q8K { (-1, limit) } else { (1, limit_of_d) };
        let factor = to.blocks().layout().field("d").1.bytes();
        let integers_of = |amax: f32| -> [i8; 5] {
            let bytes = block(to, None, &[amax, -amax, amax / 4.0, -0.0]);
            let d = &bytes[..factor];
            // -0 in Q8_K, whose first value is positive.
            assert!(d.iter().rev().skip(1).all(|&byte| byte == 0) && d[factor - 1] & 0x7f == 0, "{to:?}");
            assert_eq!(d[factor - 1] == 0x80, to == Int8Format::Q8K, "{to:?}");
            integers(to.blocks(), &bytes)[..5].try_into().unwrap()
        };
        let signs: [i8; 5] = [127, -127, 127, 0, 0].map(|q| sign * q);
        let below = if to == Int8Format::Q8K { [-127, 127, 0, 0, 0] } else { [0; 5] };
        assert_eq!(integers_of(f32::from_bits(1)), below, "{to:?}");
        let below = if to == Int8Format::Q8K { signs } else { [0; 5] };
        assert_eq!(integers_of(f32::from_bits(63)), below, "{to:?}");
        assert_eq!(integers_of(f32::from_bits(64)), signs, "{to:?}");
        assert_eq!(integers_of(last), signs, "{to:?}");
        // 127 / 4 is 31.75.
        let finite = block(to, None, &[last.next_up(), 0.0, last.next_up() / 4.0]);
        assert_eq!(integers(to.blocks(), &finite)[..3], [127, 0, 32].map(|q| sign * q), "{to:?}");
    }
    // s = 2^-149 * 127 is 0 in f16 too, with the sign of the sum.
    let tiny = f32::from_bits(64);
    assert_eq!(block(Int8Format::Q8_1, None, &[tiny])[..5], [0, 0, 0, 0, 127]);
    assert_eq!(block(Int8Format::Q8_1, None, &[-tiny])[..5], [0, 0, 0, 0x80, 0x81]);
}

#[test]
fn ties_go_where_the_rounding_says() {
    let values = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, 0.49999997, -126.99];
    let away = [127, 1, 2, 3, -1, -2, -3, 127, -127, 0, -127];
    let even = [127, 0, 2, 2, 0, -2, -2, 126, -126, 0, -127];
    for to in Int8Format::ALL {
        let sign = if to == Int8Format::Q8K { -1 } else { 1 };
        for (rounding, expected) in [
            (Some(Int8Rounding::NearestAway), away),
            (Some(Int8Rounding::NearestEven), even),
            (None, if to == Int8Format::Q8K { even } else { away }),
        ] {
            let q = integers(to.blocks(), &block(to, rounding, &values));
            assert_eq!(q[..11], expected.map(|q| q * sign), "{to:?}, {rounding:?}");
        }
    }
}

#[test]
fn factors_and_sums() {
    // d = 2, sum(q) = 127 - 3 + 10.
    let bytes = block(Int8Format::Q8_1, None, &[254.0, -6.0, 20.0]);
    assert_eq!(bytes[..7], [0x00, 0x40, 0x30, 0x5c, 127, 0xfd, 10]); // s = 268
    // s is beyond f16: 32 * 127 * 254.
    let bytes = block(Int8Format::Q8_1, None, &[254.0 * 127.0; 32]);
    assert_eq!(bytes[..4], [0xf0, 0x5b, 0x00, 0x7c]);
    // iscale = -127 / 254, so d = -2; sums of 16.
    let mut values = [0.0; 256];
    (values[15], values[16], values[255]) = (254.0, -254.0, -6.0);
    let bytes = block(Int8Format::Q8K, None, &values);
    assert_eq!(bytes[..4], (-2f32).to_le_bytes());
    let sums: Vec<_> = bytes[260..].as_chunks().0.iter().copied().map(i16::from_le_bytes).collect();
    assert_eq!((sums[0], sums[1], sums[15], sums.len()), (-127, 127, 3, 16));
    assert!(sums[2..15].iter().all(|&sum| sum == 0));
    // Of two values of one magnitude the first decides.
    let mut values = [0.0; 256];
    (values[200], values[100]) = (5.0, -5.0);
    let bytes = block(Int8Format::Q8K, None, &values);
    assert!(f32::from_le_bytes(bytes[..4].try_into().unwrap()) > 0.0);
    assert_eq!([bytes[4 + 100], bytes[4 + 200]], [0x81, 0x7f]);
}

/// A fault makes the factors NaN and all else 0.
#[test]
fn faults() {
    for fault in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let q8_0 = block(Int8Format::Q8_0, None, &[1.0, fault]);
        assert_eq!((&q8_0[..2], &q8_0[2..]), (&[0xff, 0x7f][..], &[0; 32][..]));
        let q8_1 = block(Int8Format::Q8_1, None, &[1.0, fault]);
        assert_eq!((&q8_1[..4], &q8_1[4..]), (&[0xff, 0x7f, 0xff, 0x7f][..], &[0; 32][..]));
        let q8_k = block(Int8Format::Q8K, None, &[1.0, fault]);
        assert_eq!((&q8_k[..4], &q8_k[4..]), (&[0xff, 0xff, 0xff, 0x7f][..], &[0; 288][..]));
    }
}

/// Without a rounding the operation is `quantize`.
#[test]
fn the_default_is_that_of_ggml() {
    let values: Vec<_> = (0..256).map(|i| ((i * 37 % 255) as f32 - 127.0) / 2.0).collect();
    for to in Int8Format::ALL {
        let values = &values[..to.blocks().values()];
        assert_eq!(block(to, None, values), to.blocks().quantize(values));
    }
}
