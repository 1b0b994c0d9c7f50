//! Apply configurations: merges the fields of an `Object` into an object. Sources:
//! `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch/smd.go`,
//! `sigs.k8s.io/structured-merge-diff/v6/typed/merge.go`.
//!
//! Objects are merged by the types of their kinds: built-in ones, and those of the custom resources whose definitions the
//! configuration has. Objects of other kinds are merged, member by member, and everything else is replaced. A list into which another one would have to be merged is
//! an error then, as the schema says whether its items have keys. So upstream's refusal of atomic objects and lists is
//! missing, too.
//!
//! Upstream checks the whole object. Here it is read only as far as something is merged into it: a later version of
//! Kubernetes may have fields that the types lack.

use std::{collections::HashMap, fmt::Write};

use gatepost_json as json;
use serde_json::{Map, Value};

use crate::{
    schema::{self, CustomSchemas, Relation, Type},
    suspended::Suspended,
};

/// Maximum depth of an apply configuration.
const MAX_DEPTH: usize = 200;

/// Returns the JSON patch that merges `applied` into `object`. `pay` is told the number of bytes that are read.
///
/// # Errors
/// The outer one is an error of `pay`. The inner one says why the two cannot be merged.
pub(super) fn patch(
    object: &[u8],
    applied: &str,
    schemas: &CustomSchemas,
    pay: &dyn Fn(usize) -> Result<(), Suspended>,
) -> Result<Result<String, String>, Suspended> {
    let refused = |why: &str| Ok(Err(format!("error applying patch: {why}")));
    let unreadable = |what: &str| refused(&format!("{what} cannot be read"));
    let Ok(object) = std::str::from_utf8(object) else { return unreadable("the object") };
    let Ok(Value::Object(mut applied)) = serde_json::from_str(applied) else { return unreadable("the configuration") };
    // Upstream gives the configuration the type of the object.
    applied.retain(|field, _| !matches!(&**field, "apiVersion" | "kind"));
    let begin = object.len() - object.trim_start().len();
    let Some(kind) = kind_of(object, begin, schemas) else { return unreadable("the object") };
    if let Some(kind) = &kind
        && let Err(why) = kind.of.check(&applied, pay)?
    {
        return refused(&why);
    }
    let mut merge = Merge { object, pay, operations: "[".to_owned(), path: String::new() };
    match merge.members(begin, (&applied, kind.as_ref().map(|kind| kind.of)), 0) {
        Ok(()) => {}
        Err(Stop::Fault(why)) => return refused(&why),
        Err(Stop::Suspended(suspended)) => return Err(suspended),
    }
    // As upstream, after the merge.
    if let Some(Kind { of, name: Some(name) }) = kind
        && let Err(why) = of.check_integers(&applied, pay)?
    {
        return Ok(Err(format!("unable to convert unstructured object to {name}: {why}")));
    }
    Ok(Ok(merge.operations + "]"))
}

/// A kind whose type is known.
struct Kind<'a> {
    of: &'a Type,
    /// Name of a built-in kind, as upstream shows it. Objects of custom ones are not converted.
    name: Option<String>,
}

/// Returns the kind of the object at this offset, if it is known; `None` if there is no object.
fn kind_of<'a>(object: &str, at: usize, schemas: &'a CustomSchemas) -> Option<Option<Kind<'a>>> {
    let (mut api_version, mut kind) = (None, None);
    let members = json::members(object, at, |_, key, value| match &*key {
        "apiVersion" => api_version = Some(value),
        "kind" => kind = Some(value),
        _ => {}
    });
    members.ok()?;
    let text = |at: Option<usize>| json::string(object, at?).ok();
    let Some((api_version, kind)) = text(api_version).zip(text(kind)) else { return Some(None) };
    let core = if api_version.contains('/') { "" } else { "/" };
    let built_in = schema::type_of(&api_version, &kind);
    let built_in = built_in.map(|of| Kind { of, name: Some(format!("{core}{api_version}, Kind={kind}")) });
    Some(built_in.or_else(|| Some(Kind { of: schemas.type_of(&api_version, &kind)?, name: None })))
}

/// Reason why a merge ends early.
enum Stop {
    Fault(String),
    Suspended(Suspended),
}

