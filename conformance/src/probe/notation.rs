//! How trees and values are written.

use serde_json::Value;

/// A step of a sum: single products and sums that are added at once.
pub(super) type Step = (Vec<usize>, Vec<String>);

/// Steps, those that repeat at a constant distance shortened.
pub(super) fn runs(steps: &[Step]) -> String {
    let mut texts = Vec::new();
    let mut at = 0;
    while at < steps.len() {
        let length = repeats(&steps[at..]);
        let (first, last) = (&steps[at], &steps[at + length - 1]);
        if length > 3 {
            texts.push(format!("{}, {}, .. {}", step(first), step(&steps[at + 1]), step(last)));
            at += length;
        } else {
            texts.push(step(first));
            at += 1;
        }
    }
    texts.join(", ")
}

/// How many steps from the first on are the same but for a shift.
fn repeats(steps: &[Step]) -> usize {
    let shift = |a: &Step, b: &Step| -> Option<isize> {
        let own = a.0.iter().zip(&b.0).map(|(&a, &b)| b as isize - a as isize).collect::<Vec<_>>();
        let first = *own.first()?;
        let alike = a.0.len() == b.0.len() && own.iter().all(|&shift| shift == first);
        (alike && a.1.is_empty() && b.1.is_empty()).then_some(first)
    };
    let Some(distance) = steps.get(1).and_then(|second| shift(&steps[0], second)) else { return 1 };
    1 + steps.windows(2).take_while(|pair| shift(&pair[0], &pair[1]) == Some(distance)).count()
}

fn step((leaves, sums): &Step) -> String {
    let leaves = ranges(leaves);
    leaves.into_iter().chain(sums.iter().cloned()).collect::<Vec<_>>().join(" + ")
}

/// Ascending numbers as ranges: `0..=3`, `8`.
fn ranges(numbers: &[usize]) -> Vec<String> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}..={last}") };
    ranges.into_iter().map(text).collect()
}

/// A value as YAML on one line.
pub(super) fn yaml(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}: {}", yaml(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        // Words of the project's own need no quotes; a bit pattern does.
        Value::String(text) if !text.starts_with("0x") => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_shortened() {
        let blocks: Vec<Step> = (0..8).map(|i| ((16 * i..16 * (i + 1)).collect(), vec![])).collect();
        assert_eq!(runs(&blocks), "0..=15, 16..=31, .. 112..=127");
        let single: Vec<Step> = [3, 2, 1, 0, 7].map(|k| (vec![k], vec![])).to_vec();
        assert_eq!(runs(&single), "3, 2, .. 0, 7");
        assert_eq!(runs(&[(vec![0, 1, 4], vec!["(2, 3)".to_owned()])]), "0..=1 + 4 + (2, 3)");
    }

    #[test]
    fn yaml_is_on_one_line() {
        let value = serde_json::json!({ "chain": { "products": 16, "output": "nearest_f16" } });
        assert_eq!(yaml(&value), "{chain: {output: nearest_f16, products: 16}}");
        let back: Value = serde_yaml::from_str(&yaml(&value)).unwrap();
        assert_eq!(back, value);
    }
}
