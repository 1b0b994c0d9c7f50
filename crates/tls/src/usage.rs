//! Usage: the extended key usage that a chain must allow.

use webpki::{Error, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage, RequiredEkuNotFoundContext};

use super::x509::Purpose;

/// id-kp-serverAuth, 1.3.6.1.5.5.7.3.1.
const SERVER: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 1]);
/// id-kp-clientAuth, 1.3.6.1.5.5.7.3.2.
const CLIENT: KeyPurposeId<'static> = KeyPurposeId::new(&[0x2b, 6, 1, 5, 5, 7, 3, 2]);
/// anyExtendedKeyUsage, 2.5.29.37.0.
const ANY: KeyPurposeId<'static> = KeyPurposeId::new(&[0x55, 0x1d, 0x25, 0]);

/// For this purpose, for any, or with nothing said of purposes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage(pub(super) Purpose);

impl Usage {
    /// Error where the purpose is not among those that are named.
    pub(super) fn missing(self) -> Error {
        self.not_among(Vec::new())
    }

    fn not_among(self, present: Vec<Vec<usize>>) -> Error {
        let required = match self.0 {
            Purpose::Server => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        Error::RequiredEkuNotFoundContext(RequiredEkuNotFoundContext { required, present })
    }
}

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        let wanted = match self.0 {
            Purpose::Server => SERVER,
            Purpose::Client => CLIENT,
        };
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == wanted || purpose == ANY {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        if present.is_empty() { Ok(()) } else { Err(self.not_among(present)) }
    }
}
