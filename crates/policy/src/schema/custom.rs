//! Schemas of custom resources, as their CustomResourceDefinitions have them. Sources:
//! `k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder` and `k8s.io/kube-openapi/pkg/schemaconv`.

use std::{collections::HashMap, fmt, sync::Arc};

use serde_json::Value;

use super::{NUMERIC, Relation, Struct, Type, object_meta};

/// Maximum depth of a schema.
const MAX_DEPTH: usize = 100;

/// Maximum number of types in a schema.
const MAX_TYPES: usize = 200_000;

/// The schema of one version of a custom resource.
#[derive(Debug, PartialEq, Eq)]
pub struct CustomSchema {
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    kind: Box<str>,
    of: Type,
}

impl CustomSchema {
    /// Compiles the `openAPIV3Schema` of a version; `None` if the version has none, so that it may have any fields.
    /// `name` is its group, version, resource and kind.
    ///
    /// # Errors
    /// The text says what of the schema no apiserver takes, or what is too much here.
    pub fn compile(name: [&str; 4], schema: Option<&Value>) -> Result<Self, String> {
        let of = match schema {
            None => Type::Map { of: Box::new(DEDUCED), is_atomic: false },
            Some(schema) => {
                if schema["type"] != "object" {
                    return Err("is not of the type object".to_owned());
                }
                let of = Compiler { left: MAX_TYPES }.members(schema, &Path::default(), false, 0, true)?;
                Type::Object { of: Box::new(of), is_any: false }
            }
        };
        let [group, version, resource, kind] = name.map(Box::from);
        Ok(Self { group, version, resource, kind, of })
    }
}

/// Values of unknown type: maps are merged, and lists replaced.
const DEDUCED: Type = Type::Any { is_atomic: false };

/// Place in a schema; written only where there is a problem.
#[derive(Clone, Copy, Default)]
struct Path<'a> {
    outer: Option<&'a Path<'a>>,
    segment: [&'a str; 2],
}

impl<'a> Path<'a> {
    fn inner(&'a self, segment: [&'a str; 2]) -> Self {
        Self { outer: Some(self), segment }
    }
}

impl fmt::Debug for Path<'_> {
    /// Writes the path in quotes, and of each segment no more than anybody would read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_SEGMENT: usize = 64;
        let segments = std::iter::successors(Some(self), |path| path.outer).collect::<Vec<_>>().into_iter().rev();
        let letters = segments.flat_map(|path| path.segment).flat_map(|text| text.chars().take(MAX_SEGMENT));
        fmt::Debug::fmt(&letters.collect::<String>(), f)
    }
}

struct Compiler {
    /// Number of types that there may still be.
    left: usize,
}

impl Compiler {
    /// Compiles a schema at this path. `keeps_unknown` is true if one around it preserves unknown fields.
    fn compile(&mut self, schema: &Value, path: &Path<'_>, keeps_unknown: bool, depth: usize) -> Result<Type, String> {
        self.left = self.left.checked_sub(1).ok_or_else(|| format!("has more than {MAX_TYPES} parts"))?;
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        match schema["type"].as_str() {
            Some("object") | None => self.object(schema, path, keeps_unknown, depth),
            Some("array") => self.list(schema, path, keeps_unknown, depth),
            Some("integer" | "number") => Ok(Type::Scalar(Some(NUMERIC))),
            Some("boolean") => Ok(Type::Scalar(Some("boolean"))),
            Some("string") => Ok(Type::Scalar(match schema["format"].as_str() {
                None | Some("" | "byte") => Some("string"),
                Some(_) => None,
            })),
            Some(other) => Err(format!("has at {path:?} the type {other:?}")),
        }
    }

    /// Compiles the members of an object, which are those of every object, too, if `has_identity`.
    fn members(
        &mut self,
        schema: &Value,
        path: &Path<'_>,
        outer_keeps: bool,
        depth: usize,
        has_identity: bool,
    ) -> Result<Struct, String> {
        let keeps_unknown = outer_keeps || keeps_unknown_fields(schema);
        let mut of = Struct { is_atomic: is_atomic_map(schema, path)?, ..Struct::default() };
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let compiled = self.compile(property, &path.inner([".", name]), keeps_unknown, depth + 1)?;
            of.fields.push((name.clone().into(), compiled));
        }
        if has_identity {
            let text = || Type::Scalar(Some("string"));
            of.fields.retain(|(name, _)| !matches!(&**name, "apiVersion" | "kind" | "metadata"));
            of.fields.extend([("apiVersion".into(), text()), ("kind".into(), text())]);
            of.fields.extend(object_meta().map(|of| ("metadata".into(), of.clone())));
        }
        of.fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        of.others = match &schema["additionalProperties"] {
            Value::Null if keeps_unknown || of.fields.is_empty() => Some(DEDUCED),
            Value::Null | Value::Bool(false) => None,
            Value::Bool(true) => Some(DEDUCED),
            other => Some(self.compile(other, &path.inner([".*", ""]), keeps_unknown, depth + 1)?),
        };
        Ok(of)
    }

    fn object(&mut self, schema: &Value, path: &Path<'_>, outer_keeps: bool, depth: usize) -> Result<Type, String> {
        let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
        let of = self.members(schema, path, outer_keeps, depth, is_embedded)?;
        let is_any = schema["type"].is_null();
        Ok(match of {
            Struct { is_atomic, fields, others: Some(DEDUCED) } if is_any && fields.is_empty() => {
                Type::Any { is_atomic }
            }
            Struct { is_atomic, fields, others: Some(of) } if !is_any && fields.is_empty() => {
                Type::Map { of: Box::new(of), is_atomic }
            }
            of => Type::Object { of: Box::new(of), is_any },
        })
    }

    fn list(&mut self, schema: &Value, path: &Path<'_>, outer_keeps: bool, depth: usize) -> Result<Type, String> {
        let keeps_unknown = outer_keeps || keeps_unknown_fields(schema);
        let items = &schema["items"];
        if !items.is_object() {
            return Err(format!("has at {path:?} a list without items"));
        }
        let of = Box::new(self.compile(items, &path.inner(["[]", ""]), keeps_unknown, depth + 1)?);
        let relation = match schema["x-kubernetes-list-type"].as_str() {
            None | Some("atomic") => Relation::Atomic,
            Some("set") => Relation::Set,
            Some("map") => {
                let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                let mut names: Vec<_> = names.filter_map(Value::as_str).collect();
                if names.is_empty() {
                    return Err(format!("has at {path:?} a list with keys, and names no key"));
                }
                names.sort_unstable();
                let default = |name: &str| items["properties"][name].get("default").cloned();
                Relation::Keys(names.into_iter().map(|name| (name.to_owned().into(), default(name))).collect())
            }
            Some(other) => return Err(format!("has at {path:?} the list type {other:?}")),
        };
        Ok(Type::List { of, relation })
    }
}

