use super::shadow::Shadow;
use super::*;
use crate::load::load_tests;
use crate::suite::Test;
use plumbline_reference::Tensor;
use std::sync::Arc;

/// Two casts, the second on another stream.
const GOOD: &str = r#"sequences:
  - name: good
    buffers:
      x: {dtype: f32, shape: [2]}
      u: {dtype: f32, shape: [3]}
      y: {dtype: f16, shape: [2]}
      z: {dtype: e4m3fn, shape: [2]}
    steps:
      - allocate: [x, y, z]
      - write: {buffer: x, bits: ["0x3f800000", "0xbfc00000"]}
      - call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}
      - order: [0, 1]
      - call: {op: {cast: {from: f16, to: e4m3fn}}, inputs: [y], outputs: [z], stream: 1}
      - capture: {graph: g, steps: [call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}]}
      - check: {buffer: z}
"#;
/// The line of `steps:`.
const STEPS: usize = 8;

fn load(text: &str) -> Result<Vec<Test>, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    std::fs::write(&file, text).unwrap();
    load_tests(&file)
}

fn sequence(text: &str) -> Arc<Sequence> {
    match load(text).unwrap().remove(0) {
        Test::Sequence(sequence) => sequence,
        Test::Case(case) => panic!("{} is a case", case.name),
    }
}

