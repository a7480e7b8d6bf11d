use super::*;
use plumbline_reference::format::{BF16, E2M1, E4M3FN, E4M3FNUZ, E8M0, F16, F32, F64, TF32, UE4M3};
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

fn code(text: &str, format: Format) -> u64 {
    parse(text, format).unwrap().code
}

fn message(text: &str, format: Format) -> String {
    parse(text, format).unwrap_err().to_string()
}

#[test]
fn bits() {
    assert_eq!(parse("0x43e88000", F32), Ok(Number { code: 0x43e8_8000, exact: true }));
    assert_eq!(parse("0X7E", E4M3FN), Ok(Number { code: 0x7e, exact: true }));
    assert_eq!(parse("0xffffffffffffffff", F64), Ok(Number { code: u64::MAX, exact: true }));
    assert_eq!(
        message("0x1ff", E4M3FN),
        "`0x1ff` has 3 hex digits, but a code of e4m3fn has 2: write at most 2"
    );
    assert_eq!(
        message("0x1f", E2M1),
        "`0x1f` sets bits that e2m1 does not have, 0x10: clear them, its codes use 0x0f"
    );
    assert_eq!(
        message("0x3f801000", TF32),
        "`0x3f801000` sets bits that tf32 does not have, 0x00001000: clear them, its codes use 0xffffe000"
    );
}

#[test]
fn decimals_and_hex_floats() {
    for (text, bits) in [
        ("465", 0x43e8_8000),
        ("4.65e2", 0x43e8_8000),
        ("+.465E+3", 0x43e8_8000),
        ("465.", 0x43e8_8000),
        ("0x1.d1p+8", 0x43e8_8000),
        ("0X1D1P0", 0x43e8_8000),
        ("-0x.8p-1", 0xbe80_0000),
        ("0", 0),
        ("-0", 0x8000_0000),
        ("-0e99", 0x8000_0000),
        ("inf", 0x7f80_0000),
        ("-Infinity", 0xff80_0000),
        ("nan", 0x7fff_ffff),
        ("-NaN", 0xffff_ffff),
    ] {
        assert_eq!(parse(text, F32), Ok(Number { code: bits, exact: true }), "{text}");
    }
    assert_eq!(parse("1e-8", F32), Ok(Number { code: 0x322b_cc77, exact: false }));
}

#[test]
fn specials_of_small_formats() {
    assert_eq!((code("nan", E4M3FN), code("-nan", E4M3FN)), (0x7f, 0xff));
    assert_eq!((code("nan", E4M3FNUZ), code("-nan", E4M3FNUZ)), (0x80, 0x80));
    assert_eq!((code("nan", E8M0), code("-nan", E8M0)), (0xff, 0xff));
    assert_eq!(parse("-0", E4M3FNUZ), Ok(Number { code: 0, exact: false }));
    assert_eq!(message("inf", E4M3FN), "`inf` is not a value of e4m3fn: write a number from -448.0 to 448.0");
    assert_eq!(message("nan", E2M1), "`nan` is not a value of e2m1: write a number from -6.0 to 6.0");
}

#[test]
fn range() {
    assert_eq!(parse("1e39", F32), Ok(Number { code: 0x7f80_0000, exact: false }));
    assert_eq!(parse("-1e999999999999", F64), Ok(Number { code: 0xfff << 52, exact: false }));
    assert_eq!(parse("-0x1p-999999999999", F64), Ok(Number { code: 1 << 63, exact: false }));
    assert_eq!(message("450", E4M3FN), "`450` is outside e4m3fn: write a number from -448.0 to 448.0");
    assert_eq!(message("-1", UE4M3), "`-1` is outside ue4m3: write a number from 0.0 to 448.0");
    for text in ["0", "-0", "-1", "1e-99", "1e39"] {
        assert!(message(text, E8M0).contains("is outside e8m0"), "{text}");
    }
}

