//! How objects are merged: those of built-in kinds, and with `custom` of others. Sources: `k8s.io/kube-openapi/pkg/schemaconv`, and
//! `sigs.k8s.io/structured-merge-diff/v6/typed/{helpers,validate}.go`.
//!
//! `schema/types.txt` has what kube-apiserver concludes from its OpenAPI documents. `tests/policies/generate` writes it.
//!
//! - `@VERSION RESOURCE ...`: resources that are created or updated, and whose kinds are known.
//! - Any other line is a struct; the first one has the number 0. `!` says that it is atomic, `TYPE:FIELD,...` which
//!   fields are of a type, and `=VERSION/KIND` that it is the object of this kind.
//!
//! A type is `s` (string), `i` (integer of 32 bits), `l` (of 64 bits), `n` (any number), `b` (boolean), `u` (any scalar),
//! `d` (anything), `a` (anything, and atomic), the number of a struct, `{TYPE` (map), `[TYPE` (atomic list), `+TYPE` (set)
//! or `(KEY;KEY=DEFAULT)TYPE` (list with keys). `!` before a map or a number says that it is atomic.

mod custom;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use serde_json::{Map, Number, Value};

use crate::suspended::Suspended;

pub use custom::{CustomSchema, CustomSchemas};

/// Name of what is expected where a number is due.
const NUMERIC: &str = "numeric (int or float)";

/// Maximum number of reported errors of a configuration.
const MAX_ERRORS: usize = 10;

/// Maximum number of characters of a path, and of a cause, in an error.
const MAX_CAUSE_CHARS: usize = 300;

/// Maximum number of characters of all errors of a configuration.
const MAX_MESSAGE_CHARS: usize = 2000;

/// Maximum number of bytes that are read before they are paid.
const MAX_UNPAID_BYTES: usize = 4096;

/// Is told the number of bytes that are read.
type Pay<'a> = &'a dyn Fn(usize) -> Result<(), Suspended>;

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::parse(include_str!("schema/types.txt")));

