//! Address of an apiserver, its certificate authorities, and our credentials.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gatepost_base::files;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::KubeError;

/// Maximum size of a file with address or credentials, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 20;

/// Origin of an apiserver's address and credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeAccess {
    /// A kubeconfig.
    Kubeconfig {
        /// The file; `None` for `$KUBECONFIG` (whose files are merged) or `~/.kube/config`.
        path: Option<PathBuf>,
        /// The context in the file; `None` for the current one.
        context: Option<String>,
    },
    /// The service account of our Pod.
    InCluster,
}

impl KubeAccess {
    /// Chooses the access as `kubectl` does: a kubeconfig if there is one, otherwise the Pod's service account.
    ///
    /// A kubeconfig that exists but is broken is never skipped: its author would use another cluster unawares.
    pub fn find(path: Option<PathBuf>, context: Option<String>) -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let own = || set("HOME").is_some_and(|home| Path::new(&home).join(".kube/config").exists());
        let named = path.is_some() || context.is_some() || set("KUBECONFIG").is_some();
        match !named && set("KUBERNETES_SERVICE_HOST").is_some() && !own() {
            true => Self::InCluster,
            false => Self::Kubeconfig { path, context },
        }
    }

    /// Checks that the configured kubeconfig can be read and is not a pipe, on which later reads would block.
    pub(super) fn check_file(&self) -> Result<(), KubeError> {
        match self {
            Self::Kubeconfig { path: Some(path), .. } => {
                files::read(path, MAX_FILE_BYTES).map(drop).map_err(|error| KubeError::unreadable(self, &error))
            }
            Self::Kubeconfig { path: None, .. } | Self::InCluster => Ok(()),
        }
    }

    /// Reads address and credentials.
    pub(super) async fn config(&self) -> Result<Config, KubeError> {
        self.read().await.map(|(config, _)| config)
    }

    /// Reads address and credentials. Also returns their files that may change: kubeconfigs, certificates, tokens.
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

/// Returns the default kubeconfigs of `kubectl`.
fn usual_kubeconfigs() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    match set("KUBECONFIG") {
        Some(several) => env::split_paths(&several).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => set("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
    }
}

/// Returns the CA file of the cluster in this context, or in the current one.
fn authority<'a>(kubeconfig: &'a Kubeconfig, context: Option<&str>) -> Option<&'a str> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == context.cluster)?.cluster.as_ref()?;
    cluster.certificate_authority.as_deref()
}

/// Replaces the token file and the CA file by their contents, as kube-rs would read the files repeatedly on the calling
/// thread. [`ReloadingClient`](super::ReloadingClient) detects changes of the files, and creates a new client.
pub(super) fn inline(config: &mut Config) -> Result<(), KubeError> {
    if config.root_cert.is_some() {
        config.root_cert_file = None;
    }
    let user = &mut config.auth_info;
    let Some(path) = user.token_file.take_if(|_| user.token.is_none()) else { return Ok(()) };
    let cannot = |why: &dyn fmt::Display| KubeError::unreadable(&format_args!("the token file {path}"), why);
    let token = files::read(Path::new(&path), MAX_FILE_BYTES).map_err(|error| cannot(&error))?;
    let token = String::from_utf8(token).map_err(|_| cannot(&"it is no text"))?;
    user.token = Some(token.trim().to_owned().into());
    Ok(())
}

/// Address of an apiserver and its certificate authorities, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiEndpoint {
    /// URL, as in a kubeconfig.
    pub url: String,
    /// PEM text of the authorities; `None` for those of the system.
    pub ca_pem: Option<String>,
    /// Name in the apiserver's certificate, if it is not the URL's host.
    pub server_name: Option<String>,
}

impl KubeAccess {
    /// Returns the endpoint of the apiserver. Reads files.
    ///
    /// # Errors
    /// [`KubeError::Access`], including if the settings disable the verification of the certificate.
    pub async fn endpoint(&self) -> Result<ApiEndpoint, KubeError> {
        self.check_file()?;
        let config = self.config().await?;
        if config.accept_invalid_certs {
            let cause = "says insecure-skip-tls-verify, and what passes here must not be read by others".to_owned();
            return Err(KubeError::Access { from: self.to_string(), cause });
        }
        let of_file = |path: PathBuf| {
            let read = files::read(&path, MAX_FILE_BYTES).map(|text| String::from_utf8_lossy(&text).into_owned());
            read.map_err(|error| KubeError::unreadable(&path.display(), &error))
        };
        let ca_pem = match config.root_cert {
            Some(certificates) => Some(certificates.iter().map(|der| pem(der)).collect()),
            None => config.root_cert_file.map(of_file).transpose()?,
        };
        Ok(ApiEndpoint {
            url: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            ca_pem,
            server_name: config.tls_server_name,
        })
    }
}

/// Returns a certificate as PEM text.
fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: String = base64.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n").collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endpoint_is_read_from_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let key = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let ca = key.cert.pem().replace("\r\n", "\n");
        let write = |more: &str| {
            let cluster = format!("server: https://a.example:6443/, tls-server-name: b{more}");
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{{cluster}}}}}], \
                 contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
            );
            std::fs::write(&path, text).unwrap();
        };
        let access = KubeAccess::Kubeconfig { path: Some(path.clone()), context: None };
        write(&format!(", certificate-authority-data: {}", STANDARD.encode(&ca)));
        let endpoint = access.endpoint().await.unwrap();
        assert_eq!(endpoint.url, "https://a.example:6443");
        assert_eq!((endpoint.ca_pem.as_deref(), endpoint.server_name.as_deref()), (Some(&*ca), Some("b")));
        write(", insecure-skip-tls-verify: true");
        assert!(access.endpoint().await.unwrap_err().to_string().contains("insecure-skip-tls-verify"));
    }
}
