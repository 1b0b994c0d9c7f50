//! Plan: the part of the proxy that a request needs.

use gatepost_api::initialization::PENDING_LABEL;
use http::{HeaderMap, Method, header::CONTENT_TYPE};

use super::resources::{ProxiedResources, ResourcePath, Undecodable};

/// Content types of a server-side apply, without the encoding behind the plus.
const APPLY: &str = "application/apply-patch+";
/// Subresources of the core group that are streams, or other people's protocols: none of them shows the object.
const NOT_OBJECTS: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Part of the proxy that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// None: it passes untouched.
    Pass,
    /// LIST or WATCH: a label selector hides.
    Filter(ResourcePath),
    /// GET by name: the object in the answer decides.
    Get(ResourcePath),
    /// A write that may create an object, whose answer is held.
    Create(ResourcePath),
    /// None can be chosen: it is refused.
    Refuse(Unreadable),
}

/// Reason why a request cannot be read with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A path that others may read in another way.
    #[error("the path has an empty part, or one that is not UTF-8")]
    Path,
    /// A method that is none of the API's.
    #[error("the method is not one of the Kubernetes API")]
    Method,
}

impl ReadPlan {
    /// Plan for a request. Of a resource that is opted in, only what is known to show no unfinished object passes.
    pub fn of(method: &Method, path: &str, headers: &HeaderMap, resources: &ProxiedResources) -> Self {
        let path = match ResourcePath::parse(path) {
            Ok(Some(path)) => path,
            Ok(None) => return Self::Pass,
            Err(Undecodable) => return Self::Refuse(Unreadable::Path),
        };
        if !resources.has(&path) {
            // Behind another resource's name a path is its own affair, as behind `services/web/proxy`.
            let is_unclear = path.is_ambiguous && path.resource.is_empty() && resources.has_group(&path.group);
            return if is_unclear { Self::Refuse(Unreadable::Path) } else { Self::Pass };
        }
        if path.is_ambiguous {
            return Self::Refuse(Unreadable::Path);
        }
        // source: kubernetes/apiserver pkg/endpoints/request/requestinfo.go: the prefix is the verb, whatever the method.
        // kube-apiserver's handler of custom resources goes by that alone.
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
            // A name in the path counts for nothing: a custom resource is created all the same.
            Method::POST if is_object => Self::Create(path),
            Method::PUT if is_object => Self::Create(path),
            Method::PATCH if is_object && is_apply(headers) => Self::Create(path),
            // Answers to writes are not looked at; deletions, of all objects as well: a namespace must become empty.
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => Self::Pass,
            // It asks what others may do, and gets no object.
            Method::OPTIONS => Self::Pass,
            _ => Self::Refuse(Unreadable::Method),
        }
    }
}

fn is_apply(headers: &HeaderMap) -> bool {
    let form = headers.get(CONTENT_TYPE).and_then(|form| form.to_str().ok()).unwrap_or_default();
    form.trim_start().get(..APPLY.len()).is_some_and(|form| form.eq_ignore_ascii_case(APPLY))
}

/// Label selector of a LIST or WATCH.
const LABEL_SELECTOR: &str = "labelSelector";
/// The parameter of Kubernetes 1.7 to 1.13 that asks for objects that are not initialized as well.
// source: extension proposal, "includeUninitialized".
const INCLUDE_UNINITIALIZED: &str = "includeUninitialized";

/// The parameters by which an answer may be of the past.
const VERSIONS: [&str; 2] = ["resourceVersion", "resourceVersionMatch"];

/// The most parameters of a request whose answer is looked at, or changed.
const MOST_PARAMETERS: usize = 1_000;

/// Parameters of a request.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a>(&'a str);

