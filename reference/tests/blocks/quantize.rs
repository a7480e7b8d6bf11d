//! Blocks that ggml wrote, written again, and what every quantizer promises.

use crate::noise::noise;
use crate::recorded::{Recorded, formats};
use plumbline_reference::block::BlockFormat;
use plumbline_reference::fast::Simd;
use plumbline_reference::format::F32;
use plumbline_reference::ops::{Op, Quantize};
use plumbline_reference::{Path, Tensor, TensorType};

/// The values of a block.
fn decoded(format: BlockFormat, block: &[u8]) -> Vec<f32> {
    let unpacked = format.unpack(block);
    (0..format.values()).map(|j| unpacked.value(j) as f32).collect()
}

fn round_trip(format: BlockFormat, values: &[f32]) -> Vec<f32> {
    decoded(format, &format.quantize(values))
}

/// Numbers from -1 to 1.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| noise(seed << 32 | i) as i32 as f32 / 2f32.powi(31)).collect()
}

#[test]
fn every_block_is_what_ggml_writes() {
    for format in formats() {
        let recorded = Recorded::of(format);
        let values = recorded.source.chunks_exact(format.values());
        let blocks = recorded.blocks.chunks_exact(format.bytes());
        assert_eq!(values.len(), blocks.len(), "{format}");
        for (i, (values, block)) in values.zip(blocks).enumerate() {
            assert_eq!(format.quantize(values), block, "block {i} of {format}");
        }
    }
}

/// Zeros, and weights near 1.2e-38, whose inverse scales are infinite (intel/auto-round#1908).
#[test]
fn small_values_stay_finite() {
    for format in BlockFormat::ALL {
        let alternating = |x: f32| (0..format.values()).map(move |j| if j % 3 == 0 { -x } else { x });
        for tiny in [0.0, f32::from_bits(1), 1e-45 * 200.0, 1.2e-38, 3e-38, 1e-20, 1e-15, 1e-12] {
            let varied = numbers(7, format.values()).into_iter().map(|x| x * tiny);
            for values in [alternating(tiny).collect::<Vec<_>>(), varied.collect()] {
                for (x, y) in values.iter().zip(round_trip(format, &values)) {
                    assert!((y - x).abs() <= 2.0 * tiny, "{format}: {x:e} became {y:e}");
                }
            }
        }
        let zeros = vec![0.0; format.values()];
        assert!(round_trip(format, &zeros).iter().all(|y| *y == 0.0), "{format}");
    }
    assert_eq!(BlockFormat::Q6K.quantize(&[0.0; 256]), [0; 210]);
    assert_eq!(BlockFormat::Q6K.quantize(&[1.2e-38; 256]), [0; 210]);
}

/// Not even one NaN or infinity among numbers is lost.
#[test]
fn a_fault_makes_a_block_nan() {
    for format in BlockFormat::ALL.into_iter().filter(|format| *format != BlockFormat::Mxfp4) {
        for at in [0, 1, 15, 16, format.values() - 1] {
            for fault in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = numbers(1, format.values());
                values[at] = fault;
                assert!(
                    round_trip(format, &values).iter().all(|y| y.is_nan()),
                    "{format} with {fault} at {at}"
                );
            }
        }
    }
    // MXFP4 has none: 0, and the largest of the sign. 6 * 2^127 is the code's, beyond f32.
    let mut values = [0.0; 32];
    (values[0], values[1]) = (f32::NAN, -2.0);
    assert_eq!(round_trip(BlockFormat::Mxfp4, &values)[..3], [0.0, -2.0, 0.0]);
    values[0] = f32::NEG_INFINITY;
    assert_eq!(round_trip(BlockFormat::Mxfp4, &values)[..3], [-(1.5 * 2f32.powi(127)), 0.0, 0.0]);
}

