//! Evaluation: what each policy makes of a request, for reports. The verdict of a test comes from the whole decision.

use std::{
    cell::Cell,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost_api::{HookType, Labels, Review, Rope, Selector};
use gatepost_cel::{AccessDecisions, Allowance, Input, JsonDocument, Request, User};
use gatepost_config::{MatchSet, Snapshot};
use gatepost_json_patch::Document;
use gatepost_policy::{
    Binding, Bound, Explanation, MatchResources, MutationLimits, Outcome, PARAMS_NOT_FOUND, ParamRef, ParamSelector,
    Policy, Suspended, decide, explain, mutate,
};
use serde_json::Value;

use super::cluster::{FixtureCluster, labels_of, text_at};
use crate::live::cluster_objects::{ObjectQuery, ParamSelection};

/// What one policy makes of a request.
#[derive(Debug)]
pub(super) struct PolicyReport {
    /// Name of the policy.
    pub(super) name: Arc<str>,
    /// Type of the policy.
    pub(super) hook_type: HookType,
    /// Number of bindings that match the request.
    pub(super) bindings: usize,
    /// True if match conditions exclude the request.
    pub(super) is_excluded: bool,
    /// Cost in the units of kube-apiserver.
    pub(super) cost: u64,
    /// Steps, as the evaluation counts them against its bound.
    pub(super) steps: u64,
    /// Time of the evaluation, with its explanations if there are any.
    pub(super) took: Duration,
    /// Explanations of the expressions that are not true.
    pub(super) explanations: Vec<Explanation>,
}

/// Request of a test, with everything that policies read.
#[derive(Clone, Copy, Debug)]
struct EvaluatedRequest<'a> {
    review: &'a Review,
    /// The `request` of the AdmissionReview.
    request: &'a Value,
    cluster: &'a FixtureCluster,
    /// Whether expressions that are not true are explained.
    is_explained: bool,
    /// Steps that are left.
    steps: &'a Cell<u64>,
}

/// Evaluates the policies that match a request, in their order. Mutating policies count once, as if none of them were
/// invoked again.
pub(super) fn evaluate(
    snapshot: &Snapshot,
    review: &Review,
    document: &Value,
    cluster: &FixtureCluster,
    is_explained: bool,
) -> Vec<PolicyReport> {
    // An evaluation may take as long as its cost allows.
    let steps = Cell::new(u64::MAX);
    let of = EvaluatedRequest { review, request: &document["request"], cluster, is_explained, steps: &steps };
    let text = |key: &str| of.request.get(key).filter(|value| !value.is_null()).map(Value::to_string);
    let (mut object, old_object) = (text("object"), text("oldObject"));
    let mut matching = MatchSet::new();
    snapshot.matching_policies(review, None, &mut matching);
    let policies = matching.iter().filter_map(|matched| snapshot.policies().get(matched.index as usize));
    let policies = policies.filter(|policy| of.matches(&policy.definition.constraints));
    let mut reports = Vec::new();
    for policy in policies {
        let is_bound = |binding: &&Arc<Binding>| binding.match_resources.as_ref().is_none_or(|own| of.matches(own));
        let bindings: Vec<_> = policy.bindings.iter().filter(is_bound).collect();
        let params: Vec<_> = bindings.iter().map(|binding| of.params(policy, binding)).collect();
        let mut report = PolicyReport {
            name: Arc::clone(&policy.definition.name),
            hook_type: policy.definition.hook_type,
            bindings: bindings.len(),
            is_excluded: false,
            cost: 0,
            steps: 0,
            took: Duration::ZERO,
            explanations: Vec::new(),
        };
        let texts = (object.as_deref(), old_object.as_deref());
        let (began, left) = (Instant::now(), steps.get());
        let outcome = match policy.definition.hook_type {
            HookType::Validating => of.validate(policy, &bindings, &params, texts, &mut report.explanations),
            HookType::Mutating => {
                let (outcome, mutated) = of.mutate(policy, &bindings, &params, texts);
                object = mutated.or(object);
                outcome
            }
        };
        (report.took, report.steps) = (began.elapsed(), left - steps.get());
        (report.cost, report.is_excluded) = (outcome.cost, outcome.is_excluded);
        reports.push(report);
    }
    reports
}

