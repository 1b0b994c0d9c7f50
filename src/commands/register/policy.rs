//! Policy: lets an apiserver protect the marks of objects that are stored unfinished, even if Gatepost does not run.

use gatepost_operator::command::yaml;
use serde_json::{Value, json};

use gatepost_api::initialization::{PENDING_LABEL, STATE_ANNOTATION, VERB};
use gatepost_config::Snapshot;
use gatepost_kube_support::MANAGED_BY;

/// Comment above the documents.
const ABOUT: &str = "\
# Refuses, inside of each apiserver (1.30 or newer), what would set, clear or change the marks of objects that are stored
# before they are initialized. It counts while Gatepost does not run, and in namespaces whose requests are not sent to
# Gatepost. Apply it before the registrations: kubectl apply -f. Print it anew when a resource becomes `stored: Label`, or is
# so no longer; before the latter, wait until none of its objects has the label.
#
# Static Pods are exempt: kubelets (system:nodes) mirror what runs already.";

/// Pattern of the beginning of a new object's annotation, as Gatepost writes it.
const NEW: &str = r#"^\{"state":"Pending","pending":\["[^"\\]+"(,"[^"\\]+")*\],"started":"[^"\\]*","creator":\{"#;

/// Returns the policy and its binding as YAML.
pub(super) fn text(snapshot: &Snapshot, name: &str) -> Result<String, String> {
    let entries = snapshot.initializers().iter().filter(|entry| entry.by_label);
    let stored: Vec<_> = entries.map(|entry| format!("{}/{}", entry.api_group, entry.resource)).collect();
    if stored.is_empty() {
        return Err("no resource says `stored: Label`: nothing is marked, and there is nothing to refuse".to_owned());
    }
    let name = format!("{name}-initializers.gatepost.dev");
    Ok(format!("{ABOUT}\n{}---\n{}", yaml(&policy(&name, &stored))?, yaml(&binding(&name))?))
}

fn policy(name: &str, stored: &[String]) -> Value {
    let stored: Vec<_> = stored.iter().map(|resource| format!("'{resource}'")).collect();
    let has = |object: &str, map: &str, key: &str| {
        format!(
            "({object} != null && has({object}.metadata) && has({object}.metadata.{map}) && \
             '{key}' in {object}.metadata.{map})"
        )
    };
    let [label, old_label] = ["object", "oldObject"].map(|object| has(object, "labels", PENDING_LABEL));
    let [state, old_state] = ["object", "oldObject"].map(|object| has(object, "annotations", STATE_ANNOTATION));
    let any = format!("{label} || {state} || {old_label} || {old_state}");
    // Clients that parse and rewrite the JSON may add a space after the colon and change the order of the fields.
    let says = |state: &str, phases: &str| format!(r#"variables.{state}.matches('"state": *"({phases})"')"#);
    let waits = |state: &str| says(state, "Pending|Failed");
    let completed = format!("{} && !{}", says("state", "Completed"), waits("state"));
    let variable = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let rule = |expression: &str, message: &str, reason: &str| json!({"expression": format!("variables.mirrored || ({expression})"), "message": message, "reason": reason});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/*"],
            }]},
            // For all other writes, nothing else is evaluated.
            "matchConditions": [{
                "name": "has-a-mark",
                "expression": any,
            }],
            "variables": [
                variable("label", label.clone()),
                variable("oldLabel", old_label.clone()),
                variable("state", format!("{state} ? object.metadata.annotations['{STATE_ANNOTATION}'] : ''")),
                variable("oldState", format!("{old_state} ? oldObject.metadata.annotations['{STATE_ANNOTATION}'] : ''")),
                variable("waits", waits("state")),
                variable("waited", waits("oldState")),
                variable("completed", completed),
                variable("creator", creator()),
                variable("leaves", "oldObject != null && has(oldObject.metadata.deletionTimestamp)".to_owned()),
                variable("same", format!(
                    "variables.state == variables.oldState && variables.label == variables.oldLabel && \
                     (!variables.label || object.metadata.labels['{PENDING_LABEL}'] == oldObject.metadata.labels['{PENDING_LABEL}'])"
                )),
                variable("mirrored", format!(
                    "request.resource.group == '' && request.resource.resource == 'pods' && \
                     has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups && {}",
                    has("object", "annotations", "kubernetes.io/config.mirror"),
                )),
                variable("initializes", format!(
                    "authorizer.group(request.resource.group).resource(request.resource.resource)\
                     .namespace(has(request.namespace) ? request.namespace : '')\
                     .name(has(request.name) ? request.name : '').check('{VERB}').allowed()"
                )),
            ],
            "validations": [
                rule(
                    &format!(
                        "oldObject != null || (variables.label ? \
                         (!has(request.subResource) || request.subResource == '') && \
                         (request.resource.group + '/' + request.resource.resource) in [{}] && \
                         variables.state.matches(r'{NEW}') && variables.state.endsWith(variables.creator) : \
                         variables.state == '' || variables.completed)",
                        stored.join(", ")
                    ),
                    "the marks of objects that are not initialized are set by Gatepost alone",
                    "Forbidden",
                ),
                rule(
                    "oldObject == null || variables.oldLabel || \
                     (!variables.label && (variables.state == '' || variables.completed || \
                     variables.state == variables.oldState))",
                    "the marks of objects that are not initialized are set by Gatepost alone, when an object is created",
                    "Invalid",
                ),
                rule(
                    "oldObject == null || !variables.oldLabel || variables.initializes || \
                     (variables.leaves && variables.same)",
                    "an object that is not initialized may only be changed by users with permission to initialize this resource",
                    "Forbidden",
                ),
                rule(
                    "oldObject == null || !variables.oldLabel || !variables.waited || \
                     (variables.label ? variables.waits : variables.completed)",
                    "the label is removed in the update that says Completed, and in no other; until then the annotation stays",
                    "Invalid",
                ),
                rule(
                    &format!(
                        "oldObject == null || !variables.oldLabel || !variables.label || \
                         object.metadata.labels['{PENDING_LABEL}'] == oldObject.metadata.labels['{PENDING_LABEL}']"
                    ),
                    "the label stays as it is until it is removed",
                    "Invalid",
                ),
                rule(
                    &format!(
                        "oldObject == null || !variables.oldLabel || !{} || variables.same",
                        says("oldState", "Failed")
                    ),
                    "the object has failed; it can only be deleted",
                    "Invalid",
                ),
            ],
        },
    })
}

/// Returns a CEL expression for the end of a new object's annotation, which names the user of the request. The text
/// before it cannot name another user: the last of two fields with one name counts, and unknown fields are rejected.
fn creator() -> String {
    let escaped = |text: &str| format!(r#"{text}.replace('\\', '\\\\').replace('"', '\\"')"#);
    let text = |field: &str| format!("(has({field}) ? {} : '')", escaped(field));
    let groups = format!(r#"request.userInfo.groups.map(group, '"' + {} + '"').join(',')"#, escaped("group"));
    let groups = format!("(has(request.userInfo.groups) ? {groups} : '')");
    let [uid, username] = ["request.userInfo.uid", "request.userInfo.username"].map(text);
    format!(r#"'"groups":[' + {groups} + '],"uid":"' + {uid} + '","username":"' + {username} + '"}}}}'"#)
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}

#[cfg(test)]
#[path = "policy/tests.rs"]
mod tests;