/// What is to be done with a value of the object.
enum Step {
    Keep,
    Replace,
    /// To merge into the object at this offset.
    Members(usize),
    /// To merge into the list at this offset.
    Items(usize),
}

struct Merge<'a> {
    object: &'a str,
    pay: &'a dyn Fn(usize) -> Result<(), Suspended>,
    /// The patch so far.
    operations: String,
    /// JSON pointer to the value that is being merged. In lists it has the keys of items.
    path: String,
}

/// A value of the configuration, and its type, if it is known.
type TypedValue<'a, V> = (&'a V, Option<&'a Type>);

impl Merge<'_> {
    /// Merges members into the object at this offset, and adds operations.
    fn members(&mut self, at: usize, applied: TypedValue<'_, Map<String, Value>>, depth: usize) -> Result<(), Stop> {
        let places = self.places(at, applied.0, depth)?;
        for ((field, value), place) in applied.0.iter().zip(places) {
            let value = (value, applied.1.and_then(|of| of.member(field)));
            let before = self.path.len();
            self.enter(field);
            match (self.step(place, value)?, value.0) {
                (Step::Keep, _) => {}
                (Step::Members(at), Value::Object(members)) => self.members(at, (members, value.1), depth + 1)?,
                (step, _) => self.set(step, value, depth)?,
            }
            self.path.truncate(before);
        }
        Ok(())
    }

    /// Returns the offsets of the values that an object has for these fields.
    fn places(&self, at: usize, applied: &Map<String, Value>, depth: usize) -> Result<Vec<Option<usize>>, Stop> {
        if depth > MAX_DEPTH {
            return Err(self.fault("it is nested too deep"));
        }
        let mut places: Vec<Option<usize>> = vec![None; applied.len()];
        let numbers: HashMap<&str, usize> = applied.keys().enumerate().map(|(number, key)| (&**key, number)).collect();
        let end = json::members(self.object, at, |_, key, value_at| {
            if let Some(number) = numbers.get(&*key) {
                places[*number] = Some(value_at);
            }
        });
        self.pay(self.readable(end)? - at)?;
        Ok(places)
    }

    /// Returns what is to be done with the value at this offset.
    fn step(&self, at: Option<usize>, (value, of): TypedValue<'_, Value>) -> Result<Step, Stop> {
        let first = at.and_then(|at| self.object.as_bytes().get(at));
        let is_empty = |at: usize| self.object[at + 1..].trim_start().starts_with([']', '}']);
        Ok(match (at, first, value) {
            // As upstream, null is nothing that could be merged, but takes the place of what is atomic or empty.
            (Some(at), Some(first @ (b'{' | b'[')), Value::Null) => {
                let there = if *first == b'{' { Value::Object(Map::new()) } else { Value::Array(Vec::new()) };
                match is_empty(at) || of.is_some_and(|of| of.is_atomic(&there)) {
                    true => Step::Replace,
                    false => Step::Keep,
                }
            }
            _ if of.is_some_and(|of| of.is_atomic(value)) => Step::Replace,
            (Some(at), Some(b'{'), Value::Object(_)) => Step::Members(at),
            (Some(at), Some(b'['), Value::Array(items)) if items.is_empty() || is_empty(at) => match items.is_empty() {
                true => Step::Keep,
                false => Step::Replace,
            },
            (Some(at), Some(b'['), Value::Array(_)) if of.is_some() => Step::Items(at),
            (Some(_), Some(b'['), Value::Array(_)) => {
                return Err(self.fault("lists are merged by the schema of the resource, which is not known here"));
            }
            (Some(_), Some(b'{'), _) => {
                return Err(self.fault("the object has an object there, and the configuration not"));
            }
            (Some(_), Some(b'['), _) => {
                return Err(self.fault("the object has a list there, and the configuration not"));
            }
            (Some(_), Some(first), Value::Object(_) | Value::Array(_)) if *first != b'n' => {
                return Err(self.fault("the configuration has an object or a list there, and the object not"));
            }
            _ => Step::Replace,
        })
    }

    /// Adds an operation that sets the current member.
    fn set(&mut self, step: Step, value: TypedValue<'_, Value>, depth: usize) -> Result<(), Stop> {
        let before = self.operations.len();
        let comma = if self.operations.len() > 1 { "," } else { "" };
        let path = Value::from(&*self.path);
        // Writing to a string does not fail.
        let _ = write!(self.operations, "{comma}{{\"op\":\"add\",\"path\":{path},\"value\":");
        self.write(step, value, depth)?;
        self.operations.push('}');
        self.pay(self.operations.len() - before)
    }

    /// Writes a merged value.
    fn write(&mut self, step: Step, (value, of): TypedValue<'_, Value>, depth: usize) -> Result<(), Stop> {
        match (step, value) {
            (Step::Members(at), Value::Object(members)) => self.write_members(at, (members, of), depth + 1),
            (Step::Items(at), Value::Array(items)) => self.write_items(at, (items, of), depth + 1),
            _ => {
                let _ = write!(self.operations, "{value}");
                Ok(())
            }
        }
    }

    /// Writes the value at this offset, into which another one is merged.
    fn write_merged(&mut self, at: Option<usize>, value: TypedValue<'_, Value>, depth: usize) -> Result<(), Stop> {
        match (self.step(at, value)?, at) {
            (Step::Keep, Some(at)) => self.copy(at),
            (step, _) => self.write(step, value, depth),
        }
    }

    /// Writes the value at this offset.
    fn copy(&mut self, at: usize) -> Result<(), Stop> {
        let end = self.readable(json::skip(self.object, at))?;
        self.operations.push_str(&self.object[at..end]);
        Ok(())
    }

    /// Writes the object at this offset, into which members are merged.
    fn write_members(
        &mut self,
        at: usize,
        applied: TypedValue<'_, Map<String, Value>>,
        depth: usize,
    ) -> Result<(), Stop> {
        let (applied, of) = applied;
        let places = self.places(at, applied, depth)?;
        let mut members = Vec::new();
        let read = json::members(self.object, at, |_, key, value| {
            if !applied.contains_key(&*key) {
                members.push((key.into_owned(), value));
            }
        });
        self.readable(read)?;
        let mut open = '{';
        for (key, at) in members {
            let _ = write!(self.operations, "{}{}:", std::mem::replace(&mut open, ','), Value::from(key));
            self.copy(at)?;
        }
        for ((field, value), place) in applied.iter().zip(places) {
            let _ = write!(self.operations, "{}{}:", std::mem::replace(&mut open, ','), Value::from(&**field));
            let before = self.path.len();
            self.enter(field);
            self.write_merged(place, (value, of.and_then(|of| of.member(field))), depth)?;
            self.path.truncate(before);
        }
        if open == '{' {
            self.operations.push('{');
        }
        self.operations.push('}');
        Ok(())
    }

    /// Writes the list at this offset, into which items are merged.
    fn write_items(&mut self, at: usize, (items, of): TypedValue<'_, Vec<Value>>, depth: usize) -> Result<(), Stop> {
        let Some((of_items, relation)) = of.and_then(Type::list) else { return Err(self.fault("it is no list")) };
        // The configuration is checked: each item has a key, and no other one has the same.
        let keys: Vec<_> = items.iter().map(|item| relation.key(item).unwrap_or_default()).collect();
        let numbers: HashMap<&str, usize> = keys.iter().enumerate().map(|(number, key)| (&**key, number)).collect();
        let live = self.live_items(at, relation)?;
        // By the number of an item: the items of the object with its key.
        let mut same = vec![KeyMatches::None; items.len()];
        let mut numbered = Vec::with_capacity(live.len());
        for (at, key) in live {
            let number = numbers.get(&*key).copied();
            if let Some(number) = number {
                same[number] = if same[number] == KeyMatches::None { KeyMatches::One(at) } else { KeyMatches::Several };
            }
            numbered.push((at, number));
        }
        let mut open = '[';
        for item in order(&numbered, &same) {
            self.operations.push(std::mem::replace(&mut open, ','));
            match item {
                Item::Live(at) => self.copy(at)?,
                Item::TypedValue(number) => {
                    let before = self.path.len();
                    self.path.push_str(&keys[number]);
                    // As upstream, items with the same key are replaced, not merged.
                    let at = if let KeyMatches::One(at) = same[number] { Some(at) } else { None };
                    self.write_merged(at, (&items[number], Some(of_items)), depth)?;
                    self.path.truncate(before);
                }
            }
        }
        self.operations.push(']');
        Ok(())
    }

    /// Returns the items of the list at this offset, and their keys.
    fn live_items(&self, at: usize, relation: &Relation) -> Result<Vec<(usize, String)>, Stop> {
        let mut places = Vec::new();
        let end = self.readable(json::items(self.object, at, |item| places.push(item)))?;
        self.pay(end - at)?;
        let key = |(number, at): (usize, usize)| {
            let key = relation.key(&self.key_fields(at, relation)?);
            let why = |why| format!("failed to convert original object to typed object: element {number}: {why}");
            Ok((at, key.map_err(|error| self.fault(&why(error)))?))
        };
        places.into_iter().enumerate().map(key).collect()
    }

    /// Reads the item at this offset as far as its key needs it.
    fn key_fields(&self, at: usize, relation: &Relation) -> Result<Value, Stop> {
        let scalar = |at: usize| match self.object.as_bytes().get(at) {
            Some(b'{') => Ok(Value::Object(Map::new())),
            Some(b'[') => Ok(Value::Array(Vec::new())),
            _ => {
                let end = self.readable(json::skip(self.object, at))?;
                serde_json::from_str(&self.object[at..end]).map_err(|_| self.fault("the object cannot be read"))
            }
        };
        let (Relation::Keys(keys), Some(b'{')) = (relation, self.object.as_bytes().get(at)) else { return scalar(at) };
        let mut fields = Vec::new();
        let read = json::members(self.object, at, |_, name, value| {
            if let Some((name, _)) = keys.iter().find(|(key, _)| *key == name) {
                fields.push((&**name, value));
            }
        });
        self.readable(read)?;
        let fields = fields.into_iter().map(|(name, at)| Ok((name.to_owned(), scalar(at)?)));
        fields.collect::<Result<_, _>>().map(Value::Object)
    }

    fn enter(&mut self, field: &str) {
        json::pointer::push(&mut self.path, field);
    }

    fn pay(&self, bytes: usize) -> Result<(), Stop> {
        (self.pay)(bytes).map_err(Stop::Suspended)
    }

    fn readable<T>(&self, read: Result<T, json::JsonError>) -> Result<T, Stop> {
        read.map_err(|_| self.fault("the object cannot be read"))
    }

    fn fault(&self, why: &str) -> Stop {
        let shown: String = self.path.replace('/', ".").chars().take(200).collect();
        Stop::Fault(if shown.is_empty() { why.to_owned() } else { format!("{shown}: {why}") })
    }
}

