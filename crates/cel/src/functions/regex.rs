//! Regular expressions.

use std::{ops::Range, rc::Rc, sync::LazyLock};

use regex::Regex;

use super::{Cost, Row, none, operators::part, operators::text};
use crate::{
    fault::Fault,
    meter::{Meter, Room},
    pattern::{self, Pattern},
    value::{List, Value},
};

pub(super) const ROWS: &[Row] = &[
    Row("matches", &["string|string->bool", "string,string->bool"], Cost::Pattern, |args, meter| {
        let (text, pattern) = (text(args.first())?, text(args.get(1))?);
        compiled_now(pattern, meter)?.is_match(text, meter).map(Value::Bool)
    }),
    Row("find", &["string|string->string"], Cost::Pattern, |args, meter| {
        let Some(value) = args.first() else { return none() };
        let pattern = compiled_now(text(args.get(1))?, meter)?;
        match pattern.find(text(Some(value))?, meter)? {
            Some(found) => part(value, found.range(), meter),
            None => Ok(Value::made("")),
        }
    }),
    Row(
        "findAll",
        &["string|string->list(string)", "string|string,int->list(string)"],
        Cost::Pattern,
        |args, meter| {
            let Some(value) = args.first() else { return none() };
            let most = match args.get(2) {
                Some(Value::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
                None => usize::MAX,
                Some(_) => return none(),
            };
            let pattern = compiled_now(text(args.get(1))?, meter)?;
            let mut found = List::with_room(Room::default(), 0);
            for one in pattern.find_all(text(Some(value))?, meter).take(most) {
                found.push(part(value, one?.range(), meter)?, meter)?;
            }
            Ok(Value::List(Rc::new(found)))
        },
    ),
];

/// Runs of characters that Go escapes in quotes.
pub(super) fn unprintable(text: &str) -> impl Iterator<Item = Range<usize>> {
    // It is always a pattern: a test compiles it.
    static ODD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(UNPRINTABLE).ok());
    ODD.iter().flat_map(|odd| odd.find_iter(text)).map(|found| found.range())
}

/// Source: `unicode.IsPrint` in Go.
const UNPRINTABLE: &str = r#"[^\p{L}\p{M}\p{N}\p{P}\p{S} ]+|["\\]+"#;

fn compiled_now(pattern: &str, meter: &Meter<'_>) -> Result<Pattern, Fault> {
    meter.step(pattern::steps(pattern))?;
    // It may stand in the object, and is not repeated.
    pattern::compiled(pattern).map_err(|_| Fault::error("error parsing regexp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_prints_is_distinguished_from_what_it_escapes() {
        let odd = |text| unprintable(text).collect::<Vec<_>>();
        assert!(odd("a b\u{e9}\u{1f9ff}").is_empty());
        assert_eq!(odd("a\n\u{a0}b\"c\\"), [1..4, 5..6, 7..8]);
    }
}
