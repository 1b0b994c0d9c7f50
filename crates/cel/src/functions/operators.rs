//! Operators and functions of optional values. `&&`, `||`, `?:`, `or` and `orValue`, which need not evaluate all their
//! operands, are evaluated in `evaluate`.

use std::{cmp::Ordering, rc::Rc};

use crate::{
    access,
    functions::function::{Cost, Row, none},
    meter::{Fault, Meter},
    time::{Duration, Timestamp},
    value::{List, Value, compare_numbers},
};

const ORDERED: &[&str] = &[
    "bool,bool->bool",
    "int,int->bool",
    "int,double->bool",
    "int,uint->bool",
    "uint,uint->bool",
    "uint,double->bool",
    "uint,int->bool",
    "double,double->bool",
    "double,int->bool",
    "double,uint->bool",
    "string,string->bool",
    "bytes,bytes->bool",
    "timestamp,timestamp->bool",
    "duration,duration->bool",
];

const INDEX: &[&str] =
    &["list(A),int->A", "map(A, B),A->B", "optional(list(A)),int->optional(A)", "optional(map(A, B)),A->optional(B)"];

const OPTIONAL_INDEX: &[&str] = &[
    "list(A),int->optional(A)",
    "optional(list(A)),int->optional(A)",
    "map(A, B),A->optional(B)",
    "optional(map(A, B)),A->optional(B)",
];

pub(super) const ROWS: &[Row] = &[
    Row(
        "_+_",
        &[
            "bytes,bytes->bytes",
            "double,double->double",
            "duration,duration->duration",
            "duration,timestamp->timestamp",
            "timestamp,duration->timestamp",
            "int,int->int",
            "list(A),list(A)->list(A)",
            "string,string->string",
            "uint,uint->uint",
        ],
        Cost::Both,
        add,
    ),
    Row(
        "_-_",
        &[
            "double,double->double",
            "duration,duration->duration",
            "int,int->int",
            "timestamp,duration->timestamp",
            "timestamp,timestamp->duration",
            "uint,uint->uint",
        ],
        Cost::One,
        subtract,
    ),
    Row("_*_", &["double,double->double", "int,int->int", "uint,uint->uint"], Cost::One, multiply),
    Row("_/_", &["double,double->double", "int,int->int", "uint,uint->uint"], Cost::One, divide),
    Row("_%_", &["int,int->int", "uint,uint->uint"], Cost::One, modulo),
    Row("-_", &["double->double", "int->int"], Cost::One, negate),
    Row("!_", &["bool->bool"], Cost::One, not),
    Row("_==_", &["A,A->bool"], Cost::Equal, |args, meter| match args {
        [a, b] => access::equal(a, b, meter).map(Value::Bool),
        _ => none(),
    }),
    Row("_!=_", &["A,A->bool"], Cost::Smaller, |args, meter| match args {
        [a, b] => access::is_same(a, b, meter).map(|same| Value::Bool(!same)),
        _ => none(),
    }),
    Row("_<_", ORDERED, Cost::Ordered, |args, meter| ordered(args, meter, Ordering::is_lt)),
    Row("_<=_", ORDERED, Cost::Ordered, |args, meter| ordered(args, meter, Ordering::is_le)),
    Row("_>_", ORDERED, Cost::Ordered, |args, meter| ordered(args, meter, Ordering::is_gt)),
    Row("_>=_", ORDERED, Cost::Ordered, |args, meter| ordered(args, meter, Ordering::is_ge)),
    // Only for their types: `evaluate` has the selection of an item.
    Row("_[_]", INDEX, Cost::One, |_, _| none()),
    Row("_[?_]", OPTIONAL_INDEX, Cost::One, |_, _| none()),
    Row("@in", &["A,list(A)->bool", "A,map(A, B)->bool"], Cost::InList, is_in),
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

fn overflow() -> Fault {
    Fault::error("integer overflow")
}

fn unsigned_overflow() -> Fault {
    Fault::error("unsigned integer overflow")
}

fn time_overflow() -> Fault {
    Fault::error("timestamp overflow")
}

fn span_overflow() -> Fault {
    Fault::error("duration overflow")
}

fn add<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_add(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a + b),
        [Value::String(a), Value::String(b)] => {
            let (a, b) = (a.as_str(), b.as_str());
            meter.make(a.len().saturating_add(b.len()))?;
            Value::made([a, b].concat())
        }
        [Value::Bytes(a), Value::Bytes(b)] => {
            meter.make(a.len().saturating_add(b.len()))?;
            Value::Bytes([&**a, &**b].concat().into())
        }
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(Duration(a.0.checked_add(b.0).ok_or_else(span_overflow)?))
        }
        [Value::Timestamp(time), Value::Duration(span)] | [Value::Duration(span), Value::Timestamp(time)] => {
            Value::Timestamp(time.plus(*span).ok_or_else(time_overflow)?)
        }
        [a, b] if access::list_len(a, meter)?.is_some() && access::list_len(b, meter)?.is_some() => {
            let len = |list| Ok::<_, Fault>(access::list_len(list, meter)?.unwrap_or_default());
            let len = len(a)?.saturating_add(len(b)?);
            let mut items = List::with_room(meter.list(len)?, len);
            for list in [a, b] {
                access::each_item(list, meter, |item| {
                    items.fill(item);
                    Ok(())
                })?;
            }
            Value::List(Rc::new(items.joined()))
        }
        _ => return none(),
    })
}

