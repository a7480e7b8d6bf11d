use super::*;
use plumbline_reference::format::{E4M3FN, F32};
use std::fs;

fn unit() -> Unit {
    let source = Source { name: "cast", text: "extern \"C\" __global__ void wide() {}" };
    Unit::new(source, vec![("FROM", constant(F32)), ("TO", constant(E4M3FN))])
}

const NVRTC: Version = Version { major: 13, minor: 0, patch: None };

#[test]
fn formats_are_those_of_the_reference() {
    let text = formats();
    assert!(text.contains("constexpr Format E4M3FN = {true, 4, 3, 7, Specials::NanAllOnes, true, 8, 0};"));
    assert!(text.contains("constexpr Format TF32 = {true, 8, 10, 127, Specials::Ieee, true, 32, 13};"));
    assert_eq!(text.lines().count(), ALL.len() + 1);
}

#[test]
fn a_specific_unit_is_for_one_architecture_and_says_so_to_the_compiler() {
    let specific = Unit { since: SM_90, is_specific: true, ..unit() };
    assert_eq!(ARCHITECTURES.map(|arch| specific.is_for(arch)), [false, false, true, false]);
    assert!(specific.options(SM_90).contains(&"--gpu-architecture=sm_90a".to_owned()));
    let since = Unit { since: SM_90, ..unit() };
    assert_eq!(ARCHITECTURES.map(|arch| since.is_for(arch)), [false, false, true, true]);
    assert!(since.options(SM_90).contains(&"--gpu-architecture=sm_90".to_owned()));
}

/// Each thing that changes the code changes the key.
#[test]
fn key_holds_everything() {
    let key = unit().key(SM_90, NVRTC);
    let mut other = unit();
    other.defines[1].1 = "E5M2".to_owned();
    assert_ne!(other.key(SM_90, NVRTC), key);
    let mut other = unit();
    other.source.text = "";
    assert_ne!(other.key(SM_90, NVRTC), key);
    assert_ne!(unit().key(SM_89, NVRTC), key);
    assert_ne!(unit().key(SM_90, Version { minor: 1, ..NVRTC }), key);
    for (name, text) in HEADERS.iter() {
        assert!(key.contains(name) && key.contains(text.as_str()), "{name}");
    }
    for option in ["--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "sm_90"] {
        assert!(key.contains(option), "{option}");
    }
}

#[test]
fn cache_gives_back_what_it_was_given_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().join("deep/down"));
    assert_eq!(cache.get("key"), None);
    cache.put("key", b"code");
    assert_eq!(cache.get("key").as_deref(), Some(&b"code"[..]));
    assert_eq!(cache.get("kex"), None);

    let file = fs::read_dir(folder.path().join("deep/down")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    for damaged in [&whole[..whole.len() - 1], &whole[1..], &[&whole[..], b"x"].concat()] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(cache.get("key"), None);
    }
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&file, &flipped).unwrap();
    assert_eq!(cache.get("key"), None);
    // A file of that name with another key: a collision.
    let mut collision = whole.clone();
    let at = MAGIC_AND_LENGTHS;
    collision[at] ^= 1;
    fs::write(&file, &collision).unwrap();
    assert_eq!(cache.get("key"), None);

    cache.put("key", b"newer");
    assert_eq!(cache.get("key").as_deref(), Some(&b"newer"[..]));
}

/// Where the key begins in a file.
const MAGIC_AND_LENGTHS: usize = 16 + 8 + 8;

#[test]
fn without_a_folder_nothing_is_kept() {
    let cache = Cache::none();
    cache.put("key", b"code");
    assert_eq!(cache.get("key"), None);
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = Cache::at(file.path());
    cache.put("key", b"code");
    assert_eq!(cache.get("key"), None);
}
