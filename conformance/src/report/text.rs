//! A failure as text.

use crate::judge::{Checked, Element, Notes, OutputVerdict, Scalar};
use crate::verdict::{Outcome, Verdict};
use plumbline_reference::DType;
use plumbline_reference::ops::Op;
use serde_json::Value;
use std::fmt::Write;

/// What is wrong, where, and how to see it again.
#[must_use]
pub fn failure(verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        let _ = writeln!(text, "{label:<10} {value}");
    };
    for (i, op) in verdict.op.iter().chain(&verdict.ops).enumerate() {
        line(if i == 0 { "operation" } else { "" }, &brief(op));
    }
    line("case", &format!("{} ({})", verdict.case, verdict.origin));
    if let Some(about) = &verdict.about {
        line("about", about);
    }
    line("backend", &format!("{}/{} on {}", verdict.backend, verdict.variant, verdict.device));
    if let Some(message) = &verdict.message {
        let label = match verdict.outcome {
            Outcome::Crashed => "crashed",
            Outcome::TimedOut => "timed out",
            Outcome::Mistrusted => "mistrusted",
            _ => "error",
        };
        line(label, message);
    }
    for (i, said) in verdict.stderr.iter().flat_map(|stderr| stderr.lines()).enumerate() {
        line(if i == 0 { "stderr" } else { "" }, said);
    }
    if !verdict.how.is_empty() {
        let how: Vec<_> = verdict.how.iter().map(|(name, value)| format!("{name} {value}")).collect();
        line("how", &how.join(", "));
    }
    for fault in &verdict.memory {
        line("memory", &fault.to_string());
    }
    for output in verdict.outputs.iter().filter(|output| !output.ok) {
        describe(output, verdict.outputs.len() > 1, &mut line);
    }
    line("replay", &verdict.replay);
    text
}

/// What is wrong with one output.
#[must_use]
pub fn failed_output(output: &OutputVerdict) -> String {
    let mut text = String::new();
    describe(output, false, &mut |label, value| {
        let _ = writeln!(text, "{label:<10} {value}");
    });
    text
}

/// An operation as a case file would write it: fields at their defaults left out.
#[must_use]
pub fn brief(op: &Op) -> String {
    let Ok(mut written) = serde_json::to_value(op) else { return op.name().to_owned() };
    let fields = |value: &Value| -> Vec<String> {
        value[op.name()].as_object().map_or(Vec::new(), |fields| fields.keys().cloned().collect())
    };
    for field in fields(&written) {
        let mut without = written.clone();
        if let Some(fields) = without[op.name()].as_object_mut() {
            fields.remove(&field);
        }
        if serde_json::from_value::<Op>(without.clone()).is_ok_and(|same| same == *op) {
            written = without;
        }
    }
    written.to_string().replace('"', "").replace(':', ": ").replace(',', ", ")
}

fn describe(output: &OutputVerdict, several: bool, line: &mut impl FnMut(&str, &str)) {
    if let Some(Checked { buffer, step }) = &output.check {
        line("buffer", &format!("{buffer}, checked at {step}"));
    } else if several {
        line("output", &output.output.to_string());
    }
    line("criterion", &serde_json::to_string(&output.criterion).unwrap_or_default().replace('"', ""));
    if let Some(shape) = &output.shape {
        line("not judged", shape);
        return;
    }
    if let Some(explanation) = &output.explanation {
        line("explained", explanation);
    }
    let mut faults: Vec<_> = output.faults.iter().collect();
    faults.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let faults: Vec<_> = faults.iter().map(|(fault, count)| format!("{count} x {fault}")).collect();
    line("mismatches", &format!("{} of {}: {}", output.mismatches, output.elements, faults.join(", ")));
    if let Some(ratio) = output.max_error_over_bound {
        line("error", &format!("at most {ratio:.3} of the bound"));
    }
    if let Some(guarantee) = &output.guarantee {
        line("judged", guarantee);
    }
    if let Some(notes) = &output.notes {
        let Notes { elements, index, first } = notes;
        line("note", &format!("{elements} right elements; of element {index}: {first}"));
    }
    if let Some(worst) = &output.worst {
        element("worst", worst, line);
    }
    if let (Some(first), Some(worst)) = (&output.first, &output.worst)
        && first.index != worst.index
    {
        element("first", first, line);
    }
}

