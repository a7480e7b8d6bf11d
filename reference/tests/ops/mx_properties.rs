//! What holds of every microscaling block.

use crate::noise::noise;
use crate::support::{evaluate, first_f32, scalar, tensor};
use plumbline_reference::block::mx::{MxFormat, ScaleRule};
use plumbline_reference::format::{BF16, F16, F32, Format, Rounding};
use plumbline_reference::ops::{MxDequantize, MxElementOp, MxQuantize, NonFinite};
use plumbline_reference::{DType, Tensor};

const ROUNDINGS: [Rounding; 5] =
    [Rounding::NearestEven, Rounding::TowardZero, Rounding::Up, Rounding::Down, Rounding::NearestAway];

/// Blocks whose largest magnitudes go through all exponents, elements within 2^-12 of it.
fn blocks(format: MxFormat, count: usize, seed: u64) -> Vec<f32> {
    let block = format.layout().block;
    (0..count * block)
        .map(|i| {
            let (own, of_block) = (noise(i as u64 ^ seed << 32), noise((i / block) as u64 ^ seed << 40));
            let exponent = (of_block % 255).saturating_sub(own >> 40 & 0xf) as u32;
            f32::from_bits((own >> 63 << 31) as u32 | exponent << 23 | own as u32 & 0x7f_ffff)
        })
        .collect()
}

/// Those of them that are no larger than 2^126: none is rounded beyond f32.
fn moderate_blocks(format: MxFormat, count: usize, seed: u64) -> Vec<f32> {
    let moderate = |block: &&[f32]| block.iter().all(|x| x.abs() <= 2f32.powi(126));
    blocks(format, count, seed).chunks(format.layout().block).filter(moderate).flatten().copied().collect()
}

fn quantize(op: MxQuantize, x: &Tensor, t: f32) -> Vec<Tensor> {
    let scale = op.format.layout().tensor_scale.then(|| scalar(t));
    let inputs: Vec<_> = [x.clone()].into_iter().chain(scale).collect();
    evaluate(op, &inputs)
}

fn dequantize(format: MxFormat, packed: bool, quantized: &[Tensor], t: f32) -> Vec<f32> {
    let scale = format.layout().tensor_scale.then(|| scalar(t));
    let inputs: Vec<_> = quantized.iter().cloned().chain(scale).collect();
    first_f32(MxDequantize { packed, ..MxDequantize::new(format, F32) }, &inputs)
}

fn f32s(values: &[f32]) -> Tensor {
    crate::support::f32s(&[values.len()], values)
}

fn rules() -> impl Iterator<Item = MxQuantize> {
    MxFormat::ALL.into_iter().flat_map(|format| {
        let usual = MxQuantize::new(F32, format);
        let rules: &[ScaleRule] =
            if format == MxFormat::Nvfp4 { &[ScaleRule::Floor] } else { &ScaleRule::ALL };
        rules.iter().map(move |&scale_rule| MxQuantize { scale_rule, ..usual })
    })
}

#[test]
fn representable_blocks_come_back_as_they_were() {
    for op in rules().filter(|op| op.format != MxFormat::Nvfp4) {
        // The scale may be half of what it was, where the largest element is rounded down to a power of two
        // or to half of the largest; then every element has a code under it too.
        let x = f32s(&moderate_blocks(op.format, 1000, 1));
        let once = dequantize(op.format, false, &quantize(op, &x, 1.0), 1.0);
        let again = quantize(op, &f32s(&once), 1.0);
        let twice = dequantize(op.format, false, &again, 1.0);
        for (i, (a, b)) in once.iter().zip(&twice).enumerate() {
            assert_eq!(a.to_bits(), b.to_bits(), "{op:?} element {i}");
        }
    }
}

#[test]
fn representable_blocks_of_nvfp4_come_back_under_the_same_scale() {
    // Elements of which one is 6: a / 6 is the scale, whatever it was.
    let layout = MxFormat::Nvfp4.layout();
    for scale in 1..0x7f {
        let value = layout.scale.to_f64(scale) as f32;
        let codes: Vec<u64> = (0..16).map(|i| if i == 5 { 7 } else { noise(scale * 16 + i) & 0xf }).collect();
        let x: Vec<f32> =
            codes.iter().map(|&code| layout.element.to_f64(code) as f32 * value * 0.25).collect();
        for element_op in [MxElementOp::Divide, MxElementOp::Reciprocal] {
            let op = MxQuantize { element_op, ..MxQuantize::new(F32, MxFormat::Nvfp4) };
            let outputs = quantize(op, &f32s(&x), 0.25);
            assert_eq!(outputs[1].code(0), scale);
            assert!(outputs[0].codes().eq(codes.iter().copied()), "scale {scale}");
        }
    }
}

