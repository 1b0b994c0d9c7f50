//! Functions as Kubernetes has them before 1.37, with cel-go 0.26: what costs, is refused or answers otherwise since.

use std::rc::Rc;

use crate::{
    functions::{
        convert,
        function::{Cost, Row},
        lists, regex, strings,
    },
    meter::{Fault, Meter, Room},
    value::{List, Value},
};

pub(super) const ROWS: &[Row] =
    &[
        Row("startsWith", &["string|string->bool"], Cost::First(0.1), strings::starts_with),
        Row("endsWith", &["string|string->bool"], Cost::First(0.1), strings::ends_with),
        Row("indexOf", lists::POSITION, Cost::Traversal, |args, meter| position(args, meter, false)),
        Row("lastIndexOf", lists::POSITION, Cost::Traversal, |args, meter| position(args, meter, true)),
        Row("lists.range", &["int->list(int)"], Cost::ListResult, |args, meter| match args {
            [Value::Int(..0)] => Ok(Value::List(Rc::new(List::with_room(Room::default(), 0)))),
            _ => lists::range(args, meter),
        }),
        Row("duration", &["duration->duration", "int->duration", "string->duration"], Cost::One, |args, meter| {
            match args {
                [Value::Int(_)] => Err(convert::type_conversion("google.protobuf.Duration")),
                _ => convert::to_duration(args, meter),
            }
        }),
        // In the form of a global function, see `Node::call`.
        Row("matches", &["string,string->bool"], Cost::One, regex::matches),
    ];

/// An empty text is found wherever it is sought.
fn position<'a>(args: &[Value<'a>], meter: &Meter<'_>, last: bool) -> Result<Value<'a>, Fault> {
    match args {
        [Value::String(_), Value::String(sought), Value::Int(at)] if sought.as_str().is_empty() => Ok(Value::Int(*at)),
        _ => lists::position(args, meter, last),
    }
}
