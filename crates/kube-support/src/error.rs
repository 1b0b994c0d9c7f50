//! Errors of calls to an apiserver.
//!
//! Some messages of kube-rs may quote a kubeconfig, an exec plugin's command line or its output. These messages are
//! replaced by the kind of the failure.

use std::{error::Error as _, fmt, time::Duration};

use kube::{
    Error,
    client::AuthError,
    config::{InClusterError, KubeconfigError, LoadDataError},
};

use super::plugin::PluginError;
use gatepost_tls as tls;

/// Error of a call to an apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// The address or the credentials are invalid.
    #[error("{from}: {cause}")]
    Access {
        /// Origin of the address or credentials.
        from: String,
        /// Reason why they are invalid.
        cause: String,
    },
    /// The apiserver cannot be reached, or its TLS handshake failed, or the connection broke.
    #[error("cannot reach the apiserver {server}: {cause}")]
    Unreachable {
        /// Address of the apiserver.
        server: String,
        /// Innermost cause.
        cause: String,
    },
    /// The call timed out.
    #[error("the apiserver {server} gave no answer within {}", humantime::format_duration(*.patience))]
    TimedOut {
        /// Address of the apiserver.
        server: String,
        /// Timeout of the call.
        patience: Duration,
    },
    /// The apiserver rejected a read.
    #[error("the apiserver {server} answers {code} to GET {path}: {message}")]
    Refused {
        /// Address of the apiserver.
        server: String,
        /// HTTP status.
        code: u16,
        /// Path of the request.
        path: String,
        /// The apiserver's message, shortened.
        message: String,
    },
    /// The apiserver rejected a write.
    #[error("the apiserver {server} answers {code} to {method} {path}: {message}")]
    WriteRefused {
        /// Address of the apiserver.
        server: String,
        /// HTTP status.
        code: u16,
        /// Method of the request.
        method: String,
        /// Path of the request.
        path: String,
        /// The apiserver's message, shortened.
        message: String,
    },
    /// The response is larger than the limit.
    #[error("the answer of {server} to GET {path} is larger than {most} bytes")]
    TooLarge {
        /// Address of the apiserver.
        server: String,
        /// Path of the request.
        path: String,
        /// Limit, in bytes.
        most: usize,
    },
    /// The response is invalid: the server is perhaps not an apiserver.
    #[error("the answer of {server} to GET {path} is not an apiserver's: {cause}")]
    InvalidResponse {
        /// Address of the server.
        server: String,
        /// Path of the request.
        path: String,
        /// Fault of the response.
        cause: String,
    },
}

impl KubeError {
    /// Returns advice for the operator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Access { .. } => {
                "correct it; outside of a Pod, `kubectl get --raw /readyz` with the same kubeconfig shows when it works"
            }
            Self::Unreachable { .. } => "see that it runs, and that the kubeconfig names its address and authority",
            Self::TimedOut { .. } => "see whether it is overloaded, or ask another instance",
            Self::Refused { code: 401, .. } | Self::WriteRefused { code: 401, .. } => {
                "the credentials are not taken; get new ones"
            }
            Self::Refused { code: 403, .. } | Self::WriteRefused { code: 403, .. } => {
                "let an administrator grant this user what the apiserver says is missing"
            }
            Self::Refused { code: 404, .. } => "see that the kubeconfig names a Kubernetes apiserver",
            Self::WriteRefused { code: 404, .. } => "install our kinds: gatepost crd | kubectl apply -f -",
            Self::Refused { .. } | Self::WriteRefused { .. } => "see its log, and try again",
            Self::TooLarge { .. } => {
                "find what is so large there, by `kubectl get --raw` of that path, and make it smaller"
            }
            Self::InvalidResponse { .. } => {
                "see that the kubeconfig names a Kubernetes apiserver, and not a proxy's login page"
            }
        }
    }

    /// Returns the error for settings that cannot be read from this origin.
    pub(super) fn unreadable(from: &dyn fmt::Display, why: &dyn fmt::Display) -> Self {
        Self::Access { from: from.to_string(), cause: format!("cannot be read: {why}") }
    }

    /// Returns the error for a response that broke off.
    pub(super) fn broken(server: &str, path: &str, cause: &str) -> Self {
        let cause = format!("its answer to GET {path} broke off: {cause}");
        Self::Unreachable { server: server.to_owned(), cause }
    }

    /// Converts a rejected read into a rejected write with this method.
    pub(super) fn into_write_refusal(self, method: &str) -> Self {
        match self {
            Self::Refused { server, code, path, message } => {
                Self::WriteRefused { server, code, method: method.to_owned(), path, message }
            }
            other => other,
        }
    }

    pub(super) fn in_cluster(error: &InClusterError) -> Self {
        let cause = match error {
            InClusterError::ReadEnvironmentVariable(_) => {
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as they are in a Pod".to_owned()
            }
            other => other.to_string(),
        };
        Self::Access { from: "the Pod's service account".to_owned(), cause }
    }

    pub(super) fn kubeconfig(from: &str, error: &KubeconfigError) -> Self {
        Self::Access { from: from.to_owned(), cause: kubeconfig_cause(error) }
    }

    /// Returns the error for a client that cannot be created, or for a call without an HTTP response.
    pub(super) fn call(server: &str, error: &Error) -> Self {
        let access = |cause| Self::Access { from: format!("the credentials for {server}"), cause };
        match error {
            Error::Auth(error) => access(auth_cause(error)),
            Error::InferKubeconfig(error) => access(kubeconfig_cause(error)),
            Error::RustlsTls(error) => access(error.to_string()),
            Error::ProxyProtocolUnsupported { .. } | Error::ProxyProtocolDisabled { .. } => {
                access("proxy-url is set, and proxies are not supported".to_owned())
            }
            other => Self::Unreachable { server: server.to_owned(), cause: innermost(other) },
        }
    }
}