/// One parameter: as it was sent, and decoded.
struct Parameter<'a> {
    sent: &'a str,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Query<'a> {
    /// Parameters behind the question mark.
    pub fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// Parameters that Go's parser takes; it passes by the others.
    // source: Go, net/url.parseQuery.
    fn parameters(self) -> impl Iterator<Item = Parameter<'a>> {
        self.0.split('&').filter(|sent| !sent.is_empty() && !sent.contains(';')).filter_map(|sent| {
            let (key, value) = sent.split_once('=').unwrap_or((sent, ""));
            Some(Parameter { sent, key: decoded(key.as_bytes(), true)?, value: decoded(value.as_bytes(), true)? })
        })
    }

    /// True where an apiserver may leave out all of them, ours too.
    // source: Go, net/url.parseQuery: more than 10,000 (GODEBUG urlmaxqueryparams) are an error, and then there are none.
    pub fn has_too_many(self) -> bool {
        self.0.bytes().filter(|byte| *byte == b'&').count() >= MOST_PARAMETERS
    }

    /// First value of a parameter: an apiserver looks at no other.
    pub fn first(self, key: &str) -> Option<Vec<u8>> {
        self.parameters().find(|parameter| parameter.key == key.as_bytes()).map(|parameter| parameter.value)
    }

    /// Truth of a parameter: everything but `false` and `0` is true, also nothing behind the key.
    // source: k8s.io/apimachinery/pkg/runtime/conversion.go, Convert_Slice_string_To_bool.
    fn is_true(self, key: &str) -> bool {
        self.first(key).is_some_and(|value| value != b"0" && !value.eq_ignore_ascii_case(b"false"))
    }

    /// True where objects that are not initialized are asked for as well.
    pub fn includes_uninitialized(self) -> bool {
        self.is_true(INCLUDE_UNINITIALIZED)
    }

    /// True where nothing is to be stored.
    pub fn is_dry_run(self) -> bool {
        self.first("dryRun").is_some_and(|value| !value.is_empty())
    }

    /// The same query without the parameter that only we know.
    pub fn without_include(self) -> String {
        self.without(&[INCLUDE_UNINITIALIZED])
    }

    /// The same query for the present.
    pub(super) fn without_version(self) -> String {
        self.without(&VERSIONS)
    }

    /// The same query for objects that are initialized. The condition comes first, so that nothing in the client's
    /// selector can swallow it; there is one selector, so that no other is looked at.
    pub fn initialized_only(self) -> String {
        let mut query = self.without(&[INCLUDE_UNINITIALIZED, LABEL_SELECTOR]);
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(LABEL_SELECTOR);
        query.push_str("=%21");
        encode(PENDING_LABEL.as_bytes(), &mut query);
        let theirs = self.first(LABEL_SELECTOR).unwrap_or_default();
        if !theirs.trim_ascii().is_empty() {
            encode(b",", &mut query);
            encode(&theirs, &mut query);
        }
        query
    }

    fn without(self, keys: &[&str]) -> String {
        let kept = self.parameters().filter(|one| !keys.iter().any(|key| one.key == key.as_bytes()));
        kept.map(|one| one.sent).collect::<Vec<_>>().join("&")
    }
}

/// Bytes of a part of a URL; in a query `+` stands for a space. `None` where Go refuses it.
pub(super) fn decoded(text: &[u8], in_query: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(*digit).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if in_query => b' ',
            byte => byte,
        });
    }
    Some(bytes)
}

/// Writes bytes as a query, or a part of a path, may hold them.
pub(super) fn encode(bytes: &[u8], query: &mut String) {
    for &byte in bytes {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => query.push(byte.into()),
            false => query.push_str(&format!("%{byte:02X}")),
        }
    }
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

#[cfg(test)]
mod query_tests {
    use super::*;

    /// The label selector that an apiserver reads, and the query without it.
    fn hiding(query: &str) -> (String, String) {
        let rewritten = Query::new(Some(query)).initialized_only();
        let read = Query::new(Some(&rewritten));
        assert_eq!(read.parameters().filter(|one| one.key == b"labelSelector").count(), 1, "{rewritten}");
        let selector = String::from_utf8(read.first("labelSelector").unwrap()).unwrap();
        (selector, read.without(&["labelSelector"]))
    }

    #[test]
    fn the_condition_is_added_to_the_selector_that_counts() {
        const HIDES: &str = "!init.gatepost.dev/pending";
        for (query, theirs, others) in [
            ("", "", ""),
            ("limit=500&continue=abc%3D", "", "limit=500&continue=abc%3D"),
            ("watch=1&labelSelector=app%3Dweb", ",app=web", "watch=1"),
            ("labelSelector=a+in+%28x%2Cy%29&watch=1", ",a in (x,y)", "watch=1"),
            ("labelSelector=&watch", "", "watch"),
            ("labelSelector=%20", "", ""),
            // Only the first counts, by whatever letters it is written.
            ("label%53elector=a&labelSelector=b", ",a", ""),
            // Go passes by what it cannot read, and by semicolons.
            ("labelSelector=%zz&labelSelector=b", ",b", ""),
            ("labelSelector=a;x&labelSelector=b", ",b", ""),
            // A selector that would swallow a condition behind it.
            ("labelSelector=a+in+(b", ",a in (b", ""),
            (
                "fieldSelector=metadata.name%3Da&sendInitialEvents=true",
                "",
                "fieldSelector=metadata.name%3Da&sendInitialEvents=true",
            ),
            ("includeUninitialized=true&limit=1", "", "limit=1"),
        ] {
            assert_eq!(hiding(query), (format!("{HIDES}{theirs}"), others.to_owned()), "{query}");
        }
    }

    #[test]
    fn a_parameter_is_true_as_an_apiserver_takes_it() {
        for (query, includes) in [
            ("includeUninitialized=true", true),
            ("includeUninitialized", true),
            ("includeUninitialized=1", true),
            ("includeUninitialized=False", false),
            ("includeUninitialized=0&includeUninitialized=1", false),
            ("x=includeUninitialized", false),
        ] {
            assert_eq!(Query::new(Some(query)).includes_uninitialized(), includes, "{query}");
        }
        assert!(!Query::new(None).includes_uninitialized());
        assert!(Query::new(Some("dryRun=All")).is_dry_run() && !Query::new(Some("dryRun=")).is_dry_run());
        assert_eq!(Query::new(Some("a=1&includeUninitialized=true&b")).without_include(), "a=1&b");
        assert_eq!(Query::new(Some("resource%56ersion=0&a=1&resourceVersion=1")).without_version(), "a=1");
    }
}
