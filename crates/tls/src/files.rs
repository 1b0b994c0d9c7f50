//! Files: files of the front's key pair and its clients' authority.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Oldest, TlsError};
use gatepost_base::files::regular;

/// No certificate, key or bundle of authorities is this large.
const LIMIT: u64 = 16 << 20;

/// Files of the front's key pair and its clients' authority, and the demands on clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate and those between it and its authority, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates, PEM; without it clients show none.
    pub client_ca: Option<PathBuf>,
    /// Names, one of which a client's certificate must have; none is any.
    pub client_names: Vec<String>,
    /// Clients without a certificate are let in as well.
    pub certificate_optional: bool,
    /// The oldest version of TLS that is spoken.
    pub oldest: Oldest,
}

/// Contents of the files.
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

/// Contents of the file at `path`.
///
/// # Errors
/// `Unreadable`.
pub fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    regular::read(path, LIMIT)
        .map_err(|cause| TlsError::Unreadable { path: path.display().to_string(), cause: cause.to_string() })
}
