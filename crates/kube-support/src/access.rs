//! Access: which apiserver is meant, and as whom.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::KubeError;
use gatepost_base::files::regular;

/// No file with address or credentials is this large.
pub(super) const LIMIT: u64 = 16 << 20;

/// Origin of an apiserver's address and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeAccess {
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

impl KubeAccess {
    /// Access as `kubectl` would choose it: a kubeconfig where there is one, else the Pod's service account.
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

    /// Is the kubeconfig that was named no pipe? It is read again and again, and a pipe would have us wait.
    pub(super) fn check_file(&self) -> Result<(), KubeError> {
        match self {
            Self::Kubeconfig { path: Some(path), .. } => {
                let read = regular::read(path, LIMIT).map(drop);
                read.map_err(|error| KubeError::Access {
                    from: self.to_string(),
                    cause: format!("cannot be read: {error}"),
                })
            }
            Self::Kubeconfig { path: None, .. } | Self::InCluster => Ok(()),
        }
    }

    /// Reads it.
    pub(super) async fn config(&self) -> Result<Config, KubeError> {
        self.read().await.map(|(config, _)| config)
    }

    /// Reads it; and the files it comes from, which may change: kubeconfigs, certificates, keys, tokens.
    pub(super) async fn read(&self) -> Result<(Config, Vec<PathBuf>), KubeError> {
        match self {
            Self::InCluster => {
                let config = Config::incluster().map_err(|error| KubeError::in_cluster(&error))?;
                let files = [config.auth_info.token_file.as_ref().map(PathBuf::from), config.root_cert_file.clone()];
                Ok((config, files.into_iter().flatten().collect()))
            }
            Self::Kubeconfig { path, context } => {
                let failed = |error| KubeError::kubeconfig(&self.to_string(), &error);
                let read = path.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from).map_err(failed)?;
                let mut files = path.as_ref().map_or_else(usual_kubeconfigs, |path| vec![path.clone()]);
                files.extend(authority(&read, context.as_deref()).map(PathBuf::from));
                let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
                let config = Config::from_custom_kubeconfig(read, &options).await.map_err(failed)?;
                let user = &config.auth_info;
                let named = [&user.client_certificate, &user.client_key, &user.token_file];
                files.extend(named.into_iter().flatten().map(PathBuf::from));
                Ok((config, files))
            }
        }
    }
}

impl fmt::Display for KubeAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InCluster => f.write_str("the Pod's service account"),
            Self::Kubeconfig { path: Some(path), .. } => path.display().fmt(f),
            Self::Kubeconfig { path: None, .. } => f.write_str("the kubeconfig of $KUBECONFIG, or ~/.kube/config"),
        }
    }
}

/// Default kubeconfigs of `kubectl`.
fn usual_kubeconfigs() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    match set("KUBECONFIG") {
        Some(several) => env::split_paths(&several).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => set("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
    }
}

/// The file with the authority of the cluster that this context, or the current one, means.
fn authority<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == context.cluster)?.cluster.as_ref()?;
    cluster.certificate_authority.as_deref()
}

/// Puts what the package would read again and again, on the thread that asks, into the settings themselves: the token
/// and the authority. [`Connection`](super::Connection) sees their files change, and makes a new client then.
pub(super) fn inline(config: &mut Config) -> Result<(), KubeError> {
    if config.root_cert.is_some() {
        config.root_cert_file = None;
    }
    let user = &mut config.auth_info;
    let Some(path) = user.token_file.take_if(|_| user.token.is_none()) else { return Ok(()) };
    let cannot = |why: &dyn fmt::Display| KubeError::Access {
        from: format!("the token file {path}"),
        cause: format!("cannot be read: {why}"),
    };
    let token = regular::read(Path::new(&path), LIMIT).map_err(|error| cannot(&error))?;
    let token = String::from_utf8(token).map_err(|_| cannot(&"it is no text"))?;
    user.token = Some(token.trim().to_owned().into());
    Ok(())
}
