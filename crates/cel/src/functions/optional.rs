//! Optional values. The evaluation itself sees to operands that need not be evaluated where a value is there (`or`,
//! `orValue`).

use super::{Cost, Row, none};
use crate::{access, fault::Fault, meter::Meter, value::Value};

pub(super) const ROWS: &[Row] = &[
    Row("optional.of", &["A->optional(A)"], Cost::One, |args, _| Ok(Value::optional(args.first().cloned()))),
    Row("optional.none", &["->optional(A)"], Cost::One, |_, _| Ok(Value::optional(None))),
    Row("optional.ofNonZeroValue", &["A->optional(A)"], Cost::One, |args, meter| match args {
        [value] => Ok(Value::optional(Some(value.clone()).filter(|value| !is_zero(value, meter)))),
        _ => none(),
    }),
    Row("hasValue", &["optional(A)|->bool"], Cost::One, |args, _| match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => none(),
    }),
    Row("value", &["optional(A)|->A"], Cost::One, |args, _| match args {
        [Value::Optional(Some(value))] => Ok(Value::clone(value)),
        [Value::Optional(None)] => Err(Fault::error("optional.none() dereference")),
        _ => none(),
    }),
    Row("or", &["optional(A)|optional(A)->optional(A)"], Cost::One, |args, _| match args {
        [Value::Optional(value), other] => Ok(if value.is_some() { args[0].clone() } else { other.clone() }),
        _ => none(),
    }),
    Row("orValue", &["optional(A)|A->A"], Cost::One, |args, _| match args {
        [Value::Optional(value), other] => {
            Ok(value.as_ref().map_or_else(|| other.clone(), |value| Value::clone(value)))
        }
        _ => none(),
    }),
];

fn is_zero(value: &Value<'_>, meter: &Meter<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(span) => span.0 == 0,
        Value::Optional(_)
        | Value::Timestamp(_)
        | Value::Type(_)
        | Value::Quantity(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Authorizer(_)
        | Value::Decision(_) => false,
        sized => access::size(sized, meter).is_ok_and(|size| size == 0),
    }
}
