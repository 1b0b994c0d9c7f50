//! Conversions between scalar types, sizes, the type of a value, and parts of durations and timestamps.

use crate::{
    access,
    functions::function::{Cost, Row, none, text},
    meter::{Fault, Meter},
    time::{Civil, Duration, Timestamp, Zone},
    value::Value,
};

pub(super) const ROWS: &[Row] = &[
    Row(
        "size",
        &[
            "string|->int",
            "string->int",
            "bytes|->int",
            "bytes->int",
            "list(A)|->int",
            "list(A)->int",
            "map(A, B)|->int",
            "map(A, B)->int",
        ],
        Cost::One,
        size,
    ),
    Row("type", &["A->type"], Cost::One, |args, _| match args {
        [value] => Ok(Value::Type(value.type_name())),
        _ => none(),
    }),
    Row("dyn", &["A->dyn"], Cost::One, |args, _| args.first().cloned().ok_or_else(Fault::no_such_overload)),
    Row("bool", &["bool->bool", "string->bool"], Cost::One, to_bool),
    Row(
        "int",
        &["int->int", "double->int", "duration->int", "string->int", "timestamp->int", "uint->int"],
        Cost::One,
        to_int,
    ),
    Row("uint", &["uint->uint", "double->uint", "int->uint", "string->uint"], Cost::One, to_uint),
    Row("double", &["double->double", "int->double", "string->double", "uint->double"], Cost::One, to_double),
    Row(
        "string",
        &[
            "string->string",
            "bool->string",
            "bytes->string",
            "double->string",
            "duration->string",
            "int->string",
            "timestamp->string",
            "uint->string",
            "net.IP->string",
            "net.CIDR->string",
        ],
        Cost::Bytes,
        to_string,
    ),
    Row("bytes", &["bytes->bytes", "string->bytes"], Cost::FromString, |args, meter| match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => {
            meter.make(text.as_str().len())?;
            Ok(Value::Bytes(text.as_str().as_bytes().into()))
        }
        _ => none(),
    }),
    Row("duration", &["duration->duration", "string->duration"], Cost::One, to_duration),
    Row("timestamp", &["timestamp->timestamp", "int->timestamp", "string->timestamp"], Cost::One, to_timestamp),
    Row("getFullYear", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.year)),
    Row("getMonth", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.month - 1)),
    Row("getDayOfYear", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.day_of_year)),
    Row("getDayOfMonth", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.day - 1)),
    Row("getDate", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.day)),
    Row("getDayOfWeek", OF_TIMESTAMP, Cost::One, |args, _| civil(args, |civil| civil.day_of_week)),
    Row("getHours", OF_BOTH, Cost::One, |args, _| either(args, 3_600_000_000_000, |civil| civil.hour)),
    Row("getMinutes", OF_BOTH, Cost::One, |args, _| either(args, 60_000_000_000, |civil| civil.minute)),
    Row("getSeconds", OF_BOTH, Cost::One, |args, _| either(args, 1_000_000_000, |civil| civil.second)),
    Row("getMilliseconds", OF_BOTH, Cost::One, milliseconds),
];

fn size<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_))] => {
            access::size(value, meter).map(|size| Value::Int(size as i64))
        }
        [value] => match access::list_len(value, meter)? {
            Some(len) => Ok(Value::Int(len as i64)),
            None => {
                access::map_len(value, meter)?.map(|len| Value::Int(len as i64)).ok_or_else(Fault::no_such_overload)
            }
        },
        _ => none(),
    }
}

/// Returns an error without the text, which may come from an object.
pub(super) fn type_conversion(to: &str) -> Fault {
    Fault::error(format!("type conversion error from 'string' to '{to}'"))
}

fn to_bool<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    if let [Value::Bool(yes)] = args {
        return Ok(Value::Bool(*yes));
    }
    match text(args.first())? {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
        _ => Err(type_conversion("bool")),
    }
}

fn out_of_range() -> Fault {
    Fault::error("integer overflow")
}

fn to_int<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Int(match args {
        [Value::Int(number)] => *number,
        [Value::Uint(number)] => (*number).try_into().map_err(|_| out_of_range())?,
        // The bounds of an i64 are excluded, as in upstream: the upper one rounds to 2^63 as a double.
        [Value::Double(number)]
            if number.is_finite() && *number > -9.3e18 && number.abs() < 9_223_372_036_854_775_807.0 =>
        {
            number.trunc() as i64
        }
        [Value::Double(_)] => return Err(out_of_range()),
        [Value::Duration(Duration(nanos))] => *nanos,
        [Value::Timestamp(time)] => time.seconds,
        _ => {
            let text = text(args.first())?;
            text.parse().map_err(|_| type_conversion("int"))?
        }
    }))
}

