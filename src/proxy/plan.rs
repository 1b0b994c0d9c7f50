//! Plan: the part of the proxy that a request needs.

use http::{HeaderMap, Method, header::CONTENT_TYPE};

use super::{path::ResourcePath, resources::Resources};

/// Content types of a server-side apply, without the encoding behind the plus.
const APPLY: &str = "application/apply-patch+";
/// Subresources that are streams, or other people's protocols: none of them shows the object.
const NOT_OBJECTS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Part of the proxy that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// None: it passes untouched.
    Pass,
    /// LIST or WATCH: a label selector hides.
    Filter(ResourcePath),
    /// GET by name: the object in the answer decides.
    Get(ResourcePath),
    /// A write that may create an object, whose answer is held.
    Create(ResourcePath),
}

impl Plan {
    /// Plan for a request.
    pub fn of(method: &Method, path: &str, headers: &HeaderMap, resources: &Resources) -> Self {
        let Some(path) = ResourcePath::parse(path).filter(|path| resources.has(path)) else { return Self::Pass };
        let is_object = path.name.is_some() && path.subresource.is_none();
        match *method {
            Method::GET | Method::HEAD if path.watch || path.name.is_none() => Self::Filter(path),
            Method::GET | Method::HEAD => match path.subresource.as_deref() {
                Some(subresource) if NOT_OBJECTS.contains(&subresource) => Self::Pass,
                _ => Self::Get(path),
            },
            _ if path.watch => Self::Pass,
            Method::POST if path.name.is_none() => Self::Create(path),
            Method::PUT if is_object => Self::Create(path),
            Method::PATCH if is_object && is_apply(headers) => Self::Create(path),
            // Deletions, of all objects as well: a namespace must become empty.
            _ => Self::Pass,
        }
    }
}

fn is_apply(headers: &HeaderMap) -> bool {
    let form = headers.get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).unwrap_or_default();
    form.trim_start().get(..APPLY.len()).is_some_and(|form| form.eq_ignore_ascii_case(APPLY))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn plan(method: &str, path: &str, form: &'static str) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
        let resources = Resources::parse(["configmaps", "widgets.example.com"]).unwrap();
        match Plan::of(&method.parse().unwrap(), path, &headers, &resources) {
            Plan::Pass => "pass",
            Plan::Filter(_) => "filter",
            Plan::Get(_) => "get",
            Plan::Create(_) => "create",
        }
    }

    #[test]
    fn each_request_gets_what_it_needs() {
        const ALL: &str = "/api/v1/namespaces/shop/configmaps";
        const ONE: &str = "/api/v1/namespaces/shop/configmaps/a";
        const WIDGET: &str = "/apis/example.com/v1/namespaces/shop/widgets/w";
        for (method, path, form, wanted) in [
            ("GET", ALL, "", "filter"),
            ("GET", "/api/v1/configmaps", "", "filter"),
            ("GET", "/api/v1/watch/configmaps", "", "filter"),
            ("GET", "/api/v1/watch/namespaces/shop/configmaps/a", "", "filter"),
            ("GET", ONE, "", "get"),
            ("GET", &*format!("{WIDGET}/status"), "", "get"),
            ("GET", &*format!("{WIDGET}/scale"), "", "get"),
            ("GET", &*format!("{WIDGET}/proxy"), "", "pass"),
            ("POST", ALL, "application/json", "create"),
            ("POST", &*format!("{WIDGET}/token"), "application/json", "pass"),
            ("PUT", ONE, "application/json", "create"),
            ("PUT", &*format!("{WIDGET}/status"), "application/json", "pass"),
            ("PATCH", ONE, "application/apply-patch+yaml", "create"),
            ("PATCH", ONE, "application/apply-patch+cbor", "create"),
            ("PATCH", ONE, "application/merge-patch+json", "pass"),
            ("DELETE", ONE, "", "pass"),
            ("DELETE", ALL, "", "pass"),
            ("GET", "/api/v1/namespaces/shop/secrets", "", "pass"),
            ("POST", "/api/v1/namespaces/shop/pods", "", "pass"),
            ("GET", "/apis/other.example.com/v1/widgets", "", "pass"),
            ("GET", "/api/v1", "", "pass"),
            ("GET", "/version", "", "pass"),
        ] {
            assert_eq!(plan(method, path, form), wanted, "{method} {path}");
        }
    }
}
