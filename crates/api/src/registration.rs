//! Registration: names and annotations of our own webhooks in an apiserver, and the segments of mutating hooks in their
//! paths; and the match condition ([`SERVED`]) of another party's webhook that Gatepost calls.

use std::fmt;

use super::HookType;

/// Label that names the owner of an object, and its value on objects that `gatepost register` prints.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gatepost");

/// Returns the suffix of the names of the webhooks that `gatepost register` writes for hooks of that type.
pub const fn webhook_suffix(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => ".validate.gatepost.dev",
        HookType::Mutating => ".mutate.gatepost.dev",
    }
}

/// Match condition (name and expression) that Gatepost adds to another party's webhook. The expression is false for
/// every request, so Gatepost calls the webhook and the apiserver does not.
/// [`AdoptionCondition`](super::AdoptionCondition) has its other expressions.
pub const SERVED: (&str, &str) = ("gatepost.dev/served", "false");

/// Expression of [`SERVED`] for a webhook whose rules match [exempt resources](super::exempt::exempt_resources). It is
/// true for these: Gatepost calls no hooks for them, so the apiserver must call the webhook.
pub const SERVED_BUT_EXEMPT: &str = "\
request.kind.group + '/' + request.kind.kind + ' ' + request.resource.group + '/' + request.resource.resource in [\
'gatepost.dev/AdmissionControlConfiguration gatepost.dev/admissioncontrolconfigurations', \
'gatepost.dev/BreakGlass gatepost.dev/breakglasses', \
'authentication.k8s.io/SelfSubjectReview authentication.k8s.io/selfsubjectreviews', \
'authentication.k8s.io/TokenReview authentication.k8s.io/tokenreviews', \
'authorization.k8s.io/LocalSubjectAccessReview authorization.k8s.io/localsubjectaccessreviews', \
'authorization.k8s.io/SelfSubjectAccessReview authorization.k8s.io/selfsubjectaccessreviews', \
'authorization.k8s.io/SelfSubjectRulesReview authorization.k8s.io/selfsubjectrulesreviews', \
'authorization.k8s.io/SubjectAccessReview authorization.k8s.io/subjectaccessreviews']";

/// Prefix of the names of match conditions by which one entry of our registration skips requests that the apiserver
/// already sends by another entry.
pub const DEDUP_CONDITION_PREFIX: &str = "sent-already-";

/// Annotation of a registration with a Service. It lists the namespaces that every entry excludes, whatever the hooks
/// select. An entry also excludes namespaces that its hooks exclude.
pub const EXCLUDED_NAMESPACES_ANNOTATION: &str = "gatepost.dev/never-sent";

/// Returns true for a name that `gatepost register` gives to webhooks.
pub fn is_our_webhook(name: &str) -> bool {
    [HookType::Validating, HookType::Mutating].into_iter().any(|hook_type| name.ends_with(webhook_suffix(hook_type)))
}

/// A group of mutating hooks that an apiserver calls by one webhook: one isolated hook, or the hooks between two
/// isolated ones. Segments are numbered from 1, in the order of the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the segment.
    pub number: u32,
    /// Number of segments.
    pub of: u32,
}

impl Segment {
    /// Splits a path that ends in a segment, such as `/segment/2/of/3`, into the path before it and the segment.
    pub fn split(path: &str) -> Option<(&str, Self)> {
        let (rest, of) = path.rsplit_once("/of/")?;
        let (rest, number) = rest.rsplit_once("/segment/")?;
        let (number, of) = (decimal(number)?, decimal(of)?);
        (1..=of).contains(&number).then_some((rest, Self { number, of }))
    }

    /// Returns true if this segment calls the hooks that are in segment `number` of `of` now. If the registration has
    /// another number of segments, its first segment calls all hooks, so that each is called once and in order.
    pub fn calls(self, number: u32, of: u32) -> bool {
        self.number == if self.of == of { number } else { 1 }
    }
}

/// Parses a number without a sign or leading zeros.
fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of } = self;
        write!(f, "/segment/{number}/of/{of}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_is_split_from_path() {
        let segment = Segment { number: 2, of: 3 };
        assert_eq!(Segment::split(&format!("/mutate{segment}")), Some(("/mutate", segment)));
        for path in [
            "/mutate",
            "/segment/0/of/3",
            "/segment/4/of/3",
            "/segment/02/of/3",
            "/segment/+1/of/3",
            "/segment//of/3",
            "/of/3",
        ] {
            assert_eq!(Segment::split(path), None, "{path}");
        }
    }

    #[test]
    fn each_hook_is_called_by_exactly_one_segment() {
        for (registered, now) in [(1, 1), (3, 3), (3, 1), (3, 5), (1, 3)] {
            for number in 1..=now {
                let calling =
                    (1..=registered).filter(|segment| Segment { number: *segment, of: registered }.calls(number, now));
                assert_eq!(calling.count(), 1, "{registered} {now} {number}");
            }
        }
    }
}
