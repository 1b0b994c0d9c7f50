//! Access: which apiserver is meant, and as whom.

use std::{
    env,
    path::{Path, PathBuf},
};

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::KubeError;

/// Where address and credentials of an apiserver come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A kubeconfig.
    Kubeconfig {
        /// The file; `None` is `$KUBECONFIG` (whose files are merged) or `~/.kube/config`.
        path: Option<PathBuf>,
        /// The context in it; `None` is its current one.
        context: Option<String>,
    },
    /// The service account of the Pod we run in.
    InCluster,
}

impl Access {
    /// What `kubectl` would use, given these: a kubeconfig where there is one, else the Pod's service account.
    ///
    /// A kubeconfig that exists and is broken is never passed over: who wrote it would ask another cluster unawares.
    pub fn find(path: Option<PathBuf>, context: Option<String>) -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let own = || set("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
        let named = path.is_some() || context.is_some() || set("KUBECONFIG").is_some();
        match !named && set("KUBERNETES_SERVICE_HOST").is_some() && !own() {
            true => Self::InCluster,
            false => Self::Kubeconfig { path, context },
        }
    }

    /// Reads it.
    pub(super) async fn config(&self) -> Result<Config, KubeError> {
        match self {
            Self::InCluster => Config::incluster().map_err(|error| KubeError::in_cluster(&error)),
            Self::Kubeconfig { path, context } => {
                let from = path.as_ref().map_or("the kubeconfig".to_owned(), |path| path.display().to_string());
                let failed = |error| KubeError::kubeconfig(&from, &error);
                let read = path.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(failed)?;
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                Config::from_custom_kubeconfig(read, &options).await.map_err(failed)
            }
        }
    }
}
