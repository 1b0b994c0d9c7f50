//! Files: where the front's key pair and its clients' authority are read from.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Oldest, TlsError};
use crate::files::regular;

/// No certificate, key or bundle of authorities is this large.
const LIMIT: u64 = 16 << 20;

/// Where the front's key pair and its clients' authority are read from, and what is asked of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate and those between it and its authority, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates, PEM; without it clients show none.
    pub client_ca: Option<PathBuf>,
    /// What one of the names of a client's certificate must be; none is any.
    pub client_names: Vec<String>,
    /// The oldest version of TLS that is spoken.
    pub oldest: Oldest,
}

/// What the files held.
#[derive(PartialEq, Eq)]
pub(super) struct Material {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl fmt::Debug for Material {
    /// Not a byte of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl ServerFiles {
    /// Reads all of them.
    ///
    /// # Errors
    /// `Unreadable`.
    pub(super) fn read(&self) -> Result<Material, TlsError> {
        Ok(Material {
            chain: read(&self.cert)?,
            key: read(&self.key)?,
            client_ca: self.client_ca.as_deref().map(read).transpose()?,
        })
    }
}

/// What the file at `path` holds.
///
/// # Errors
/// `Unreadable`.
pub fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    regular::read(path, LIMIT)
        .map_err(|cause| TlsError::Unreadable { path: path.display().to_string(), cause: cause.to_string() })
}
