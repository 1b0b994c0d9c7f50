//! `policy test`: runs policies on fixtures, and compares the verdicts with the expected ones.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost_api::{Gvr, HookType, Phase, Review, Rope, Verdict};
use gatepost_config::{MatchSet, Snapshot};
use gatepost_json_patch::{Document, Patch, PatchLimits};
use gatepost_operator::command::{CommandExit, block_on, finish};
use gatepost_policy::{Definition, Explanation, Outcome, Policy};
use gatepost_wire::json_view;
use serde_json::Value;

use super::{
    cluster::{FixtureCluster, labels_of, text_at},
    decision::{caller_of, deps_with_cluster},
    report::{ReportFormat, RunReport, SuiteReport, TestReport, json_differences},
    search::find,
    suite::{Expectation, PolicyTest, Suite},
};
use crate::review::{AdmissionDeps, Caller, PolicyTrial, decide, try_policies};

/// Time for one decision. It is bounded by costs, and so far less is needed, also on a busy machine.
pub(super) const DECISION_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum cost of the validations of a policy, and of a mutation, as kube-apiserver has it.
const MAX_COST: u64 = 10_000_000;

const EXAMPLES: &str = "\
A test file is a YAML document:
  apiVersion: gatepost.dev/v1alpha1
  kind: PolicyTest
  metadata: {name: no-latest-tag}
  tests:
  - name: an image without a tag is denied
    object: pod.yaml             # a file, or the object itself
    expect: Deny                 # or Allow
    message: pin a version       # a part of the message of the denial
    policy: no-latest-tag        # the policy that denies

Its policies are those in the files beside it, or in policies: [FILE-OR-FOLDER]. A policy without
a binding is tested with one that denies, and that takes all params.

More keys of a test; those in brackets follow from the objects:
  [operation]       CREATE; UPDATE with object and oldObject; DELETE with oldObject alone; CONNECT
  oldObject, options, dryRun, subResource
  [resource]        such as pods, or deployments.v1.apps where the object is of another kind
  [namespace], [objectName]
  user              {username, uid, groups, extra}; else test-user in system:authenticated
  warnings          a list with a part of each warning; [] for none
  auditAnnotations  {POLICY/KEY: VALUE}; null for one that must be absent
  result            the object after all mutations: a file, or the object itself

More keys of the document:
  cluster     files, or objects: params and Namespaces that exist. Other namespaces exist, too, with
              the label of their name only.
  authorizer  rules such as {user: ann, verb: get, resource: pods, allow: true}; also apiGroup,
              subResource, namespace, name, path and reason. The first that fits an access check
              decides it. A check without a rule is denied.

Of Kyverno's test files (kyverno-test.yaml), results of admission policies are read, too, and of
ValidatingPolicies and MutatingPolicies that `gatepost policy import` can translate. Of Gatekeeper's
(kind: Suite), tests of templates in CEL are run, and each of one in Rego is a problem.

Examples:
  gatepost policy test policies
  gatepost policy test --costs examples/policies/no-latest-tag
  gatepost policy test -o junit policies > report.xml

Exit codes:
  0  every test has passed
  1  a test has failed, a file has problems, or there is no test";

/// Test policies on fixtures, without a cluster and without a server
///
/// Searches folders for PolicyTest documents, and decides each test as a sidecar would. Of a failed test, the
/// difference is printed, and the parts of the expression that decided with their values; of Secrets, no values.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PolicyTestArgs {
    /// Folders to search, with the folders in them; or files
    #[arg(required = true, value_name = "FOLDER")]
    paths: Vec<PathBuf>,

    /// Print the costs of expressions, in the units of kube-apiserver
    #[arg(long)]
    costs: bool,

    /// Format of the report
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

impl PolicyTestArgs {
    /// Runs the tests and prints the report.
    pub(super) fn run(&self) -> CommandExit {
        finish(block_on(self.report()).map(|report| {
            let exit = if report.is_good() { CommandExit::Good } else { CommandExit::Failed };
            (report.written(self.output), exit)
        }))
    }