fn keeps_unknown_fields(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn is_atomic_map(schema: &Value, path: &Path<'_>) -> Result<bool, String> {
    match schema["x-kubernetes-map-type"].as_str() {
        None | Some("granular") => Ok(false),
        Some("atomic") => Ok(true),
        Some(other) => Err(format!("has at {path:?} the map type {other:?}")),
    }
}

/// All schemas of custom resources of a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CustomSchemas {
    /// By `GROUP/VERSION/KIND`.
    kinds: HashMap<String, Arc<CustomSchema>>,
}

impl CustomSchemas {
    /// Collects schemas.
    pub fn new(all: &[Arc<CustomSchema>]) -> Self {
        let name = |one: &CustomSchema| format!("{}/{}/{}", one.group, one.version, one.kind);
        Self { kinds: all.iter().map(|one| (name(one), Arc::clone(one))).collect() }
    }

    /// Returns true if there is a schema of the kind of this resource; of any version, for the version `*`.
    pub fn has(&self, group: &str, version: &str, resource: &str) -> bool {
        let is_it = |one: &Arc<CustomSchema>| {
            *one.group == *group && (version == "*" || *one.version == *version) && *one.resource == *resource
        };
        self.kinds.values().any(is_it)
    }

    /// Returns the type of the objects of a kind.
    pub(crate) fn type_of(&self, api_version: &str, kind: &str) -> Option<&Type> {
        self.kinds.get(&format!("{api_version}/{kind}")).map(|one| &one.of)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn compiled(schema: &Value) -> Result<CustomSchema, String> {
        CustomSchema::compile(["example.com", "v1", "widgets", "Widget"], Some(schema))
    }

    #[test]
    fn schemas_that_no_apiserver_takes_are_refused() {
        let of = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
        for (schema, why) in [
            (json!({"type": "string"}), "is not of the type object"),
            (json!(5), "is not of the type object"),
            (of(json!({"type": "text"})), "has at \".spec\" the type \"text\""),
            (of(json!({"type": "array"})), "has at \".spec\" a list without items"),
            (
                of(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
                "has at \".spec\" a list with keys, and names no key",
            ),
            (
                of(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "bag"})),
                "has at \".spec\" the list type \"bag\"",
            ),
            (of(json!({"type": "object", "x-kubernetes-map-type": "big"})), "has at \".spec\" the map type \"big\""),
        ] {
            assert_eq!(compiled(&schema).unwrap_err(), why, "{schema}");
        }
    }

    #[test]
    fn schemas_are_bounded() {
        let nested = |depth| {
            (0..depth).fold(json!({"type": "string"}), |of, _| json!({"type": "object", "additionalProperties": of}))
        };
        assert!(compiled(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(compiled(&nested(MAX_DEPTH + 2)).unwrap_err(), "is nested more than 100 deep");
        let properties = |many: usize| -> serde_json::Map<_, _> {
            (0..many).map(|at| (format!("p{at}"), json!({"type": "string"}))).collect()
        };
        let wide = |many| json!({"type": "object", "properties": properties(many)});
        assert!(compiled(&wide(MAX_TYPES)).is_ok());
        assert_eq!(compiled(&wide(MAX_TYPES + 1)).unwrap_err(), "has more than 200000 parts");
        let wrong = json!({"type": "object", "properties": {"b".repeat(1 << 20): {"type": "wrong"}}});
        let why = compiled(&wrong).unwrap_err();
        assert!(why.len() < 200 && why.starts_with("has at \".bbb"), "{} bytes", why.len());
    }

    #[test]
    fn schemas_are_found_by_resource_and_by_kind() {
        let schema = compiled(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).unwrap();
        let all = CustomSchemas::new(&[Arc::new(schema)]);
        assert!(all.has("example.com", "v1", "widgets") && all.has("example.com", "*", "widgets"));
        assert!(!all.has("example.com", "v2", "widgets") && !all.has("example.com", "v1", "gadgets"));
        let of = all.type_of("example.com/v1", "Widget").unwrap();
        assert!(of.member("a").is_some() && of.member("b").is_none() && of.member("metadata").is_some());
        assert!(all.type_of("example.com/v1", "Gadget").is_none() && all.type_of("v1", "Widget").is_none());
    }
}