#[test]
fn rounds_once() {
    // A digit too far beyond the midpoint for f64 to see.
    let long = |digits: &str, last: char| format!("{digits}{}{last}", "0".repeat(40));
    let above = |digits| long(digits, '1');
    assert_eq!(code("1.00048828125", F16), 0x3c00);
    assert_eq!(code(&above("1.00048828125"), F16), 0x3c01);
    assert_eq!(code(&above("2049."), F16), 0x6801);
    assert_eq!(code("2.98023223876953125e-8", F16), 0);
    assert_eq!(code("0.0000000298023223876953125000000000000000000000000001", F16), 1);
    assert_eq!(code(&above("65519."), F16), 0x7bff);
    assert_eq!(code(&above("1.00390625"), BF16), 0x3f81);
    assert_eq!(code(&above("1.000000059604644775390625"), F32), 0x3f80_0001);
    assert_eq!(code(&above("17."), E4M3FN), 0x59);
    assert_eq!(code("17", E4M3FN), 0x58);
    assert_eq!(code("0x1.00000000000008000000000000000000000000000001p0", F64), 0x3ff0_0000_0000_0001);
    assert_eq!(code("0x1p-1075", F64), 0);
    assert_eq!(code(&format!("0x1.{}1p-1075", "0".repeat(40)), F64), 1);
}

/// Another implementation's reading of the text.
fn apfloat(text: &str, format: Format) -> u64 {
    fn bits<T: Float>(text: &str) -> u64 {
        u64::try_from(text.parse::<T>().ok().unwrap().to_bits()).unwrap()
    }
    match format {
        F16 => bits::<Half>(text),
        BF16 => bits::<BFloat>(text),
        F32 => bits::<Single>(text),
        _ => bits::<Double>(text),
    }
}

#[test]
fn agrees_with_apfloat_and_std() {
    for i in 0..4000 {
        let [a, b] = [0, 1].map(|j| crate::seed::mix(i, j));
        let exponent = (b % 700) as i32 - 350;
        let narrow = (b >> 32) as i32 % 50 - 10;
        for text in [
            format!("{a}e{exponent}"),
            format!("-{a}.{b}e{narrow}"),
            format!("0x{a:x}.{b:x}p{}", narrow - 80),
            format!(
                "0x1.{:03x}{}p{narrow}",
                a % 4096,
                ["", "8", "80000000000000000000000000001"][(b % 3) as usize]
            ),
        ] {
            for format in [F16, BF16, F32, F64] {
                assert_eq!(code(&text, format), apfloat(&text, format), "{text} {format}");
            }
        }
        let text = format!("{a}e{exponent}");
        assert_eq!(code(&text, F64), text.parse::<f64>().unwrap().to_bits());
        assert_eq!(code(&text, F32), u64::from(text.parse::<f32>().unwrap().to_bits()));
    }
}

#[test]
fn printed_values_read_back() {
    for format in ALL {
        let codes = (0..1 << 12).map(|i| crate::seed::mix(7, i) & format.code_mask());
        for value in codes.map(|code| format.decode(code)).filter(|value| !value.is_nan()) {
            let code = format.encode(value, &Policy::IEEE, 0);
            let hex = HexFloat(value).to_string();
            assert_eq!(parse(&hex, format), Ok(Number { code, exact: true }), "{hex}");
            let decimal = Decimal(value).to_string();
            let number = parse(&decimal, format).unwrap();
            assert_eq!((number.code, number.note(&decimal, format)), (code, None), "{decimal}");
        }
    }
}

#[test]
fn notes() {
    let note = |text: &str, format| parse(text, format).unwrap().note(text, format);
    assert_eq!(note("465", F32), None);
    assert_eq!(
        note("465.1", F32).as_deref(),
        Some("465.1 is not exact in f32; the nearest is 465.1000061035156 (0x1.d1199ap+8, 0x43e88ccd)")
    );
    assert_eq!(note("0.1", F64), None);
    let long = "0.".to_owned() + &"3".repeat(60);
    assert_eq!(
        note(&long, F64).as_deref(),
        Some(
            "0.33333333333333333333333333333333333... is not exact in f64; the nearest is\n  \
             0.3333333333333333 (0x1.5555555555555p-2, 0x3fd5555555555555)"
        )
    );
}