/// Calls `evaluating` until no access check is undecided; `None` if it does not end.
fn settled<T>(
    cluster: &FixtureCluster,
    username: &str,
    mut evaluating: impl FnMut(&AccessDecisions) -> Result<T, Suspended>,
) -> Option<(T, AccessDecisions)> {
    let mut decisions = AccessDecisions::default();
    loop {
        match evaluating(&decisions) {
            Ok(end) => return Some((end, decisions)),
            Err(Suspended::Undecided(check)) => {
                let decided = cluster.decide(username, &check);
                decisions.insert(*check, Ok(decided));
            }
            Err(Suspended::TooLong | Suspended::Deadline) => return None,
        }
    }
}

/// Params of one binding.
type Params = Result<Vec<Option<Bytes>>, String>;

fn document_of(bytes: &Bytes) -> JsonDocument<'_> {
    JsonDocument::new(bytes.as_ref().into())
}

impl<'a> EvaluatedRequest<'a> {
    fn with_allowance<T>(&self, run: impl FnOnce(&Allowance<'_>) -> T) -> T {
        run(&Allowance { steps: self.steps, over: &|| false })
    }

    fn text(&self, pointer: &str) -> &'a str {
        text_at(self.request, pointer)
    }

    /// Returns true if these criteria match the request.
    fn matches(&self, criteria: &MatchResources) -> bool {
        criteria.matches_rules(self.review, None)
            && self.is_in(&criteria.namespace_selector)
            && self.is_labelled(&criteria.object_selector)
    }

    fn is_in(&self, selector: &Selector) -> bool {
        if selector.is_empty() {
            return true;
        }
        let labels = |object: &Value| -> Labels { labels_of(object) };
        if *self.review.kind.kind == *"Namespace" && self.review.kind.group.is_empty() {
            let object = ["object", "oldObject"].map(|key| &self.request[key]);
            return object
                .into_iter()
                .find(|object| object.is_object())
                .is_none_or(|own| selector.matches(&labels(own)));
        }
        let namespace = self.text("/namespace");
        namespace.is_empty() || selector.matches(&labels(&self.cluster.namespace(namespace)))
    }

    fn is_labelled(&self, selector: &Selector) -> bool {
        let objects = ["object", "oldObject"].map(|key| &self.request[key]);
        selector.is_empty() || objects.iter().any(|object| object.is_object() && selector.matches(&labels_of(object)))
    }

    /// Returns the params of a binding.
    fn params(&self, policy: &Policy, binding: &Binding) -> Params {
        let (Some(kind), Some(ParamRef { which, namespace, deny_if_not_found })) =
            (&policy.definition.param_kind, &binding.param_ref)
        else {
            return Ok(vec![None]);
        };
        let found = self.cluster.find(&ObjectQuery::Params {
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
            namespace: namespace.clone().unwrap_or_else(|| self.text("/namespace").into()),
            is_namespace_given: namespace.is_some(),
            which: match which {
                ParamSelector::Name(name) => ParamSelection::Name(name.clone()),
                ParamSelector::Labels(selector) => ParamSelection::Selector(selector.to_string().into()),
            },
        });
        let found = found.map_err(|why| why.to_string())?;
        match found.is_empty() && *deny_if_not_found {
            true => Err(PARAMS_NOT_FOUND.to_owned()),
            false => Ok(found.iter().cloned().map(Some).collect()),
        }
    }