/// Factors of zeros have the sign of their formula; MXFP4's is the least there is.
#[test]
fn zeros() {
    let begins = |format: BlockFormat, bytes: &[u8]| {
        assert_eq!(format.quantize(&vec![0.0; format.values()])[..bytes.len()], *bytes, "{format}");
    };
    begins(BlockFormat::Q4_0, &[0x00, 0x80, 0x88]);
    begins(BlockFormat::Q4_1, &[0; 20]);
    begins(BlockFormat::Q8_0, &[0; 34]);
    begins(BlockFormat::Q8K, &[0; 292]);
    begins(BlockFormat::Iq4Xs, &[0x00, 0x80]);
    begins(BlockFormat::Mxfp4, &[0; 17]);
}

/// The inverse of a subnormal d is infinite: 0 times it is NaN, whose code is 0, of TQ that of 0.
#[test]
fn infinite_inverses() {
    let tiny = f32::from_bits(1 << 12);
    let block = |format: BlockFormat| {
        let mut values = vec![0.0; format.values()];
        (values[0], values[1]) = (tiny, -tiny);
        format.quantize(&values)
    };
    assert_eq!(block(BlockFormat::Q4_0)[..5], [0x00, 0x80, 0x00, 0x0f, 0x00]);
    // -tiny is the minimum, which the others are above.
    assert_eq!(block(BlockFormat::Q4_1)[..7], [0x00, 0x00, 0x00, 0x80, 0xff, 0xf0, 0xff]);
    let tq2_0 = block(BlockFormat::Tq2_0);
    assert_eq!((&tq2_0[..3], &tq2_0[64..]), (&[0x56, 0x54, 0x55][..], &[0, 0][..]));
}

/// The code of MXFP4's factor for a largest magnitude.
fn mxfp4_factor(amax: f32) -> u8 {
    let mut values = [0.0; 32];
    values[7] = -amax;
    BlockFormat::Mxfp4.quantize(&values)[0]
}

/// The 200 numbers below each power of two, and those from it on: the logarithm in f32 is that of
/// the power if it is nearer to it than half of what two f32 are apart there, `1 - 2^-half` of the
/// power by its series.
#[test]
fn the_exponent_of_mxfp4_next_to_powers_of_two() {
    for k in -126..=128 {
        let power = ((k + 127) as u32) << 23;
        let code = |floor: i32| (floor + 125).max(0) as u8;
        let at = k as f32;
        let half = (f64::from(at) - f64::from(at.next_down())) / 2.0;
        let y = half * std::f64::consts::LN_2;
        let nearest = y - y * y / 2.0;
        for m in 1..=200 {
            let carries = f64::from(m) / 2f64.powi(24) < nearest;
            let amax = f32::from_bits(power - m);
            assert_eq!(mxfp4_factor(amax), code(k - i32::from(!carries)), "{m} below 2^{k}");
        }
        for above in (0..4).filter(|_| k < 128) {
            assert_eq!(mxfp4_factor(f32::from_bits(power + above)), code(k), "{above} above 2^{k}");
        }
    }
    assert_eq!([0.0, f32::from_bits(1), 2f32.powi(-124).next_up()].map(mxfp4_factor), [0, 0, 1]);
    assert_eq!([f32::MAX, f32::INFINITY].map(mxfp4_factor), [253, 253]);
}

/// How many numbers below a power of two count as it.
#[test]
fn the_exponent_of_mxfp4_carries() {
    let table = [
        (-124, 44),
        (-64, 44),
        (-63, 22),
        (-32, 22),
        (-31, 11),
        (-16, 11),
        (-15, 5),
        (-8, 5),
        (-7, 2),
        (-4, 2),
        (-3, 1),
        (-2, 1),
        (-1, 0),
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (4, 1),
        (5, 2),
        (8, 2),
        (9, 5),
        (16, 5),
        (17, 11),
        (32, 11),
        (33, 22),
        (64, 22),
        (65, 44),
        (128, 44),
    ];
    for (k, count) in table {
        let power = ((k + 127) as u32) << 23;
        let carried = (1..=200).take_while(|m| mxfp4_factor(f32::from_bits(power - m)) == (k + 125) as u8);
        assert_eq!(carried.count(), count, "below 2^{k}");
    }
}

