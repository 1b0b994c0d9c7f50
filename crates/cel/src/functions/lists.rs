//! Lists and sets: Kubernetes' functions, cel-go's list library in the third version and its set library.

use std::{cmp::Ordering, rc::Rc};

use crate::{
    access::{each_item, is_same, items, list_item, list_len},
    functions::{
        function::{Cost, Row, none},
        strings,
    },
    meter::{Fault, Meter, Room},
    time::Duration,
    value::{List, Value},
};

pub(super) const ROWS: &[Row] = &[
    Row("isSorted", &["list(*)|->bool"], Cost::Traversal, |args, meter| {
        let (mut before, mut sorted) = (None, true);
        each(args, meter, |item| {
            if sorted {
                sorted =
                    before.as_ref().is_none_or(|before: &Value<'_>| before.compare(&item) != Some(Ordering::Greater));
                before = Some(ordered(item)?);
            }
            Ok(())
        })?;
        Ok(Value::Bool(sorted))
    }),
    Row(
        "sum",
        &["list(int)|->int", "list(uint)|->uint", "list(double)|->double", "list(duration)|->duration"],
        Cost::Traversal,
        sum,
    ),
    Row("min", COMPARABLE, Cost::Traversal, |args, meter| extreme(args, meter, "min", Ordering::Less)),
    Row("max", COMPARABLE, Cost::Traversal, |args, meter| extreme(args, meter, "max", Ordering::Greater)),
    Row("indexOf", POSITION, Cost::Traversal, |args, meter| position(args, meter, false)),
    Row("lastIndexOf", POSITION, Cost::Traversal, |args, meter| position(args, meter, true)),
    Row("includes", &["dyn|dyn->bool"], Cost::Traversal, |args, meter| {
        let [target, sought] = args else { return none() };
        let Some(len) = list_len(target, meter)? else { return is_same(target, sought, meter).map(Value::Bool) };
        for at in 0..len {
            if let Some(item) = list_item(target, at, meter)?
                && is_same(&item, sought, meter)?
            {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }),
    Row("slice", &["list(A)|int,int->list(A)"], Cost::ListResult, slice),
    Row("flatten", &["list(list(A))|->list(A)", "list(dyn)|int->list(dyn)"], Cost::Flatten, flatten),
    Row("distinct", &["list(A)|->list(A)"], Cost::SelfCompare(0), distinct),
    Row("reverse", &["list(A)|->list(A)"], Cost::ListResult, |args, meter| {
        let mut items = own(args, meter)?;
        items.reverse();
        Ok(Value::List(Rc::new(items)))
    }),
    Row("sort", SORTABLE, Cost::SelfCompare(0), |args, meter| {
        let items = own(args, meter)?;
        sorted(items.clone(), items, meter)
    }),
    Row("@sortByAssociatedKeys", &["list(A)|list(*)->list(A)"], Cost::SelfCompare(1), |args, meter| match args {
        [list, keys] => sorted(items(list, meter)?, items(keys, meter)?, meter),
        _ => none(),
    }),
    Row("lists.range", &["int->list(int)"], Cost::ListResult, range),
    Row("sets.contains", &["list(A),list(A)->bool"], Cost::Sets(1), |args, meter| {
        sets(args, meter, |all, of, meter| holds_all(all, of, meter))
    }),
    Row("sets.equivalent", &["list(A),list(A)->bool"], Cost::Sets(2), |args, meter| {
        sets(args, meter, |a, b, meter| Ok(holds_all(a, b, meter)? && holds_all(b, a, meter)?))
    }),
    Row("sets.intersects", &["list(A),list(A)->bool"], Cost::Sets(1), |args, meter| {
        sets(args, meter, |a, b, meter| {
            for item in a {
                if holds(b, item, meter)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }),
];

/// Signatures of `indexOf` and `lastIndexOf`.
pub(super) const POSITION: &[&str] = &["list(A)|A->int", "string|string->int", "string|string,int->int"];

const COMPARABLE: &[&str] = &["list(*)|->*"];

const SORTABLE: &[&str] = &["list(*)|->list(*)"];

fn own<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<List<'a>, Fault> {
    args.first().map_or_else(|| Err(Fault::no_such_overload()), |list| items(list, meter))
}

fn each<'a>(
    args: &[Value<'a>],
    meter: &Meter<'_>,
    each: impl FnMut(Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    args.first().map_or_else(|| Err(Fault::no_such_overload()), |list| each_item(list, meter, each))
}

fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Fault> {
    a.compare(b).ok_or_else(Fault::no_such_overload)
}

/// Returns a value whose type has an order; an error for any other. As upstream, values that have an order, but none
/// with each other, are neither less nor greater.
fn ordered(value: Value<'_>) -> Result<Value<'_>, Fault> {
    match value {
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => Ok(value),
        _ => Err(Fault::no_such_overload()),
    }
}

fn sum<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let mut sum: Option<Value<'a>> = None;
    each(args, meter, |item| {
        let overflow = || Fault::error("integer overflow");
        let added = match (&sum, item) {
            (None, first @ (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_))) => first,
            (Some(Value::Int(a)), Value::Int(b)) => Value::Int(a.checked_add(b).ok_or_else(overflow)?),
            (Some(Value::Uint(a)), Value::Uint(b)) => Value::Uint(a.checked_add(b).ok_or_else(overflow)?),
            (Some(Value::Double(a)), Value::Double(b)) => Value::Double(a + b),
            (Some(Value::Duration(a)), Value::Duration(b)) => {
                Value::Duration(Duration(a.0.checked_add(b.0).ok_or_else(overflow)?))
            }
            _ => return Err(Fault::no_such_overload()),
        };
        sum = Some(added);
        Ok(())
    })?;
    Ok(sum.unwrap_or(Value::Int(0)))
}

fn extreme<'a>(args: &[Value<'a>], meter: &Meter<'_>, name: &str, wanted: Ordering) -> Result<Value<'a>, Fault> {
    let mut found: Option<Value<'a>> = None;
    each(args, meter, |item| {
        let item = ordered(item)?;
        if found.as_ref().is_none_or(|found| item.compare(found) == Some(wanted)) {
            found = Some(item);
        }
        Ok(())
    })?;
    found.ok_or_else(|| Fault::error(format!("{name} called on empty list")))
}

pub(super) fn position<'a>(args: &[Value<'a>], meter: &Meter<'_>, last: bool) -> Result<Value<'a>, Fault> {
    if let Some(Value::String(_)) = args.first() {
        return strings::index_of(args, last);
    }
    let [list, sought] = args else { return none() };
    let mut found = -1;
    for at in 0..list_len(list, meter)?.ok_or_else(Fault::no_such_overload)? {
        if let Some(item) = list_item(list, at, meter)?
            && is_same(&item, sought, meter)?
        {
            found = at as i64;
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn slice<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let [list, Value::Int(start), Value::Int(end)] = args else { return none() };
    let len = list_len(list, meter)?.ok_or_else(Fault::no_such_overload)?;
    let fault = |why: String| Err(Fault::error(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return fault("negative indexes not supported".to_owned());
    }
    if start > end {
        return fault("start index must be less than or equal to end index".to_owned());
    }
    let (Ok(start), Ok(end)) = (usize::try_from(*start), usize::try_from(*end)) else { return none() };
    if end > len {
        return fault(format!("list is length {len}"));
    }
    let mut items = List::with_room(meter.list(end - start)?, end - start);
    for at in start..end {
        if let Some(item) = list_item(list, at, meter)? {
            items.fill(item);
        }
    }
    Ok(Value::List(Rc::new(items)))
}

fn flatten<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let depth = match args.get(1) {
        None => 1,
        Some(Value::Int(depth)) if *depth >= 0 => (*depth).min(100),
        Some(Value::Int(_)) => return Err(Fault::error("level must be non-negative")),
        Some(_) => return none(),
    };
    let [list, ..] = args else { return none() };
    let mut flat = List::with_room(Room::default(), 0);
    flatten_into(list, depth, meter, &mut flat)?;
    Ok(Value::List(Rc::new(flat)))
}

fn flatten_into<'a>(list: &Value<'a>, depth: i64, meter: &Meter<'_>, flat: &mut List<'a>) -> Result<(), Fault> {
    each_item(list, meter, |item| {
        if depth > 0 && list_len(&item, meter)?.is_some() {
            flatten_into(&item, depth - 1, meter, flat)
        } else {
            flat.push(item, meter)
        }
    })
}

fn distinct<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let mut seen = List::with_room(Room::default(), 0);
    each(args, meter, |item| {
        // Values have no common hash, so compare the item with each one.
        if !holds(&seen, &item, meter)? {
            seen.push(item, meter)?;
        }
        Ok(())
    })?;
    Ok(Value::List(Rc::new(seen)))
}

fn sorted<'a>(list: List<'a>, keys: List<'a>, meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    if list.len() != keys.len() {
        return none();
    }
    meter.step((list.len() as u64).saturating_mul(16))?;
    // Compare all keys with the first one beforehand: a sort cannot fail.
    if let Some(first) = keys.first() {
        for key in keys.iter() {
            if first.type_name() != key.type_name() {
                return Err(Fault::error("list elements must have the same type"));
            }
            order(first, key)?;
            if let Value::String(text) = key {
                // Each key is compared about sixteen times.
                meter.step((text.as_str().len() / 2) as u64)?;
            }
        }
    }
    let ((keys, _of_keys), (items, room)) = (keys.into_parts(), list.into_parts());
    // The pairs need room beside the items for a while.
    let _of_pairs = meter.list(items.len().saturating_mul(2))?;
    let mut pairs: Vec<_> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect(), room))
}

