//! StatusPlace: place of replicas' reports, as the flags give it.

use super::{Publisher, Replica, StatusObjects, publisher::LeaseKey};
use crate::{
    etcd::{EtcdAccess, EtcdClient},
    kube::{self, ReloadingClient},
    source::{EtcdLocation, ReadError},
};

/// Place of replicas' reports, beside their admin addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusPlace {
    /// Nowhere.
    #[default]
    Nowhere,
    /// In etcd: a key for each, `<prefix><name>`, gone when the replica is.
    Etcd {
        /// The cluster, and as whom it is asked.
        access: EtcdAccess,
        /// Prefix of the keys.
        prefix: String,
    },
    /// In a cluster: the status of each configuration object.
    Kubernetes {
        /// The apiserver, and as whom it is asked.
        access: kube::KubeAccess,
        /// Are objects that hold hooks kept, when they are deleted, until the hooks have drained?
        finalizer: bool,
    },
}

impl StatusPlace {
    /// Default prefix of the keys.
    pub const ETCD_PREFIX: &str = "/gatepost/replicas/";

    /// In the etcd that holds the configuration, beside it.
    ///
    /// # Errors
    /// The prefix cannot be used: one of the two lies inside the other.
    pub fn beside(configuration: EtcdLocation, prefix: &str) -> Result<Self, String> {
        let configured = &configuration.prefix;
        if !prefix.ends_with('/') {
            return Err(format!("--etcd-status-prefix {prefix} has to end in a slash: names of replicas follow it"));
        }
        // Below the configuration, every report would be a document of it; around it, every document a report.
        if prefix.starts_with(&**configured) || configured.starts_with(prefix) {
            return Err(format!(
                "--etcd-status-prefix {prefix} and --etcd-prefix {configured} must not contain each other: reports \
                 of replicas are not configuration"
            ));
        }
        Ok(Self::Etcd { access: configuration.access, prefix: prefix.to_owned() })
    }

    /// Publisher of this replica's reports there. Sends nothing yet.
    ///
    /// # Errors
    /// Files or settings that cannot be used.
    pub async fn open(&self, replica: &Replica) -> Result<Publisher, ReadError> {
        Ok(match self {
            Self::Nowhere => Publisher::Nowhere,
            Self::Etcd { access, prefix } => {
                Publisher::Etcd(LeaseKey::new(&EtcdClient::open(access).await?, prefix, replica))
            }
            Self::Kubernetes { access, finalizer } => {
                let connection = ReloadingClient::new(access.clone()).await?;
                Publisher::Kubernetes(Box::new(StatusObjects::new(connection, replica.name(), *finalizer)))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_configuration_lie_apart() {
        let beside = |prefix: &str| {
            let prefix_of_configuration = "/gatepost/config/".to_owned();
            StatusPlace::beside(
                EtcdLocation { access: EtcdAccess::default(), prefix: prefix_of_configuration, files: None },
                prefix,
            )
        };
        assert!(beside(StatusPlace::ETCD_PREFIX).is_ok() && beside("/gatepost/config-status/").is_ok());
        for wrong in ["/gatepost/config/", "/gatepost/config/replicas/", "/gatepost/", "/", "/gatepost/replicas"] {
            assert!(beside(wrong).is_err(), "{wrong}");
        }
    }
}