    /// Calls `run` with the input of expressions.
    fn with_input<T>(
        &self,
        (object, old_object): (Option<&str>, Option<&str>),
        decisions: AccessDecisions,
        run: impl FnOnce(&mut Input<'_>) -> T,
    ) -> T {
        let user = || {
            let list = |value: &Value| -> Vec<String> {
                let items = value.as_array().into_iter().flatten();
                items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
            };
            let user = &self.request["userInfo"];
            let extra = user["extra"].as_object().into_iter().flatten();
            Ok(User {
                uid: text_at(user, "/uid").to_owned(),
                groups: list(&user["groups"]),
                extra: extra.map(|(key, values)| (key.clone(), list(values))).collect(),
            })
        };
        let namespace = self.text("/namespace");
        let is_namespace = *self.review.kind.kind == *"Namespace";
        let namespace = (!namespace.is_empty() && !is_namespace).then(|| self.cluster.namespace(namespace).to_string());
        let options = self.request.get("options").filter(|value| !value.is_null()).map(Value::to_string);
        let document = |text: &'_ str| JsonDocument::new(text.as_bytes().to_vec().into());
        let three = |what: &str, last: &str| {
            [
                self.text(&format!("/{what}/group")),
                self.text(&format!("/{what}/version")),
                self.text(&format!("/{what}/{last}")),
            ]
        };
        let mut request = Request::new(user);
        (request.kind, request.request_kind) = (three("kind", "kind"), three("requestKind", "kind"));
        request.resource = three("resource", "resource");
        request.sub_resource = self.text("/subResource");
        (request.name, request.namespace) = (self.text("/name"), self.text("/namespace"));
        request.operation = self.text("/operation");
        request.dry_run = self.request["dryRun"] == true;
        request.username = self.text("/userInfo/username");
        request.user_bytes = self.request["userInfo"].to_string().len();
        request.options = options.as_deref().map(document);
        run(&mut Input {
            request,
            object: object.map(document),
            old_object: old_object.map(document),
            namespace: namespace.as_deref().map(document),
            decisions,
        })
    }

    /// Evaluates a validating policy, and explains its expressions that are not true.
    fn validate(
        &self,
        policy: &Policy,
        bindings: &[&Arc<Binding>],
        params: &[Params],
        texts: (Option<&str>, Option<&str>),
        explanations: &mut Vec<Explanation>,
    ) -> Outcome {
        let username = self.text("/userInfo/username");
        let documents: Vec<Result<Vec<Option<JsonDocument<'_>>>, String>> = params
            .iter()
            .map(|params| {
                Ok(params.as_ref().map_err(Clone::clone)?.iter().map(|one| one.as_ref().map(document_of)).collect())
            })
            .collect();
        let decided = settled(self.cluster, username, |decisions| {
            self.with_input(texts, decisions.clone(), |input| {
                let bound = bindings
                    .iter()
                    .zip(&documents)
                    .map(|(binding, params)| Bound { binding, params: params.as_deref().map_err(String::as_str) });
                self.with_allowance(|allowance| decide(policy, bound, input, allowance))
            })
        });
        let Some((outcome, decisions)) = decided else { return Outcome::default() };
        if !self.is_explained {
            return outcome;
        }
        self.with_input(texts, decisions, |input| {
            for param in documents.iter().filter_map(|params| params.as_ref().ok()).flatten() {
                let explained = self.with_allowance(|allowance| explain(policy, param.as_ref(), input, allowance));
                explanations
                    .extend(explained.into_iter().filter(|one| !explanations.contains(one)).collect::<Vec<_>>());
            }
        });
        outcome
    }

    /// Evaluates a mutating policy. Returns the object if it has changed.
    fn mutate(
        &self,
        policy: &Policy,
        bindings: &[&Arc<Binding>],
        params: &[Params],
        (object, old_object): (Option<&str>, Option<&str>),
    ) -> (Outcome, Option<String>) {
        let mut outcome = Outcome::default();
        let document = object.and_then(|text| Document::new(Rope::new([text.to_owned().into()])).ok());
        let Some(mut document) = document else { return (outcome, None) };
        let text_of = |document: &Document| {
            let rope = document.rope();
            String::from_utf8_lossy(&rope.copy_of(0..rope.len())).into_owned()
        };
        let (username, mut is_changed) = (self.text("/userInfo/username"), false);
        for (binding, params) in bindings.iter().zip(params) {
            for param in params.as_ref().map_or(&[][..], Vec::as_slice) {
                let param = param.as_ref().map(document_of);
                let current = text_of(&document);
                let mutated = settled(self.cluster, username, |decisions| {
                    self.with_input((Some(&current), old_object), decisions.clone(), |input| {
                        let which = (policy, &***binding, param.as_ref());
                        self.with_allowance(|allowance| {
                            mutate(which, input, &document, &MutationLimits::default(), allowance)
                        })
                    })
                });
                if let Some((end, _)) = mutated {
                    outcome.join(end.outcome);
                    is_changed |= end.is_changed;
                    document = end.object;
                }
            }
        }
        (outcome, is_changed.then(|| text_of(&document)))
    }
}
