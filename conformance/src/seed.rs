//! Counter-based randomness: element `i` of any input can be recomputed alone, on
//! any device, so a shard needs no state.

/// SplitMix64's output for the state that `i + 1` steps from `seed` lead to.
#[must_use]
pub const fn mix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// FNV-1a of a string: stable across versions and platforms.
#[must_use]
pub const fn hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The seed of a case in a run.
#[must_use]
pub const fn of_case(name: &str, run_seed: u64) -> u64 {
    mix(hash(name), run_seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_splitmix64() {
        // First outputs of the reference implementation for seed 1234567.
        assert_eq!(mix(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(mix(1_234_567, 1), 3_203_168_211_198_807_973);
    }

    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