fn to_uint<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let overflow = || Fault::error("unsigned integer overflow");
    Ok(Value::Uint(match args {
        [Value::Uint(number)] => *number,
        [Value::Int(number)] => (*number).try_into().map_err(|_| overflow())?,
        [Value::Double(number)] if *number >= 0.0 && *number < 18_446_744_073_709_551_615.0 => number.trunc() as u64,
        [Value::Double(_)] => return Err(overflow()),
        _ => {
            let text = text(args.first())?;
            // Go accepts no sign here.
            let digits = Some(text).filter(|text| !text.starts_with('+'));
            digits.and_then(|text| text.parse().ok()).ok_or_else(|| type_conversion("uint"))?
        }
    }))
}

fn to_double<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Double(match args {
        [Value::Double(number)] => *number,
        [Value::Int(number)] => *number as f64,
        [Value::Uint(number)] => *number as f64,
        _ => {
            let text = text(args.first())?;
            double(text).ok_or_else(|| type_conversion("double"))?
        }
    }))
}

pub(super) fn to_string<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let [value] = args else { return none() };
    if let Value::Bytes(bytes) = value {
        meter.make(bytes.len())?;
    }
    Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(yes) => Value::made(yes.to_string()),
        Value::Int(number) => Value::made(number.to_string()),
        Value::Uint(number) => Value::made(number.to_string()),
        Value::Double(number) => Value::made(go_double(*number)),
        Value::Bytes(bytes) => Value::made(
            std::str::from_utf8(bytes).map_err(|_| Fault::error("invalid UTF-8 in bytes, cannot convert to string"))?,
        ),
        Value::Duration(span) => Value::made(span.to_string()),
        Value::Timestamp(time) => Value::made(time.to_string()),
        Value::Ip(ip) => Value::made(ip.to_string()),
        Value::Cidr(ip, bits) => Value::made(format!("{ip}/{bits}")),
        _ => return none(),
    })
}

/// Parses a double as Go's `strconv.ParseFloat`: accepts groups of digits (`1_000`), rejects too large numbers.
fn double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.len() < text.len() && unsigned.eq_ignore_ascii_case("nan") {
        return None;
    }
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |(at, _): (usize, &str)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let number: f64 = match text.contains('_') {
        false => text.parse().ok()?,
        true if text.match_indices('_').all(between_digits) => text.replace('_', "").parse().ok()?,
        true => return None,
    };
    (number.is_finite() || !text.bytes().any(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Formats a double as Go's `strconv.FormatFloat(x, 'g', -1, 64)`.
pub(super) fn go_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

pub(super) fn to_duration<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Duration(match args {
        [Value::Duration(span)] => *span,
        _ => {
            let text = text(args.first())?;
            Duration::parse(text).ok_or_else(|| type_conversion("google.protobuf.Duration"))?
        }
    }))
}

fn to_timestamp<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Timestamp(match args {
        [Value::Timestamp(time)] => *time,
        [Value::Int(seconds)] => Timestamp::new(*seconds, 0).ok_or_else(|| Fault::error("timestamp overflow"))?,
        _ => {
            let text = text(args.first())?;
            Timestamp::parse(text).ok_or_else(|| type_conversion("google.protobuf.Timestamp"))?
        }
    }))
}

const OF_TIMESTAMP: &[&str] = &["timestamp|->int", "timestamp|string->int"];
const OF_BOTH: &[&str] = &["timestamp|->int", "timestamp|string->int", "duration|->int"];

fn civil<'a>(args: &[Value<'a>], of: fn(Civil) -> i64) -> Result<Value<'a>, Fault> {
    let (Some(Value::Timestamp(time)), zone) = (args.first(), args.get(1)) else { return none() };
    let offset = match zone {
        None => 0,
        Some(Value::String(zone)) => {
            Zone::parse(zone.as_str()).ok_or_else(|| Fault::error("the time zone is not known here"))?.offset(*time)
        }
        Some(_) => return none(),
    };
    Ok(Value::Int(of(time.civil(offset))))
}

fn either<'a>(args: &[Value<'a>], unit: i64, of: fn(Civil) -> i64) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Duration(Duration(nanos))] => Ok(Value::Int(nanos / unit)),
        _ => civil(args, of),
    }
}

fn milliseconds<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Duration(Duration(nanos))] => Ok(Value::Int(nanos / 1_000_000)),
        [Value::Timestamp(time), ..] => Ok(Value::Int(i64::from(time.nanos) / 1_000_000)),
        _ => none(),
    }
}