fn kubeconfig_cause(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(cause, _) => format!("cannot be read: {cause}"),
        KubeconfigError::Parse(cause) => {
            let place = cause.location().map(|at| format!(": line {}, column {}", at.line(), at.column()));
            format!("is not a kubeconfig{}", place.unwrap_or_default())
        }
        KubeconfigError::LoadContext(name) => format!("has no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("has no cluster {name:?}, which the context names"),
        KubeconfigError::CurrentContextNotSet => "has no current-context; name one with --context".to_owned(),
        KubeconfigError::LoadCertificateAuthority(cause) => data_cause("certificate-authority", cause),
        KubeconfigError::LoadClientCertificate(cause) => data_cause("client-certificate", cause),
        KubeconfigError::LoadClientKey(cause) => data_cause("client-key", cause),
        KubeconfigError::ParseCertificates(_) => "holds a certificate that is not PEM".to_owned(),
        other => other.to_string(),
    }
}

fn data_cause(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("{field}-data is not base64"),
        LoadDataError::ReadFile(cause, path) => format!("{field} {}: {cause}", path.display()),
        LoadDataError::NoBase64DataOrFile => format!("has neither {field} nor {field}-data"),
    }
}

fn auth_cause(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecStart(cause) => format!("the exec plugin cannot be started: {cause}"),
        AuthError::AuthExecRun { out, .. } => format!("the exec plugin {}", PluginError::exit_reason(out.status)),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "the exec plugin did not print an ExecCredential with a status".to_owned()
        }
        AuthError::MissingCommand => "exec names no command".to_owned(),
        AuthError::ReadTokenFile(cause, path) => format!("the token file {}: {cause}", path.display()),
        AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => {
            "user, password or token hold characters that no HTTP header may hold".to_owned()
        }
        _ => "are of a kind that is not supported, or out of date".to_owned(),
    }
}

/// Returns the innermost cause, as the outer errors contain only "error trying to connect" and the like.
fn innermost(error: &Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    tls::normalize_error(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::{io::Write, path::PathBuf};

    use super::*;
    use crate::{KubeAccess, KubeClient};

    async fn refused(kubeconfig: &str, context: Option<&str>) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(kubeconfig.as_bytes()).unwrap();
        let path = Some(PathBuf::from(file.path()));
        let access = KubeAccess::Kubeconfig { path, context: context.map(str::to_owned) };
        let error = KubeClient::open(&access).await.unwrap_err();
        assert!(matches!(error, KubeError::Access { .. }), "{error:?}");
        error.to_string()
    }

    fn with_user(user: &str) -> String {
        format!(
            "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}], clusters: [{{name: c, \
             cluster: {{server: 'https://127.0.0.1:1'}}}}], users: [{{name: u, user: {user}}}]}}"
        )
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_kubeconfig_is_reported_without_its_secrets() {
        for (kubeconfig, context, words) in [
            ("users: [{name: u, user: {token: [hunter2]}}]".to_owned(), None, "is not a kubeconfig"),
            ("{}".to_owned(), None, "--context"),
            (with_user("{token: hunter2}"), Some("y"), "has no context \"y\""),
            (with_user("{client-certificate-data: aGk=, client-key-data: 'hunter2?'}"), None, "client-key-data is not"),
            (
                with_user("{exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false', args: [hunter2]}}"),
                None,
                "exec plugin failed",
            ),
            (
                with_user("{exec: {apiVersion: client.authentication.k8s.io/v1, command: echo, args: ['{hunter2']}}"),
                None,
                "ExecCredential",
            ),
            (
                with_user(
                    "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/hunter, args: [hunter2]}}",
                ),
                None,
                "cannot be started",
            ),
            (with_user("{tokenFile: /nowhere/token}"), None, "/nowhere/token"),
        ] {
            let text = refused(&kubeconfig, context).await;
            assert!(text.contains(words) && !text.contains("hunter2"), "{kubeconfig}: {text}");
        }
    }

    #[tokio::test]
    async fn nobody_there_is_unreachable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(with_user("{}").replace("https://127.0.0.1:1", &server).as_bytes()).unwrap();
        let access = KubeAccess::Kubeconfig { path: Some(file.path().into()), context: None };
        let error = KubeClient::open(&access).await.unwrap().list("/api/v1/namespaces").await.unwrap_err();
        assert!(matches!(&error, KubeError::Unreachable { cause, .. } if cause.contains("refused")), "{error}");
    }
}
