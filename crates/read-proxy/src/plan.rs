//! Plan: how the proxy handles a request.

use http::{HeaderMap, Method, header::CONTENT_TYPE};

use super::resources::{ProxiedResources, ResourcePath, Undecodable};

/// Prefix of the content types of a server-side apply, up to the plus before the encoding.
const APPLY: &str = "application/apply-patch+";
/// Subresources of the core group that are streams or other protocols: none of them shows the object.
const NOT_OBJECTS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// How the proxy handles a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// Passes the request unchanged.
    Pass,
    /// LIST or WATCH: adds a label selector that hides objects.
    Filter(ResourcePath),
    /// GET by name: inspects the object in the response.
    Get(ResourcePath),
    /// A write that may create an object: holds its response.
    Create(ResourcePath),
    /// Refuses the request, as no plan is certain.
    Refuse(Unreadable),
}

/// Reason why a request cannot be interpreted with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Others may parse the path differently.
    #[error("the path has an empty part, or one that is not UTF-8")]
    Path,
    /// The method does not belong to the API.
    #[error("the method is not one of the Kubernetes API")]
    Method,
}

impl ReadPlan {
    /// Returns the plan for a request. On an opted-in resource, passes only requests that show no uninitialized object.
    pub fn of(method: &Method, path: &str, headers: &HeaderMap, resources: &ProxiedResources) -> Self {
        let path = match ResourcePath::parse(path) {
            Ok(Some(path)) => path,
            Ok(None) => return Self::Pass,
            Err(Undecodable) => return Self::Refuse(Unreadable::Path),
        };
        if !resources.has(&path) {
            // The path after another resource's name does not matter here, such as after `services/web/proxy`.
            let is_unclear = path.is_ambiguous && path.resource.is_empty() && resources.has_group(&path.group);
            return if is_unclear { Self::Refuse(Unreadable::Path) } else { Self::Pass };
        }
        if path.is_ambiguous {
            return Self::Refuse(Unreadable::Path);
        }
        // source: kubernetes/apiserver pkg/endpoints/request/requestinfo.go: the prefix is the verb, whatever the
        // method. kube-apiserver's handler of custom resources uses that verb alone.
        if path.watch {
            return Self::Filter(path);
        }
        let is_object = path.subresource.is_none();
        match *method {
            Method::GET | Method::HEAD if path.name.is_none() => Self::Filter(path),
            Method::GET | Method::HEAD => match path.subresource.as_deref() {
                Some(subresource) if path.group.is_empty() && NOT_OBJECTS.contains(&subresource) => Self::Pass,
                _ => Self::Get(path),
            },
            // A name in the path is ignored: a custom resource is created nevertheless.
            Method::POST if is_object => Self::Create(path),
            Method::PUT if is_object => Self::Create(path),
            Method::PATCH if is_object && is_apply(headers) => Self::Create(path),
            // Responses to writes are not inspected. DELETE passes, even of all objects: a namespace must become empty.
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => Self::Pass,
            // A CORS preflight gets no object.
            Method::OPTIONS => Self::Pass,
            _ => Self::Refuse(Unreadable::Method),
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
        let resources = ProxiedResources::parse(["configmaps", "widgets.example.com"]).unwrap();
        match ReadPlan::of(&method.parse().unwrap(), path, &headers, &resources) {
            ReadPlan::Pass => "pass",
            ReadPlan::Filter(_) => "filter",
            ReadPlan::Get(_) => "get",
            ReadPlan::Create(_) => "create",
            ReadPlan::Refuse(_) => "refuse",
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
            ("GET", "/api/v1/namespaces/shop/configmaps/a/proxy", "", "pass"),
            ("GET", &*format!("{WIDGET}/proxy"), "", "get"),
            ("GET", "/api/v1/namespaces/shop/configmaps/a/proxy/b//%FF", "", "pass"),
            ("GET", &*format!("{WIDGET}/status//%FF"), "", "get"),
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
            // The prefix is a watch, whatever the method.
            ("POST", "/apis/example.com/v1/watch/widgets", "", "filter"),
            ("PUT", "/apis/example.com/v1/watch/widgets", "", "filter"),
            ("PATCH", "/apis/example.com/v1/watch/widgets/w", "application/apply-patch+yaml", "filter"),
            ("DELETE", "/apis/example.com/v1/watch/namespaces/shop/widgets", "", "filter"),
            ("BREW", "/apis/example.com/v1/watch/widgets", "", "filter"),
            // A name in the path counts for nothing.
            ("POST", WIDGET, "application/json", "create"),
            // An apiserver may read these in another way.
            ("GET", &*format!("{WIDGET}//%FF"), "", "refuse"),
            ("GET", "/apis/example.com/v1/namespaces/shop/widgets///%FF", "", "refuse"),
            ("GET", "/apis/example.com/v1/namespaces/shop/widgets//w", "", "refuse"),
            ("GET", "/apis/example.com/v1/namespaces//widgets/w", "", "refuse"),
            ("GET", "/apis/example.com/v1/namespaces/%FF/widgets/w", "", "refuse"),
            ("POST", "/apis/example.com/v1/namespaces/shop/widgets//w", "", "refuse"),
            ("DELETE", "/apis/example.com/v1/namespaces/shop/widgets//w", "", "refuse"),
            ("GET", "/apis/example.com/v1/proxy/namespaces/shop/widgets/w", "", "refuse"),
            ("GET", "/apis/example.com/v1/namespaces/shop//widgets", "", "refuse"),
            ("GET", "/apis/example.com/v1/%zz", "", "refuse"),
            ("BREW", WIDGET, "", "refuse"),
            ("OPTIONS", WIDGET, "", "pass"),
            // Other people's paths.
            ("GET", "/api/v1/namespaces/shop/services/web/proxy/a//%FF", "", "pass"),
            ("GET", "/apis/other.example.com/v1/namespaces//widgets//w", "", "pass"),
            ("GET", "/api/v1/proxy/namespaces/shop/pods/p", "", "pass"),
        ] {
            assert_eq!(plan(method, path, form), wanted, "{method} {path}");
        }
    }
}
