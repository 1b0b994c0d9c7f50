//! `should_call.json`: is a hook asked about a request, and in which version?
//!
//! An AdmissionReview holds the object in one version, and kube-apiserver converts it before it asks. So these cases
//! have two parts: the apiserver, which has this hook's rules registered and chooses the version to send, is acted here
//! by [`Caller`]; Gatepost is given what that one sends.

use gatepost_api::{Gvr, Hook, MatchPolicy, Operation, RuleTarget, Served};
use gatepost_config::{MatchKind, MatchSet, Snapshot};
use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    asking,
    reviews::{self, Three, text},
    run::{Outcome, Understood, decoded, equal},
    webhooks::validating,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    equivalence: Equivalence,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equivalence {
    /// Resources that are the same, in the order in which they were registered.
    groups: Vec<Vec<Three>>,
    /// Resource, subresource, and their kind.
    kinds: Vec<(Three, String, Three)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "id")]
    _id: String,
    match_policy: Option<String>,
    rules: Vec<Value>,
    match_conditions: Option<Conditions>,
    attributes: Attributes,
    expect_call: bool,
    expect: Option<Asked>,
    expect_error_contains: Option<String>,
}

/// Result of the hook's only condition.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Conditions {
    True,
    False,
    Error,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attributes {
    kind: Three,
    resource: Three,
    subresource: String,
    namespace: String,
    name: String,
    operation: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    kind: Three,
    resource: Three,
    subresource: String,
}

pub(crate) fn case(shared: &Value, case: &Value) -> Understood {
    let (shared, case): (Shared, Case) = (decoded(shared)?, decoded(case)?);
    if case.expect_call != case.expect.is_some() {
        return Err("not understood: a call without a resource, or the other way round".into());
    }
    Ok(Box::new(move || match case.match_conditions {
        Some(says) => conditional(&case, says),
        None => judge(&shared.equivalence, &case),
    }))
}

/// A whole decision, over a hook with such a condition.
fn conditional(case: &Case, says: Conditions) -> Outcome {
    let expression = match says {
        Conditions::True => "true",
        Conditions::False => "request.name == ''",
        Conditions::Error => "object.nothing == 1",
    };
    let conditions = json!({"matchConditions": [{"name": "says", "expression": expression}], "rules": case.rules});
    let Attributes { kind, resource, subresource, namespace, name, operation } = &case.attributes;
    let request = AdmissionRequest {
        uid: text("u"),
        kind: reviews::kind(kind),
        resource: reviews::resource(resource),
        sub_resource: text(subresource),
        name: text(name),
        namespace: text(namespace),
        operation: text(operation),
        ..Default::default()
    };
    match (asking::is_asked(&conditions, &asking::Namespaces::new(), &request), &case.expect_error_contains) {
        (Err(error), Some(part)) if error.contains(part) => Ok(()),
        (Ok(asked), None) => equal("asked", asked, case.expect_call),
        (ours, upstream) => Err(format!("ours {ours:?}, upstream {upstream:?}")),
    }
}

fn judge(equivalence: &Equivalence, case: &Case) -> Outcome {
    let snapshot = validating(
        "vectors",
        json!([{
            "name": "hook.vectors.example",
            "clientConfig": {"url": "https://127.0.0.1:1"},
            "rules": case.rules,
            // Without one, upstream's code matches exactly; the default of its API is another.
            "matchPolicy": case.match_policy.as_deref().unwrap_or("Exact"),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }]),
        Vec::new(),
    )?;
    let caller = Caller { equivalence, hook: &snapshot.hooks[0], attributes: &case.attributes };
    let as_made = Asked {
        kind: case.attributes.kind.clone(),
        resource: case.attributes.resource.clone(),
        subresource: case.attributes.subresource.clone(),
    };
    let sent = caller.sends(&as_made)?;
    equal("what the caller sends", sent.as_ref(), case.expect.as_ref())?;
    // A caller that has everything registered would send the request as it was made.
    let how = seen(&snapshot, equivalence, &case.attributes, sent.as_ref().unwrap_or(&as_made))?;
    match (sent, how) {
        (None, None) => Ok(()),
        (Some(sent), Some(MatchKind::AsMade)) => equal("as made", &sent, &as_made),
        (Some(_), Some(MatchKind::AsSent)) => Ok(()),
        (sent, how) => Err(format!("ours {how:?}, upstream {sent:?}")),
    }
}

