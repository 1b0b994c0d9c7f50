//! Static types, and the rules of their compatibility.

use std::{fmt, sync::Arc};

/// Name of the message that describes one operation of a JSON patch.
pub(super) const JSON_PATCH_NAME: &str = "JSONPatch";

/// Name of the message that describes a part of an object.
pub(super) const OBJECT_NAME: &str = "Object";

/// Fields of a message, each with the name of its type.
pub(super) type Fields = &'static [(&'static str, &'static str)];

/// Type of a value, as far as it is known. Source: cel-go `common/types/types.go`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    /// Known only in the evaluation.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    Optional(Arc<Type>),
    /// The type of a type.
    Meta,
    /// A message, by its name and fields.
    Struct(&'static str, Fields),
    /// `Object`, or the type of a field of it, such as `Object.spec`. Any field may be set.
    Object(Arc<str>),
    /// A type that only functions can read.
    Opaque(&'static str),
    /// An unknown, by its number.
    Var(usize),
}

impl fmt::Display for Type {
    /// Formats the type as the errors of cel-go's checker do; with `#`, as its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Null if f.alternate() => "null_type",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Meta => "type",
            Self::Struct(name, _) | Self::Opaque(name) => name,
            Self::Object(name) => name,
            Self::Var(_) => "dyn",
            Self::List(item) if f.alternate() => return write!(f, "list({item:#})"),
            Self::Map(key, value) if f.alternate() => return write!(f, "map({key:#}, {value:#})"),
            Self::List(item) => return write!(f, "list({item})"),
            Self::Map(key, value) => return write!(f, "map({key}, {value})"),
            Self::Optional(inner) => return write!(f, "optional_type({inner})"),
        })
    }
}

const KIND: Fields = &[("group", "string"), ("version", "string"), ("kind", "string")];
const RESOURCE: Fields = &[("group", "string"), ("version", "string"), ("resource", "string")];
const USER_INFO: Fields =
    &[("username", "string"), ("uid", "string"), ("groups", "list(string)"), ("extra", "map(string, list(string))")];
const REQUEST: Fields = &[
    ("kind", "kubernetes.GroupVersionKind"),
    ("resource", "kubernetes.GroupVersionResource"),
    ("subResource", "string"),
    ("requestKind", "kubernetes.GroupVersionKind"),
    ("requestResource", "kubernetes.GroupVersionResource"),
    ("requestSubResource", "string"),
    ("name", "string"),
    ("namespace", "string"),
    ("operation", "string"),
    ("userInfo", "kubernetes.UserInfo"),
    ("dryRun", "bool"),
    ("options", "dyn"),
];
const NAMESPACE: Fields = &[
    ("metadata", "kubernetes.NamespaceMetadata"),
    ("spec", "kubernetes.NamespaceSpec"),
    ("status", "kubernetes.NamespaceStatus"),
];
const NAMESPACE_SPEC: Fields = &[("finalizers", "list(string)")];
const NAMESPACE_STATUS: Fields = &[("conditions", "list(kubernetes.NamespaceCondition)"), ("phase", "string")];
const NAMESPACE_CONDITION: Fields = &[
    ("status", "string"),
    ("type", "string"),
    ("lastTransitionTime", "google.protobuf.Timestamp"),
    ("message", "string"),
    ("reason", "string"),
];
const NAMESPACE_METADATA: Fields = &[
    ("name", "string"),
    ("generateName", "string"),
    ("namespace", "string"),
    ("labels", "map(string, string)"),
    ("annotations", "map(string, string)"),
    ("UID", "string"),
    ("creationTimestamp", "google.protobuf.Timestamp"),
    ("deletionGracePeriodSeconds", "int"),
    ("deletionTimestamp", "google.protobuf.Timestamp"),
    ("generation", "int"),
    ("resourceVersion", "string"),
    ("finalizers", "list(string)"),
];

const JSON_PATCH: Fields = &[("op", "string"), ("from", "string"), ("path", "string"), ("value", "dyn")];

/// Every message by its name. Sources: `k8s.io/apiserver/pkg/admission/plugin/cel/compile.go`, `pkg/cel/mutation`.
const STRUCTS: [(&str, Fields); 10] = [
    (JSON_PATCH_NAME, JSON_PATCH),
    ("kubernetes.AdmissionRequest", REQUEST),
    ("kubernetes.GroupVersionKind", KIND),
    ("kubernetes.GroupVersionResource", RESOURCE),
    ("kubernetes.UserInfo", USER_INFO),
    ("kubernetes.Namespace", NAMESPACE),
    ("kubernetes.NamespaceMetadata", NAMESPACE_METADATA),
    ("kubernetes.NamespaceSpec", NAMESPACE_SPEC),
    ("kubernetes.NamespaceStatus", NAMESPACE_STATUS),
    ("kubernetes.NamespaceCondition", NAMESPACE_CONDITION),
];

