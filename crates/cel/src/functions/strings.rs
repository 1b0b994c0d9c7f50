//! Strings: the standard functions, and cel-go's string library in the second version. Indexes count characters.

use crate::{
    access,
    functions::function::{Cost, Row, none, part, text},
    input::Text,
    meter::{Fault, Meter, Room},
    value::Value,
};

pub(super) const ROWS: &[Row] = &[
    Row("contains", &["string|string->bool"], Cost::TextInText, |args, _| {
        Ok(Value::Bool(text(args.first())?.contains(text(args.get(1))?)))
    }),
    Row("startsWith", &["string|string->bool"], Cost::Second(0.1), starts_with),
    Row("endsWith", &["string|string->bool"], Cost::Second(0.1), ends_with),
    Row("charAt", &["string|int->string"], Cost::One, char_at),
    Row("lowerAscii", &["string|->string"], Cost::First(0.1), |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len())?;
        Ok(Value::made(text.to_ascii_lowercase()))
    }),
    Row("upperAscii", &["string|->string"], Cost::First(0.1), |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len())?;
        Ok(Value::made(text.to_ascii_uppercase()))
    }),
    Row("trim", &["string|->string"], Cost::First(0.1), trim),
    Row("replace", &["string|string,string->string", "string|string,string,int->string"], Cost::First(0.2), replace),
    Row("split", &["string|string->list(string)", "string|string,int->list(string)"], Cost::First(0.2), split),
    Row("substring", &["string|int->string", "string|int,int->string"], Cost::First(0.1), substring),
    Row("join", &["list(string)|->string", "list(string)|string->string"], Cost::Result(0.2), join),
    Row("strings.quote", &["string->string"], Cost::First(0.1), |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len())?;
        Ok(Value::made(quoted(text)))
    }),
    // Of mutations only.
    Row("jsonpatch.escapeKey", &["string->string"], Cost::First(0.1), |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len().saturating_mul(2))?;
        Ok(Value::made(gatepost_json::pointer::escaped(text).into_owned()))
    }),
];

/// Returns the byte offset of a character. The index after the last character gives the length of the text.
fn byte_of(text: &str, place: i64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    if text.is_ascii() {
        return (place <= text.len()).then_some(place);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(place)
}

fn no_place(place: i64) -> Fault {
    Fault::error(format!("index out of range: {place}"))
}

fn char_at<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let (text, Some(Value::Int(place))) = (text(args.first())?, args.get(1)) else { return none() };
    let at = byte_of(text, *place).ok_or_else(|| no_place(*place))?;
    Ok(Value::made(text[at..].chars().next().map(String::from).unwrap_or_default()))
}

fn trim<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let Some(value) = args.first() else { return none() };
    let whole = text(Some(value))?;
    let start = whole.len() - whole.trim_start().len();
    part(value, start..start + whole.trim().len(), meter)
}

/// Evaluates `indexOf` or `lastIndexOf` of a text, optionally from an index on.
pub(super) fn starts_with<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Bool(text(args.first())?.starts_with(text(args.get(1))?)))
}

pub(super) fn ends_with<'a>(args: &[Value<'a>], _: &Meter<'_>) -> Result<Value<'a>, Fault> {
    Ok(Value::Bool(text(args.first())?.ends_with(text(args.get(1))?)))
}

pub(super) fn index_of<'a>(args: &[Value<'a>], last: bool) -> Result<Value<'a>, Fault> {
    let (text, sought) = (text(args.first())?, text(args.get(1))?);
    let from = match args.get(2) {
        Some(Value::Int(place)) => Some(*place),
        None => None,
        Some(_) => return none(),
    };
    let count = |at: usize| text[..at].chars().count() as i64;
    if let Some(place) = from {
        if place < 0 {
            return Err(no_place(place));
        }
        let len = text.chars().count() as i64;
        if sought.is_empty() {
            return Ok(Value::Int(place.min(len)));
        }
        // An index beyond the end is no error.
        if place >= len {
            return Ok(Value::Int(-1));
        }
    }
    let found = if last {
        let until =
            from.and_then(|place| byte_of(text, place)).map_or(text.len(), |at| (at + sought.len()).min(text.len()));
        let until = (until..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text[..until].rfind(sought)
    } else {
        let start = from.and_then(|place| byte_of(text, place)).unwrap_or(0);
        text[start..].find(sought).map(|at| at + start)
    };
    Ok(Value::Int(found.map_or(-1, count)))
}

fn replace<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let (whole, old, new) = (text(args.first())?, text(args.get(1))?, text(args.get(2))?);
    let most = match args.get(3) {
        Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
        None => usize::MAX,
        Some(_) => return none(),
    };
    let many = if old.is_empty() { whole.chars().count() + 1 } else { whole.len() / old.len() }.min(most);
    meter.make(whole.len().saturating_add(many.saturating_mul(new.len())))?;
    Ok(Value::made(whole.replacen(old, new, most)))
}

fn split<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let Some(value) = args.first() else { return none() };
    let (whole, separator) = (text(Some(value))?, text(args.get(1))?);
    let most = match args.get(2) {
        Some(Value::Int(most)) => *most,
        None => -1,
        Some(_) => return none(),
    };
    meter.read(whole.len())?;
    if most == 0 {
        return Ok(Value::list(Vec::new(), Room::default()));
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut ranges, mut room) = (Vec::new(), Room::default());
    let mut start = 0;
    if separator.is_empty() {
        // Split into characters.
        for (at, char) in whole.char_indices() {
            let end = if ranges.len() + 1 == most { whole.len() } else { at + char.len_utf8() };
            room.grow(1, meter)?;
            ranges.push(at..end);
            if ranges.len() == most {
                break;
            }
        }
    } else {
        for (at, _) in whole.match_indices(separator) {
            if ranges.len() + 1 >= most {
                break;
            }
            room.grow(1, meter)?;
            ranges.push(start..at);
            start = at + separator.len();
        }
        room.grow(1, meter)?;
        ranges.push(start..whole.len());
    }
    let parts = ranges.into_iter().map(|range| part(value, range, meter));
    Ok(Value::list(parts.collect::<Result<_, _>>()?, room))
}

fn substring<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let (Some(value), Some(Value::Int(start))) = (args.first(), args.get(1)) else { return none() };
    let whole = text(Some(value))?;
    let from = byte_of(whole, *start).ok_or_else(|| no_place(*start))?;
    let until = match args.get(2) {
        Some(Value::Int(end)) => {
            let until = byte_of(whole, *end).ok_or_else(|| no_place(*end))?;
            if end < start {
                return Err(Fault::error(format!("invalid substring range. start: {start}, end: {end}")));
            }
            until
        }
        None => whole.len(),
        Some(_) => return none(),
    };
    part(value, from..until, meter)
}

fn join<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let Some(list) = args.first() else { return none() };
    let separator = if args.len() > 1 { text(args.get(1))? } else { "" };
    let mut joined = String::new();
    let mut is_first = true;
    access::each_item(list, meter, |item| {
        let Value::String(item) = item else { return Err(Fault::no_such_overload()) };
        if !std::mem::take(&mut is_first) {
            joined.push_str(separator);
        }
        meter.make(separator.len() + item.as_str().len())?;
        joined.push_str(item.as_str());
        Ok(())
    })?;
    Ok(Value::String(Text::Made(joined.into())))
}

/// Quotes a text as cel-go does.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
