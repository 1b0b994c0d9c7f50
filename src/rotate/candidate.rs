//! Candidate: a configuration that can be put in force, and is not yet.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;
use sha2::{Digest, Sha256};

use super::hazards::{OnHazard, OwnAddresses};
use crate::source::Contents;
use gatepost_api::{
    BreakGlass, Endpoint, Revision,
    hook::{EndpointTls, Transport},
};
use gatepost_base::clock::Pauses;
use gatepost_config::{
    CheckedFile, HeldBackDocument, LastGoodDocuments, Loaded, NO_PAUSE, Pause, Problem, RefusedFiles, Snapshot,
};

/// Treatment of documents that cannot be served, at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// Nothing is put in force.
    #[default]
    Refuse,
    /// They are left out, and the others are put in force.
    Skip,
}

/// A configuration without a single problem, but in documents that are held back; not yet in force.
#[derive(Debug)]
pub struct Candidate {
    /// Digest of the contents it comes from; of its own where documents are held back.
    pub digest: String,
    /// Revision by the source's count; the prefix of the configuration's own digest where documents are held back.
    pub revision: Revision,
    /// Digest of the contents, and what the source calls them, in any case.
    pub read: (String, Revision),
    /// It was in force before this process began.
    pub restored: bool,
    /// The documents whose newest state is no part of it.
    pub quarantined: Vec<HeldBackDocument>,
    /// States of documents that it is made of.
    pub documents: LastGoodDocuments,
    /// The compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// Break-glass documents in it.
    pub break_glass: Vec<BreakGlass>,
    tls: TlsConfigs,
}

impl Candidate {
    /// TLS configuration of that endpoint; `None` where it is plaintext.
    pub fn tls(&self, endpoint: &Endpoint) -> Option<Arc<ClientConfig>> {
        self.tls.get(&(endpoint.tls.clone()?, endpoint.transport)).cloned()
    }
}

/// Results of the last check, so that unchanged parts are not made again.
#[derive(Debug, Default)]
pub struct CandidateCache {
    documents: gatepost_config::LoadCache,
    /// TLS configurations of endpoints that bring their own authorities. The system's may change without a word.
    tls: TlsConfigs,
    /// Addresses that no hook may have.
    own: OwnAddresses,
    /// Is there a cluster whose authorizer conditions may ask?
    authorizer: bool,
}

/// Time, all in all, for which a check lets reviews go first between its steps.
const MAX_PAUSED: Duration = Duration::from_secs(1);

type TlsConfigs = HashMap<(EndpointTls, Transport), Arc<ClientConfig>>;

/// Checks everything that can be checked without asking a hook: documents, the files they refer to, TLS material, and
/// what can go wrong with hooks that are well written.
///
/// # Errors
/// Every problem there is, not just the first.
pub fn candidate(contents: &Contents, on_hazard: OnHazard) -> Result<Candidate, Vec<Problem>> {
    CandidateCache::default().candidate(contents, on_hazard, None)
}

impl CandidateCache {
    /// Nothing yet, by a sidecar that listens at these addresses.
    pub fn listening_at(own: OwnAddresses) -> Self {
        Self { own, ..Self::default() }
    }

    /// The same, with a cluster whose authorizer conditions may ask, or without one.
    #[must_use]
    pub fn with_authorizer(self, authorizer: bool) -> Self {
        Self { authorizer, ..self }
    }

    /// Empty cache with the same settings.
    pub(super) fn anew(&self) -> Self {
        Self::listening_at(self.own.clone()).with_authorizer(self.authorizer)
    }

