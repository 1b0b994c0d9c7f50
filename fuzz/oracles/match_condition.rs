//! Match conditions: an expression over an object that is read where it lies, beside the same object that serde has read
//! whole and that is written anew, in other words: each string escaped, white space between everything.
//!
//! An input is an object in a line, and the expression behind it. Nothing may take longer, cost more or hold more than an
//! expression may. The place of a fault is one of the text.

use std::{borrow::Cow, cell::Cell, fmt::Write as _};

use gatepost_cel::{
    AccessDecision, AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request, User,
    decide,
};
use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Steps after which an evaluation is given up: some tens of milliseconds.
const STEPS: u64 = 1_000_000;
/// The most that one expression may cost.
const MOST: u64 = 1_000_000;
/// Result of such an evaluation.
const GIVEN_UP: &str = "TooLong";
/// Objects that are nested deeper are not read a second time.
const DEEPEST: usize = 60;

pub(crate) fn check(input: &[u8]) {
    let Some((object, condition)) = parts(input) else { return };
    let once = evaluated(&condition, || JsonDocument::new(Cow::Borrowed(object)));
    assert!(once.value.is_err() || once.cost <= MOST, "it costs {}, and has a value", once.cost);
    // A cost that is not deterministic fails here: the same evaluation again has the same result.
    let again = evaluated(&condition, || JsonDocument::new(Cow::Borrowed(object)));
    assert_eq!((&once.value, once.cost, &once.decision), (&again.value, again.cost, &again.decision));
    let Some(anew) = std::str::from_utf8(object).ok().and_then(|text| rewritten(text.trim_matches([' ', '\t', '\r'])))
    else {
        return;
    };
    if let Err(why) = &once.value {
        assert!(!why.contains("the object is not JSON"), "serde reads it: {why}");
    }
    for document in [JsonDocument::new as fn(Cow<'static, [u8]>) -> JsonDocument<'static>, JsonDocument::checked] {
        let other = evaluated(&condition, || document(Cow::Owned(anew.clone().into_bytes())));
        // One of them may be given up where the other is not, as it has more bytes to go through.
        if once.is_given_up() || other.is_given_up() {
            continue;
        }
        assert_eq!(once.value, other.value, "another value of {anew}");
        assert_eq!(once.cost, other.cost, "another cost of {anew}");
        assert_eq!(once.decision, other.decision, "another decision of {anew}");
    }
}

/// The value of an input's expression; none where that cannot be compiled.
#[allow(dead_code, reason = "the tests of the corpus ask for it")]
pub(crate) fn value(input: &[u8]) -> Option<Result<bool, String>> {
    let (object, condition) = parts(input)?;
    Some(evaluated(&condition, || JsonDocument::new(Cow::Borrowed(object))).value)
}

fn parts(input: &[u8]) -> Option<(&[u8], [Condition; 1])> {
    let at = input.iter().position(|byte| *byte == b'\n')?;
    let expression = std::str::from_utf8(&input[at + 1..]).ok()?;
    match Condition::compile("c", expression) {
        Ok(condition) => Some((&input[..at], [condition])),
        Err(why) => {
            check_place(expression, &why);
            None
        }
    }
}

/// Checks the line and the column of a message about an expression, if it has them: a character, or the end.
fn check_place(expression: &str, why: &str) {
    let Some(place) = why.strip_prefix("ERROR: <input>:") else { return };
    let mut numbers = place.split(':').map_while(|number| number.parse::<usize>().ok());
    let (Some(line), Some(column)) = (numbers.next(), numbers.next()) else { panic!("no place: {why}") };
    let line = expression.split('\n').nth(line - 1).unwrap_or_else(|| panic!("no such line: {why}"));
    assert!((1..=line.chars().count() + 1).contains(&column), "no such column: {why}");
}

struct Evaluated {
    value: Result<bool, String>,
    cost: u64,
    decision: String,
}

impl Evaluated {
    fn is_given_up(&self) -> bool {
        self.decision == GIVEN_UP
    }
}

/// An expression's value, with every access check decided on the way; of a document that nobody has looked into yet.
fn evaluated<'d>(condition: &[Condition; 1], document: impl Fn() -> JsonDocument<'d>) -> Evaluated {
    let mut decisions = AccessDecisions::default();
    loop {
        let mut request = Request::new(|| {
            let extra = vec![("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])];
            Ok(User { uid: "u1".to_owned(), groups: vec!["dev".to_owned(), "ops".to_owned()], extra })
        });
        request.kind = ["apps", "v1", "Deployment"];
        request.resource = ["apps", "v1", "deployments"];
        (request.name, request.namespace, request.operation, request.username) = ("web", "default", "UPDATE", "alice");
        let old_object = Some(JsonDocument::new(Cow::Borrowed(br#"{"kind":"Deployment","spec":{"replicas":2}}"#)));
        let input =
            Input { request, object: Some(document()), old_object, namespace: None, decisions: decisions.clone() };
        let steps = Cell::new(STEPS);
        let allowance = Allowance { steps: &steps, over: &|| false };
        let (value, cost) = condition[0].measure(&input, &allowance);
        if steps.get() == 0 {
            return Evaluated { value, cost, decision: GIVEN_UP.to_owned() };
        }
        steps.set(STEPS);
        let decision = decide(condition, &input, &allowance);
        match decision {
            ConditionsDecision::Undecided(check) if decisions.len() < 8 => {
                let allowed = check.verb.len() % 2 == 1;
                let error = (check.verb.len() % 5 == 4).then(|| "made up".into());
                decisions.insert(*check, Ok(AccessDecision { allowed, reason: "a reason".into(), error }));
            }
            decision => {
                let agree = match (&decision, &value) {
                    (ConditionsDecision::Matches, value) => *value == Ok(true),
                    (ConditionsDecision::Excluded(_), value) => *value == Ok(false),
                    _ => value.is_err(),
                };
                assert!(agree, "{decision:?} of {value:?}");
                let decision = format!("{decision:?}");
                return Evaluated { value, cost, decision };
            }
        }
    }
}

/// The same object in other words; none where serde cannot read it, or reads something else on purpose.
fn rewritten(text: &str) -> Option<String> {
    let mut anew = String::new();
    rewrite(text, DEEPEST, &mut anew)?;
    Some(anew)
}

fn rewrite(text: &str, deep: usize, anew: &mut String) -> Option<()> {
    let deep = deep.checked_sub(1)?;
    match text.as_bytes().first()? {
        b'{' => {
            let members = serde_json::Deserializer::from_str(text).deserialize_map(Members).ok()?;
            anew.push_str("{\t");
            for (at, (key, value)) in members.iter().enumerate() {
                anew.push_str(if at > 0 { " ,\r" } else { "" });
                escape(key, anew);
                anew.push_str(" : ");
                rewrite(value.get(), deep, anew)?;
            }
            anew.push_str(" }");
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            anew.push_str("[ ");
            for (at, item) in items.iter().enumerate() {
                anew.push_str(if at > 0 { "\n, " } else { "" });
                rewrite(item.get(), deep, anew)?;
            }
            anew.push_str("\t]");
        }
        b'"' => escape(&serde_json::from_str::<String>(text).ok()?, anew),
        // A number is what it is written as, as far as doubles go.
        _ => {
            serde_json::from_str::<serde_json::Value>(text).ok()?;
            anew.push_str(text);
        }
    }
    Some(())
}

fn escape(text: &str, anew: &mut String) {
    anew.push('"');
    for unit in text.encode_utf16() {
        // Writing to a string does not fail.
        _ = write!(anew, "\\u{unit:04X}");
    }
    anew.push('"');
}

/// The members of an object in their order; of equal keys the last value, where the first one stood.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            match members.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => members.push((key, value)),
            }
        }
        Ok(members)
    }
}