    async fn report(&self) -> RunReport {
        let (suites, problems) = find(&self.paths);
        let mut report = RunReport { suites: Vec::new(), problems };
        for suite in suites {
            match gatepost_config::load(&suite.policies, &|_| Err(std::io::ErrorKind::NotFound.into())) {
                Ok(snapshot) => report.suites.push(self.run_suite(suite, snapshot).await),
                Err(problems) => {
                    // Several suites may test one policy.
                    let new = problems.into_iter().filter(|problem| !report.problems.contains(problem));
                    let new: Vec<_> = new.collect();
                    report.problems.extend(new);
                }
            }
        }
        report
    }

    async fn run_suite(&self, suite: Suite, snapshot: Snapshot) -> SuiteReport {
        let Suite { file, name, mut notes, cluster, tests, .. } = suite;
        notes.splice(0..0, snapshot.notes().iter().map(ToString::to_string));
        let snapshot = with_namespaces(snapshot, &cluster, &tests);
        let deps = deps_with_cluster(snapshot, cluster);
        let mut reports = Vec::with_capacity(tests.len());
        for test in tests {
            reports.push(self.run_test(test, &deps).await);
        }
        SuiteReport { file, name, notes, tests: reports }
    }

    async fn run_test(&self, test: PolicyTest, deps: &AdmissionDeps) -> TestReport {
        let PolicyTest { name, review: document, expectation } = test;
        let began = Instant::now();
        let mut report = TestReport {
            name,
            differences: Vec::new(),
            explanations: Vec::new(),
            notes: Vec::new(),
            took: Duration::ZERO,
        };
        let review = match json_view::view(Bytes::from(document.to_string())) {
            Ok(review) => review,
            Err(error) => {
                report.differences.push(format!("the request cannot be read: {error}"));
                return report;
            }
        };
        let caller = caller_of(Phase::Review, DECISION_TIMEOUT);
        let verdict = decide(deps, &review, &caller).await;
        report.took = began.elapsed();
        let snapshot = &deps.current.load().snapshot;
        let outcome = TestOutcome { verdict: &verdict, review: &review, document: &document, snapshot };
        report.differences = match &expectation.violations {
            Some(expected) => match violations(deps, &caller, &expected.reviews).await {
                Ok(messages) => expected.differences(&messages),
                Err(why) => vec![why],
            },
            None => outcome.differences(&expectation),
        };
        let policies = try_policies(deps, &review, &caller, true).await;
        let is_applied = policies.iter().any(|policy| !policy.outcome.is_excluded);
        if let Some(wanted) = expectation.is_applied.filter(|wanted| *wanted != is_applied) {
            let is = |yes| if yes { "is" } else { "is not" };
            let (wanted, got) = (is(wanted), is(is_applied));
            report.differences.push(format!("expected that the policy {wanted} about the request, and it {got}"));
        }
        if !report.differences.is_empty() {
            report.explanations = outcome.explanations(&policies);
        } else if policies.is_empty() && expectation.violations.is_none() {
            report.notes = outcome.explanations(&policies);
        }
        if self.costs {
            let cost = |PolicyTrial { policy, outcome, .. }: &PolicyTrial| {
                format!("cost  {}: {} of {MAX_COST}", policy.definition.name, outcome.cost)
            };
            report.notes.extend(policies.iter().map(cost));
        }
        report
    }
}

/// Returns the snapshot with the namespaces of the cluster and of the tests.
pub(super) fn with_namespaces(snapshot: Snapshot, cluster: &FixtureCluster, tests: &[PolicyTest]) -> Snapshot {
    let of_tests = tests.iter().map(|test| text_at(&test.review, "/request/namespace"));
    let of_cluster = cluster.objects.iter().filter(|object| object["kind"] == "Namespace");
    let of_cluster = of_cluster.map(|object| text_at(object, "/metadata/name"));
    let names = of_tests.chain(of_cluster).filter(|name| !name.is_empty());
    snapshot.with_namespaces(names.map(|name| (name.into(), labels_of(&cluster.namespace(name)))).collect::<Vec<_>>())
}