#[test]
fn scales_hold_what_their_rules_promise() {
    for op in rules().filter(|op| op.format != MxFormat::Nvfp4) {
        let layout = op.format.layout();
        let x = blocks(op.format, 1500, 2);
        let scales = quantize(op, &f32s(&x), 1.0).swap_remove(1);
        let element = layout.element;
        let max = element.to_f64(element.max_finite());
        let last_binade = 2f64.powi(element.max_exponent());
        for (block, code) in x.chunks(layout.block).zip(scales.codes()) {
            let amax = block.iter().fold(0f32, |max, x| max.max(x.abs()));
            let (a, scale) = (f64::from(amax), layout.scale.to_f64(code));
            let ratio = a / scale;
            assert!(code < 255);
            // Clamped scales keep the upper bounds alone.
            let lowest = |bound: f64| if code == 0 { 0.0 } else { bound };
            let ok = match op.scale_rule {
                ScaleRule::Floor => lowest(last_binade) <= ratio && ratio < 2.0 * last_binade,
                ScaleRule::Ceil => lowest(max / 2.0) < ratio.max(f64::MIN_POSITIVE) && ratio <= max,
                ScaleRule::Even => {
                    let half_ulp = 2f64.powi(-1 - element.fraction_bits as i32);
                    lowest(last_binade * (2.0 - half_ulp) / 2.0) <= ratio
                        && ratio < last_binade * (2.0 - half_ulp)
                }
                // Each of two roundings is off by 2^-24 at most.
                ScaleRule::Rceil => {
                    let slack = 1.0 + 2f64.powi(-22);
                    lowest(max / 2.0 / slack) < ratio.max(f64::MIN_POSITIVE) && ratio <= max * slack
                }
                ScaleRule::CeilLog2 => {
                    lowest(last_binade / 2.0) < ratio.max(f64::MIN_POSITIVE) && ratio <= last_binade
                }
            };
            assert!(ok, "{op:?}: {amax:e} over {scale:e} is {ratio}");
        }
    }
}

#[test]
fn no_element_is_further_off_than_half_a_step_where_nothing_saturates() {
    for op in rules().filter(|op| op.scale_rule == ScaleRule::Ceil) {
        let layout = op.format.layout();
        let x = moderate_blocks(op.format, 500, 3);
        let outputs = quantize(op, &f32s(&x), 1.0);
        let back = dequantize(op.format, false, &outputs, 1.0);
        for (i, (&x, &y)) in x.iter().zip(&back).enumerate() {
            let scale = layout.scale.to_f64(outputs[1].code(i / layout.block));
            let (x, y) = (f64::from(x) / scale, f64::from(y) / scale);
            let binade = x.abs().log2().floor().max(layout.element.min_exponent().into());
            let half_step = 2f64.powf(binade - 1.0 - f64::from(layout.element.fraction_bits));
            assert!((x - y).abs() <= half_step, "{op:?} element {i}: {x} gives {y}");
        }
    }
}

#[test]
fn permuting_a_block_permutes_its_codes() {
    for op in rules() {
        for rounding in ROUNDINGS {
            let op = MxQuantize { rounding, ..op };
            let block = op.format.layout().block;
            let x = blocks(op.format, 20, 4);
            // 7 is prime to 16 and to 32.
            let from = |i: usize| i / block * block + (i % block * 7 + 3) % block;
            let moved: Vec<_> = (0..x.len()).map(|i| x[from(i)]).collect();
            let (still, moved) = (quantize(op, &f32s(&x), 1e-3), quantize(op, &f32s(&moved), 1e-3));
            assert_eq!(still[1], moved[1], "{op:?}");
            assert!((0..x.len()).all(|i| moved[0].code(i) == still[0].code(from(i))), "{op:?}");
        }
    }
}

