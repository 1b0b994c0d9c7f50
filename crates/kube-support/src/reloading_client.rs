//! Connection: a client of an apiserver whose credentials may change while it is used.

use std::{path::PathBuf, time::Duration};

use sha2::{Digest, Sha256};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use super::{
    KubeAccess, KubeClient, KubeError,
    access::{LIMIT, inline},
    plugin,
};
use gatepost_base::files::{self, BlockingReads, ReadFailure};

/// Credentials that were refused are asked for anew no more often than this: a plugin may ask other machines for them.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// Longest look at the files.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// A client of an apiserver whose credentials may change while it is used.
///
/// The package reads a client certificate and a kubeconfig once, and a token file once a minute. Here every file that
/// the credentials come from is looked at each time a client is asked for, off this thread; when one has changed, a new
/// client takes the place of the old. Unusable contents never do: the old client is used on.
///
/// | the credentials | are had anew when |
/// | --- | --- |
/// | kubeconfig, client certificate and key, authority, token file | a file's content has changed |
/// | a token from an exec plugin | it is about to end (the package), or it was refused |
/// | a certificate from an exec plugin | it was refused |
#[derive(Debug)]
pub struct ReloadingClient {
    access: KubeAccess,
    client: Option<KubeClient>,
    /// Digest of the files that the client was made from.
    made_of: Option<[u8; 32]>,
    looking: Option<JoinHandle<Looked>>,
    /// Looks at the files, and those that hang.
    reads: BlockingReads,
    /// Exec plugins; one may wait for a person.
    plugins: BlockingReads,
    renew: bool,
    /// Time at which the credentials were last renewed without a change of a file.
    renewed: Option<Instant>,
    failure: Option<KubeError>,
}

/// A new client and what it was made of; `None` where nothing has changed.
type Looked = Result<Option<(KubeClient, [u8; 32])>, KubeError>;

impl ReloadingClient {
    /// Sees whether address and credentials can be read at all. Connects to nothing and runs no plugin yet.
    ///
    /// # Errors
    /// [`KubeError::Access`].
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        access.check_file()?;
        access.read().await?;
        Ok(Self {
            access,
            client: None,
            made_of: None,
            looking: None,
            reads: BlockingReads::default(),
            plugins: BlockingReads::default(),
            renew: false,
            renewed: None,
            failure: None,
        })
    }

    /// The client to ask with now. May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// [`KubeError::Access`] while there was never one to be had.
    pub async fn client(&mut self) -> Result<KubeClient, KubeError> {
        let looking = match self.looking.take() {
            Some(looking) => looking,
            None => self.look(),
        };
        let looking = self.looking.insert(looking);
        // A change is waited for only where there is nothing to ask with: the next call has it.
        if self.client.is_none() || looking.is_finished() {
            let looked = looking.await;
            self.looking = None;
            match looked {
                Ok(looked) => self.take(looked),
                Err(panic) => tracing::error!(%panic, "reading the credentials for the apiserver failed"),
            }
        }
        let missing = || KubeError::Access { from: self.access.to_string(), cause: "cannot be read".to_owned() };
        self.client.clone().ok_or_else(|| self.failure.clone().unwrap_or_else(missing))
    }

    /// The apiserver's address, once there is a client.
    pub fn server(&self) -> String {
        self.client.as_ref().map_or_else(|| self.access.to_string(), |client| client.server().to_owned())
    }

    /// Takes note of a failed call with this client: are other credentials to be had?
    pub fn failed(&mut self, error: &KubeError) {
        let due = self.renewed.is_none_or(|renewed| renewed.elapsed() >= RENEW_EVERY);
        let perhaps = match error {
            KubeError::Refused { code, .. } | KubeError::Unwritten { code, .. } => *code == 401,
            KubeError::Nonsense { .. } | KubeError::TooLarge { .. } => false,
            // A plugin that takes long is cut off with the question it was run for; here it may take its time.
            KubeError::Access { .. } | KubeError::Unreachable { .. } | KubeError::Late { .. } => true,
        };
        self.renew |= due && perhaps && self.client.is_some();
    }

    fn look(&mut self) -> JoinHandle<Looked> {
        let renew = std::mem::take(&mut self.renew);
        if renew {
            self.renewed = Some(Instant::now());
        }
        let (access, known) = (self.access.clone(), self.made_of.filter(|_| !renew));
        let (reads, plugins) = (self.reads.clone(), self.plugins.clone());
        let runtime = Handle::current();
        tokio::spawn(async move {
            let from = access.to_string();
            let unread =
                |why: ReadFailure| KubeError::Access { from: from.clone(), cause: format!("cannot be read: {why}") };
            let read = move || {
                let (mut config, files) = runtime.block_on(access.read())?;
                // A caller that asks every second asks again anyway, and wants to know why it got nothing.
                config.default_retry = false;
                // Before the client is made: what changes meanwhile is seen the next time.
                let held = digest(&files);
                inline(&mut config)?;
                Ok((config, held))
            };
            let (config, held) = reads.run(READ_WITHIN, read).await.map_err(&unread)??;
            if known == Some(held) {
                return Ok(None);
            }
            let client =
                plugins.run(plugin::MAX_PLUGIN_TIME, move || KubeClient::of(config)).await.map_err(&unread)??;
            Ok(Some((client, held)))
        })
    }

    fn take(&mut self, looked: Looked) {
        match looked {
            Ok(changed) => {
                if let Some((client, made_of)) = changed {
                    if self.client.is_some() && self.made_of != Some(made_of) {
                        tracing::info!(server = client.server(), "using new credentials for the apiserver");
                    }
                    (self.client, self.made_of) = (Some(client), Some(made_of));
                }
                self.failure = None;
            }
            Err(error) => {
                if self.client.is_some() && self.failure.as_ref() != Some(&error) {
                    tracing::warn!(%error, fix = error.fix(), "the changed credentials are not valid; the old ones \
                                                               stay in use");
                }
                self.failure = Some(error);
            }
        }
    }
}

/// Digest of these files; an unreadable one is a state, too.
fn digest(files: &[PathBuf]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for file in files {
        match files::read(file, LIMIT) {
            Ok(bytes) => {
                sha.update((bytes.len() as u64).to_be_bytes());
                sha.update(bytes);
            }
            Err(_) => sha.update([0xff; 8]),
        }
    }
    sha.finalize().into()
}