#[test]
fn refuses_what_is_no_number() {
    assert_eq!(
        message("x", F32),
        "`x` is not a number: write a decimal (465, 1e-8, -inf, nan), a hex float (0x1.d1p+8), \
         or the bits of a code (0x3f800000)"
    );
    for text in [
        "",
        "-",
        "+",
        ".",
        "-.",
        "e",
        "e5",
        "1e",
        "1e+",
        "1e5e",
        "1e5.0",
        "1.2.3",
        "1..",
        "--1",
        "+-1",
        " 1",
        "1 ",
        "1_000",
        "1,5",
        "0x",
        "0x.p1",
        "0xp1",
        "0x1.8",
        "-0x1",
        "0x1p",
        "0x1p+",
        "0x1pf",
        "0x+1",
        "0xg",
        "snan",
        "nan(1)",
        "infinit",
        "++inf",
        "\u{2212}1",
        "\u{664}",
        "\u{1f600}",
        "\0",
        "1\u{0}",
        "0x\u{664}",
        "1e\u{664}",
    ] {
        assert!(message(text, F16).contains("is not a number"), "{text}");
    }
    assert!(message("\u{2212}1\n", F16).starts_with("`\\u{2212}1\\n` is not"));
    assert!(message(&"9".repeat(5000), F16).ends_with("9...` is 5000 bytes long: write at most 4096"));
}

#[test]
fn no_text_panics() {
    let alphabet: Vec<_> = "0123456789abcdefxXpPeE+-..inftyNA_ \u{e9}\u{1f600}".chars().collect();
    for i in 0..200_000 {
        let length = crate::seed::mix(1, i) % 12;
        let prefix = ["", "0x", "-", "1e", "0x1p", "-0x."][crate::seed::mix(2, i) as usize % 6];
        let pick = |j| alphabet[crate::seed::mix(i, j) as usize % alphabet.len()];
        let text = format!("{prefix}{}", (0..length).map(pick).collect::<String>());
        let format = ALL[crate::seed::mix(3, i) as usize % ALL.len()];
        if let Ok(number) = parse(&text, format) {
            assert_eq!(number.code & !format.code_mask(), 0, "{text}");
            let _ = number.note(&text, format);
        }
    }
    for text in
        ["1e2147483647", "1e-2147483648", "1e99999999999999999999", "0x1p2147483647", "0x1p-2147483648"]
    {
        for zeros in [0, 1, 4000] {
            let padded = text.replacen('1', &format!("{0}.{0}1", "0".repeat(zeros / 2)), 1);
            assert!(ALL.iter().all(|&format| parse(&padded, format).map_or(true, |number| !number.exact)));
        }
    }
    for text in ["9".repeat(4096), format!("0.{}", "3".repeat(4094)), format!("{}e-4000", "7".repeat(4090))] {
        assert!(parse(&text, F64).is_ok());
    }
}

/// Texts just off a midpoint, further along than f64 sees.
#[test]
fn a_decimal_beside_a_midpoint_goes_to_its_own_side() {
    let rounded = |text: &str, format| parse(text, format).unwrap().code;
    let above = "1.000000059604644775390625000000000000000000000000001";
    assert_eq!(rounded(above, F32), 0x3f80_0001);
    assert_eq!(rounded(&above[..above.len() - 27], F32), 0x3f80_0000);
    let tie = "0.0000000000000000026495190590114514606057127821259200572967529296875";
    assert_eq!(rounded(tie, BF16), 0x2244);
    assert_eq!(rounded("1.27054942088145050860248500375101946294307708740234375E-21", E8M0), 0x3a);
    assert_eq!(rounded("432.00000000000000000000000000000000000000000000000000000001", UE4M3), 0x7e);
}
