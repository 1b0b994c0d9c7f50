//! Query: what a URL asks for.

use std::collections::HashMap;

use crate::{kind::Kind, object::Object};

/// A path below `/api/v1`.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    /// "" for all.
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix("/api/v1/")?.split('/').collect();
        let (namespace, resource, name) = match parts[..] {
            ["namespaces", namespace, resource] => (namespace, resource, ""),
            ["namespaces", namespace, resource, name] => (namespace, resource, name),
            [resource] => ("", resource, ""),
            [resource, name] => ("", resource, name),
            _ => return None,
        };
        Some(Self { kind: Kind::of(resource)?, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// The parameters.
pub(crate) struct Parameters(HashMap<String, String>);

impl Parameters {
    pub(crate) fn of(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(key, value)| (key.to_owned(), decoded(value))).collect())
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1")
    }
}

/// `%XX` and `+`; what is broken stays as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &behind[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
        rest = behind;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Objects that a LIST or WATCH is about: `KEY=VALUE` of labels, and `metadata.name=NAME`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) namespace: String,
    labels: Vec<(String, String)>,
    name: Option<String>,
}

impl Selection {
    pub(crate) fn of(namespace: &str, parameters: &Parameters) -> Self {
        let pairs = |key| parameters.get(key).split(',').filter_map(|pair| pair.split_once('=')).collect::<Vec<_>>();
        let labels = pairs("labelSelector")
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned()));
        let name = pairs("fieldSelector").into_iter().find(|(key, _)| *key == "metadata.name");
        Self { namespace: namespace.to_owned(), labels: labels.collect(), name: name.map(|(_, name)| name.to_owned()) }
    }

    pub(crate) fn has(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.place.namespace)
            && self.name.as_ref().is_none_or(|name| *name == object.place.name)
            && self.labels.iter().all(|(key, value)| object.json["metadata"]["labels"][key] == value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_kind_a_namespace_and_an_object() {
        let of = |path| Target::of(path).map(|target| (target.kind.kind, target.namespace, target.name));
        let pod = |namespace: &str, name: &str| Some(("Pod", namespace.to_owned(), name.to_owned()));
        assert_eq!(of("/api/v1/namespaces/shop/pods/web"), pod("shop", "web"));
        assert_eq!(of("/api/v1/pods"), pod("", ""));
        assert_eq!(of("/api/v1/namespaces/shop"), Some(("Namespace", String::new(), "shop".to_owned())));
        assert_eq!(
            (of("/api/v1/secrets"), of("/apis/apps/v1/deployments"), of("/api/v1/pods/a/b/c/d")),
            (None, None, None)
        );
    }

    #[test]
    fn parameters_are_decoded() {
        let parameters =
            Parameters::of("labelSelector=a%3Db%2Cc%3D%3Dd&fieldSelector=metadata.name%3Dweb&watch=1&bad=%zz");
        assert_eq!((parameters.get("labelSelector"), parameters.get("bad")), ("a=b,c==d", "%zz"));
        assert!(parameters.is_true("watch") && !parameters.is_true("dryRun"));
        let selection = Selection::of("", &parameters);
        assert_eq!(selection.labels, [("a".into(), "b".into()), ("c".into(), "d".into())]);
        assert_eq!(selection.name.as_deref(), Some("web"));
    }
}
