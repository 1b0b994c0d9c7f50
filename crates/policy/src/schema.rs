//! How objects of the built-in kinds are merged. Sources: `k8s.io/kube-openapi/pkg/schemaconv`, and
//! `sigs.k8s.io/structured-merge-diff/v6/typed/{helpers,validate}.go`.
//!
//! `schema/types.txt` has what kube-apiserver concludes from its OpenAPI documents. `tests/policies/generate` writes it.
//!
//! - `@VERSION RESOURCE ...`: resources that are created or updated, and whose kinds are known.
//! - Any other line is a struct; the first one has the number 0. `!` says that it is atomic, `TYPE:FIELD,...` which
//!   fields are of a type, and `=VERSION/KIND` that it is the object of this kind.
//!
//! A type is `s` (string), `n` (numeric), `b` (boolean), `u` (any scalar), `d` (anything), `a` (anything, and atomic), the
//! number of a struct, `{TYPE` (map), `[TYPE` (atomic list), `+TYPE` (set) or `(KEY;KEY=DEFAULT)TYPE` (list with keys).
//! `!` before a map or a number says that it is atomic.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use serde_json::{Map, Value};

/// Maximum number of reported errors of a configuration.
const MAX_ERRORS: usize = 10;

/// Maximum number of characters of a path, and of a cause, in an error.
const MAX_SHOWN: usize = 300;

static TYPES: LazyLock<Types> = LazyLock::new(|| Types::parse(include_str!("schema/types.txt")));

struct Types {
    resources: HashMap<&'static str, HashSet<&'static str>>,
    kinds: HashMap<&'static str, Type>,
    structs: Vec<Struct>,
}