struct Types {
    resources: HashMap<&'static str, HashSet<&'static str>>,
    kinds: HashMap<&'static str, Type>,
    structs: Vec<Struct>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Struct {
    is_atomic: bool,
    /// By name.
    fields: Vec<(Cow<'static, str>, Type)>,
    /// Type of other members; `None` if there can be none.
    others: Option<Type>,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A scalar, with the name of what is expected; `None` if any will do.
    Scalar(Option<&'static str>),
    /// An integer of so many bits.
    Integer(u8),
    Any {
        is_atomic: bool,
    },
    Struct {
        number: usize,
        is_atomic: bool,
    },
    /// A struct of a custom resource. If `is_any`, it may as well be a scalar, or an atomic list.
    Object {
        of: Box<Struct>,
        is_any: bool,
    },
    Map {
        of: Box<Self>,
        is_atomic: bool,
    },
    List {
        of: Box<Self>,
        relation: Relation,
    },
}

/// Relation of the items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Atomic,
    Set,
    /// Names of the keys, in their order, and their defaults.
    Keys(Vec<(Cow<'static, str>, Option<Value>)>),
}

/// Items of atomic lists of unknown type.
static ANY_ATOMIC: Type = Type::Any { is_atomic: true };

/// Returns the type of the objects of a built-in kind.
pub(super) fn type_of(api_version: &str, kind: &str) -> Option<&'static Type> {
    TYPES.kinds.get(&*format!("{api_version}/{kind}"))
}

/// Returns true if the objects of this resource are of a built-in kind whose lists can be merged. `resource` may be
/// `RESOURCE/SUBRESOURCE`.
pub fn has_schema(group: &str, version: &str, resource: &str) -> bool {
    let version = if group.is_empty() { Cow::from(version) } else { format!("{group}/{version}").into() };
    TYPES.resources.get(&*version).is_some_and(|resources| resources.contains(resource))
}

/// Returns true if the group is none of the built-in ones.
pub fn is_custom_group(group: &str) -> bool {
    let is_it = |version: &&str| version.split_once('/').is_some_and(|(known, _)| known == group);
    !group.is_empty() && !TYPES.resources.keys().any(is_it)
}

/// Returns the type of the metadata of objects.
fn object_meta() -> Option<&'static Type> {
    TYPES.kinds.get("v1/ConfigMap")?.field("metadata")
}

impl Types {
    fn parse(text: &'static str) -> Self {
        let mut types = Self { resources: HashMap::new(), kinds: HashMap::new(), structs: Vec::new() };
        for line in text.lines() {
            if let Some((version, resources)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                types.resources.insert(version, resources.split(' ').collect());
                continue;
            }
            let (mut of, number) = (Struct::default(), types.structs.len());
            for word in line.split_whitespace() {
                if let Some(kind) = word.strip_prefix('=') {
                    types.kinds.insert(kind, Type::Struct { number, is_atomic: false });
                } else if let Some((of_fields, names)) = word.split_once(':') {
                    of.fields.extend(names.split(',').map(|name| (name.into(), Type::parse(of_fields))));
                } else {
                    of.is_atomic = true;
                }
            }
            of.fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            types.structs.push(of);
        }
        types
    }
}

impl Type {
    fn parse(text: &'static str) -> Self {
        let (is_atomic, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
        let list = |text, relation| Self::List { of: Box::new(Self::parse(text)), relation };
        match (text, text.split_at_checked(1).unwrap_or_default()) {
            ("s", _) => Self::Scalar(Some("string")),
            ("n", _) => Self::Scalar(Some(NUMERIC)),
            ("i", _) => Self::Integer(32),
            ("l", _) => Self::Integer(64),
            ("b", _) => Self::Scalar(Some("boolean")),
            ("u", _) => Self::Scalar(None),
            ("d" | "a", _) => Self::Any { is_atomic: text == "a" },
            (_, ("{", of)) => Self::Map { of: Box::new(Self::parse(of)), is_atomic },
            (_, ("[", of)) => list(of, Relation::Atomic),
            (_, ("+", of)) => list(of, Relation::Set),
            (_, ("(", rest)) => {
                let (keys, of) = rest.split_once(')').unwrap_or_default();
                let key = |key: &'static str| match key.split_once('=') {
                    Some((name, default)) => (name.into(), serde_json::from_str(default).ok()),
                    None => (key.into(), None),
                };
                list(of, Relation::Keys(keys.split(';').map(key).collect()))
            }
            _ => Self::Struct { number: text.parse().unwrap_or(usize::MAX), is_atomic },
        }
    }

    fn as_struct(&self) -> Option<&Struct> {
        match self {
            Self::Struct { number, .. } => TYPES.structs.get(*number),
            Self::Object { of, .. } => Some(of),
            _ => None,
        }
    }

    /// Returns true if a value of this type is replaced as a whole.
    pub(super) fn is_atomic(&self, value: &Value) -> bool {
        match self {
            Self::Scalar(_) | Self::Integer(_) => false,
            Self::Any { is_atomic } => value.is_array() || *is_atomic && value.is_object(),
            Self::Map { is_atomic, .. } => *is_atomic,
            Self::Object { of, is_any } => of.is_atomic && value.is_object() || *is_any && value.is_array(),
            Self::Struct { is_atomic, .. } => *is_atomic || self.as_struct().is_some_and(|of| of.is_atomic),
            Self::List { relation, .. } => matches!(relation, Relation::Atomic),
        }
    }

    /// Returns the type of a member of an object; `None` if there can be no such member.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Any { .. } => Some(self),
            Self::Map { of, .. } => Some(of),
            _ => self.field(name).or_else(|| self.as_struct()?.others.as_ref()),
        }
    }

