//! Endpoint: address of an apiserver, and the authorities that vouch for it.

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{KubeAccess, KubeError, access::LIMIT};
use gatepost_base::files::regular;

/// Address of an apiserver, and the authorities that vouch for it, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiEndpoint {
    /// URL, as a kubeconfig has it.
    pub url: String,
    /// PEM text of its authorities; `None` for those of the system.
    pub ca_pem: Option<String>,
    /// Name in its certificate, where that is not the URL's host.
    pub server_name: Option<String>,
}

impl KubeAccess {
    /// Endpoint of the apiserver. Reads files.
    ///
    /// # Errors
    /// [`KubeError::Access`], also where the settings say not to look at the certificate.
    pub async fn endpoint(&self) -> Result<ApiEndpoint, KubeError> {
        self.check_file()?;
        let config = self.config().await?;
        if config.accept_invalid_certs {
            let cause = "says insecure-skip-tls-verify, and what passes here must not be read by others".to_owned();
            return Err(KubeError::Access { from: self.to_string(), cause });
        }
        let of_file = |path: PathBuf| {
            let read = regular::read(&path, LIMIT).map(|text| String::from_utf8_lossy(&text).into_owned());
            read.map_err(|error| KubeError::Access {
                from: path.display().to_string(),
                cause: format!("cannot be read: {error}"),
            })
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

/// PEM text of a certificate.
fn pem(der: &[u8]) -> String {
    let lines: String = STANDARD.encode(der).as_bytes().chunks(64).fold(String::new(), |mut text, line| {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
        text
    });
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
