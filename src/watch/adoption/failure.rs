//! Failure: the error of a turn.

use std::fmt;

use crate::kube::KubeError;

/// Error of a turn.
#[derive(Debug)]
pub(super) enum Failure {
    Kube(KubeError),
    OtherCluster {
        ours: String,
        other: String,
    },
    /// A write of an object got no answer.
    Unanswered {
        server: String,
    },
}

impl From<KubeError> for Failure {
    fn from(error: KubeError) -> Self {
        Self::Kube(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kube(error) => write!(f, "{error}; {}", error.fix()),
            Self::Unanswered { server } => write!(f, "no answer from {server}"),
            Self::OtherCluster { ours, other } => write!(
                f,
                "--kubeconfig names the cluster {ours}, and --namespaces-from the cluster {other}; name that of the \
                 apiserver that calls this replica in both"
            ),
        }
    }
}