    fn field(&self, name: &str) -> Option<&Self> {
        let fields = &self.as_struct()?.fields;
        let at = fields.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&fields[at].1)
    }

    /// Returns the type of the items of a list, and their relation.
    pub(super) fn list(&self) -> Option<(&Self, &Relation)> {
        match self {
            Self::Any { .. } | Self::Object { is_any: true, .. } => Some((&ANY_ATOMIC, &Relation::Atomic)),
            Self::List { of, relation } => Some((of, relation)),
            _ => None,
        }
    }

    /// Checks a configuration of this type. The inner error is upstream's.
    pub(super) fn check(
        &self,
        configuration: &Map<String, Value>,
        pay: Pay<'_>,
    ) -> Result<Result<(), String>, Suspended> {
        let cut = |text: &str| text.chars().take(MAX_MESSAGE_CHARS).collect::<String>();
        let mut check = Check { path: String::new(), errors: Vec::new(), meter: Meter { unpaid: 0, pay } };
        check.members(self, configuration)?;
        let not_typed = match &*check.errors {
            [] => None,
            [error] => Some(error.clone()),
            errors => Some(format!("errors:\n  {}", errors.join("\n  "))),
        };
        if let Some(errors) = not_typed {
            return Ok(Err(format!("failed to convert patch object to typed object: {}", cut(&errors))));
        }
        check.atomic_members(self, configuration)?;
        check.meter.settle()?;
        Ok(match check.errors.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
                cut(&check.errors.join(", "))
            )),
        })
    }

    /// Checks that the integers of a checked configuration of this type are such. The inner error is upstream's, for an
    /// integer that is too large, too: upstream takes as many bits of it as there is room for.
    pub(super) fn check_integers(
        &self,
        configuration: &Map<String, Value>,
        pay: Pay<'_>,
    ) -> Result<Result<(), String>, Suspended> {
        let mut meter = Meter { unpaid: 0, pay };
        let checked = self.integers_of_members(configuration, &mut meter)?;
        meter.settle()?;
        Ok(checked)
    }

    fn integers(&self, value: &Value, meter: &mut Meter<'_>) -> Result<Result<(), String>, Suspended> {
        match (self, value) {
            (Self::Integer(bits), Value::Number(number)) if !fits(number, *bits) => {
                return Ok(Err(format!("cannot convert {} to int{bits}", go_type(value))));
            }
            (_, Value::Object(members)) => return self.integers_of_members(members, meter),
            (_, Value::Array(items)) => {
                let Some((of_items, _)) = self.list() else { return Ok(Ok(())) };
                for item in items {
                    meter.read(size(item))?;
                    if let Err(why) = of_items.integers(item, meter)? {
                        return Ok(Err(why));
                    }
                }
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    fn integers_of_members(
        &self,
        members: &Map<String, Value>,
        meter: &mut Meter<'_>,
    ) -> Result<Result<(), String>, Suspended> {
        for (name, value) in members {
            meter.read(name.len() + size(value))?;
            if let Some(Err(why)) = self.member(name).map(|of| of.integers(value, meter)).transpose()? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }
}

impl Relation {
    /// Returns what tells an item from others, as paths show it. Of an object only the keys are needed. The list must not
    /// be atomic.
    pub(super) fn key(&self, item: &Value) -> Result<String, String> {
        let Self::Keys(keys) = self else {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(format!("[={}]", key_text(scalar))),
            };
        };
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let pairs = keys.iter().filter_map(|(name, default)| {
            let value = fields.get(&**name).or(default.as_ref())?;
            Some(format!("{name}={}", key_text(value)))
        });
        let pairs: Vec<_> = pairs.collect();
        if pairs.is_empty() {
            let names: Vec<_> = keys.iter().map(|(name, _)| format!("{name:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] \
                 (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(format!("[{}]", pairs.join(",")))
    }
}

/// Returns a text that is equal for equal keys: 1 and 1.0 are.
fn key_text(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => number.to_string(),
        _ => value.to_string(),
    }
}

/// Returns true if integers of so many bits can hold the number.
fn fits(number: &Number, bits: u8) -> bool {
    let limit = 2_f64.powi(i32::from(bits) - 1);
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => bits == 64 || i32::try_from(whole).is_ok(),
        (None, Some(double)) => double.trunc() == double && (-limit..limit).contains(&double),
        (None, None) => false,
    }
}

/// Returns about the number of bytes of a value, without those in it.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 3,
        _ => 3,
    }
}

/// Pays for what is read, some at once.
struct Meter<'a> {
    unpaid: usize,
    pay: Pay<'a>,
}

impl Meter<'_> {
    fn read(&mut self, bytes: usize) -> Result<(), Suspended> {
        self.unpaid += bytes;
        if self.unpaid < MAX_UNPAID_BYTES { Ok(()) } else { self.settle() }
    }

    fn settle(&mut self) -> Result<(), Suspended> {
        (self.pay)(std::mem::take(&mut self.unpaid))
    }
}

/// A walk through a configuration.
struct Check<'a> {
    path: String,
    errors: Vec<String>,
    meter: Meter<'a>,
}