fn subtract<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => {
            Value::Duration(Duration(a.0.checked_sub(b.0).ok_or_else(span_overflow)?))
        }
        [Value::Timestamp(a), Value::Timestamp(b)] => Value::Duration(a.since(*b).ok_or_else(span_overflow)?),
        [Value::Timestamp(time), Value::Duration(Duration(span))] => {
            let back = Duration(span.checked_neg().ok_or_else(span_overflow)?);
            Value::Timestamp(time.plus(back).ok_or_else(time_overflow)?)
        }
        _ => return none(),
    })
}

fn multiply<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return none(),
    })
}

fn divide<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Fault::error("division by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return none(),
    })
}

fn modulo<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Fault::error("modulus by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return none(),
    })
}

fn negate<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or_else(overflow)?),
        [Value::Double(a)] => Value::Double(-a),
        [Value::Duration(a)] => Value::Duration(Duration(a.0.checked_neg().ok_or_else(span_overflow)?)),
        _ => return none(),
    })
}

fn not<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Bool(yes)] => Ok(Value::Bool(!yes)),
        _ => none(),
    }
}

fn ordered<'a>(args: &[Value<'a>], meter: &Meter<'_>, holds: fn(Ordering) -> bool) -> Result<Value<'a>, Fault> {
    let [a, b] = args else { return none() };
    if let (Value::String(a), Value::String(b)) = (a, b) {
        meter.read(a.as_str().len().min(b.as_str().len()))?;
    }
    match a.compare(b).or_else(|| compare_numbers(a, b)) {
        Some(order) => Ok(Value::Bool(holds(order))),
        // NaN has no order.
        None if matches!(a, Value::Double(_)) || matches!(b, Value::Double(_)) => {
            let numbers = [a, b].iter().all(|v| matches!(v, Value::Double(_) | Value::Int(_) | Value::Uint(_)));
            if numbers { Err(Fault::error("NaN values cannot be ordered")) } else { none() }
        }
        None => none(),
    }
}

/// Evaluates `in`: searches the keys of a map, or the items of a list.
fn is_in<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let [sought, container] = args else { return none() };
    if let (Value::String(sought), Value::Strings(items)) = (sought, container) {
        return Ok(Value::Bool(items.iter().any(|item| item == sought.as_str())));
    }
    let Some(len) = access::list_len(container, meter)? else {
        return access::entry(container, sought, meter).map(|found| Value::Bool(found.is_some()));
    };
    for at in 0..len {
        if let Some(item) = access::list_item(container, at, meter)?
            && access::is_same(sought, &item, meter)?
        {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn is_zero(value: &Value<'_>, meter: &Meter<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(span) => span.0 == 0,
        Value::Timestamp(time) => *time == Timestamp::MIN,
        Value::Optional(_)
        | Value::Type(_)
        | Value::Quantity(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Format(_)
        | Value::Ip(_)
        | Value::Cidr(..)
        | Value::Authorizer(_)
        | Value::Decision(_) => false,
        Value::Message(message) => !message.is_json_patch() && message.fields.is_empty(),
        sized => access::size(sized, meter).is_ok_and(|size| size == 0),
    }
}
