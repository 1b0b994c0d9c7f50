use gatepost_cel::Condition;

use super::*;
use crate::{Operation, registration::SERVED_BUT_EXEMPT};

/// Group, resource and kind.
type About = (&'static str, &'static str, &'static str);

/// A request made about one thing and sent about another.
fn review(made: Option<About>, sent: About) -> Review {
    let kind = |(group, _, kind): About| Gvk { group: group.into(), version: "v7".into(), kind: kind.into() };
    let resource =
        |(group, resource, _): About| Gvr { group: group.into(), version: "v7".into(), resource: resource.into() };
    Review {
        request_kind: made.map(kind),
        request_resource: made.map(resource),
        ..Review::bare(Operation::Update, kind(sent), resource(sent))
    }
}

const EXEMPT: [(About, Eligibility); 14] = [
    (("gatepost.dev", "admissioncontrolconfigurations", "AdmissionControlConfiguration"), Eligibility::OwnConfig),
    (("gatepost.dev", "breakglasses", "BreakGlass"), Eligibility::OwnConfig),
    ((REGISTRATION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"), Eligibility::Exempt),
    ((REGISTRATION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"), Eligibility::Exempt),
    ((REGISTRATION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"), Eligibility::Exempt),
    ((REGISTRATION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"), Eligibility::Exempt),
    ((REGISTRATION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy"), Eligibility::Exempt),
    ((REGISTRATION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"), Eligibility::Exempt),
    (("authentication.k8s.io", "tokenreviews", "TokenReview"), Eligibility::Exempt),
    (("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"), Eligibility::Exempt),
    (("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"), Eligibility::Exempt),
    (("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview"), Eligibility::Exempt),
    (("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"), Eligibility::Exempt),
    (("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"), Eligibility::Exempt),
];
const POD: About = ("", "pods", "Pod");

#[test]
fn served_condition_lists_exactly_the_exempt_resources() {
    let all = exempt_resources().map(|(group, resource, kind)| format!("'{group}/{kind} {group}/{resource}'"));
    let list = all.collect::<Vec<_>>().join(", ");
    assert!(SERVED_BUT_EXEMPT.ends_with(&format!(" in [{list}]")), "{list}");
    Condition::compile("gatepost.dev/served", SERVED_BUT_EXEMPT).unwrap();
    let upstream = |about: &&(About, Eligibility)| about.0.0 != REGISTRATION;
    assert_eq!(EXEMPT.iter().filter(upstream).count(), exempt_resources().count());
}

#[test]
fn our_configuration_admissions_and_virtual_resources_are_exempt_in_any_version() {
    for (about, expected) in EXEMPT {
        for made in [None, Some(about)] {
            assert_eq!(eligibility(&review(made, about), false), expected, "{about:?}");
        }
        let with_static_hooks = if about.0 == REGISTRATION { Eligibility::Eligible } else { expected };
        assert_eq!(eligibility(&review(None, about), true), with_static_hooks, "{about:?}");
    }
}

/// A rule that names an exempt kind beside a pod, or the other way round, is judged as one about the pod.
#[test]
fn exempt_kind_or_resource_alone_is_not_exempt() {
    for (about, _) in EXEMPT {
        let (group, resource, kind) = about;
        let mixed = |kind_of: About, resource_of: About| {
            let (one, other) = (review(None, kind_of), review(None, resource_of));
            Review { resource: other.resource, ..one }
        };
        for not in [
            mixed(about, POD),
            mixed(POD, about),
            review(None, (group, "pods", kind)),
            review(None, (group, resource, "Pod")),
            review(None, ("", resource, kind)),
            review(None, ("example.com", resource, kind)),
            review(Some(POD), about),
            review(Some(about), POD),
            Review { request_kind: Some(review(None, about).kind), ..review(None, POD) },
            Review { request_resource: Some(review(None, about).resource), ..review(None, POD) },
            Review { request_kind: Some(review(None, POD).kind), ..review(None, about) },
            Review { request_resource: Some(review(None, POD).resource), ..review(None, about) },
        ] {
            assert_eq!(eligibility(&not, false), Eligibility::Eligible, "{not:?}");
        }
    }
    // Two exempt ones that are not the same.
    let crossed = review(Some(EXEMPT[0].0), EXEMPT[1].0);
    assert_eq!(eligibility(&crossed, false), Eligibility::Eligible);
}

#[test]
fn other_resources_in_our_group_are_eligible() {
    for (resource, kind) in [("widgets", "Widget"), ("breakglasses", "Widget"), ("widgets", "BreakGlass")] {
        assert_eq!(
            eligibility(&review(None, (OUR_GROUP, resource, kind)), false),
            Eligibility::Eligible,
            "{resource} {kind}"
        );
    }
}
