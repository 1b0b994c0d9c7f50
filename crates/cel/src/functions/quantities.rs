//! Amounts as Kubernetes writes them; and comparisons by name, which semantic versions have as well.

use std::{cmp::Ordering, rc::Rc};

use super::{Cost, Row, none, operators::text};
use crate::{fault::Fault, meter::Meter, quantity::Quantity, value::Value};

const TWO: &[&str] = &["kubernetes.Quantity|kubernetes.Quantity->bool", "kubernetes.Semver|kubernetes.Semver->bool"];
const COMPARED: &[&str] = &["kubernetes.Quantity|kubernetes.Quantity->int", "kubernetes.Semver|kubernetes.Semver->int"];
const SUMS: &[&str] =
    &["kubernetes.Quantity|kubernetes.Quantity->kubernetes.Quantity", "kubernetes.Quantity|int->kubernetes.Quantity"];

pub(super) const ROWS: &[Row] = &[
    Row("quantity", &["string->kubernetes.Quantity"], Cost::First(0.1), |args, _| {
        let parsed = Quantity::parse(text(args.first())?);
        let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        Ok(Value::Quantity(Rc::new(parsed.ok_or_else(|| Fault::error(wrong))?)))
    }),
    Row("isQuantity", &["string->bool"], Cost::First(0.1), |args, _| {
        Ok(Value::Bool(Quantity::parse(text(args.first())?).is_some()))
    }),
    Row("sign", &["kubernetes.Quantity->int"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Int(quantity.sign())),
        _ => none(),
    }),
    Row("isGreaterThan", TWO, Cost::One, |args, meter| {
        compared(args, meter).map(|order| Value::Bool(order == Ordering::Greater))
    }),
    Row("isLessThan", TWO, Cost::One, |args, meter| {
        compared(args, meter).map(|order| Value::Bool(order == Ordering::Less))
    }),
    Row("compareTo", COMPARED, Cost::One, |args, meter| compared(args, meter).map(|order| Value::Int(order as i64))),
    Row("asApproximateFloat", &["kubernetes.Quantity|->double"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Double(quantity.double())),
        _ => none(),
    }),
    Row("asInteger", &["kubernetes.Quantity|->int"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => {
            quantity.integer().map(Value::Int).ok_or_else(|| Fault::error("cannot convert value to integer"))
        }
        _ => none(),
    }),
    Row("isInteger", &["kubernetes.Quantity|->bool"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.integer().is_some())),
        _ => none(),
    }),
    Row("add", SUMS, Cost::One, |args, meter| sum(args, meter, Quantity::plus)),
    Row("sub", SUMS, Cost::One, |args, meter| sum(args, meter, Quantity::minus)),
];

fn compared(args: &[Value<'_>], meter: &Meter<'_>) -> Result<Ordering, Fault> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.compare(b)),
        [Value::Semver(a), Value::Semver(b)] => {
            meter.read(a.len().min(b.len()))?;
            Ok(a.compare(b))
        }
        _ => Err(Fault::no_such_overload()),
    }
}

fn sum<'a>(
    args: &[Value<'a>],
    _: &Meter<'_>,
    of: fn(&Quantity, &Quantity) -> Option<Quantity>,
) -> Result<Value<'a>, Fault> {
    let sum = match args {
        [Value::Quantity(a), Value::Quantity(b)] => of(a, b),
        [Value::Quantity(a), Value::Int(b)] => of(a, &Quantity::whole(*b)),
        _ => return none(),
    };
    Ok(Value::Quantity(Rc::new(sum.ok_or_else(|| Fault::error("the quantity has too many digits"))?)))
}
