//! Apply configurations: merges the fields of an `Object` into an object. Source:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`.
//!
//! Upstream merges by the schema of the resource. There is none here. Objects are merged, member by member, and
//! everything else is replaced. A list into which another one would have to be merged is an error, as the schema says
//! whether its items have keys. So upstream's refusal of atomic objects and lists is missing, too.

use std::fmt::Write;

use gatepost_json as json;
use serde_json::{Map, Value};

use crate::decide::Suspended;

/// Maximum depth of an apply configuration.
const MAX_DEPTH: usize = 200;

/// Returns the JSON patch that merges `applied` into `object`. `pay` is told the number of bytes that are read.
///
/// # Errors
/// The outer one is an error of `pay`. The inner one says why the two cannot be merged.
pub(super) fn patch(
    object: &[u8],
    applied: &str,
    pay: &dyn Fn(usize) -> Result<(), Suspended>,
) -> Result<Result<String, String>, Suspended> {
    let unreadable = |what: &str| Ok(Err(format!("{what} cannot be read")));
    let Ok(object) = std::str::from_utf8(object) else { return unreadable("the object") };
    let Ok(Value::Object(mut applied)) = serde_json::from_str(applied) else { return unreadable("the configuration") };
    // Upstream gives the configuration the type of the object.
    applied.retain(|field, _| !matches!(&**field, "apiVersion" | "kind"));
    let mut merge = Merge { object, pay, operations: "[".to_owned(), path: String::new() };
    let begin = object.len() - object.trim_start().len();
    Ok(match merge.members(begin, &applied, 0) {
        Ok(()) => Ok(merge.operations + "]"),
        Err(Stop::Fault(why)) => Err(why),
        Err(Stop::Suspended(suspended)) => return Err(suspended),
    })
}

/// Reason why a merge ends early.
enum Stop {
    Fault(String),
    Suspended(Suspended),
}

struct Merge<'a> {
    object: &'a str,
    pay: &'a dyn Fn(usize) -> Result<(), Suspended>,
    /// The patch so far.
    operations: String,
    /// JSON pointer to the object that is being merged.
    path: String,
}

impl Merge<'_> {
    /// Merges members into the object at this offset.
    fn members(&mut self, at: usize, applied: &Map<String, Value>, depth: usize) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            return Err(self.fault("it is nested too deep"));
        }
        let mut places: Vec<Option<usize>> = vec![None; applied.len()];
        let numbers: std::collections::HashMap<&str, usize> =
            applied.keys().enumerate().map(|(number, key)| (&**key, number)).collect();
        let end = json::members(self.object, at, |_, key, value_at| {
            if let Some(number) = numbers.get(&*key) {
                places[*number] = Some(value_at);
            }
        });
        let end = end.map_err(|_| self.fault("the object cannot be read"))?;
        (self.pay)(end - at).map_err(Stop::Suspended)?;
        for ((field, value), place) in applied.iter().zip(places) {
            let before = self.path.len();
            self.path.push('/');
            self.path.push_str(&field.replace('~', "~0").replace('/', "~1"));
            self.member(place, value, depth)?;
            self.path.truncate(before);
        }
        Ok(())
    }

    /// Merges a value into the member at this offset.
    fn member(&mut self, at: Option<usize>, value: &Value, depth: usize) -> Result<(), Stop> {
        let first = at.and_then(|at| self.object.as_bytes().get(at));
        let is_empty = |at: usize| self.object[at + 1..].trim_start().starts_with([']', '}']);
        match (at, first, value) {
            (Some(at), Some(b'{'), Value::Object(members)) => self.members(at, members, depth + 1),
            // As upstream, null is nothing that could be merged.
            (Some(_), Some(b'{' | b'['), Value::Null) => Ok(()),
            (Some(at), Some(b'['), Value::Array(items)) if items.is_empty() || is_empty(at) => match items.is_empty() {
                true => Ok(()),
                false => self.set(value),
            },
            (Some(_), Some(b'['), Value::Array(_)) => {
                Err(self.fault("lists are merged by the schema of the resource, which is not known here"))
            }
            (Some(_), Some(b'{'), _) => Err(self.fault("the object has an object there, and the configuration not")),
            (Some(_), Some(b'['), _) => Err(self.fault("the object has a list there, and the configuration not")),
            (Some(_), Some(first), Value::Object(_) | Value::Array(_)) if *first != b'n' => {
                Err(self.fault("the configuration has an object or a list there, and the object not"))
            }
            _ => self.set(value),
        }
    }

    /// Adds an operation that sets the current member.
    fn set(&mut self, value: &Value) -> Result<(), Stop> {
        let before = self.operations.len();
        let comma = if self.operations.len() > 1 { "," } else { "" };
        let path = Value::from(&*self.path);
        // Writing to a string does not fail.
        let _ = write!(self.operations, "{comma}{{\"op\":\"add\",\"path\":{path},\"value\":{value}}}");
        (self.pay)(self.operations.len() - before).map_err(Stop::Suspended)
    }

    fn fault(&self, why: &str) -> Stop {
        let shown: String = self.path.replace('/', ".").chars().take(200).collect();
        Stop::Fault(if shown.is_empty() { why.to_owned() } else { format!("{shown}: {why}") })
    }
}
