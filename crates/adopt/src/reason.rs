//! Reasons to leave an entry to the apiserver, or to give it back.

use crate::{CONDITION, MAX_CONDITIONS, MAX_ENTRIES};

/// Reason to leave an entry to the apiserver, or to give it back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Not selected by `serve --adopt`, nor named by a command.
    #[error("not selected; name it with `gatepost adopt`, or widen the selector of `serve --adopt`")]
    NotWanted,
    /// Released by a command.
    #[error("released; `gatepost adopt` takes it again")]
    Released,
    /// Gatepost cannot serve it completely, because of this problem.
    #[error("cannot be served: {0}")]
    Unservable(String),
    /// Calls by Gatepost could take the cluster down, according to this finding.
    #[error("hazard: {0}")]
    Hazard(String),
    /// Our registration does not match all of its requests.
    #[error("Gatepost's registration does not cover it: {0}; print it again with `gatepost register` and apply it")]
    Uncovered(String),
    /// Its expressions query the authorizer, and Gatepost cannot do so, for this reason.
    #[error(
        "its expressions ask the authorizer, and Gatepost cannot ({0}); let Gatepost's user create \
         subjectaccessreviews.authorization.k8s.io (ClusterRole gatepost-authorizer)"
    )]
    NoAccessReviews(String),
    /// Gatepost lets requests past it about which the apiserver asks it.
    #[error("Gatepost lets requests past it: {0}; leave it to the apiserver, or exclude these requests there as well")]
    LetPast(String),
    /// Its expressions read objects of the cluster, and Gatepost cannot, for this reason.
    #[error("reads objects of the cluster, and Gatepost cannot: {0}")]
    NoReadAccess(String),
    /// It has the name of a webhook of Gatepost's own registration.
    #[error("has a name of Gatepost's own registration; rename it, or remove it where it is a leftover")]
    NamedLikeOurs,
    /// It has a match condition of our name with an expression that is not ours.
    #[error(
        "has a match condition {CONDITION} that is not Gatepost's, and may hold requests back from everybody; remove it, \
         or give it another name"
    )]
    ForeignCondition,
    /// It already has the maximum number of match conditions.
    #[error("has {MAX_CONDITIONS} match conditions, and there is no room for {CONDITION}; join two of them with &&")]
    Full,
    /// The apiserver has this version, which does not support match conditions.
    #[error("the apiserver ({0}) knows no match conditions; they exist from 1.28 on")]
    NoConditions(String),
    /// These replicas do not call it.
    #[error("not called by {by}; `gatepost status` says where its endpoint stands there", by = listed(.0))]
    NotCalled(Vec<String>),
    /// Its owner has removed the mark this many times.
    #[error(
        "its owner replaced the configuration, or named the policy again, {0} times; left to the apiserver for five \
         minutes, and twice as long each further time, at most four hours. Let the owner patch or apply a configuration \
         instead of replacing it, and leave spec.policyName of a binding alone"
    )]
    Fought(u32),
    /// The mark could not be applied, for this reason.
    #[error("the apiserver refuses the write: {0}")]
    ConditionNotApplied(String),
    /// This receiver of reviews might not be a replica with `--adopt`.
    #[error(
        "Gatepost may receive reviews where it would not call it: {0}; nothing is taken over until every Gatepost that is \
         called serves with --adopt"
    )]
    ReplicaMissing(String),
    /// There are more than [`MAX_ENTRIES`] entries.
    #[error("there are more than {MAX_ENTRIES} webhooks and bindings of policies; select fewer")]
    TooMany,
}

impl Reason {
    /// Returns the reason in one word, for metrics and scripts.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NotWanted => "not_wanted",
            Self::Released => "released",
            Self::Unservable(_) => "unservable",
            Self::Hazard(_) => "hazard",
            Self::Uncovered(_) => "uncovered",
            Self::NoAccessReviews(_) => "no_access_reviews",
            Self::LetPast(_) => "let_past",
            Self::NoReadAccess(_) => "no_read_access",
            Self::NamedLikeOurs => "named_like_ours",
            Self::ForeignCondition => "foreign_condition",
            Self::Full => "conditions_full",
            Self::NoConditions(_) => "no_match_conditions",
            Self::NotCalled(_) => "not_called",
            Self::Fought(_) => "fought",
            Self::ConditionNotApplied(_) => "refused",
            Self::ReplicaMissing(_) => "replica_missing",
            Self::TooMany => "too_many",
        }
    }

    /// All words, in the order of the metric.
    pub const WORDS: [&'static str; 17] = [
        "not_wanted",
        "released",
        "unservable",
        "hazard",
        "uncovered",
        "no_access_reviews",
        "let_past",
        "no_read_access",
        "named_like_ours",
        "foreign_condition",
        "conditions_full",
        "no_match_conditions",
        "not_called",
        "fought",
        "refused",
        "replica_missing",
        "too_many",
    ];
}

fn listed(replicas: &[String]) -> String {
    if replicas.is_empty() { "every replica in time".to_owned() } else { replicas.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_metric_label_and_a_message() {
        let text = String::new;
        let all = [
            Reason::NotWanted,
            Reason::Released,
            Reason::Unservable(text()),
            Reason::Hazard(text()),
            Reason::Uncovered(text()),
            Reason::NoAccessReviews(text()),
            Reason::LetPast(text()),
            Reason::NoReadAccess(text()),
            Reason::NamedLikeOurs,
            Reason::ForeignCondition,
            Reason::Full,
            Reason::NoConditions(text()),
            Reason::NotCalled(Vec::new()),
            Reason::Fought(3),
            Reason::ConditionNotApplied(text()),
            Reason::ReplicaMissing(text()),
            Reason::TooMany,
        ];
        assert_eq!(all.each_ref().map(Reason::word), Reason::WORDS);
        assert!(all.iter().all(|reason| !reason.to_string().is_empty() && !reason.to_string().contains("  ")));
    }
}
