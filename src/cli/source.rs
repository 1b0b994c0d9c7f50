//! Source: where the configuration is read from, as flags.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::{
    kube::Access,
    source::{KubernetesPlace, Place, kubernetes::Objects},
};

/// Where the configuration is read from.
#[derive(Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// Where the configuration is read from
    #[arg(long, value_enum, value_name = "SOURCE", default_value = "file")]
    source: SourceArg,

    /// file: a YAML or JSON file, or a folder of them
    #[arg(long, value_name = "PATH", required_if_eq("source", "file"))]
    config: Option<PathBuf>,

    /// kubernetes: the kubeconfig, or "in-cluster" for the Pod's service account [default: as kubectl has it]
    #[arg(long, value_name = "FILE|in-cluster")]
    kubeconfig: Option<PathBuf>,

    /// kubernetes: the context in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// kubernetes: which objects hold hooks; "webhooks" are those that a kube-apiserver asks by itself, too
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', default_value = "configurations")]
    kube_objects: Vec<KubeObjects>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceArg {
    File,
    Kubernetes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KubeObjects {
    /// AdmissionControlConfigurations, Gatepost's own kind
    Configurations,
    /// ValidatingWebhookConfigurations and MutatingWebhookConfigurations
    Webhooks,
}

impl SourceArgs {
    /// The place these flags name.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn place(self) -> Result<Place, String> {
        match self.source {
            SourceArg::File => self.config.map(Place::File).ok_or_else(|| "--config PATH is missing".to_owned()),
            SourceArg::Kubernetes => Ok(Place::Kubernetes(self.kubernetes())),
        }
    }

    fn kubernetes(self) -> KubernetesPlace {
        let access = match self.kubeconfig {
            Some(path) if path.as_os_str() == "in-cluster" => Access::InCluster,
            path => Access::find(path, self.context),
        };
        let wants = |kind| self.kube_objects.contains(&kind);
        let objects =
            Objects { configurations: wants(KubeObjects::Configurations), webhooks: wants(KubeObjects::Webhooks) };
        KubernetesPlace { access, objects, files: None }
    }
}
