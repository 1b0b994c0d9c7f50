//! Query parameters of a request, parsed as by kube-apiserver, and the label selector that hides objects.

use gatepost_api::initialization::PENDING_LABEL;

/// Parameter with the label selector of a LIST or WATCH.
const LABEL_SELECTOR: &str = "labelSelector";
/// Parameter of Kubernetes 1.7 to 1.13 that includes uninitialized objects.
// source: extension proposal, "includeUninitialized".
const INCLUDE_UNINITIALIZED: &str = "includeUninitialized";

/// Parameters that allow a response from an earlier revision.
const VERSIONS: [&str; 2] = ["resourceVersion", "resourceVersionMatch"];

/// Maximum number of parameters of a request whose response is inspected or changed.
const MAX_PARAMETERS: usize = 1_000;

/// Parameters of a request.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a>(&'a str);

/// One parameter, as sent and decoded.
struct Parameter<'a> {
    sent: &'a str,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Query<'a> {
    /// Creates the query from the text after the question mark.
    pub fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// Returns the parameters that Go's parser accepts. It skips the others.
    // source: Go, net/url.parseQuery.
    fn parameters(self) -> impl Iterator<Item = Parameter<'a>> {
        self.0.split('&').filter(|sent| !sent.is_empty() && !sent.contains(';')).filter_map(|sent| {
            let (key, value) = sent.split_once('=').unwrap_or((sent, ""));
            Some(Parameter { sent, key: decoded(key.as_bytes(), true)?, value: decoded(value.as_bytes(), true)? })
        })
    }

    /// Returns true if an apiserver may ignore all parameters, including ours.
    // source: Go, net/url.parseQuery: more than 10,000 (GODEBUG urlmaxqueryparams) are an error, and none is returned.
    pub fn has_too_many(self) -> bool {
        self.0.bytes().filter(|byte| *byte == b'&').count() >= MAX_PARAMETERS
    }

    /// Returns the first value of a parameter, the only one that an apiserver uses.
    pub fn first(self, key: &str) -> Option<Vec<u8>> {
        self.parameters().find(|parameter| parameter.key == key.as_bytes()).map(|parameter| parameter.value)
    }

    /// Returns a parameter as a bool: everything but `false` and `0` is true, including an empty value.
    // source: k8s.io/apimachinery/pkg/runtime/conversion.go, Convert_Slice_string_To_bool.
    fn is_true(self, key: &str) -> bool {
        self.first(key).is_some_and(|value| value != b"0" && !value.eq_ignore_ascii_case(b"false"))
    }

    /// Returns true if uninitialized objects are requested, too.
    pub fn includes_uninitialized(self) -> bool {
        self.is_true(INCLUDE_UNINITIALIZED)
    }

    /// Returns true if nothing is to be stored.
    pub fn is_dry_run(self) -> bool {
        self.first("dryRun").is_some_and(|value| !value.is_empty())
    }

    /// Returns the query without the parameter that only the proxy knows.
    pub fn without_include(self) -> String {
        self.without(&[INCLUDE_UNINITIALIZED])
    }

    /// Returns the query for the latest revision.
    pub(super) fn without_version(self) -> String {
        self.without(&VERSIONS)
    }

    /// Returns the query for initialized objects only. Our condition comes first, so that nothing in the client's
    /// selector can swallow it. The query has one selector, as an apiserver ignores any other.
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

/// Decodes a part of a URL; in a query, `+` is a space. `None` if Go rejects the part.
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

/// Appends bytes, encoded for a query or a part of a path.
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
