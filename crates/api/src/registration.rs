//! Registration: our own entries with an apiserver, and the requests that their paths ask for.

use std::fmt;

use super::HookType;

/// Label of whom an object belongs to, and its value on what `gatepost register` prints.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gatepost");

/// Ending of the names of the webhooks that `gatepost register` writes for hooks of that type.
pub const fn our_webhooks(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => ".validate.gatepost.dev",
        HookType::Mutating => ".mutate.gatepost.dev",
    }
}

/// Match condition, its name and its expression, of a webhook of others that Gatepost calls in the apiserver's place: the
/// apiserver does not. [`ServedCondition`](super::ServedCondition) has its other expressions.
pub const SERVED: (&str, &str) = ("gatepost.dev/served", "false");

/// Its expression for a webhook whose rules match resources about which Gatepost asks no hook: about these the apiserver
/// goes on calling it.
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

/// Prefix of the names of match conditions by which an entry of our registration leaves requests to another one.
pub const SENT_ALREADY: &str = "sent-already-";

/// Annotation of a registration that leads to a Service: namespaces that it leaves out whatever the hooks want. Its entries
/// leave out others as well that their hooks leave out.
pub const NEVER_SENT: &str = "gatepost.dev/never-sent";

/// Is it the name of such a webhook?
pub fn is_our_webhook(name: &str) -> bool {
    [HookType::Validating, HookType::Mutating].into_iter().any(|hook_type| name.ends_with(our_webhooks(hook_type)))
}

/// Mutating hooks that an apiserver asks about by one webhook: those between two isolated ones, or an isolated one.
/// Segments are counted in the order of the hooks, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number.
    pub number: u32,
    /// Number of segments.
    pub of: u32,
}

impl Segment {
    /// The end of a path, such as `/segment/2/of/3`, and what stands before it.
    pub fn split(path: &str) -> Option<(&str, Self)> {
        let (rest, of) = path.rsplit_once("/of/")?;
        let (rest, number) = rest.rsplit_once("/segment/")?;
        let (number, of) = (decimal(number)?, decimal(of)?);
        (1..=of).contains(&number).then_some((rest, Self { number, of }))
    }

    /// Is a hook asked by this segment, that is in segment `number` of `of` now? Where the configuration has other
    /// segments than the registration, the first is asked for all, so that each hook is asked once and in order.
    pub fn asks(self, number: u32, of: u32) -> bool {
        self.number == if self.of == of { number } else { 1 }
    }
}

/// A number as it is printed: without a sign or leading zeros.
fn decimal(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, of } = self;
        write!(f, "/segment/{number}/of/{of}")
    }
}

/// A DNS-1123 label: lower-case letters, digits and `-`, at most 63, a letter or digit at both ends.
// source: k8s.io/apimachinery/pkg/util/validation, IsDNS1123Label.
pub fn is_dns_label(name: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    name.len() <= 63
        && [bytes.first(), bytes.last()].iter().all(|end| end.is_some_and(plain))
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_the_end_of_a_path() {
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
    fn each_hook_is_asked_by_one_segment_whatever_has_changed_since_they_were_registered() {
        for (registered, now) in [(1, 1), (3, 3), (3, 1), (3, 5), (1, 3)] {
            for number in 1..=now {
                let asked =
                    (1..=registered).filter(|segment| Segment { number: *segment, of: registered }.asks(number, now));
                assert_eq!(asked.count(), 1, "{registered} {now} {number}");
            }
        }
    }
}