/// The items of the object that have the key of an item of the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyMatches {
    None,
    /// The offset of the only one.
    One(usize),
    Several,
}

/// An item of a merged list.
enum Item {
    /// Offset of an item of the object.
    Live(usize),
    /// Number of an item of the configuration.
    TypedValue(usize),
}

/// Returns the items of a merged list, in upstream's order. `live` has the offsets of the object's items, each with the
/// number of the applied item that has the same key.
fn order(live: &[(usize, Option<usize>)], same: &[KeyMatches]) -> Vec<Item> {
    let mut shared = (0..same.len()).filter(|number| same[*number] != KeyMatches::None).peekable();
    let mut is_merged = vec![false; same.len()];
    let mut order = Vec::with_capacity(live.len() + same.len());
    let (mut at, mut next) = (0, 0);
    while at < live.len() || next < same.len() {
        if let Some((offset, number)) = live.get(at) {
            match number {
                None => {
                    order.push(Item::Live(*offset));
                    at += 1;
                    continue;
                }
                Some(number) if *number == next => at += 1,
                // It follows with the applied item.
                Some(number) if next < same.len() && shared.peek().is_some_and(|shared| shared != number) => {
                    at += 1;
                    continue;
                }
                Some(number) if is_merged[*number] => at += 1,
                Some(_) => {}
            }
        }
        if next < same.len() {
            order.push(Item::TypedValue(next));
            is_merged[next] = true;
            shared.next_if_eq(&next);
            next += 1;
        }
    }
    order
}
