//! A client of an apiserver that is renewed when its credentials change.

use std::{path::PathBuf, time::Duration};

use sha2::{Digest, Sha256};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use super::{
    KubeAccess, KubeClient, KubeError,
    access::{MAX_FILE_BYTES, inline},
    plugin,
};
use gatepost_base::files::{self, BlockingReads, ReadFailure};

/// Minimum interval between renewals of rejected credentials: an exec plugin may request them from other machines.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which [`ReloadingClient::recent_client`] checks the credentials for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a read of the files.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Client of an apiserver whose credentials may change while it is used.
///
/// kube-rs reads a client certificate and a kubeconfig once, and a token file once a minute. `ReloadingClient` reads
/// all files of the credentials each time a client is requested, on another thread. It creates a new client if a file
/// has changed. Invalid files never replace a client: the old one stays in use.
///
/// | credentials | renewed if |
/// | --- | --- |
/// | kubeconfig, client certificate and key, authority, token file | a file's content has changed |
/// | a token from an exec plugin | it is about to expire (done by kube-rs), or it was rejected |
/// | a certificate from an exec plugin | it was rejected |
#[derive(Debug)]
pub struct ReloadingClient {
    access: KubeAccess,
    client: Option<KubeClient>,
    /// Digest of the files from which the client was created.
    files_digest: Option<[u8; 32]>,
    reload: Option<JoinHandle<ReloadResult>>,
    /// Runs the reads of the files, of which some may hang.
    reads: BlockingReads,
    /// Runs the exec plugins, which may wait for a person.
    plugins: BlockingReads,
    renew: bool,
    /// Time of the last renewal without a changed file.
    renewed: Option<Instant>,
    /// Time of the last [`recent_client`](Self::recent_client) that checked the credentials.
    checked: Option<Instant>,
    failure: Option<KubeError>,
}

/// A new client and the digest of its files; `None` if nothing has changed.
type ReloadResult = Result<Option<(KubeClient, [u8; 32])>, KubeError>;

impl ReloadingClient {
    /// Checks that address and credentials can be read. Connects to nothing and runs no plugin yet.
    ///
    /// # Errors
    /// [`KubeError::Access`].
    pub async fn new(access: KubeAccess) -> Result<Self, KubeError> {
        access.check_file()?;
        access.read().await?;
        Ok(Self {
            access,
            client: None,
            files_digest: None,
            reload: None,
            reads: BlockingReads::default(),
            plugins: BlockingReads::default(),
            renew: false,
            renewed: None,
            checked: None,
            failure: None,
        })
    }

    /// Returns the client to use now. Cancel safe: may be dropped while it waits, and called again.
    ///
    /// # Errors
    /// [`KubeError`] if no client could be created yet.
    pub async fn client(&mut self) -> Result<KubeClient, KubeError> {
        let reload = match self.reload.take() {
            Some(reload) => reload,
            None => self.start_reload(),
        };
        let reload = self.reload.insert(reload);
        // Wait for the read only if there is no client. A change is otherwise applied by the next call.
        if self.client.is_none() || reload.is_finished() {
            let reloaded = reload.await;
            self.reload = None;
            match reloaded {
                Ok(reloaded) => self.apply_reload(reloaded),
                Err(panic) => tracing::error!(%panic, "reading the credentials for the apiserver failed"),
            }
        }
        let missing = || KubeError::Access { from: self.access.to_string(), cause: "cannot be read".to_owned() };
        self.client.clone().ok_or_else(|| self.failure.clone().unwrap_or_else(missing))
    }

    /// Returns the client to use now. Checks the credentials for changes only every [`CHECK_INTERVAL`], and after a
    /// failed call. For clients of many calls.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub async fn recent_client(&mut self) -> Result<KubeClient, KubeError> {
        match &self.client {
            Some(client) if self.checked.is_some_and(|at| at.elapsed() < CHECK_INTERVAL) => Ok(client.clone()),
            _ => {
                let client = self.client().await?;
                self.checked = Some(Instant::now());
                Ok(client)
            }
        }
    }

    /// Returns the apiserver's address, or the origin of the credentials while there is no client.
    pub fn server(&self) -> String {
        self.client.as_ref().map_or_else(|| self.access.to_string(), |client| client.server().to_owned())
    }

    /// Records a failed call with this client, and schedules a renewal if the credentials may be the reason.
    pub fn failed(&mut self, error: &KubeError) {
        self.checked = None;
        let due = self.renewed.is_none_or(|renewed| renewed.elapsed() >= MIN_RENEWAL_INTERVAL);
        let may_be_credentials = match error {
            KubeError::Refused { code, .. } | KubeError::WriteRefused { code, .. } => *code == 401,
            KubeError::InvalidResponse { .. } | KubeError::TooLarge { .. } => false,
            // A slow plugin is cancelled with the call it was run for. The renewal gives it more time.
            KubeError::Access { .. } | KubeError::Unreachable { .. } | KubeError::TimedOut { .. } => true,
        };
        self.renew |= due && may_be_credentials && self.client.is_some();
    }

    fn start_reload(&mut self) -> JoinHandle<ReloadResult> {
        let renew = std::mem::take(&mut self.renew);
        if renew {
            self.renewed = Some(Instant::now());
        }
        let (access, known) = (self.access.clone(), self.files_digest.filter(|_| !renew));
        let (reads, plugins) = (self.reads.clone(), self.plugins.clone());
        let runtime = Handle::current();
        tokio::spawn(async move {
            let from = access.to_string();
            let unread = |why: ReadFailure| KubeError::unreadable(&from, &why);
            let read = move || {
                let (mut config, files) = runtime.block_on(access.read())?;
                // A caller that calls every second retries anyway, and needs the reason of the failure.
                config.default_retry = false;
                // Before the client is created, so that the next read detects changes made meanwhile.
                let held = digest(&files);
                inline(&mut config)?;
                Ok((config, held))
            };
            let (config, held) = reads.run(READ_TIMEOUT, read).await.map_err(&unread)??;
            if known == Some(held) {
                return Ok(None);
            }
            let client =
                plugins.run(plugin::MAX_PLUGIN_TIME, move || KubeClient::of(config)).await.map_err(&unread)??;
            Ok(Some((client, held)))
        })
    }

    fn apply_reload(&mut self, reloaded: ReloadResult) {
        match reloaded {
            Ok(changed) => {
                if let Some((client, files_digest)) = changed {
                    if self.client.is_some() && self.files_digest != Some(files_digest) {
                        tracing::info!(server = client.server(), "using new credentials for the apiserver");
                    }
                    (self.client, self.files_digest) = (Some(client), Some(files_digest));
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

/// Returns a digest of these files. An unreadable file has a digest, too.
fn digest(files: &[PathBuf]) -> [u8; 32] {
    let mut sha = Sha256::new();
    for file in files {
        match files::read(file, MAX_FILE_BYTES) {
            Ok(bytes) => {
                sha.update((bytes.len() as u64).to_be_bytes());
                sha.update(bytes);
            }
            Err(_) => sha.update([0xff; 8]),
        }
    }
    sha.finalize().into()
}
