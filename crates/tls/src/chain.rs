//! Chain: the path from a certificate that is an authority itself to a trusted one.
//!
//! webpki takes no authority for a server, and there is no way to ask it to. Go looks at basicConstraints only of those
//! that have signed, and `openssl req -x509` makes every certificate an authority, also one that it signs with `-CA`.
//! This search is for such a peer alone; all others go through webpki. Signatures are checked by webpki here, too.

use rustls_pki_types::{SignatureVerificationAlgorithm, UnixTime};
use webpki::RawPublicKeyEntity;

use super::x509::{Facts, Purpose, Signed, Unfit};

/// Most signatures checked for one peer: no bundle has so many authorities of one name, and they take 5 ms at most.
const MOST_SIGNATURES: usize = 16;

/// A certificate of a chain.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) der: &'a [u8],
    pub(super) facts: &'a Facts,
}

/// Certificates that a chain may be made of.
pub(super) struct Search<'a> {
    pub(super) roots: Vec<Link<'a>>,
    /// Certificates that the peer has sent beside its own.
    pub(super) shown: Vec<Link<'a>>,
    pub(super) algorithms: &'a [&'a dyn SignatureVerificationAlgorithm],
    pub(super) purpose: Purpose,
    pub(super) now: UnixTime,
}

/// State of a search.
struct Progress {
    signatures: usize,
    /// Reason why the first certificate with an issuer's name may not sign.
    unfit: Option<Unfit>,
}

impl Search<'_> {
    /// Is there a chain from a peer's certificate to one that is trusted? If not: why the first candidate was none.
    pub(super) fn from(&self, peer: Link<'_>) -> Result<(), Option<Unfit>> {
        let mut progress = Progress { signatures: MOST_SIGNATURES, unfit: None };
        if self.reaches_root(&[peer], &mut progress) { Ok(()) } else { Err(progress.unfit) }
    }

    /// Does what begins like this end at a root?
    fn reaches_root(&self, path: &[Link<'_>], progress: &mut Progress) -> bool {
        let Some(last) = path.last() else { return false };
        let candidates = self.roots.iter().map(|link| (link, true)).chain(self.shown.iter().map(|link| (link, false)));
        for (candidate, root) in candidates {
            let facts = candidate.facts;
            if facts.subject != last.facts.issuer || path.iter().any(|link| link.facts.is_of_same_entity(facts)) {
                continue;
            }
            if let Err(unfit) = self.may_follow(facts, path.len() - 1, root) {
                progress.unfit.get_or_insert(unfit);
                continue;
            }
            let Some(left) = progress.signatures.checked_sub(1) else { return false };
            progress.signatures = left;
            if self.has_signed(facts, last.der)
                && (root || self.reaches_root(&[path, &[*candidate]].concat(), progress))
            {
                return true;
            }
        }
        false
    }

    fn may_follow(&self, facts: &Facts, below: usize, root: bool) -> Result<(), Unfit> {
        facts.may_sign(self.now, root)?;
        facts.may_be_above(below)?;
        facts.serves(self.purpose)?;
        if facts.constrained { Err(Unfit::Constrained) } else { Ok(()) }
    }

    fn has_signed(&self, issuer: &Facts, der: &[u8]) -> bool {
        let (Ok(key), Some(signed)) = (RawPublicKeyEntity::try_from(&issuer.key), Signed::of(der)) else {
            return false;
        };
        let fitting = self.algorithms.iter().filter(|one| one.signature_alg_id().as_ref() == signed.algorithm);
        fitting.into_iter().any(|one| key.verify_signature(*one, signed.message, signed.signature).is_ok())
    }
}
