//! Servable: decision on whether Gatepost can ask the hooks of an object, each object by itself.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use super::object::Object;
use crate::{
    rotate::{OnHazard, candidate::CandidateCache},
    snapshot::SourceFile,
    source::Contents,
};

/// Folder, below the one that is served, of what is not.
const NOT_SERVED: &str = "not-served";

/// Fate of an imported object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Gatepost can ask its hooks.
    Served,
    /// It cannot, for these reasons.
    NotServed(Vec<String>),
}

impl Fate {
    /// Of that object, whatever the others are.
    ///
    /// # Errors
    /// It cannot be written as YAML.
    pub(super) fn of(object: &Object) -> Result<Self, String> {
        let file = SourceFile { name: object.file(), bytes: object.text()?.into() };
        // Where it comes from is a cluster whose authorizer can be asked.
        let mut cache = CandidateCache::default().with_authorizer(true);
        let judged = cache.candidate(&Contents::new(vec![file], BTreeMap::new()), OnHazard::Off, None);
        Ok(match judged {
            Ok(_) => Self::Served,
            Err(problems) => Self::NotServed(problems.iter().map(ToString::to_string).collect()),
        })
    }

    /// The object's file, below the folder that is imported into.
    pub(super) fn path(&self, object: &Object) -> PathBuf {
        match self {
            Self::Served => object.file().into(),
            Self::NotServed(_) => PathBuf::from(NOT_SERVED).join(object.file()),
        }
    }

    /// Path of the file in the other case.
    pub(super) fn other_path(&self, object: &Object) -> PathBuf {
        match self {
            Self::Served => Self::NotServed(Vec::new()).path(object),
            Self::NotServed(_) => Self::Served.path(object),
        }
    }
}

/// Objects that are not served, with the reasons; empty where all are.
pub(super) fn report(judged: &[(Object, Fate)]) -> String {
    let mut output = String::new();
    for (object, fate) in judged {
        let Fate::NotServed(reasons) = fate else { continue };
        // Writing to a String cannot fail.
        let _ = writeln!(
            output,
            "\nnot served: {} {}; leave it in the cluster, where it stays in force",
            object.phase.kind(),
            object.name
        );
        for reason in reasons {
            let _ = writeln!(output, "  {reason}");
        }
    }
    if !output.is_empty() {
        output.push('\n');
    }
    output
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::import::object::Phase;

    fn object(phase: Phase, name: &str, webhook: Value) -> Object {
        let value = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": phase.kind(),
            "metadata": {"name": name}, "webhooks": [webhook]});
        Object::new(phase, value).unwrap()
    }

    fn webhook() -> Value {
        json!({"name": "a.example.com", "clientConfig": {"url": "https://h.example.com/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"]}]})
    }

    #[test]
    fn one_object_that_cannot_be_served_says_nothing_of_the_others() {
        let good = object(Phase::Validating, "good", webhook());
        let mut conditional = webhook();
        conditional["matchConditions"] =
            json!([{"name": "c", "expression": "google.protobuf.Duration{} == duration('0s')"}]);
        let bad = object(Phase::Validating, "bad", conditional);
        let mut again = webhook();
        again["reinvocationPolicy"] = json!("IfNeeded");
        let mutating = object(Phase::Mutating, "m", again);
        assert_eq!(Fate::of(&good), Ok(Fate::Served));
        let [bad_fate, mutating_fate] = [&bad, &mutating].map(|object| Fate::of(object).unwrap());
        assert_eq!(bad_fate.path(&bad), PathBuf::from("not-served/validating-bad.yaml"));
        assert_eq!(bad_fate.other_path(&bad), PathBuf::from("validating-bad.yaml"));
        assert_eq!(mutating_fate.path(&mutating), PathBuf::from("mutating-m.yaml"));
        let output = report(&[(good, Fate::Served), (bad, bad_fate), (mutating, mutating_fate)]);
        assert!(output.contains("not served: ValidatingWebhookConfiguration bad; leave it"), "{output}");
        assert!(
            output.contains("messages (google.protobuf.Duration) cannot be made here") && !output.contains("good"),
            "{output}"
        );
    }
}
