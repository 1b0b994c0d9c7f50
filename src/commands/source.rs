//! Source: flags that select the source of the configuration.

use std::path::PathBuf;

use clap::{ValueEnum, builder::NonEmptyStringValueParser};
use gatepost_operator::command::access;

use crate::source::{EtcdLocation, KubernetesLocation, SourceLocation, kubernetes::ObjectSelection};
use gatepost_etcd_client::{Login, TlsFiles};

/// Default prefix of the keys in etcd.
const ETCD_PREFIX: &str = "/gatepost/config/";

/// Flags that select the source of the configuration.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SourceArgs {
    /// Source of the configuration
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

    /// kubernetes: which objects hold hooks; a kube-apiserver also calls "webhooks" by itself
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', default_value = "configurations")]
    kube_objects: Vec<KubeObjects>,

    /// etcd: an endpoint of the cluster, as https://etcd.example:2379; repeat for more
    #[arg(long, value_name = "URL", required_if_eq("source", "etcd"))]
    etcd_endpoint: Vec<String>,

    /// etcd: the prefix of the keys; each key is a document
    #[arg(long, value_name = "PREFIX", default_value = ETCD_PREFIX)]
    etcd_prefix: String,

    /// etcd: the authority that signs the servers' certificates (PEM) [default: those of the system]
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,

    /// etcd: our certificate, where the servers want one (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,

    /// etcd: its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,

    /// etcd: the user, where etcd demands a password
    #[arg(long, value_name = "NAME", requires = "etcd_password_file", value_parser = NonEmptyStringValueParser::new())]
    etcd_user: Option<String>,

    /// etcd: the file that holds the user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,

    /// etcd: accept http:// endpoints on other machines, over a network that you trust
    #[arg(long)]
    etcd_plaintext: bool,

    /// kubernetes, etcd: the folder of files that hooks refer to, such as certificates [default: no files are allowed]
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceArg {
    File,
    Kubernetes,
    Etcd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KubeObjects {
    /// AdmissionControlConfigurations, Gatepost's own kind
    Configurations,
    /// ValidatingWebhookConfigurations and MutatingWebhookConfigurations
    Webhooks,
}

impl SourceArgs {
    /// Returns the location that the flags name.
    ///
    /// # Errors
    /// A message, if a flag is missing, invalid, or belongs to another source.
    pub(super) fn place(self) -> Result<SourceLocation, String> {
        self.reject_flags_of_other_sources()?;
        match self.source {
            SourceArg::File => {
                self.config.map(SourceLocation::File).ok_or_else(|| "--config PATH is missing".to_owned())
            }
            SourceArg::Kubernetes => Ok(SourceLocation::Kubernetes(self.kubernetes())),
            SourceArg::Etcd => self.etcd().map(SourceLocation::Etcd),
        }
    }

    /// Returns the location that the flags name if it has replicas' reports; `None` for files, which have none.
    ///
    /// # Errors
    /// A message, if a flag is missing, invalid, or belongs to another source.
    pub(super) fn replicas(self) -> Result<Option<SourceLocation>, String> {
        match self.source {
            SourceArg::File => self.reject_flags_of_other_sources().map(|()| None),
            SourceArg::Kubernetes | SourceArg::Etcd => self.place().map(Some),
        }
    }

    /// Rejects flags of another source: a user who gives `--etcd-endpoint` may have forgotten `--source etcd`.
    fn reject_flags_of_other_sources(&self) -> Result<(), String> {
        use SourceArg::{Etcd, File, Kubernetes};
        let objects = self.kube_objects != [KubeObjects::Configurations];
        let flags: [(&str, bool, &[SourceArg]); 11] = [
            ("--config", self.config.is_some(), &[File]),
            ("--kubeconfig", self.kubeconfig.is_some(), &[Kubernetes]),
            ("--context", self.context.is_some(), &[Kubernetes]),
            ("--kube-objects", objects, &[Kubernetes]),
            ("--etcd-endpoint", !self.etcd_endpoint.is_empty(), &[Etcd]),
            ("--etcd-prefix", self.etcd_prefix != ETCD_PREFIX, &[Etcd]),
            ("--etcd-ca", self.etcd_ca.is_some(), &[Etcd]),
            ("--etcd-cert", self.etcd_cert.is_some(), &[Etcd]),
            ("--etcd-user", self.etcd_user.is_some(), &[Etcd]),
            ("--etcd-plaintext", self.etcd_plaintext, &[Etcd]),
            ("--files", self.files.is_some(), &[Kubernetes, Etcd]),
        ];
        let name = |source: &SourceArg| source.to_possible_value().map(|value| value.get_name().to_owned());
        match flags.iter().find(|(_, said, of)| *said && !of.contains(&self.source)) {
            None => Ok(()),
            Some((flag, _, of)) => {
                let of: Vec<_> = of.iter().filter_map(name).collect();
                Err(format!("{flag} belongs to --source {}; say that, or leave {flag} out", of.join(" or ")))
            }
        }
    }

    fn kubernetes(self) -> KubernetesLocation {
        let access = access(self.kubeconfig, self.context);
        let wants = |kind| self.kube_objects.contains(&kind);
        let objects = ObjectSelection {
            configurations: wants(KubeObjects::Configurations),
            webhooks: wants(KubeObjects::Webhooks),
        };
        KubernetesLocation { files: self.files, ..KubernetesLocation::new(access, objects) }
    }

    fn etcd(self) -> Result<EtcdLocation, String> {
        if !self.etcd_prefix.ends_with('/') {
            return Err(format!(
                "--etcd-prefix {0:?} must end in a slash, so that it does not include the keys of {0}-old",
                self.etcd_prefix
            ));
        }
        let tls = TlsFiles { ca: self.etcd_ca, pair: self.etcd_cert.zip(self.etcd_key) };
        let login =
            self.etcd_user.zip(self.etcd_password_file).map(|(user, password_file)| Login { user, password_file });
        let access = gatepost_etcd_client::EtcdAccess {
            endpoints: self.etcd_endpoint,
            tls,
            login,
            plaintext: self.etcd_plaintext,
        };
        match access.check() {
            Ok(()) => Ok(EtcdLocation { access, prefix: self.etcd_prefix, files: self.files }),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        source: SourceArgs,
    }

    fn etcd(flags: &str) -> Result<EtcdLocation, String> {
        let line = format!("gatepost --source etcd {flags}");
        let parsed = Line::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        match parsed.source.place()? {
            SourceLocation::Etcd(place) => Ok(place),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn etcd_flags_name_a_location() {
        let place = etcd(
            "--etcd-endpoint https://a.example --etcd-endpoint https://b.example:1 --etcd-prefix /x/ --files /f \
             --etcd-ca ca --etcd-cert cert --etcd-key key --etcd-user me --etcd-password-file password",
        );
        let access = gatepost_etcd_client::EtcdAccess {
            endpoints: vec!["https://a.example".to_owned(), "https://b.example:1".to_owned()],
            tls: TlsFiles { ca: Some("ca".into()), pair: Some(("cert".into(), "key".into())) },
            login: Some(Login { user: "me".to_owned(), password_file: "password".into() }),
            plaintext: false,
        };
        assert_eq!(place, Ok(EtcdLocation { access, prefix: "/x/".to_owned(), files: Some("/f".into()) }));
        assert_eq!(etcd("--etcd-endpoint http://127.0.0.1:1").unwrap().prefix, "/gatepost/config/");
        assert!(etcd("--etcd-endpoint http://etcd.example --etcd-plaintext").is_ok());
    }

    #[test]
    fn etcd_flags_that_are_missing_or_unsafe_are_refused() {
        for (flags, words) in [
            ("", "--etcd-endpoint"),
            ("--etcd-endpoint http://etcd.example", "is plaintext to another machine"),
            ("--etcd-endpoint https://etcd.example --etcd-prefix /gatepost", "end in a slash"),
            ("--etcd-endpoint https://etcd.example --etcd-cert cert", "--etcd-key"),
            ("--etcd-endpoint https://etcd.example --etcd-user me", "--etcd-password-file"),
            ("--etcd-endpoint etcd.example:1", "does not begin with https://"),
            ("--etcd-endpoint https://etcd.example --config /etc/gatepost", "--config belongs to --source file;"),
            ("--etcd-endpoint https://etcd.example --context x", "--context belongs to --source kubernetes;"),
        ] {
            let error = etcd(flags).unwrap_err();
            assert!(error.contains(words), "{flags}: {error}");
        }
    }

    #[test]
    fn flags_of_another_source_are_refused() {
        let errors = |flags: &str| {
            let parsed = Line::try_parse_from(format!("gatepost {flags}").split_whitespace()).expect(flags);
            (parsed.source.clone().place().unwrap_err(), parsed.source.replicas().map(drop))
        };
        for (flags, words) in [
            (
                "--config /etc/gatepost --etcd-endpoint https://etcd.example",
                "--etcd-endpoint belongs to --source etcd;",
            ),
            ("--config /etc/gatepost --etcd-prefix /x/", "--etcd-prefix belongs to --source etcd;"),
            ("--config /etc/gatepost --kube-objects webhooks", "--kube-objects belongs to --source kubernetes;"),
            ("--config /etc/gatepost --files /f", "--files belongs to --source kubernetes or etcd;"),
            ("--source kubernetes --config /etc/gatepost", "--config belongs to --source file;"),
            ("--source kubernetes --etcd-plaintext", "--etcd-plaintext belongs to --source etcd;"),
        ] {
            let (place, replicas) = errors(flags);
            assert!(place.starts_with(words), "{flags}: {place}");
            assert_eq!(replicas, Err(place), "{flags}");
        }
    }
}
