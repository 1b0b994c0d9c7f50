//! Flags of `serve` about webhooks of others that are taken over.

use clap::Args;

use crate::{
    adopt::{AdoptionScope, AdoptionSettings},
    cli::{adopt::ADOPT_NAMESPACE, register},
    replicas::Replica,
    source::{SourceLocation, kubernetes::adopting::Upkeep},
};

/// Adoption, as `serve` is asked for it.
#[derive(Debug, Args)]
pub(super) struct AdoptionArgs {
    /// kubernetes: call these webhooks in the apiserver's place: "all", "named" (by `gatepost adopt`), or a label selector
    ///
    /// A webhook is taken over by the match condition gatepost.dev/served, which Gatepost applies once every replica calls
    /// it, and given back by removing that condition. `gatepost adopt --plan` says what can be taken, and why not the
    /// rest. Register Gatepost first. The user needs the rights of deploy/kubernetes/adopt.yaml.
    #[arg(long, value_name = "SELECTOR", value_parser = AdoptionScope::parse)]
    adopt: Option<AdoptionScope>,

    /// kubernetes: the namespace of the leases by which replicas agree on what is taken over
    #[arg(long, value_name = "NAMESPACE", default_value = ADOPT_NAMESPACE, requires = "adopt")]
    adopt_namespace: String,

    /// kubernetes: keep Gatepost's registration up to date: what it sends is what the configuration and the webhooks want
    /// that are to be taken over
    ///
    /// Writes the webhooks of the registration that is there, as `gatepost register --config` would print them; they lead
    /// where they led. Requests that are sent and not wanted any more are left out a minute later. Without this flag, a
    /// webhook that the registration does not cover is left to the apiserver.
    #[arg(long, requires = "adopt")]
    adopt_registration: bool,
}

impl AdoptionArgs {
    /// Makes the source one that takes webhooks over, where that is asked for.
    ///
    /// # Errors
    /// A source that has no webhooks to take over, and what to say instead.
    pub(super) fn put_into(
        self,
        source: &mut SourceLocation,
        replica: Option<&str>,
        registration: Option<&str>,
    ) -> Result<(), &'static str> {
        let Some(scope) = self.adopt else { return Ok(()) };
        match source {
            SourceLocation::Kubernetes(place) if !place.objects.webhooks => {
                place.adopt = Some(AdoptionSettings {
                    scope,
                    namespace: self.adopt_namespace,
                    replica: replica.map_or_else(Replica::host, str::to_owned),
                    registration: registration.map(str::to_owned),
                });
                place.upkeep = self.adopt_registration.then_some(register::upkeep::webhooks as Upkeep);
                Ok(())
            }
            SourceLocation::Kubernetes(_) => {
                Err("--adopt calls some webhooks of the cluster, and --kube-objects webhooks all: say one")
            }
            SourceLocation::File(_) | SourceLocation::Etcd(_) => {
                Err("--adopt belongs to --source kubernetes; say that, or leave --adopt out")
            }
        }
    }
}