#[test]
fn negating_a_block_negates_its_codes() {
    for op in rules() {
        let x = blocks(op.format, 200, 5);
        let negated: Vec<_> = x.iter().map(|x| -x).collect();
        let (plus, minus) = (quantize(op, &f32s(&x), 0.37), quantize(op, &f32s(&negated), 0.37));
        let sign = op.format.layout().element.sign_bit();
        assert_eq!(plus[1], minus[1], "{op:?}");
        assert!(plus[0].codes().zip(minus[0].codes()).all(|(a, b)| a == b ^ sign), "{op:?}");
    }
}

#[test]
fn a_power_of_two_moves_the_scale_alone() {
    for op in rules().filter(|op| op.format != MxFormat::Nvfp4) {
        let x: Vec<_> = blocks(op.format, 1200, 6)
            .chunks(32)
            .filter(|block| block.iter().all(|x| (1e-15..1e15).contains(&x.abs())))
            .flatten()
            .copied()
            .collect();
        assert!(x.len() > 32 * 100);
        let times: Vec<_> = x.iter().map(|x| x * 32.0).collect();
        let (small, large) = (quantize(op, &f32s(&x), 1.0), quantize(op, &f32s(&times), 1.0));
        assert_eq!(small[0], large[0], "{op:?}");
        assert!(small[1].codes().zip(large[1].codes()).all(|(a, b)| a + 5 == b), "{op:?}");
    }
}

#[test]
fn packed_codes_are_the_same_codes() {
    for format in [MxFormat::Mxfp4, MxFormat::Nvfp4] {
        let x = f32s(&blocks(format, 500, 7));
        let op = MxQuantize::new(F32, format);
        let (apart, packed) = (quantize(op, &x, 0.7), quantize(MxQuantize { packed: true, ..op }, &x, 0.7));
        assert_eq!(packed[0].dtype(), DType::U8);
        assert_eq!(apart[1], packed[1]);
        let nibbles: Vec<_> = packed[0].codes().flat_map(|byte| [byte & 0xf, byte >> 4]).collect();
        assert!(apart[0].codes().eq(nibbles));
        assert_eq!(dequantize(format, false, &apart, 0.7), dequantize(format, true, &packed, 0.7));
    }
}

#[test]
fn narrow_sources_are_what_their_values_are() {
    for from in [F16, BF16] {
        let wide = |code: u64| from.to_f64(code) as f32;
        let codes: Vec<u64> = (0..32 * 200).map(|i| noise(i) & 0xffff).collect();
        let x = tensor(from, &[codes.len()], &codes);
        let values: Vec<_> = codes.iter().map(|&code| wide(code)).collect();
        for op in rules() {
            for non_finite in [NonFinite::NanScale, NonFinite::PerElement, NonFinite::Saturate] {
                let op = MxQuantize { non_finite, ..op };
                let narrow = quantize(MxQuantize { from, ..op }, &x, 1.5);
                assert!(narrow == quantize(op, &f32s(&values), 1.5), "{from} {op:?}");
            }
        }
    }
}

#[test]
fn every_code_under_every_scale_comes_back_from_f32() {
    for format in MxFormat::ALL.into_iter().filter(|&format| format != MxFormat::Nvfp4) {
        let layout = format.layout();
        let codes: Vec<_> = (0..256u64).flat_map(|_| all_codes(layout.element)).collect();
        let per_scale = all_codes(layout.element).count() / 32;
        let scales: Vec<_> = (0..256u64).flat_map(|scale| std::iter::repeat_n(scale, per_scale)).collect();
        let inputs =
            [tensor(layout.element, &[codes.len()], &codes), tensor(layout.scale, &[scales.len()], &scales)];
        let got = first_f32(MxDequantize::new(format, F32), &inputs);
        for (i, &y) in got.iter().enumerate() {
            let exact = layout.element.to_f64(codes[i]) * layout.scale.to_f64(scales[i / 32]);
            assert!(
                y.to_bits() == (exact as f32).to_bits() || y.is_nan() && exact.is_nan(),
                "{format:?} {i}"
            );
        }
    }
}

/// Every code, repeated to whole blocks of 32.
fn all_codes(format: Format) -> impl Iterator<Item = u64> {
    let count = format.code_count() as u64;
    (0..count.max(32)).map(move |code| code % count)
}
