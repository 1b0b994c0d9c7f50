//! Trust: TLS configuration of etcd's clients, as its files are now.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustls::ClientConfig;

use super::{
    EtcdError,
    access::{EtcdEndpoint, TlsFiles},
};
use gatepost_api::hook::{EndpointTls, Transport};
use gatepost_base::files::{BlockingReads, Unread};
use gatepost_tls as tls;
use gatepost_tls::{SystemRoots, TlsError, client_config};

/// Shortest interval between looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest look at the files.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// One for each endpoint; `None` where that is plaintext.
type Configs = Arc<[Option<Arc<ClientConfig>>]>;

/// TLS configuration of each endpoint; the number grows with every change.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) configs: Configs,
}

/// TLS files in use. A change of the files is followed once it is sound.
#[derive(Debug)]
pub(super) struct Trust {
    files: TlsFiles,
    places: Vec<Arc<EtcdEndpoint>>,
    /// Looks at the files, and those that hang.
    reads: BlockingReads,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    material: Material,
    version: Version,
    looked: Instant,
    /// A look that has not ended.
    looking: bool,
    /// Fault of the last look: logged once.
    wrong: Option<TlsError>,
}

/// Contents of the files: authorities, certificate and key.
#[derive(PartialEq, Eq)]
struct Material {
    ca: Option<Pem>,
    pair: Option<(Pem, Pem)>,
}

type Pem = Arc<[u8]>;

impl std::fmt::Debug for Material {
    /// Not a byte of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads the files, where an endpoint needs them.
    pub(super) fn load(files: TlsFiles, places: Vec<Arc<EtcdEndpoint>>) -> Result<Self, EtcdError> {
        let material = Material::read(&files).map_err(EtcdError::Tls)?;
        let configs = material.configs(&places).map_err(EtcdError::Tls)?;
        let version = Version { number: 0, configs };
        let state = State { material, version, looked: Instant::now(), looking: false, wrong: None };
        Ok(Self { files, places, reads: BlockingReads::default(), state: Mutex::new(state) })
    }

    /// TLS configuration to use now. Now and then this has the files looked at; changes are used from a later call on,
    /// so that nothing waits for a file.
    pub(super) fn current(self: &Arc<Self>) -> Version {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_files = self.files != TlsFiles::default();
        if has_files && !state.looking && state.looked.elapsed() >= LOOK_EVERY {
            state.looking = true;
            let trust = Arc::clone(self);
            tokio::spawn(trust.look());
        }
        state.version.clone()
    }

    /// Contents of the files and the configuration made of them; `None` where they are in use already. Blocks.
    fn find(&self) -> Result<Option<(Material, Configs)>, TlsError> {
        let read = Material::read(&self.files)?;
        if self.state.lock().unwrap_or_else(PoisonError::into_inner).material == read {
            return Ok(None);
        }
        let configs = read.configs(&self.places)?;
        Ok(Some((read, configs)))
    }

    async fn look(self: Arc<Self>) {
        let files = Arc::clone(&self);
        let unread = |why: Unread| TlsError::Unreadable { path: "the TLS files".to_owned(), cause: why.to_string() };
        let found = self.reads.run(LOOK_WITHIN, move || files.find()).await.unwrap_or_else(|why| Err(unread(why)));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.looking = false;
        state.looked = Instant::now();
        match found {
            Ok(changed) => {
                state.wrong = None;
                if let Some((material, configs)) = changed {
                    tracing::info!("the TLS files for etcd have changed; reconnecting");
                    state.material = material;
                    state.version = Version { number: state.version.number + 1, configs };
                }
            }
            Err(error) => {
                if state.wrong.as_ref() != Some(&error) {
                    let fix = error.fix();
                    tracing::warn!(%error, fix, "the TLS files for etcd are not valid; the last good ones stay in \
                                                 use");
                }
                state.wrong = Some(error);
            }
        }
    }
}

impl Material {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let pair = |(cert, key): &(_, _)| Ok((read(cert)?, read(key)?));
        Ok(Self { ca: files.ca.as_deref().map(read).transpose()?, pair: files.pair.as_ref().map(pair).transpose()? })
    }

    fn configs(&self, places: &[Arc<EtcdEndpoint>]) -> Result<Configs, TlsError> {
        let system = SystemRoots::default();
        let config = |place: &Arc<EtcdEndpoint>| {
            let tls = EndpointTls {
                server_name: place.host.as_str().into(),
                ca_pem: self.ca.clone(),
                client_pem: self.pair.clone(),
            };
            place.tls.then(|| client_config(&tls, Transport::Grpc, &system)).transpose()
        };
        places.iter().map(config).collect()
    }
}

fn read(path: impl AsRef<Path>) -> Result<Pem, TlsError> {
    tls::files::read(path.as_ref()).map(Arc::from)
}