/// Way in which Gatepost's hook matches the request when it is sent so.
fn seen(
    snapshot: &Snapshot,
    equivalence: &Equivalence,
    attributes: &Attributes,
    sent: &Asked,
) -> Result<Option<MatchKind>, String> {
    let mut served = Served::default();
    equivalence.groups.iter().flatten().for_each(|[group, version, resource]| served.add(group, version, resource));
    let review = reviews::review(AdmissionRequest {
        kind: reviews::kind(&sent.kind),
        resource: reviews::resource(&sent.resource),
        sub_resource: text(&sent.subresource),
        request_kind: reviews::kind(&attributes.kind),
        request_resource: reviews::resource(&attributes.resource),
        request_sub_resource: text(&attributes.subresource),
        name: text(&attributes.name),
        namespace: text(&attributes.namespace),
        operation: text(&attributes.operation),
        ..Default::default()
    })?;
    let mut matched = MatchSet::new();
    snapshot.matching(&review, Some(&served), &mut matched);
    Ok(matched.first().map(|matched| matched.how))
}

/// A kube-apiserver that has the hook's own rules registered. Source: `docs/reference/webhook-semantics.md` §4.
struct Caller<'a> {
    equivalence: &'a Equivalence,
    hook: &'a Hook,
    attributes: &'a Attributes,
}

impl Caller<'_> {
    /// Resource that it asks about, where it asks: the request as made, else the first equivalent one that a rule
    /// matches.
    fn sends(&self, as_made: &Asked) -> Result<Option<Asked>, String> {
        if self.rule_sees(&as_made.resource)?.is_some() {
            return Ok(Some(as_made.clone()));
        }
        if self.hook.match_policy == MatchPolicy::Exact {
            return Ok(None);
        }
        let mut first: Option<(usize, &Three)> = None;
        for resource in self.equivalent().filter(|resource| **resource != as_made.resource) {
            if let Some(rule) = self.rule_sees(resource)?
                && first.is_none_or(|(best, _)| rule < best)
            {
                first = Some((rule, resource));
            }
        }
        let Some((_, resource)) = first else { return Ok(None) };
        let kind = self.kind(resource).filter(|kind| !kind[2].is_empty());
        let kind = kind.ok_or_else(|| format!("unable to convert to {resource:?}: unknown kind"))?;
        let (kind, resource) = (kind.clone(), resource.clone());
        Ok(Some(Asked { kind, resource, subresource: as_made.subresource.clone() }))
    }

    /// The resources that serve the same, in order; only those that have the subresource.
    fn equivalent(&self) -> impl Iterator<Item = &Three> {
        let made = &self.attributes.resource;
        let group = self.equivalence.groups.iter().find(|group| group.contains(made));
        group.into_iter().flatten().filter(|resource| self.kind(resource).is_some())
    }

    fn kind(&self, resource: &Three) -> Option<&Three> {
        let mut kinds = self.equivalence.kinds.iter();
        let found = kinds.find(|(of, sub, _)| of == resource && *sub == self.attributes.subresource);
        found.map(|(_, _, kind)| kind)
    }

    /// The first rule that sees the request in this version.
    fn rule_sees(&self, [group, version, resource]: &Three) -> Result<Option<usize>, String> {
        let gvr =
            Gvr { group: group.as_str().into(), version: version.as_str().into(), resource: resource.as_str().into() };
        let target = RuleTarget {
            operation: Operation::from_name(&self.attributes.operation).ok_or("not understood: operation")?,
            resource: &gvr,
            sub_resource: &self.attributes.subresource,
            namespace: &self.attributes.namespace,
        };
        Ok(self.hook.rules.iter().position(|rule| rule.matches(&target)))
    }
}