/// Any bits at all: no panic.
#[test]
fn any_bits_are_quantized() {
    for format in BlockFormat::ALL {
        for seed in 0..200 {
            let bits = (0..format.values() as u64).map(|j| noise(seed << 32 | j) as u32);
            // Finite ones too, of all sizes.
            let finite = bits.clone().map(|bits| if bits >> 23 & 255 == 255 { bits ^ 1 << 30 } else { bits });
            let _ = format.quantize(&bits.map(f32::from_bits).collect::<Vec<_>>());
            let _ = format.quantize(&finite.map(f32::from_bits).collect::<Vec<_>>());
        }
        for huge in [f32::MAX, 1e38, 1e30, 1e19] {
            let _ = format.quantize(&vec![huge; format.values()]);
            let mut one = vec![-huge; format.values()];
            one[3] = huge;
            let _ = format.quantize(&one);
        }
    }
}

/// A factor beyond f16 is an infinity.
#[test]
fn factors_beyond_f16() {
    // 65504 * 127, and the next f32 whose 127th part is nearer to 65536.
    for (amax, d) in [(65504.0 * 127.0, 0x7bff), (65519.0 * 127.0, 0x7bff), (65520.0 * 127.0, 0x7c00)] {
        let mut values = [0.0; 32];
        values[5] = amax;
        assert_eq!(BlockFormat::Q8_0.quantize(&values)[..2], u16::to_le_bytes(d), "{amax}");
    }
}

/// Where a step is the same all over a block, no value is further than half of it, but for what the
/// rounding of factors to f16 adds, and where Q4_0 and Q5_0 end on the side away from `max`.
#[test]
fn errors_are_half_a_step() {
    for (format, steps) in [
        (BlockFormat::Q4_0, 8),
        (BlockFormat::Q5_0, 16),
        (BlockFormat::Q8_0, 127),
        (BlockFormat::Q8_1, 127),
        (BlockFormat::Q8K, 127),
        (BlockFormat::Tq1_0, 1),
        (BlockFormat::Tq2_0, 1),
        (BlockFormat::Q4_1, 15),
        (BlockFormat::Q5_1, 31),
    ] {
        for seed in 0..500 {
            let values = numbers(seed, format.values());
            let max = values.iter().fold(0f32, |max, &x| if x.abs() > max.abs() { x } else { max });
            let [low, high] = [f32::min, f32::max].map(|f| values.iter().copied().reduce(f).unwrap());
            let range = if format.has_mins() { high - low } else { max.abs() };
            let step = f64::from(range) / f64::from(steps);
            let one_sided = [BlockFormat::Q4_0, BlockFormat::Q5_0].contains(&format);
            for (&x, y) in values.iter().zip(round_trip(format, &values)) {
                let error = (f64::from(y) - f64::from(x)).abs();
                let last =
                    one_sided && f64::from(x) * -f64::from(max.signum()) > step * (f64::from(steps) - 1.5);
                // Half an ulp of f16, of a factor and a min at most as large as the range and 1.
                let rounding = (f64::from(range) + 1.0) * 2f64.powi(-11) * 1.01;
                let bound = if last { step } else { step / 2.0 } + rounding;
                assert!(error <= bound, "{format}: {x} became {y}, step {step}, max {max}");
            }
        }
    }
}

