//! How formats, values and operations are written and read.

use plumbline_reference::DType;
use plumbline_reference::format::{
    ALL, Decimal, E4M3FN, F16, F32, F64, Format, HexFloat, Infinities, Overflow, Rounding, TF32, Value,
};
use plumbline_reference::ops::{
    Absmax, AbsmaxNan, Cast, DeviceScaledCast, Granularity, Op, ScaleOp, ScaledCast, Special, Tiny,
};

fn hex_float(x: f64) -> String {
    HexFloat(Value::from(x)).to_string()
}

#[test]
fn hex_floats_are_those_of_c() {
    let numbers = [0.0, -0.0, 1.0, -1.5, 465.0, 0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324];
    let expected = [
        "0x0p+0",
        "-0x0p+0",
        "0x1p+0",
        "-0x1.8p+0",
        "0x1.d1p+8",
        "0x1.999999999999ap-4",
        "0x1.fffffffffffffp+1023",
        "0x1p-1022",
        "0x1p-1074",
    ];
    assert_eq!(numbers.map(hex_float), expected);
    assert_eq!(
        [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(hex_float),
        ["nan", "-nan", "inf", "-inf"]
    );
}

#[test]
fn hex_floats_of_any_significand_and_exponent() {
    let text = |significand, exponent| {
        HexFloat(Value::Finite { negative: false, significand, exponent }).to_string()
    };
    assert_eq!(text(u64::MAX, 0), "0x1.fffffffffffffffep+63");
    assert_eq!(text(1, i32::MAX), "0x1p+2147483647");
    assert_eq!(text(3, i32::MAX), "0x1.8p+2147483648");
    assert_eq!(text(1, i32::MIN), "0x1p-2147483648");
}

#[test]
fn decimals_are_the_shortest_that_identify_an_f64() {
    let text = |x: f64| Decimal(Value::from(x)).to_string();
    let numbers = [448.0, -0.0, 0.1, 1e300, f64::NAN, -f64::NAN, f64::NEG_INFINITY];
    assert_eq!(numbers.map(text), ["448.0", "-0.0", "0.1", "1e300", "NaN", "-NaN", "-inf"]);
    assert_eq!(format!("[{:>8}]", Decimal(Value::from(0.5))), "[     0.5]");
}

#[test]
fn elements_are_described_as_decimal_hex_float_and_bits() {
    assert_eq!(DType::from(F32).describe(0x43e8_8000), "465.0 (0x1.d1p+8, 0x43e88000)");
    assert_eq!(DType::from(E4M3FN).describe(0xff), "-NaN (-nan, 0xff)");
    assert_eq!(DType::U8.describe(129), "129 (0x81)");
    assert_eq!(DType::U32.describe(7), "7 (0x00000007)");
    assert_eq!([E4M3FN.hex(1), F16.hex(1), TF32.hex(1 << 13)], ["0x01", "0x0001", "0x00002000"]);
    assert_eq!(F64.hex(1), "0x0000000000000001");
}

#[test]
fn element_types_and_formats_are_written_by_name() {
    for name in DType::names() {
        let text = format!("{name:?}");
        let dtype: DType = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&dtype).unwrap(), text);
        assert_eq!(dtype.to_string(), name);
    }
    for format in ALL {
        let text = serde_json::to_string(&format).unwrap();
        assert_eq!(serde_json::from_str::<Format>(&text).unwrap(), format);
    }
}

#[test]
fn an_unknown_name_is_refused_with_those_there_are() {
    let names = "e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, f16, bf16, tf32, f32, f64, e8m0, e2m3, e3m2, e2m1, ue4m3";
    let error = serde_json::from_str::<Format>(r#""e4m3""#).unwrap_err().to_string();
    assert_eq!(error, format!("unknown format `e4m3`, expected one of {names}"));
    let error = serde_json::from_str::<DType>(r#""i8""#).unwrap_err().to_string();
    assert_eq!(error, format!("unknown dtype `i8`, expected one of {names}, u8, u32"));
}

fn read(text: &str) -> Result<Op, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn an_operation_is_what_its_text_says() {
    assert_eq!(read(r#"{"cast": {"from": "f32", "to": "e4m3fn"}}"#), Ok(Cast::new(F32, E4M3FN).into()));
    let text = r#"{"cast": {"from": "f32", "to": "e4m3fn", "rounding": "toward_zero",
                   "overflow": "to_inf_or_nan", "infinities": "propagate"}}"#;
    let expected = Cast {
        rounding: Rounding::TowardZero,
        overflow: Overflow::ToInfOrNan,
        infinities: Infinities::Propagate,
        ..Cast::new(F32, E4M3FN)
    };
    assert_eq!(read(text), Ok(expected.into()));
    let text = r#"{"scaled_cast": {"from": "f16", "to": "e4m3fn", "granularity": {"block": 32}, "scale_op": "divide"}}"#;
    let expected = ScaledCast {
        granularity: Granularity::Block(32),
        scale_op: ScaleOp::Divide,
        ..ScaledCast::new(F16, E4M3FN)
    };
    assert_eq!(read(text), Ok(expected.into()));
    let text = r#"{"device_scaled_cast": {"from": "f32", "to": "e4m3fn", "granularity": "row", "tiny": "quotient",
                   "special": "unit"}}"#;
    let expected = DeviceScaledCast {
        granularity: Granularity::Row,
        tiny: Tiny::Quotient,
        special: Special::Unit,
        ..DeviceScaledCast::new(F32, E4M3FN)
    };
    assert_eq!(read(text), Ok(expected.into()));
    let expected = Absmax { from: F32, nan: AbsmaxNan::Ignore, granularity: Granularity::Tensor };
    assert_eq!(read(r#"{"absmax": {"from": "f32", "nan": "ignore"}}"#), Ok(expected.into()));
}

#[test]
fn an_operation_is_read_as_it_was_written() {
    let all = [
        Op::from(Cast::new(F32, E4M3FN)),
        DeviceScaledCast { granularity: Granularity::Block(16), ..DeviceScaledCast::new(F16, E4M3FN) }.into(),
        Absmax { from: F16, nan: AbsmaxNan::Propagate, granularity: Granularity::Row }.into(),
    ];
    for op in all {
        assert_eq!(read(&serde_json::to_string(&op).unwrap()), Ok(op));
    }
}

#[test]
fn unknown_operations_and_parameters_are_refused() {
    for (text, named) in [
        (r#"{"casts": {}}"#, "casts"),
        (r#"{"cast": {"from": "f32", "to": "e4m3fn", "round": "up"}}"#, "round"),
        (r#"{"cast": {"from": "f32", "to": "e4m3fn", "rounding": "upward"}}"#, "upward"),
        (r#"{"cast": {"from": "f32"}}"#, "to"),
        (r#"{"scaled_cast": {"from": "f32", "to": "e4m3fn", "granularity": "column"}}"#, "column"),
        (r#"{"absmax": {"from": "f32", "nans": "ignore"}}"#, "nans"),
        (r#"{"decode": {"from": "e4m3fn", "to": "f32", "rounding": "up"}}"#, "rounding"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(&format!("`{named}`")), "{error}");
    }
}