const OPAQUE: [&str; 11] = [
    "kubernetes.Quantity",
    "kubernetes.URL",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
    "net.IP",
    "net.CIDR",
    "kubernetes.authorization.Authorizer",
    "kubernetes.authorization.PathCheck",
    "kubernetes.authorization.GroupCheck",
    "kubernetes.authorization.ResourceCheck",
    "kubernetes.authorization.Decision",
];

impl Type {
    /// Parses a type as this crate's tables write it: `list(string)`, `map(A, B)`. Capital letters are unknowns.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        if let Some((name, rest)) = text.split_once('(') {
            let inner = rest.strip_suffix(')').unwrap_or(rest);
            return match name {
                "list" => Self::List(Self::parse(inner).into()),
                "optional" => Self::Optional(Self::parse(inner).into()),
                _ => {
                    let (key, value) = inner.split_once(',').unwrap_or((inner, "dyn"));
                    Self::Map(Self::parse(key).into(), Self::parse(value).into())
                }
            };
        }
        match text {
            "null" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "uint" => Self::Uint,
            "double" => Self::Double,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "google.protobuf.Duration" | "duration" => Self::Duration,
            "google.protobuf.Timestamp" | "timestamp" => Self::Timestamp,
            "type" => Self::Meta,
            "A" => Self::Var(0),
            "B" => Self::Var(1),
            name => {
                let found = STRUCTS.iter().find(|(known, _)| *known == name);
                let opaque = OPAQUE.iter().find(|known| **known == name);
                found
                    .map(|(name, fields)| Self::Struct(name, fields))
                    .or(opaque.map(|name| Self::Opaque(name)))
                    .unwrap_or(Self::Dyn)
            }
        }
    }

    /// Returns true if null can replace a value of this type.
    const fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Struct(..)
                | Self::Object(_)
                | Self::Opaque(_)
                | Self::Duration
                | Self::Timestamp
                | Self::Optional(_)
        )
    }

    /// Returns the type that a variable of a policy has by its expression's type. Source: `convertCelTypeToDeclType` in
    /// `composition.go`.
    pub(super) fn of_variable(&self) -> Self {
        match self {
            Self::List(item) => Self::List(item.of_variable().into()),
            Self::Map(key, value) => Self::Map(key.of_variable().into(), value.of_variable().into()),
            Self::Optional(_) | Self::Meta | Self::Struct(..) | Self::Object(_) | Self::Opaque(_) | Self::Var(_) => {
                Self::Dyn
            }
            known => known.clone(),
        }
    }

    /// Returns the message of this name; `None` if none can be made.
    pub(super) fn message(name: &str) -> Option<Self> {
        match name.strip_prefix(OBJECT_NAME) {
            Some(rest) if rest.is_empty() || rest.starts_with('.') => Some(Self::Object(name.into())),
            _ if name == JSON_PATCH_NAME => Some(Self::Struct(JSON_PATCH_NAME, JSON_PATCH)),
            _ => None,
        }
    }

    /// Returns this type, or the other one if it is more general. Upstream: `mostGeneral`.
    pub(super) fn or_more_general<'t>(&'t self, other: &'t Self) -> &'t Self {
        if self.is_as_general_as(other) { self } else { other }
    }

    fn is_as_general_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Var(_), _) => true,
            (_, Self::Dyn | Self::Var(_)) => false,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_as_general_as(b),
            (Self::Map(a, x), Self::Map(b, y)) => a.is_as_general_as(b) && x.is_as_general_as(y),
            (a, b) => a == b,
        }
    }

    /// Returns the type with its unknowns numbered from `first`.
    pub(super) fn numbered_from(&self, first: usize) -> Self {
        match self {
            Self::Var(number) => Self::Var(number + first),
            Self::List(item) => Self::List(item.numbered_from(first).into()),
            Self::Optional(inner) => Self::Optional(inner.numbered_from(first).into()),
            Self::Map(key, value) => Self::Map(key.numbered_from(first).into(), value.numbered_from(first).into()),
            known => known.clone(),
        }
    }
}

/// Types inferred for unknowns. Source: cel-go `checker/types.go`.
#[derive(Debug, Default)]
pub(super) struct Unknowns {
    known: Vec<Option<Type>>,
    /// Unknowns whose type was inferred or became more general, in that order, each with its previous type.
    learned: Vec<(usize, Option<Type>)>,
}

/// Result of a substitution for an unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Substitution {
    Valid,
    /// The unknown has another type.
    Taken,
    /// The type would contain itself.
    Circular,
}

impl Unknowns {
    /// Adds unknowns, and returns the number of the first one.
    pub(super) fn add(&mut self, many: usize) -> usize {
        let first = self.known.len();
        self.known.resize(first + many, None);
        first
    }