    /// Break-glass of the contents last checked, whatever else is wrong with them.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        self.documents.break_glass()
    }

    /// As [`candidate`], and sooner the less has changed. With the states that are in force, a document that cannot be
    /// served stops no other: it is held back `around` them.
    ///
    /// # Errors
    /// Every problem there is, not just the first.
    pub fn candidate(
        &mut self,
        contents: &Contents,
        on_hazard: OnHazard,
        around: Option<&LastGoodDocuments>,
    ) -> Result<Candidate, Vec<Problem>> {
        /// Holding back one document may show, or bring about, other problems, and so on.
        const MAX_ROUNDS: usize = 8;
        let pauses = Pauses::of(MAX_PAUSED);
        let pause = || pauses.pause();
        let mut refused = RefusedFiles::new();
        let mut problems = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let loaded = self.loaded(contents, around.map(|documents| (documents, &refused)), &pause)?;
            let (documents, held) = (loaded.kept, loaded.held);
            if documents.is_empty() && !held.is_empty() && around.is_some_and(LastGoodDocuments::is_empty) {
                // Nothing is left. That is not taken for "no hooks", which somebody has to write.
                return Err(held.into_iter().flat_map(|held| held.problems).collect());
            }
            problems = match self.servable(loaded.snapshot.noted(&contents.notes), on_hazard, &pause) {
                Ok((snapshot, tls)) => return Ok(self.made(contents, (snapshot, tls), documents, held)),
                Err(problems) => problems,
            };
            // Of what is in force already nothing is let go: where that cannot be served, no document is to be blamed.
            let Some(in_force) = around else { break };
            let new = documents.new_since(in_force);
            let (blamed, before) = (problems.iter().filter(|problem| new.contains(&*problem.file)), refused.len());
            for problem in blamed {
                refused.entry(problem.file.clone()).or_default().push(problem.clone());
            }
            if refused.len() == before {
                break;
            }
        }
        Err(problems)
    }

    /// These states of documents, which were in force under that digest and name, checked and compiled again.
    /// Break-glass is left out: only the newest state may open it.
    ///
    /// # Errors
    /// Every problem there is.
    pub fn restored(
        &mut self,
        parts: Vec<CheckedFile>,
        (digest, revision): (String, &str),
        on_hazard: OnHazard,
    ) -> Result<Candidate, Vec<Problem>> {
        let parts = parts.into_iter().map(Arc::new).collect();
        let (snapshot, documents) = self.documents.compiled(parts, NO_PAUSE).ok_or_else(Vec::new)?;
        let (snapshot, tls) = self.servable(snapshot, on_hazard, NO_PAUSE)?;
        let revision = Revision::parse(revision).unwrap_or_else(|| Revision::of_digest(&digest));
        Ok(Candidate {
            read: (String::new(), revision.clone()),
            digest,
            revision,
            restored: true,
            snapshot: Arc::new(snapshot),
            break_glass: Vec::new(),
            quarantined: Vec::new(),
            documents,
            tls,
        })
    }

    fn loaded(
        &mut self,
        contents: &Contents,
        around: Option<(&LastGoodDocuments, &RefusedFiles)>,
        pause: Pause<'_>,
    ) -> Result<Loaded, Vec<Problem>> {
        let read = |written: &str| contents.reference(written);
        let loaded = match around {
            None => self.documents.load_whole(&contents.files, &read, pause),
            Some(around) => self.documents.load_around(&contents.files, &read, around, pause),
        }?;
        match contents.files.is_empty() && !contents.is_transactional() {
            true => Err(vec![Problem::nothing_written("the folder", "holds no .yaml, .yml or .json file")]),
            false => Ok(loaded),
        }
    }

    /// With what TLS needs, and with what can go wrong.
    fn servable(
        &self,
        snapshot: Snapshot,
        on_hazard: OnHazard,
        pause: Pause<'_>,
    ) -> Result<(Snapshot, TlsConfigs), Vec<Problem>> {
        let system = gatepost_tls::SystemRoots::default();
        let mut tls = TlsConfigs::new();
        let mut problems = Vec::new();
        for (index, hook) in (0..).zip(&snapshot.hooks) {
            let Some(wanted) = &hook.endpoint.tls else { continue };
            let key = (wanted.clone(), hook.endpoint.transport);
            if tls.contains_key(&key) {
                continue;
            }
            let known = self.tls.get(&key).map(|config| Ok(Arc::clone(config)));
            match known.unwrap_or_else(|| gatepost_tls::client_config(wanted, hook.endpoint.transport, &system)) {
                Ok(config) => drop(tls.insert(key, config)),
                Err(error) => problems.push(Problem {
                    file: snapshot.origin(index).map_or_else(String::new, |origin| origin.file.clone()),
                    path: format!("hook {:?}, TLS", hook.name),
                    what: error.to_string(),
                    why: "so the hook could not be called".to_owned(),
                    fix: error.fix().to_owned(),
                }),
            }
        }
        if !self.authorizer {
            problems.extend(asking_authorizer(&snapshot));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let findings = on_hazard.judge(&snapshot, &self.own, pause)?;
        Ok((snapshot.with_findings(findings), tls))
    }

    fn made(
        &mut self,
        contents: &Contents,
        (snapshot, tls): (Snapshot, TlsConfigs),
        documents: LastGoodDocuments,
        quarantined: Vec<HeldBackDocument>,
    ) -> Candidate {
        let lasting = tls.iter().filter(|((wanted, _), _)| wanted.ca_pem.is_some());
        self.tls = lasting.map(|(key, config)| (key.clone(), Arc::clone(config))).collect();
        let (digest, revision) = if quarantined.is_empty() {
            (contents.digest.clone(), contents.revision.clone())
        } else {
            let digest = mixed_digest(&contents.digest, &documents, &quarantined);
            let revision = Revision::of_digest(&digest);
            (digest, revision)
        };
        Candidate {
            digest,
            revision,
            read: (contents.digest.clone(), contents.revision.clone()),
            restored: false,
            snapshot: Arc::new(snapshot),
            break_glass: self.documents.break_glass(),
            quarantined,
            documents,
            tls,
        }
    }
}

/// Conditions that ask an authorizer, where there is none.
fn asking_authorizer(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    let origins = (0..).map_while(|index| snapshot.origin(index));
    origins.flat_map(|origin| {
        let asking = origin.conditions.iter().enumerate().filter(|(_, condition)| condition.asks_authorizer());
        asking.map(move |(place, _)| Problem {
            file: origin.file.clone(),
            path: format!("{}.matchConditions[{place}].expression", origin.path),
            what: "asks the authorizer".to_owned(),
            why: "and there is no cluster to ask".to_owned(),
            fix: "name the cluster: serve --namespaces-from KUBECONFIG, and check --authorizer; or leave this webhook \
                  registered with kube-apiserver"
                .to_owned(),
        })
    })
}

/// Digest (hex) of a configuration that no state of the source holds, as some of its documents are held back: of the
/// newest contents, and of the states that stand in for some of them.
fn mixed_digest(newest: &str, documents: &LastGoodDocuments, held: &[HeldBackDocument]) -> String {
    let mut sha = Sha256::new();
    let mut part = |bytes: &[u8]| {
        sha.update((bytes.len() as u64).to_be_bytes());
        sha.update(bytes);
    };
    part(b"held back");
    part(newest.as_bytes());
    for held in held {
        part(held.file.as_bytes());
        part(&[u8::from(held.keeps)]);
    }
    let names: HashSet<_> = held.iter().map(|held| &*held.file).collect();
    for state in documents.parts().filter(|state| names.contains(&*state.file().name)) {
        part(&state.file().bytes);
        for (path, content) in state.references() {
            part(path.as_bytes());
            part(content);
        }
    }
    sha.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
