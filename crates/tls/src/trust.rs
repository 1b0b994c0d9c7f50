//! Trust: the verdict on a peer's certificate, as Go's crypto/x509 comes to it.
//!
//! An apiserver asks a webhook whose certificate Go accepts, and no other; so do we, or a webhook would be refused here
//! that works there, or the reverse. webpki does the work (chains, signatures, name constraints) and differs in some
//! cases, which are here: a certificate that is in the bundle itself, authorities that may not vouch or have ended,
//! anyExtendedKeyUsage, and a peer that is an authority. The differences that remain are in
//! `tests/certificates/README.md`.

use std::{ptr, sync::Arc};

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, VerifiedPath};

use super::{
    authorities::{Authorities, Authority},
    chain::{Link, Search},
    distrust::{Distrust, refused},
    usage::Usage,
    x509::{Facts, Purpose, Unfit, dns_names},
};

/// Which peers are believed.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) authorities: Arc<Authorities>,
    pub(super) purpose: Purpose,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Trust {
    /// Is a peer believed that shows this certificate, and these beside it?
    pub(super) fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let own = |unfit| Distrust::own(unfit, now);
        let facts = Facts::of(certificate).ok_or_else(Distrust::unreadable)?;
        let peer = EndEntityCert::try_from(certificate).map_err(refused)?;
        facts.in_force(now).map_err(own)?;
        facts.serves(self.purpose).map_err(own)?;
        if self.authorities.hold(certificate) {
            return Ok(());
        }
        match facts.is_authority() {
            true => self.judge_authority(Link { der: certificate, facts: &facts }, shown, now),
            false => self.judge_ordinary(&peer, &facts, shown, now),
        }
    }

    fn judge_ordinary(
        &self,
        peer: &EndEntityCert<'_>,
        facts: &Facts,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let fit: Vec<&Authority> =
            self.authorities.iter().filter(|authority| authority.facts.may_sign(now, true).is_ok()).collect();
        let anchors: Vec<TrustAnchor<'_>> = fit.iter().map(|authority| borrowed(&authority.anchor)).collect();
        // Of what is in an anchor webpki looks at name constraints only, and of what is between at no keyUsage.
        let is_allowed = |path: &VerifiedPath<'_>| {
            let root = anchors.iter().position(|anchor| ptr::addr_eq(anchor, path.anchor()));
            let root = root.map(|at| &fit[at].facts).ok_or(webpki::Error::UnknownIssuer)?;
            let mut between = 0;
            for certificate in path.intermediate_certificates() {
                between += 1;
                let facts = Facts::of(&certificate.der()).ok_or(webpki::Error::BadDer)?;
                facts.may_sign(now, false).map_err(|_| webpki::Error::EndEntityUsedAsCa)?;
            }
            root.may_be_above(between).map_err(|_| webpki::Error::PathLenConstraintViolated)?;
            root.serves(self.purpose).map_err(|_| Usage(self.purpose).missing())?;
            if root.is_of_same_entity(facts) { Err(webpki::Error::UnknownIssuer) } else { Ok(()) }
        };
        let usage = Usage(self.purpose);
        let found =
            peer.verify_for_usage(self.algorithms.all, &anchors, shown, now, usage, None, Some(&is_allowed)).map(drop);
        found.map_err(|error| match error {
            webpki::Error::UnknownIssuer => self.unknown_issuer(facts, shown, None, now),
            error => refused(error),
        })
    }

    fn judge_authority(
        &self,
        peer: Link<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let read: Vec<_> = shown.iter().filter_map(|der| Some((der, Facts::of(der)?))).collect();
        let search = Search {
            roots: self.authorities.iter().map(|one| Link { der: &one.certificate, facts: &one.facts }).collect(),
            shown: read.iter().map(|(der, facts)| Link { der, facts }).collect(),
            algorithms: self.algorithms.all,
            purpose: self.purpose,
            now,
        };
        search.from(peer).map_err(|unfit| self.unknown_issuer(peer.facts, shown, unfit, now))
    }

    /// Error for a peer without a trusted issuer, with the reason where an authority has the issuer's name and may not
    /// sign.
    fn unknown_issuer(
        &self,
        peer: &Facts,
        shown: &[CertificateDer<'_>],
        unfit: Option<Unfit>,
        now: UnixTime,
    ) -> rustls::Error {
        let mut issuers: Vec<Vec<u8>> = shown.iter().filter_map(|der| Some(Facts::of(der)?.issuer)).collect();
        issuers.insert(0, peer.issuer.clone());
        let named = |authority: &&Authority| issuers.contains(&authority.facts.subject);
        let why = |authority: &Authority| authority.facts.may_sign(now, true).err();
        let unfit = self.authorities.iter().filter(named).find_map(why).or(unfit);
        unfit.map_or_else(|| refused(webpki::Error::UnknownIssuer), Distrust::issuer)
    }
}

/// Is a certificate that is believed one for this name?
pub(super) fn is_for(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), rustls::Error> {
    let peer = EndEntityCert::try_from(certificate).map_err(refused)?;
    match peer.verify_is_valid_for_subject_name(name) {
        Err(webpki::Error::CertNotValidForName(_)) if is_under_wildcard(certificate, name) => Ok(()),
        result => result.map_err(refused),
    }
}

/// webpki wants two labels behind a wildcard; Go takes `*.svc` for `hook.svc`.
fn is_under_wildcard(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let ServerName::DnsName(name) = name else { return false };
    let name = name.as_ref();
    let Some((_, rest)) = name.strip_suffix('.').unwrap_or(name).split_once('.') else { return false };
    let covers = |pattern: &String| pattern.strip_prefix("*.").is_some_and(|below| below.eq_ignore_ascii_case(rest));
    !rest.contains('.') && dns_names(certificate).iter().any(covers)
}

/// The same anchor, without a copy of its bytes.
fn borrowed<'a>(anchor: &'a TrustAnchor<'static>) -> TrustAnchor<'a> {
    TrustAnchor {
        subject: anchor.subject.as_ref().into(),
        subject_public_key_info: anchor.subject_public_key_info.as_ref().into(),
        name_constraints: anchor.name_constraints.as_ref().map(|constraints| constraints.as_ref().into()),
    }
}