/// Breaks the good sequence by a replacement. The error is on that line and says these words.
fn broken(from: &str, to: &str, line: usize, parts: &[&str]) {
    assert!(GOOD.contains(from), "{from}");
    let error = load(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
    let place = format!("mine.yaml:{line}: case `good`: ");
    for part in [&*place].iter().chain(parts) {
        assert!(error.contains(part), "no `{part}` in: {error}");
    }
}

#[test]
fn buffers_are_limited_together() {
    // The others have 8 + 4 + 2 bytes.
    let with = |elements: usize| GOOD.replacen("shape: [3]", &format!("shape: [{elements}]"), 1);
    assert!(load(&with((1 << 28) - 4)).is_ok());
    let error = load(&with((1 << 28) - 3)).unwrap_err().to_string();
    let parts = ["mine.yaml:3: ", "buffers", "1073741826 bytes together", "1 GiB, the most of a sequence"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn the_good_sequence_is_good() {
    let sequence = sequence(GOOD);
    assert_eq!(sequence.name, "mine/good");
    assert_eq!(sequence.needs, Needs { streams: 2, graphs: true, without_workspace: false });
    let names: Vec<_> = sequence.operations().into_iter().map(Op::name).collect();
    assert_eq!(names, ["cast", "cast"]);
    sequence.rehearse(0).unwrap();
}

/// Puts a step in place of the last, on line 15.
fn refused(step: &str, parts: &[&str]) {
    broken("      - check: {buffer: z}", &format!("      - {step}"), STEPS + 7, parts);
}

#[test]
fn memory_that_is_not_there() {
    let line = STEPS + 2;
    broken(
        "allocate: [x, y, z]",
        "allocate: [y, z]",
        line,
        &["steps[1]", "`x` has no memory yet", "allocate: x"],
    );
    refused("allocate: x", &["steps[6]", "`x` is allocated already; free it first"]);
    refused("free: u", &["`u` has no memory yet"]);
    refused("check: {buffer: w}", &["no buffer `w`; `buffers` has u, x, y, z"]);
    broken(
        "      - order: [0, 1]",
        "      - free: [x, y]",
        STEPS + 5,
        &["steps[4]", "`y` is freed; allocate it again before this"],
    );
    refused("allocate: {buffer: u, at: x}", &["at: `x` still has its memory"]);
    let moved = "free: x\n      - allocate: {buffer: u, at: x}";
    let error = load(&GOOD.replacen("check: {buffer: z}", moved, 1)).unwrap_err().to_string();
    assert!(
        error.contains("mine.yaml:16") && error.contains("f32[3] does not fit in the memory of `x`"),
        "{error}"
    );
}

#[test]
fn contents_that_are_not_there() {
    let nothing = "nothing was put into `x` yet; write it";
    broken(
        "      - write: {buffer: x, bits: [\"0x3f800000\", \"0xbfc00000\"]}\n",
        "",
        STEPS + 2,
        &["steps[1]", nothing],
    );
    refused("{allocate: u, check: {buffer: u}}", &["steps[6]"]);
    refused(
        "repeat: {times: 1, steps: [{allocate: u}, {check: {buffer: u}}]}",
        &["nothing was put into `u` yet"],
    );
}

#[test]
fn calls_that_do_not_fit() {
    refused(
        "call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [z]}",
        &["steps[6]", "outputs: hold e4m3fn[2], and cast gives f16[2]"],
    );
    refused(
        "call: {op: {cast: {from: f16, to: f16}}, inputs: [x], outputs: [y]}",
        &["op: cast: input `x` is f32, expected f16"],
    );
    refused("write: {buffer: x}", &["needs exactly one of `bits` and `generate`"]);
    refused("write: {buffer: x, bits: ['0x0']}", &["bits: "]);
    refused("write: {buffer: x, generate: ones, bits: []}", &["needs exactly one"]);
    refused(
        "write: {buffer: x, bits: ['0x00000000', '0x00000000'], seed: 1}",
        &["`seed` goes with `generate`"],
    );
    refused("call: {op: {cast: {from: f32, to: f16, roundin: up}}, inputs: [x], outputs: [y]}", &["roundin"]);
    refused("cal: {}", &["unknown variant `cal`", "`call`"]);
}

#[test]
fn graphs() {
    refused("replay: {graph: h}", &["graph `h` is not captured yet; put a step `capture` before this"]);
    refused(
        "capture: {graph: h, steps: [check: {buffer: x}]}",
        &["steps[6].capture.steps[0]: a graph has steps `call` and `write`"],
    );
    refused("capture: {graph: h, steps: []}", &["graph `h` has no work"]);
    refused(
        "capture: {graph: h, steps: [call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y], stream: 1}]}",
        &["a graph gets its stream from `replay`"],
    );
    let freed = "free: x\n      - allocate: x\n      - replay: {graph: g}";
    let error = load(&GOOD.replacen("check: {buffer: z}", freed, 1)).unwrap_err().to_string();
    let held = "graph `g` holds the address that `x` had before it was freed; capture it anew";
    assert!(error.contains("mine.yaml:17") && error.contains(held), "{error}");
}

#[test]
fn streams_without_an_order() {
    let race =
        "`y` is also used on stream 0, and nothing says which comes first; put `order: [0, 1]` or `wait: 0`";
    broken("      - order: [0, 1]\n", "", STEPS + 4, &["steps[3]", race]);
    broken("order: [0, 1]", "order: [1, 0]", STEPS + 5, &["steps[4]", race]);
    broken("order: [0, 1]", "order: [1, 1]", STEPS + 4, &["work on one stream is in order"]);
    broken("order: [0, 1]", "wait: 1", STEPS + 5, &[race]);
    broken("order: [0, 1]", "wait: some", STEPS + 4, &["write the number of a stream, or `all`"]);
    broken("stream: 1}", "stream: 99}", STEPS + 5, &["at most 16 streams"]);
    for done in ["wait: 0", "wait: all", "check: {buffer: y}"] {
        load(&GOOD.replacen("order: [0, 1]", done, 1)).unwrap();
    }
    // What stream 1 still reads, a replay overwrites.
    refused("replay: {graph: g}", &["steps[6]", "`y` is also used on stream 1", "put `order: [1, 0]`"]);
}

#[test]
fn checks() {
    broken("check: {buffer: z}", "wait: all", STEPS, &["steps", "nothing is compared; add a step `check`"]);
    refused("check: {buffer: z, judge: {ulp: -1}}", &["judge: a tolerance in ulp"]);
    refused("check: {buffer: z, judge: {ulp: 1}}", &["the inputs of the call that gave this were computed"]);
    refused("check: {buffer: x, judge: {ulp: 1}}", &["what was written is there bit for bit"]);
    refused("check: {buffer: y, judge: bound}", &["judge: `bound`"]);
    refused("check: {buffer: y, equals: z}", &["equals: `z` is e4m3fn[2], `y` is f16[2]"]);
    refused("check: {buffer: y, equals: y}", &["a buffer equals itself"]);
    refused("check: {buffer: y, equals: y, judge: {ulp: 1}}", &["`equals` compares bit for bit"]);
}

/// A graph's work counts as often as it is replayed.
#[test]
fn replays_count_by_their_work() {
    let of = |calls: usize, rounds: u32, times: u32| {
        let call = "{call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}}";
        let calls = vec![call; calls].join(", ");
        let text = format!(
            "capture: {{graph: g, steps: [{calls}]}}\n      - order: [1, 0]\n      - repeat: {{times: {rounds}, \
             steps: [{{replay: {{graph: g, times: {times}}}}}]}}\n      - check: {{buffer: z}}"
        );
        load(&GOOD.replacen("check: {buffer: z}", &text, 1)).map(drop)
    };
    // 500 replays of 1000 calls, and what is around them.
    of(1000, 1, 500).unwrap();
    of(1, 1000, 500).unwrap();
    for (calls, rounds, times) in [(1000, 1, 1000), (1, 1000, 1000), (4, 500, 500)] {
        let error = of(calls, rounds, times).unwrap_err().to_string();
        assert!(error.contains("more than 1000000 steps"), "{error}");
    }
}

/// The second round finds what the first leaves behind, and none is taken where it is asked for
/// too many.
#[test]
fn repeats() {
    let freed = "repeat: {times: 2, steps: [{check: {buffer: z}}, {free: z}]}";
    refused(freed, &["steps[6].repeat.steps[0]", "`z` is freed"]);
    broken(
        "check: {buffer: z}",
        "repeat: {times: 1000001, steps: [{check: {buffer: z}}]}",
        STEPS,
        &["more than 1000000 steps"],
    );
    refused("repeat: {times: 0, steps: [{check: {buffer: z}}]}", &["steps[6]: times: is at least 1"]);
    refused("repeat: {times: 1, steps: []}", &["steps[6]: there is nothing to repeat"]);
    refused(
        "repeat: {times: 1, steps: [{repeat: {times: 0, steps: [{check: {buffer: z}}]}}]}",
        &["steps[6].repeat.steps[0]: times: is at least 1"],
    );
    refused("replay: {graph: g, times: 0}", &["steps[6]: times: is at least 1"]);
    let text = GOOD.replacen(
        "check: {buffer: z}",
        "repeat: {times: 3, steps: [{check: {buffer: z}}, {wait: all}]}",
        1,
    );
    let sequence = sequence(&text);
    let mut sites = Vec::new();
    let taken: Result<(), ()> = walk(&sequence.spec.steps, &mut |site, _| {
        sites.push(site.to_string());
        Ok(())
    });
    taken.unwrap();
    assert_eq!(sites.len(), 6 + 1 + 3 * 2);
    assert_eq!((&*sites[6], &*sites[7]), ("steps[6]", "steps[6].repeat.steps[0] in round 1 of 3"));
    assert_eq!((&*sites[0], &*sites[12]), ("steps[0]", "steps[6].repeat.steps[1] in round 3 of 3"));
}

#[test]
fn a_file_may_have_cases_sequences_or_both() {
    let case = "cases: [{name: a, op: {cast: {from: f32, to: f16}}, inputs: [{dtype: f32, shape: [1], generate: ones}]}]\n";
    assert_eq!(load(&format!("{case}{GOOD}")).unwrap().len(), 2);
    let error = load("{}").unwrap_err().to_string();
    assert!(error.contains("holds no list `cases:` or `sequences:`"), "{error}");
    let error = load("sequences: 1").unwrap_err().to_string();
    assert!(error.contains("sequences: is no list"), "{error}");
    let error = load("cases: []\nsequences: []").unwrap_err().to_string();
    assert!(error.contains("holds no cases"), "{error}");
    let error =
        load(&format!("cases: []\n{}", GOOD.replace("name: good", "nam: good"))).unwrap_err().to_string();
    assert!(error.contains("mine.yaml:3") && error.contains("needs a `name:`"), "{error}");
    let both = format!("{case}{GOOD}").replace("name: good", "name: a");
    assert!(load(&both).unwrap_err().to_string().contains("names are unique"));
}

/// What the shadow machine holds after each step, read off by hand.
#[test]
fn the_shadow_machine_takes_the_steps() {
    let sequence = sequence(
        r#"sequences:
  - name: shadow
    buffers: {x: {dtype: f32, shape: [1]}, y: {dtype: f16, shape: [1]}, m: {dtype: f32, shape: []}}
    steps:
      - allocate: [x, y, m]
      - write: {buffer: x, bits: ["0x3f800000"]}
      - capture:
          graph: g
          steps:
            - call: {op: {cast: {from: f32, to: f16}}, inputs: [x], outputs: [y]}
            - write: {buffer: x, bits: ["0x40000000"]}
      - replay: {graph: g}
      - replay: {graph: g}
      - call: {op: {absmax: {from: f32}}, inputs: [x], outputs: [m]}
      - write: {buffer: x, bits: ["0xc0400000"]}
      - call: {op: {absmax: {from: f32}}, inputs: [x], outputs: [m]}
      - check: {buffer: m}
      - free: [x, m]
"#,
    );
    let mut shadow = Shadow::new(&sequence, 0);
    let mut held = Vec::new();
    let taken: Result<(), Failed> = walk(&sequence.spec.steps, &mut |site, step| {
        shadow.take(site, step)?;
        let code = |buffer| shadow.held(buffer).map(|held| Tensor::code(&held.tensor, 0));
        held.push(["x", "y", "m"].map(code));
        Ok(())
    });
    taken.unwrap();
    let (one, two, three) = (Some(0x3f80_0000), Some(0x4000_0000), Some(0x4040_0000));
    let (minus_three, one16, two16) = (Some(0xc040_0000), Some(0x3c00), Some(0x4000));
    assert_eq!(
        held,
        [
            [None, None, None],
            [one, None, None],
            // Nothing is done when work is recorded.
            [one, None, None],
            // From what x holds then, after which the graph overwrites it.
            [two, one16, None],
            [two, two16, None],
            [two, two16, two],
            [minus_three, two16, two],
            [minus_three, two16, three],
            [minus_three, two16, three],
            [None, two16, None],
        ]
    );
    let made = |buffer| shadow.held(buffer).and_then(|held| held.made.as_ref()).map(|made| made.op.name());
    assert_eq!(made("y"), Some("cast"));
}

#[test]
fn values_are_those_of_step_name_and_seed() {
    let text = |name: &str| {
        format!(
            r#"sequences:
  - name: {name}
    buffers: {{x: {{dtype: f32, shape: [64]}}, y: {{dtype: f16, shape: [64]}}}}
    steps:
      - allocate: [x, y]
      - repeat:
          times: 2
          steps:
            - write: {{buffer: x, generate: random_finite}}
            - write: {{buffer: x, generate: random_finite}}
            - call: {{op: {{cast: {{from: f32, to: f16}}}}, inputs: [x], outputs: [y]}}
      - check: {{buffer: y}}
"#
        )
    };
    let values = |name: &str, seed| {
        let sequence = sequence(&text(name));
        let mut shadow = Shadow::new(&sequence, seed);
        let mut held = Vec::new();
        let taken: Result<(), Failed> = walk(&sequence.spec.steps, &mut |site, step| {
            shadow.take(site, step)?;
            if let StepSpec::Write(_) = step {
                held.push(shadow.held("x").unwrap().tensor.bytes().to_vec());
            }
            Ok(())
        });
        taken.unwrap();
        held
    };
    let held = values("a", 0);
    assert!(held[0] != held[1] && held[..2] == held[2..], "the rounds are alike, the steps are not");
    assert_eq!(held, values("a", 0));
    assert!(held[0] != values("b", 0)[0] && held[0] != values("a", 1)[0]);
}
