//! The line of a field in a YAML file. serde_yaml keeps no positions past parsing,
//! so errors found later (after a matrix was expanded, say) look theirs up here.

use saphyr_parser::{Event, Parser, Span};

/// One step from a YAML value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An entry of a sequence.
    Index(usize),
    /// The value of a key.
    Key(String),
}

/// The 1-based line on which the value at `path` begins, or of the innermost value
/// on the way that exists. `None` only if the text is no YAML.
pub(crate) fn line_of(text: &str, path: &[Step]) -> Option<usize> {
    let mut events = Parser::new_from_str(text).map_while(Result::ok);
    let start = events.find(|(event, _)| !matches!(event, Event::StreamStart | Event::DocumentStart(_)))?;
    Some(descend(&mut events, start, path))
}

/// The lines on which the entries of the sequence `key` of a file begin, in one pass.
pub(crate) fn entry_lines(text: &str, key: &str) -> Vec<usize> {
    let mut events = Parser::new_from_str(text).map_while(Result::ok);
    let mut lines = Vec::new();
    let is_start = |event: &Event<'_>| matches!(event, Event::MappingStart(..));
    if !events.any(|(event, _)| is_start(&event)) {
        return lines;
    }
    while let Some((name, _)) = events.next() {
        let Some(value) = events.next() else { break };
        let found = matches!(&name, Event::Scalar(text, ..) if text == key);
        if !found {
            skip(&mut events, &value.0);
            continue;
        }
        while let Some((entry, span)) = events.next() {
            if matches!(entry, Event::SequenceEnd) {
                return lines;
            }
            lines.push(span.start.line());
            skip(&mut events, &entry);
        }
    }
    lines
}

type Spanned<'a> = (Event<'a>, Span);

/// `at` is the first event of the value that `path` starts from.
fn descend<'a>(events: &mut impl Iterator<Item = Spanned<'a>>, at: Spanned<'a>, path: &[Step]) -> usize {
    let line = at.1.start.line();
    let Some((step, rest)) = path.split_first() else { return line };
    match (at.0, step) {
        (Event::SequenceStart(..), Step::Index(index)) => {
            for _ in 0..*index {
                let Some(entry) = events.next() else { return line };
                if matches!(entry.0, Event::SequenceEnd) {
                    return line;
                }
                skip(events, &entry.0);
            }
            match events.next() {
                Some(entry) if !matches!(entry.0, Event::SequenceEnd) => descend(events, entry, rest),
                _ => line,
            }
        }
        (Event::MappingStart(..), Step::Key(key)) => {
            while let Some((name, span)) = events.next() {
                if matches!(name, Event::MappingEnd) {
                    break;
                }
                skip(events, &name);
                let Some(value) = events.next() else { break };
                if matches!(&name, Event::Scalar(text, ..) if text == key) {
                    // An empty rest names the key itself: for an unknown field its
                    // value may stand lines below.
                    return if rest.is_empty() { span.start.line() } else { descend(events, value, rest) };
                }
                skip(events, &value.0);
            }
            line
        }
        _ => line,
    }
}

/// Consumes the rest of the value whose first event was `first`.
fn skip<'a>(events: &mut impl Iterator<Item = Spanned<'a>>, first: &Event<'a>) {
    let step = |event: &Event<'_>| match event {
        Event::SequenceStart(..) | Event::MappingStart(..) => 1,
        Event::SequenceEnd | Event::MappingEnd => -1,
        _ => 0,
    };
    let mut depth = step(first);
    while depth > 0 {
        let Some((event, _)) = events.next() else { return };
        depth += step(&event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# comment
cases:
  - name: a
    op: {cast: {from: f32}}
  - name: b
    op:
      cast:
        from: f32
        roundin: up
";

    fn line(path: &[Step]) -> Option<usize> {
        line_of(TEXT, path)
    }

    fn key(name: &str) -> Step {
        Step::Key(name.to_owned())
    }

    #[test]
    fn finds_keys_in_block_and_flow_style() {
        assert_eq!(line(&[key("cases"), Step::Index(0), key("op"), key("cast"), key("from")]), Some(4));
        assert_eq!(line(&[key("cases"), Step::Index(1), key("op"), key("cast"), key("roundin")]), Some(9));
        assert_eq!(line(&[key("cases"), Step::Index(1)]), Some(5));
    }

    #[test]
    fn entries_are_found_in_one_pass() {
        assert_eq!(entry_lines(TEXT, "cases"), [3, 5]);
        assert_eq!(entry_lines("other: [1]\ncases: [{a: 1},\n {b: 2}]", "cases"), [2, 3]);
        assert_eq!(entry_lines("just text", "cases"), [0; 0]);
    }

    #[test]
    fn a_missing_field_is_reported_where_it_should_be() {
        assert_eq!(line(&[key("cases"), Step::Index(1), key("inputs")]), Some(5));
        assert_eq!(line(&[key("cases"), Step::Index(7)]), Some(3));
    }
}