/// Bytes of a line.
const BYTES: usize = 32;

fn element(label: &str, element: &Element, line: &mut impl FnMut(&str, &str)) {
    let coordinates =
        if element.coordinates.len() > 1 { format!(" {:?}", element.coordinates) } else { String::new() };
    line(label, &format!("element {}{coordinates}: {}", element.index, element.fault));
    // `x` of `x[3]`.
    let tensor = |input: &Scalar| input.name.split('[').next().map(str::to_owned);
    let in_a_line = |a: &Scalar, b: &Scalar| {
        [a, b].iter().all(|input| input.dtype == DType::U8) && tensor(a) == tensor(b)
    };
    for inputs in element.inputs.chunk_by(in_a_line) {
        match inputs {
            [input] => line("", &format!("{:<12} {}", input.name, input.value)),
            // Of blocks, so many that they are written as bytes.
            bytes => {
                for bytes in bytes.chunks(BYTES) {
                    let hex: Vec<_> = bytes.iter().map(|byte| byte.bits.trim_start_matches("0x")).collect();
                    line("", &format!("{:<12} {}", bytes[0].name, hex.join(" ")));
                }
            }
        }
    }
    line("", &format!("{:<12} {}", "expected", element.expected.value));
    line("", &format!("{:<12} {}", "actual", element.actual.value));
    if let Some(note) = &element.note {
        line("", note);
    }
}

#[cfg(test)]
mod tests {
    use super::{brief, failed_output};
    use crate::case::{Criterion, NanJudge};
    use crate::judge::{Context, judge};
    use crate::source::{Expected, Values};
    use plumbline_reference::block::BlockFormat;
    use plumbline_reference::format::{E4M3FN, F32, Policy, Rounding};
    use plumbline_reference::ops::{Activations, Cast, Gemv, Op};
    use plumbline_reference::{DType, Path, Tensor, TensorType};

    #[test]
    fn an_operation_is_written_as_in_a_case_file() {
        let cast = Cast::new(F32, E4M3FN);
        assert_eq!(brief(&cast.into()), "{cast: {from: f32, to: e4m3fn}}");
        let up = cast.with_policy(Policy { rounding: Rounding::Up, ..Policy::default() });
        assert_eq!(brief(&up.into()), "{cast: {from: f32, rounding: up, to: e4m3fn}}");
    }

    #[test]
    fn bytes_of_each_input_are_under_its_own_name() {
        let bytes = |shape: &[usize], byte: u8| {
            let bytes = vec![byte; shape.iter().product()];
            Tensor::from_bytes(TensorType::new(DType::U8, shape), bytes).unwrap()
        };
        let op = Op::from(Gemv::new(BlockFormat::Q4_0, Activations::Q8_0));
        let inputs = [bytes(&[1, 1, 18], 0x11), bytes(&[1, 34], 0x22)];
        let right = op.evaluate(&inputs, Path::Definition).unwrap().remove(0);
        let wrong = Tensor::from_codes(right.ty().clone(), &[right.code(0) ^ 1 << 22]).unwrap();
        let expected = Expected {
            ty: right.ty().clone(),
            values: Values::Dense(right),
            criterion: Criterion::BitExact,
            nan: None,
            computed: true,
        };
        let verdict = judge(Context::new(&op, &inputs, NanJudge::Bits), 0, &expected, &wrong);
        let text = failed_output(&verdict);
        let named = |name: &str| -> Vec<_> {
            let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(name));
            lines.map(|rest| rest.split(']').next_back().unwrap().trim().to_owned()).collect()
        };
        assert_eq!(named("w["), [["11"; 18].join(" ")], "{text}");
        assert_eq!(named("x["), [["22"; 32].join(" "), ["22"; 2].join(" ")], "{text}");
    }
}