struct Struct {
    is_atomic: bool,
    /// By name.
    fields: Vec<(&'static str, Type)>,
}

/// The type of a value.
#[derive(Debug)]
pub(super) enum Type {
    /// A scalar, with the name of what is expected; `None` if any will do.
    Scalar(Option<&'static str>),
    Any {
        is_atomic: bool,
    },
    Struct {
        number: usize,
        is_atomic: bool,
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
#[derive(Debug)]
pub(super) enum Relation {
    Atomic,
    Set,
    /// Names of the keys, in their order, and their defaults.
    Keys(Vec<(&'static str, Option<Value>)>),
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

impl Types {
    fn parse(text: &'static str) -> Self {
        let mut types = Self { resources: HashMap::new(), kinds: HashMap::new(), structs: Vec::new() };
        for line in text.lines() {
            if let Some((version, resources)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                types.resources.insert(version, resources.split(' ').collect());
                continue;
            }
            let (mut of, number) = (Struct { is_atomic: false, fields: Vec::new() }, types.structs.len());
            for word in line.split_whitespace() {
                if let Some(kind) = word.strip_prefix('=') {
                    types.kinds.insert(kind, Type::Struct { number, is_atomic: false });
                } else if let Some((of_fields, names)) = word.split_once(':') {
                    of.fields.extend(names.split(',').map(|name| (name, Type::parse(of_fields))));
                } else {
                    of.is_atomic = true;
                }
            }
            of.fields.sort_unstable_by_key(|(name, _)| *name);
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
            ("n", _) => Self::Scalar(Some("numeric (int or float)")),
            ("b", _) => Self::Scalar(Some("boolean")),
            ("u", _) => Self::Scalar(None),
            ("d" | "a", _) => Self::Any { is_atomic: text == "a" },
            (_, ("{", of)) => Self::Map { of: Box::new(Self::parse(of)), is_atomic },
            (_, ("[", of)) => list(of, Relation::Atomic),
            (_, ("+", of)) => list(of, Relation::Set),
            (_, ("(", rest)) => {
                let (keys, of) = rest.split_once(')').unwrap_or_default();
                let key = |key: &'static str| match key.split_once('=') {
                    Some((name, default)) => (name, serde_json::from_str(default).ok()),
                    None => (key, None),
                };
                list(of, Relation::Keys(keys.split(';').map(key).collect()))
            }
            _ => Self::Struct { number: text.parse().unwrap_or(usize::MAX), is_atomic },
        }
    }

    fn as_struct(&self) -> Option<&'static Struct> {
        match self {
            Self::Struct { number, .. } => TYPES.structs.get(*number),
            _ => None,
        }
    }

    /// Returns true if a value of this type is replaced as a whole.
    pub(super) fn is_atomic(&self, value: &Value) -> bool {
        match self {
            Self::Scalar(_) => false,
            Self::Any { is_atomic } => value.is_array() || *is_atomic && value.is_object(),
            Self::Map { is_atomic, .. } => *is_atomic,
            Self::Struct { is_atomic, .. } => *is_atomic || self.as_struct().is_some_and(|of| of.is_atomic),
            Self::List { relation, .. } => matches!(relation, Relation::Atomic),
        }
    }

    /// Returns the type of a member of an object; `None` if there can be no such member.
    pub(super) fn member(&'static self, name: &str) -> Option<&'static Self> {
        match self {
            Self::Any { .. } => Some(self),
            Self::Map { of, .. } => Some(of),
            _ => self.field(name),
        }
    }

    fn field(&self, name: &str) -> Option<&'static Self> {
        let fields = &self.as_struct()?.fields;
        let at = fields.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(&fields[at].1)
    }

    /// Returns the type of the items of a list, and their relation.
    pub(super) fn list(&'static self) -> Option<(&'static Self, &'static Relation)> {
        match self {
            Self::Any { .. } => Some((&ANY_ATOMIC, &Relation::Atomic)),
            Self::List { of, relation } => Some((of, relation)),
            _ => None,
        }
    }

    /// Checks a configuration of this type. The error is upstream's.
    pub(super) fn check(&'static self, configuration: &Map<String, Value>) -> Result<(), String> {
        let mut check = Check::default();
        check.members(self, configuration);
        match &*check.errors {
            [] => {}
            [error] => return Err(format!("failed to convert patch object to typed object: {error}")),
            errors => {
                let errors = errors.join("\n  ");
                return Err(format!("failed to convert patch object to typed object: errors:\n  {errors}"));
            }
        }
        check.atomic_members(self, configuration);
        match check.errors.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
                check.errors.join(", ")
            )),
        }
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
            let value = fields.get(*name).or(default.as_ref())?;
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

/// A walk through a configuration.
#[derive(Default)]
struct Check {
    path: String,
    errors: Vec<String>,
}

impl Check {
    fn error(&mut self, why: &str) {
        let cut = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
        self.errors.push(format!("{}: {}", cut(&self.path), cut(why)));
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    fn value(&mut self, of: &'static Type, value: &Value) {
        match (of, value) {
            (_, Value::Null) => {}
            (Type::Scalar(expected), _) => self.scalar(*expected, value),
            (Type::Struct { .. } | Type::Map { .. } | Type::Any { .. }, Value::Object(members)) => {
                self.members(of, members);
            }
            (Type::List { .. } | Type::Any { .. }, Value::Array(items)) => self.items(of, items),
            (Type::Any { .. }, _) => {}
            (Type::List { .. }, _) => self.error(&format!("expected list, got &{{{}}}", plain(value))),
            (Type::Struct { .. } | Type::Map { .. }, _) => {
                self.error(&format!("expected map, got &{{{}}}", plain(value)));
            }
        }
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

    fn members(&mut self, of: &'static Type, members: &Map<String, Value>) {
        for (name, value) in members {
            if self.is_full() {
                return;
            }
            let before = self.path.len();
            self.path.extend([".", name]);
            let member = of.member(name);
            match member {
                Some(of) => self.value(of, value),
                None => self.error("field not declared in schema"),
            }
            self.path.truncate(before);
            // As upstream.
            if member.is_none() {
                return;
            }
        }
    }

    fn items(&mut self, of: &'static Type, items: &[Value]) {
        let Some((of_items, relation)) = of.list() else { return };
        let mut seen = HashSet::new();
        for (at, item) in items.iter().enumerate() {
            // An object may hold many duplicates, which a configuration can copy.
            if self.is_full() {
                return;
            }
            let element = match relation {
                Relation::Atomic => format!("[{at}]"),
                _ => match relation.key(item) {
                    Ok(key) => key,
                    Err(why) => return self.error(&format!("element {at}: {why}")),
                },
            };
            if !matches!(relation, Relation::Atomic) && !seen.insert(element.clone()) {
                self.error(&format!("duplicate entries for key {element}"));
            }
            let before = self.path.len();
            self.path.push_str(&element);
            self.value(of_items, item);
            self.path.truncate(before);
        }
    }

    /// Adds the paths of atomic values. As upstream, those in the values of maps are none.
    fn atomic(&mut self, of: &'static Type, value: &Value) {
        if self.is_full() {
            return;
        }
        if (value.is_object() || value.is_array()) && of.is_atomic(value) {
            self.errors.push(self.path.chars().take(MAX_SHOWN).collect());
        }
        match (value, of.list()) {
            (Value::Object(members), _) => self.atomic_members(of, members),
            (Value::Array(items), Some((of_items, _))) => {
                for (at, item) in items.iter().enumerate() {
                    let before = self.path.len();
                    self.path.push_str(&format!("[{at}]"));
                    self.atomic(of_items, item);
                    self.path.truncate(before);
                }
            }
            _ => {}
        }
    }

    fn atomic_members(&mut self, of: &'static Type, members: &Map<String, Value>) {
        for (name, value) in members {
            if let Some(of) = of.field(name) {
                let before = self.path.len();
                self.path.extend([".", name]);
                self.atomic(of, value);
                self.path.truncate(before);
            }
        }
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
    fn many_faults_make_a_short_message() {
        let of = type_of("v1", "Pod").unwrap();
        let port = serde_json::json!({"containerPort": 1, "protocol": "TCP"});
        let container = serde_json::json!({"name": "a", "ports": vec![port; 10_000]});
        let pod = serde_json::json!({"spec": {"containers": [container]}});
        let why = of.check(pod.as_object().unwrap()).unwrap_err();
        assert_eq!(why.matches("duplicate entries").count(), MAX_ERRORS, "{why}");
    }

    #[test]
    fn every_struct_of_the_table_is_in_it() {
        fn check(of: &Type) {
            match of {
                Type::Scalar(_) | Type::Any { .. } => {}
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