/// Returns the messages of all denials of these reviews, each after its expected prefix.
///
/// # Errors
/// A review cannot be read.
async fn violations(deps: &AdmissionDeps, caller: &Caller, reviews: &[(String, Value)]) -> Result<Vec<String>, String> {
    let mut messages = Vec::new();
    for (prefix, document) in reviews {
        let review = json_view::view(Bytes::from(document.to_string()));
        let review = review.map_err(|error| format!("the request cannot be read: {error}"))?;
        let trials = try_policies(deps, &review, caller, false).await;
        let denials = trials.into_iter().flat_map(|trial| trial.outcome.denials);
        // The text before it names the policy and the binding.
        let message = |text: &str| text.split_once(" denied request: ").map_or(text, |(_, own)| own).to_owned();
        messages.extend(denials.map(|denial| format!("{prefix}{}", message(&denial.message))));
    }
    Ok(messages)
}

/// Outcome of one test.
struct TestOutcome<'a> {
    verdict: &'a Verdict,
    review: &'a Review,
    /// The AdmissionReview.
    document: &'a Value,
    snapshot: &'a Snapshot,
}

impl TestOutcome<'_> {
    /// Returns the differences to the expected outcome.
    fn differences(&self, expected: &Expectation) -> Vec<String> {
        let Self { verdict, .. } = self;
        let mut differences = Vec::new();
        let message = verdict.refusal.as_ref().map(|refusal| &*refusal.message);
        match message {
            Some(message) if expected.is_allowed => differences.push(format!("expected Allow, got Deny: {message}")),
            None if !expected.is_allowed => differences.push("expected Deny, got Allow".to_owned()),
            _ => {}
        }
        if let (Some(got), Some(wanted)) = (message, &expected.message)
            && !got.contains(wanted)
        {
            differences.push(format!("message: expected a part {wanted:?}, got {got:?}"));
        }
        if let (Some(_), Some(wanted)) = (message, &expected.policy) {
            match self.denier() {
                Some(policy) if policy == wanted => {}
                Some(policy) => differences.push(format!("policy: expected {wanted}, got {policy}")),
                None => differences.push(format!("policy: expected {wanted}, and no policy denied the request")),
            }
        }
        differences.extend(expected.warnings.as_ref().and_then(|wanted| self.warning_difference(wanted)));
        for (key, wanted) in &expected.audit_annotations {
            let got = verdict.audit_annotations.iter().find(|(own, _)| own == key).map(|(_, value)| value);
            if got != wanted.as_ref() {
                let shown =
                    |value: Option<&String>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"));
                let (wanted, got) = (shown(wanted.as_ref()), shown(got));
                differences.push(format!("auditAnnotations: {key}: expected {wanted}, got {got}"));
            }
        }
        if let Some(wanted) = expected.result.as_ref().filter(|_| verdict.allowed()) {
            match self.result() {
                Ok(got) => differences.extend(json_differences(wanted, &got)),
                Err(why) => differences.push(format!("result: {why}")),
            }
        }
        differences
    }

    /// Returns the difference of the warnings; `None` if each is as expected.
    fn warning_difference(&self, wanted: &[String]) -> Option<String> {
        let mut left: Vec<&String> = self.verdict.warnings.iter().collect();
        let all_found = wanted.iter().all(|part| match left.iter().position(|warning| warning.contains(part)) {
            Some(at) => {
                left.remove(at);
                true
            }
            None => false,
        });
        let got = &self.verdict.warnings;
        (!all_found || !left.is_empty()).then(|| format!("warnings: expected {wanted:?}, got {got:?}"))
    }

    /// Returns the policy that denies, by the message, which names it.
    fn denier(&self) -> Option<&str> {
        let message = &*self.verdict.refusal.as_ref()?.message;
        let names = self.snapshot.policies().iter().map(|policy| &*policy.definition.name);
        names.into_iter().find(|name| {
            let phrases = [
                format!("olicy '{name}' with binding '"),
                format!("olicy '{name}' denied"),
                format!("olicy \"{name}\" denied"),
            ];
            phrases.iter().any(|phrase| message.contains(phrase))
        })
    }

    /// Returns the object after all mutations.
    fn result(&self) -> Result<Value, String> {
        let object = &self.document["request"]["object"];
        let Some(patch) = &self.verdict.patch else { return Ok(object.clone()) };
        let patch = Patch::parse(patch.clone()).map_err(|error| error.to_string())?;
        let document =
            Document::new(Rope::new([Bytes::from(object.to_string())])).map_err(|error| error.to_string())?;
        let document = document.patched(&patch, PatchLimits::default()).map_err(|error| error.to_string())?;
        let bytes = document.rope().to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }

    /// Describes a request that no policy is about.
    fn unmatched(&self) -> String {
        let Review { operation, resource, sub_resource, .. } = self.review;
        let slash = |left: &str, right: &str| if left.is_empty() || right.is_empty() { "" } else { "/" };
        let Gvr { group, version, resource } = resource;
        format!(
            "no policy is about this request: {} of {resource}{}{sub_resource} in {group}{}{version}",
            operation.as_str(),
            slash(resource, sub_resource),
            slash(group, version)
        )
    }

    /// Returns lines that explain why the verdict is as it is.
    fn explanations(&self, policies: &[PolicyTrial]) -> Vec<String> {
        let mut matching = MatchSet::new();
        self.snapshot.matching_policies(self.review, None, &mut matching);
        let matching = matching.iter().filter_map(|matched| self.snapshot.policies().get(matched.index as usize));
        let is_tried = |policy: &Arc<Policy>| policies.iter().any(|tried| tried.policy.definition == policy.definition);
        let unselected: Vec<_> = matching
            .filter(|policy| !is_tried(policy))
            .map(|policy| format!("{}: its selectors, or its bindings, exclude this request", policy.definition.name))
            .collect();
        if policies.is_empty() && unselected.is_empty() {
            return vec![self.unmatched()];
        }
        let denier = self.denier();
        let is_shown = |name: &str| denier.is_none_or(|denier| name == denier);
        let shown = policies.iter().filter(|tried| is_shown(&tried.policy.definition.name));
        let shown = shown.flat_map(|policy| self.explained(policy));
        shown.chain(unselected.into_iter().filter(|_| denier.is_none())).collect()
    }

    fn explained(&self, trial: &PolicyTrial) -> Vec<String> {
        let PolicyTrial { policy, outcome: Outcome { is_excluded, .. }, explanations, .. } = trial;
        let Definition { name, hook_type, .. } = &*policy.definition;
        let is_secret = *self.review.kind.kind == *"Secret" && self.review.kind.group.is_empty();
        let head = match (self.verdict.allowed(), hook_type) {
            _ if *is_excluded => format!("{name}: a match condition is false"),
            (true, HookType::Mutating) => format!("{name}: has mutated the object, or had nothing to change"),
            (false, HookType::Mutating) => return Vec::new(),
            _ if is_secret => format!("{name}: values are not shown, because the object is a Secret"),
            (true, _) if explanations.is_empty() => format!("{name}: every validation is true"),
            (true, _) => {
                format!("{name}: a validation is not true, and its bindings or its failure policy let it pass")
            }
            (false, _) if explanations.is_empty() => return Vec::new(),
            (false, _) => format!("{name}:"),
        };
        let mut lines = vec![head];
        for Explanation { path, expression, parts } in explanations {
            lines.push(format!("  {path}: {}", one_line(expression)));
            lines.extend(parts.iter().map(|(part, value)| format!("    {} = {value}", one_line(part))));
        }
        lines
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