/// What a block holds is kept when it is quantized again: the largest value is one that the factor
/// follows from.
#[test]
fn quantizing_again_changes_nothing() {
    use BlockFormat::{Mxfp4, Q4_0, Q5_0, Q8_0, Q8_1, Tq1_0, Tq2_0};
    for format in [Q4_0, Q5_0, Q8_0, Q8_1, Tq1_0, Tq2_0, Mxfp4] {
        for seed in 0..500 {
            let scale = 2f32.powi(noise(seed) as i32 % 12);
            let values: Vec<_> = numbers(seed, format.values()).iter().map(|x| x * scale).collect();
            let once = format.quantize(&values);
            let again = format.quantize(&decoded(format, &once));
            // The sum is of the factor before it is rounded, the first time.
            let skipped = if format == Q8_1 { 2..4 } else { 0..0 };
            let kept = |block: &[u8]| -> Vec<u8> {
                block
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| !skipped.contains(i))
                    .map(|(_, &byte)| byte)
                    .collect()
            };
            assert_eq!(kept(&once), kept(&again), "{format}, seed {seed}");
        }
    }
}

/// Blocks that hold their largest code come back bit for bit.
#[test]
fn representable_blocks_come_back() {
    for seed in 0..300 {
        let bytes: Vec<_> = (0..64).map(|i| noise(seed << 32 | i) as u8).collect();
        // A normal f16 of either sign.
        let d = (u16::from(bytes[0]) << 8 | u16::from(bytes[1])) & 0xbfff | 0x0400;
        let mut q4 = [&d.to_le_bytes()[..], &bytes[2..18]].concat();
        q4[9] = 0; // Code 0 is -8.
        assert_eq!(BlockFormat::Q4_0.quantize(&decoded(BlockFormat::Q4_0, &q4)), q4);
        let mut q8 = [&(d & 0x7fff).to_le_bytes()[..], &bytes[2..34]].concat();
        q8[2..].iter_mut().filter(|q| **q == 0x80).for_each(|q| *q = 0x81);
        q8[20] = 127;
        assert_eq!(BlockFormat::Q8_0.quantize(&decoded(BlockFormat::Q8_0, &q8)), q8);
        // No code 3: the high bit stands alone.
        let pairs = bytes.iter().map(|byte| byte & !(byte >> 1 & 0x55));
        let mut tq2: Vec<_> = pairs.chain((d & 0x7fff).to_le_bytes()).collect();
        tq2[0] = 0;
        assert_eq!(BlockFormat::Tq2_0.quantize(&decoded(BlockFormat::Tq2_0, &tq2)), tq2);
    }
}

#[test]
fn all_paths_agree() {
    for to in BlockFormat::ALL {
        let op: Op = Quantize { to }.into();
        let k = 9 * to.values();
        let shape = [2, 3, k];
        let values = numbers(3, 6 * k).into_iter().flat_map(f32::to_le_bytes).collect();
        let x = Tensor::from_bytes(TensorType::new(F32, shape), values).unwrap();
        let run = |path| op.evaluate(std::slice::from_ref(&x), path).unwrap().remove(0);
        let definition = run(Path::Definition);
        assert_eq!(definition.shape(), [2, 3, 9, to.bytes()]);
        for path in [Path::Parallel].into_iter().chain(Simd::all().map(Path::Simd)) {
            assert!(run(path) == definition, "{to} on {path:?}");
        }
    }
}

#[test]
fn what_is_no_multiple_of_a_block_is_refused() {
    let shape_of = |to: BlockFormat, shape: &[usize]| {
        let op: Op = Quantize { to }.into();
        op.signature(&[TensorType::new(F32, shape)]).map(|outputs| outputs[0].shape.clone())
    };
    assert_eq!(
        shape_of(BlockFormat::Q4K, &[2, 300]).unwrap_err().to_string(),
        "quantize: input `x` has shape [2, 300], expected [.., K] with K a multiple of 256, the values of a \
         block of q4_K"
    );
    assert!(shape_of(BlockFormat::Q4K, &[]).is_err());
    assert!(shape_of(BlockFormat::Q8_0, &[31]).is_err());
    assert_eq!(shape_of(BlockFormat::Q8_0, &[96]), Ok(vec![3, 34]));
    assert_eq!(shape_of(BlockFormat::Q8_0, &[2, 0]), Ok(vec![2, 0, 34]));
    assert_eq!(shape_of(BlockFormat::Q2K, &[0, 512]), Ok(vec![0, 2, 84]));
}
