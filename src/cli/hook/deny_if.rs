//! DenyIf: a condition on a review, as typed on the command line.

use std::str::FromStr;

use crate::wire::pb::k8s::io::api::admission::v1::AdmissionRequest;

/// A condition on a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DenyIf {
    /// Every review.
    Always,
    /// The value at a place is like this.
    Like(Location, Pattern),
}

/// Location in the object to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Field(Field),
    /// A JSON pointer (RFC 6901) into the object, or into the old one where there is no object.
    Pointer(String),
}

/// A field of the review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Operation,
    Kind,
    Group,
    Resource,
    Subresource,
    Namespace,
    Name,
    User,
}

/// A text, with `*` at either end standing for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    open_start: bool,
    open_end: bool,
    text: String,
}

impl Pattern {
    fn new(pattern: &str) -> Self {
        let open_start = pattern.starts_with('*');
        let open_end = pattern.len() > 1 && pattern.ends_with('*');
        let text = pattern.strip_prefix('*').unwrap_or(pattern);
        let text = if open_end { text.strip_suffix('*').unwrap_or(text) } else { text };
        Self { open_start, open_end, text: text.to_owned() }
    }

    fn matches(&self, value: &str) -> bool {
        match (self.open_start, self.open_end) {
            (false, false) => value == self.text,
            (true, false) => value.ends_with(&self.text),
            (false, true) => value.starts_with(&self.text),
            (true, true) => value.contains(&self.text),
        }
    }
}

impl FromStr for DenyIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "always" {
            return Ok(Self::Always);
        }
        let (place, pattern) = text.split_once('=').ok_or("must be `always` or PLACE=VALUE")?;
        let field = match place {
            pointer if pointer.starts_with('/') => {
                return Ok(Self::Like(Location::Pointer(pointer.to_owned()), Pattern::new(pattern)));
            }
            "operation" => Field::Operation,
            "kind" => Field::Kind,
            "group" => Field::Group,
            "resource" => Field::Resource,
            "subresource" => Field::Subresource,
            "namespace" => Field::Namespace,
            "name" => Field::Name,
            "user" => Field::User,
            other => {
                return Err(format!(
                    "{other:?} is not a place; use operation, kind, group, resource, subresource, namespace, name, user, \
                     or a JSON pointer such as /metadata/name"
                ));
            }
        };
        Ok(Self::Like(Location::Field(field), Pattern::new(pattern)))
    }
}

impl std::fmt::Display for DenyIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Like(place, Pattern { open_start, open_end, text }) => {
                match place {
                    Location::Field(field) => write!(f, "{}", format!("{field:?}").to_lowercase())?,
                    Location::Pointer(pointer) => f.write_str(pointer)?,
                }
                let star = |open: bool| if open { "*" } else { "" };
                write!(f, "={}{text}{}", star(*open_start), star(*open_end))
            }
        }
    }
}

impl DenyIf {
    /// Does the request meet it? A place that does not exist counts as the empty text; an object that is not JSON has
    /// no places.
    pub(super) fn met_by(&self, request: &AdmissionRequest) -> bool {
        match self {
            Self::Always => true,
            Self::Like(Location::Field(field), pattern) => pattern.matches(field.of(request)),
            Self::Like(Location::Pointer(pointer), pattern) => {
                let raw =
                    request.object.as_ref().or(request.old_object.as_ref()).and_then(|object| object.raw.as_ref());
                let object: serde_json::Value =
                    raw.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
                match object.pointer(pointer) {
                    None | Some(serde_json::Value::Null) => pattern.matches(""),
                    Some(serde_json::Value::String(text)) => pattern.matches(text),
                    Some(other) => pattern.matches(&other.to_string()),
                }
            }
        }
    }
}

impl Field {
    fn of(self, request: &AdmissionRequest) -> &str {
        let resource = request.resource.as_ref();
        match self {
            Self::Operation => request.operation.as_deref(),
            Self::Kind => request.kind.as_ref().and_then(|kind| kind.kind.as_deref()),
            Self::Group => resource.and_then(|resource| resource.group.as_deref()),
            Self::Resource => resource.and_then(|resource| resource.resource.as_deref()),
            Self::Subresource => request.sub_resource.as_deref(),
            Self::Namespace => request.namespace.as_deref(),
            Self::Name => request.name.as_deref(),
            Self::User => request.user_info.as_ref().and_then(|user| user.username.as_deref()),
        }
        .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::pb::k8s::io::apimachinery::pkg::runtime::RawExtension;

    #[test]
    fn conditions_look_where_they_say() {
        let object =
            br#"{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"web:latest"}],"replicas":3}}"#;
        let request = AdmissionRequest {
            operation: Some("CREATE".into()),
            namespace: Some("shop".into()),
            object: Some(RawExtension { raw: Some(bytes::Bytes::from_static(object)) }),
            ..Default::default()
        };
        for (condition, met) in [
            ("always", true),
            ("operation=CREATE", true),
            ("operation=DELETE", false),
            ("namespace=sh*", true),
            ("name=", true),
            ("/spec/containers/0/image=*:latest", true),
            ("/spec/containers/1/image=*:latest", false),
            ("/metadata/labels/team=", true),
            ("/metadata/labels/app=*e*", true),
            ("/spec/replicas=3", true),
            ("/spec/replicas=*", true),
        ] {
            let parsed: DenyIf = condition.parse().expect("a condition");
            assert_eq!(parsed.to_string(), condition);
            assert_eq!(parsed.met_by(&request), met, "{condition}");
        }
        assert!("nonsense".parse::<DenyIf>().is_err());
        assert!("colour=red".parse::<DenyIf>().is_err());
    }
}