    /// Returns a mark to which the inferred types can be rolled back.
    pub(super) fn mark(&self) -> usize {
        self.learned.len()
    }

    /// Rolls back the types inferred since the mark.
    pub(super) fn roll_back(&mut self, mark: usize) {
        while self.learned.len() > mark {
            if let Some((number, before)) = self.learned.pop() {
                self.known[number] = before;
            }
        }
    }

    /// Returns the type with only its outermost unknown resolved.
    pub(super) fn resolve_outer(&self, of: &Type) -> Type {
        let mut seen = of.clone();
        while let Type::Var(number) = seen {
            match self.known.get(number).and_then(Option::as_ref) {
                Some(known) => seen = known.clone(),
                None => return Type::Var(number),
            }
        }
        seen
    }

    /// Returns the type with all unknowns resolved; those without a type become `Dyn`.
    pub(super) fn resolve_all(&self, of: &Type) -> Type {
        self.resolved(of, |_| Type::Dyn)
    }

    /// Returns the type with all unknowns resolved that have a type.
    pub(super) fn resolve(&self, of: &Type) -> Type {
        self.resolved(of, Type::Var)
    }

    fn resolved(&self, of: &Type, unknown: fn(usize) -> Type) -> Type {
        let inside = |of: &Type| self.resolved(of, unknown).into();
        match self.resolve_outer(of) {
            Type::Var(number) => unknown(number),
            Type::List(item) => Type::List(inside(&item)),
            Type::Optional(within) => Type::Optional(inside(&within)),
            Type::Map(key, value) => Type::Map(inside(&key), inside(&value)),
            seen => seen,
        }
    }

    /// Returns true if a value of type `given` can be used as `wanted`. Infers unknown types, and may make inferred
    /// types more general.
    pub(super) fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Var(number) = wanted {
            match self.substitute(given, *number) {
                Substitution::Valid => return true,
                Substitution::Taken => return false,
                Substitution::Circular => {}
            }
        }
        match (given, wanted) {
            (Type::Var(number), _) => self.substitute(wanted, *number) == Substitution::Valid,
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a, x), Type::Map(b, y)) => self.fits(a, b) && self.fits(x, y),
            (Type::Struct(a, _), Type::Struct(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    /// Substitutes a type for the unknown `number`.
    fn substitute(&mut self, what: &Type, number: usize) -> Substitution {
        if *what == Type::Var(number) {
            return Substitution::Valid;
        }
        let Some(known) = self.known[number].clone() else {
            return if self.learn(number, what.clone()) { Substitution::Valid } else { Substitution::Circular };
        };
        if *what == known {
            return Substitution::Valid;
        }
        if !self.fits(what, &known) {
            return Substitution::Taken;
        }
        let general = what.or_more_general(&known);
        if *general != known {
            self.learn(number, general.clone());
        }
        Substitution::Valid
    }

    /// Records the type of an unknown. Returns false if the type would contain itself.
    fn learn(&mut self, number: usize, what: Type) -> bool {
        if self.holds(&what, number) {
            return false;
        }
        let before = self.known[number].replace(what);
        self.learned.push((number, before));
        true
    }

    fn holds(&self, what: &Type, number: usize) -> bool {
        match what {
            Type::Var(other) if *other == number => true,
            Type::Var(other) => self.known[*other].as_ref().is_some_and(|known| self.holds(known, number)),
            Type::List(inner) | Type::Optional(inner) => self.holds(inner, number),
            Type::Map(key, value) => self.holds(key, number) || self.holds(value, number),
            _ => false,
        }
    }
}

/// Returns the types of a loop's variables over a range of this type. A single variable is an item of a list or a key
/// of a map; two variables are index and item, or key and value.
pub(super) fn variables(unknowns: &mut Unknowns, range: &Type, two: bool) -> Result<(Type, Option<Type>), String> {
    let (first, second) = match unknowns.resolve_outer(range) {
        Type::Dyn => (Type::Dyn, Type::Dyn),
        unknown @ Type::Var(_) => {
            unknowns.fits(&Type::Dyn, &unknown);
            (Type::Dyn, Type::Dyn)
        }
        Type::List(item) if two => (Type::Int, Type::clone(&item)),
        Type::List(item) => (Type::clone(&item), Type::Dyn),
        Type::Map(key, value) => (Type::clone(&key), Type::clone(&value)),
        other => {
            let of = unknowns.resolve_all(&other);
            return Err(format!(
                "expression of type '{of}' cannot be range of a comprehension (must be list, map, or dynamic)"
            ));
        }
    };
    Ok((first, two.then_some(second)))
}

/// Returns the static name of a type; `None` if there is no such type.
pub(super) fn type_name(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 16] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "kubernetes.Quantity",
        "net.IP",
        "net.CIDR",
    ];
    NAMES.into_iter().find(|known| *known == name)
}