impl Check<'_> {
    fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    fn error(&mut self, why: &str) {
        let cut = |text: &str| text.chars().take(MAX_CAUSE_CHARS).collect::<String>();
        self.errors.push(format!("{}: {}", cut(&self.path), cut(why)));
    }

    fn value(&mut self, of: &Type, value: &Value) -> Result<(), Suspended> {
        if self.is_full() {
            return Ok(());
        }
        self.meter.read(size(value))?;
        match (of, value) {
            (_, Value::Null) => {}
            (Type::Scalar(expected), _) => self.scalar(*expected, value),
            (Type::Integer(_), _) => self.scalar(Some(NUMERIC), value),
            (
                Type::Struct { .. } | Type::Object { .. } | Type::Map { .. } | Type::Any { .. },
                Value::Object(members),
            ) => {
                self.members(of, members)?;
            }
            (Type::List { .. } | Type::Any { .. } | Type::Object { is_any: true, .. }, Value::Array(items)) => {
                self.items(of, items)?;
            }
            (Type::Any { .. } | Type::Object { is_any: true, .. }, _) => {}
            (Type::List { .. }, _) => self.error(&format!("expected list, got &{{{}}}", plain(value))),
            (Type::Struct { .. } | Type::Object { .. } | Type::Map { .. }, _) => {
                self.error(&format!("expected map, got &{{{}}}", plain(value)));
            }
        }
        Ok(())
    }

    fn scalar(&mut self, expected: Option<&str>, value: &Value) {
        let fits = match expected {
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some(_) => value.is_number(),
            None => !value.is_object() && !value.is_array(),
        };
        let found = match expected {
            _ if fits => return,
            Some("string") => format!("&value.valueUnstructured{{Value:{}}}", go_syntax(value)),
            Some("boolean") | None => format!("&{{{}}}", plain(value)),
            Some(_) => go_type(value).to_owned(),
        };
        self.error(&format!("expected {}, got {found}", expected.unwrap_or("any scalar")));
    }

    fn members(&mut self, of: &Type, members: &Map<String, Value>) -> Result<(), Suspended> {
        for (name, value) in members {
            if self.is_full() {
                break;
            }
            self.meter.read(name.len())?;
            let before = self.path.len();
            self.path.extend([".", name]);
            let member = of.member(name);
            match member {
                Some(of) => self.value(of, value)?,
                None => self.error("field not declared in schema"),
            }
            self.path.truncate(before);
            // As upstream.
            if member.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn items(&mut self, of: &Type, items: &[Value]) -> Result<(), Suspended> {
        let Some((of_items, relation)) = of.list() else { return Ok(()) };
        let mut seen = HashSet::new();
        for (at, item) in items.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let element = match relation {
                Relation::Atomic => format!("[{at}]"),
                _ => match relation.key(item) {
                    Ok(key) => key,
                    Err(why) => {
                        self.error(&format!("element {at}: {why}"));
                        break;
                    }
                },
            };
            if !matches!(relation, Relation::Atomic) && !seen.insert(element.clone()) {
                self.error(&format!("duplicate entries for key {element}"));
            }
            let before = self.path.len();
            self.path.push_str(&element);
            self.value(of_items, item)?;
            self.path.truncate(before);
        }
        Ok(())
    }

    /// Adds the paths of atomic values. As upstream, those in the values of maps are none.
    fn atomic(&mut self, of: &Type, value: &Value) -> Result<(), Suspended> {
        if self.is_full() {
            return Ok(());
        }
        self.meter.read(size(value))?;
        if (value.is_object() || value.is_array()) && of.is_atomic(value) {
            self.errors.push(self.path.chars().take(MAX_CAUSE_CHARS).collect());
        }
        match (value, of.list()) {
            (Value::Object(members), _) => self.atomic_members(of, members)?,
            (Value::Array(items), Some((of_items, _))) => {
                for (at, item) in items.iter().enumerate() {
                    if self.is_full() {
                        break;
                    }
                    let before = self.path.len();
                    self.path.push_str(&format!("[{at}]"));
                    self.atomic(of_items, item)?;
                    self.path.truncate(before);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn atomic_members(&mut self, of: &Type, members: &Map<String, Value>) -> Result<(), Suspended> {
        for (name, value) in members {
            if self.is_full() {
                break;
            }
            self.meter.read(name.len())?;
            if let Some(of) = of.field(name) {
                let before = self.path.len();
                self.path.extend([".", name]);
                self.atomic(of, value)?;
                self.path.truncate(before);
            }
        }
        Ok(())
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the value as Go's `%v` prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// Returns the value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    let all = match value {
        Value::Null => return "interface {}(nil)".to_owned(),
        Value::Array(items) => items.iter().map(go_syntax).collect::<Vec<_>>(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| format!("{name:?}:{}", go_syntax(value))).collect()
        }
        scalar => return scalar.to_string(),
    };
    format!("{}{{{}}}", go_type(value), all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_struct_of_the_table_is_in_it() {
        fn check(of: &Type) {
            match of {
                Type::Scalar(_) | Type::Integer(_) | Type::Any { .. } | Type::Object { .. } => {}
                Type::Struct { number, .. } => assert!(*number < TYPES.structs.len(), "{of:?}"),
                Type::Map { of, .. } | Type::List { of, .. } => check(of),
            }
        }
        TYPES.structs.iter().flat_map(|of| &of.fields).for_each(|(_, of)| check(of));
        let resources: usize = TYPES.resources.values().map(HashSet::len).sum();
        assert!(TYPES.kinds.len() > 90 && resources > 120, "{} {resources}", TYPES.kinds.len());
    }

    #[test]
    fn resources_are_known_by_group_version_and_name() {
        for (group, version, resource) in [
            ("", "v1", "pods"),
            ("", "v1", "pods/ephemeralcontainers"),
            ("apps", "v1", "deployments"),
            ("apps", "v1", "deployments/scale"),
            ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        ] {
            assert!(has_schema(group, version, resource), "{group}/{version} {resource}");
        }
        for (group, version, resource) in [
            ("", "v1", "pods/exec"),
            ("", "*", "pods"),
            ("apps", "v1", "*"),
            ("*", "v1", "pods"),
            ("a.b", "v1", "pods"),
        ] {
            assert!(!has_schema(group, version, resource), "{group}/{version} {resource}");
        }
    }
}
