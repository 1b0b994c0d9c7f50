//! Parts of durations and timestamps.

use super::{Cost, Row, none};
use crate::{
    fault::Fault,
    meter::Meter,
    time::{Civil, Duration, Zone},
    value::Value,
};

const OF_TIMESTAMP: &[&str] = &["timestamp|->int", "timestamp|string->int"];
const OF_BOTH: &[&str] = &["timestamp|->int", "timestamp|string->int", "duration|->int"];

pub(super) const ROWS: &[Row] = &[
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
