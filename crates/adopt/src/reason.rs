//! Reasons to leave a webhook to the apiserver, or to give it back.

use std::fmt;

use crate::{CONDITION, MAX_CONDITIONS, MAX_WEBHOOKS};

/// Reason to leave a webhook to the apiserver, or to give it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Not selected by `serve --adopt`, nor named by a command.
    NotWanted,
    /// Released by a command.
    Released,
    /// Gatepost cannot serve its entry completely, because of this problem.
    Unservable(String),
    /// Calls by Gatepost could take the cluster down, according to this finding.
    Hazard(String),
    /// Our registration does not match all of its requests.
    Uncovered(String),
    /// Its conditions query the authorizer, and Gatepost cannot do so, for this reason.
    NoAccessReviews(String),
    /// It has the name of a webhook of Gatepost's own registration.
    NamedLikeOurs,
    /// It has a match condition of our name with an expression that is not ours.
    ForeignCondition,
    /// It already has the maximum number of match conditions.
    Full,
    /// The apiserver has this version, which does not support match conditions.
    NoConditions(String),
    /// These replicas do not call it.
    NotCalled(Vec<String>),
    /// Its owner has removed the condition this many times.
    Fought(u32),
    /// The condition could not be applied, for this reason.
    ConditionNotApplied(String),
    /// This receiver of reviews might not be a replica with `--adopt`.
    ReplicaMissing(String),
    /// There are more than [`MAX_WEBHOOKS`] webhooks.
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
    pub const WORDS: [&'static str; 15] = [
        "not_wanted",
        "released",
        "unservable",
        "hazard",
        "uncovered",
        "no_access_reviews",
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => {
                f.write_str("not selected; name it with `gatepost adopt`, or widen the selector of `serve --adopt`")
            }
            Self::Released => f.write_str("released; `gatepost adopt` takes it again"),
            Self::Unservable(problem) => write!(f, "cannot be served: {problem}"),
            Self::Hazard(finding) => write!(f, "hazard: {finding}"),
            Self::Uncovered(gap) => write!(
                f,
                "Gatepost's registration does not cover it: {gap}; print it again with `gatepost register` and apply it"
            ),
            Self::NoAccessReviews(why) => write!(
                f,
                "its conditions ask the authorizer, and Gatepost cannot ({why}); let Gatepost's user create \
                 subjectaccessreviews.authorization.k8s.io (ClusterRole gatepost-authorizer)"
            ),
            Self::NamedLikeOurs => {
                f.write_str("has a name of Gatepost's own registration; rename it, or remove it where it is a leftover")
            }
            Self::ForeignCondition => write!(
                f,
                "has a match condition {CONDITION} that is not Gatepost's, and may hold requests back from everybody; \
                 remove it, or give it another name"
            ),
            Self::Full => write!(
                f,
                "has {MAX_CONDITIONS} match conditions, and there is no room for {CONDITION}; join two of them with &&"
            ),
            Self::NoConditions(version) => {
                write!(f, "the apiserver ({version}) knows no match conditions; they exist from 1.28 on")
            }
            Self::NotCalled(replicas) => {
                let by = if replicas.is_empty() { "every replica in time".to_owned() } else { replicas.join(", ") };
                write!(f, "not called by {by}; `gatepost status` says where its endpoint stands there")
            }
            Self::Fought(times) => write!(
                f,
                "its owner replaced the configuration {times} times and dropped the condition; left to the apiserver \
                 for five minutes, and twice as long each further time, at most four hours. Let the owner patch or apply \
                 instead of replacing it"
            ),
            Self::ConditionNotApplied(what) => write!(f, "the apiserver refuses the condition: {what}"),
            Self::ReplicaMissing(what) => write!(
                f,
                "Gatepost may receive reviews where it would not call it: {what}; nothing is taken over until every \
                 Gatepost that is called serves with --adopt"
            ),
            Self::TooMany => write!(f, "there are more than {MAX_WEBHOOKS} webhooks; select fewer"),
        }
    }
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