pub(super) fn range<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    /// Maximum length of a range. A longer one might take all memory.
    const MAX_RANGE: i64 = 1_000_000;
    let [Value::Int(end)] = args else { return none() };
    if *end < 0 {
        return Err(Fault::error(format!("lists.range: size must be non-negative, got {end}")));
    }
    if *end > MAX_RANGE {
        return Err(Fault::error("lists.range of more than 1,000,000"));
    }
    let room = meter.list(usize::try_from(*end).unwrap_or(0))?;
    Ok(Value::list((0..*end).map(Value::Int).collect(), room))
}

fn holds<'a>(list: &[Value<'a>], sought: &Value<'a>, meter: &Meter<'_>) -> Result<bool, Fault> {
    for item in list {
        if is_same(sought, item, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds_all<'a>(list: &[Value<'a>], sought: &[Value<'a>], meter: &Meter<'_>) -> Result<bool, Fault> {
    for one in sought {
        if !holds(list, one, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sets<'a>(
    args: &[Value<'a>],
    meter: &Meter<'_>,
    decide: impl FnOnce(&[Value<'a>], &[Value<'a>], &Meter<'_>) -> Result<bool, Fault>,
) -> Result<Value<'a>, Fault> {
    let [a, b] = args else { return none() };
    decide(&items(a, meter)?, &items(b, meter)?, meter).map(Value::Bool)
}
