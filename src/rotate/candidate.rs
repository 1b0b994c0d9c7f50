//! Candidate: a checked configuration that is not in force yet.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rustls::ClientConfig;

use super::hazards::{OnHazard, OwnAddresses};
use crate::source::{Contents, contents::PartsDigest};
use gatepost_api::{
    BreakGlass, Endpoint, Revision,
    hook::{EndpointTls, Transport},
};
use gatepost_base::clock::Pauses;
use gatepost_config::{
    CheckedFile, HeldBackDocument, LastGoodDocuments, LoadResult, NO_PAUSE, Pause, Problem, RefusedFiles, Snapshot,
};

/// Treatment of invalid documents at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// Nothing is put in force.
    #[default]
    Refuse,
    /// Invalid documents are left out, and the others are put in force.
    Skip,
}

/// Configuration that is not in force yet. Only documents that are quarantined have problems.
#[derive(Debug)]
pub struct Candidate {
    /// Digest of the source's contents, or of this configuration if documents are quarantined.
    pub digest: String,
    /// Revision of the source's contents, or the prefix of `digest` if documents are quarantined.
    pub revision: Revision,
    /// Digest and revision of the source's contents, even if documents are quarantined.
    pub read: (String, Revision),
    /// True if the configuration was in force before this process began.
    pub restored: bool,
    /// Documents whose newest state is not part of the configuration.
    pub quarantined: Vec<HeldBackDocument>,
    /// States of the documents that are part of the configuration.
    pub documents: LastGoodDocuments,
    /// Compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// Break-glass documents of the contents.
    pub break_glass: Vec<BreakGlass>,
    tls: TlsConfigs,
}

impl Candidate {
    /// Returns the TLS configuration of that endpoint; `None` if it is plaintext.
    pub fn tls(&self, endpoint: &Endpoint) -> Option<Arc<ClientConfig>> {
        self.tls.get(&(endpoint.tls.clone()?, endpoint.transport)).cloned()
    }
}

/// Results of the last check, so that unchanged parts are not compiled again.
#[derive(Debug, Default)]
pub struct CandidateCache {
    documents: gatepost_config::LoadCache,
    /// TLS configurations of endpoints with authorities of their own. Others are not cached, as the system's may
    /// change.
    tls: TlsConfigs,
    /// Addresses that no hook may have.
    own: OwnAddresses,
    /// True if there is a cluster, whose authorizer conditions can use.
    authorizer: bool,
}

/// Maximum time, in total, for which one check yields to reviews between its steps.
const MAX_PAUSED: Duration = Duration::from_secs(1);

type TlsConfigs = HashMap<(EndpointTls, Transport), Arc<ClientConfig>>;

/// Checks everything that can be checked without calling a hook: documents, the files they refer to, TLS material, and
/// hazards of valid hooks.
///
/// # Errors
/// Returns every problem, not just the first.
pub fn candidate(contents: &Contents, on_hazard: OnHazard) -> Result<Candidate, Vec<Problem>> {
    CandidateCache::default().candidate(contents, on_hazard, None)
}

impl CandidateCache {
    /// Creates an empty cache for a sidecar that listens on these addresses.
    pub fn listening_at(own: OwnAddresses) -> Self {
        Self { own, ..Self::default() }
    }

    /// Sets whether there is a cluster, whose authorizer conditions can use.
    #[must_use]
    pub fn with_authorizer(self, authorizer: bool) -> Self {
        Self { authorizer, ..self }
    }

    /// Returns an empty cache with the same settings.
    pub(super) fn empty_copy(&self) -> Self {
        Self::listening_at(self.own.clone()).with_authorizer(self.authorizer)
    }

    /// Returns the break-glass documents of the contents last checked, even if these are invalid.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        self.documents.break_glass()
    }

    /// Checks contents like [`candidate`], but only their changed parts. With `last_good`, the states in force, an
    /// invalid document does not stop the others: it is quarantined, and its state in force stays.
    ///
    /// # Errors
    /// Returns every problem, not just the first.
    pub fn candidate(
        &mut self,
        contents: &Contents,
        on_hazard: OnHazard,
        last_good: Option<&LastGoodDocuments>,
    ) -> Result<Candidate, Vec<Problem>> {
        /// Maximum number of rounds: holding back one document may reveal or cause problems in others.
        const MAX_ROUNDS: usize = 8;
        let pauses = Pauses::of(MAX_PAUSED);
        let pause = || pauses.pause();
        let mut refused = RefusedFiles::new();
        let mut problems = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let loaded = self.loaded(contents, last_good.map(|documents| (documents, &refused)), &pause)?;
            let (documents, held) = (loaded.kept, loaded.held);
            if documents.is_empty() && !held.is_empty() && last_good.is_some_and(LastGoodDocuments::is_empty) {
                // Nothing is left. That is not the empty configuration, which must be written explicitly.
                return Err(held.into_iter().flat_map(|held| held.problems).collect());
            }
            problems = match self.check_servable(loaded.snapshot.noted(&contents.notes), on_hazard, &pause) {
                Ok((snapshot, tls)) => return Ok(self.make_candidate(contents, (snapshot, tls), documents, held)),
                Err(problems) => problems,
            };
            // Only changed documents are quarantined. If none of them has a new problem, the states in force have one.
            let Some(in_force) = last_good else { break };
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

    /// Checks and compiles documents that were in force under that digest and revision. Omits break-glass documents,
    /// which apply only in the newest state of the source.
    ///
    /// # Errors
    /// Returns every problem.
    pub fn restored(
        &mut self,
        parts: Vec<CheckedFile>,
        (digest, revision): (String, &str),
        on_hazard: OnHazard,
    ) -> Result<Candidate, Vec<Problem>> {
        let parts = parts.into_iter().map(Arc::new).collect();
        let (snapshot, documents) = self.documents.compiled(parts, NO_PAUSE).ok_or_else(Vec::new)?;
        let (snapshot, tls) = self.check_servable(snapshot, on_hazard, NO_PAUSE)?;
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
        last_good: Option<(&LastGoodDocuments, &RefusedFiles)>,
        pause: Pause<'_>,
    ) -> Result<LoadResult, Vec<Problem>> {
        let read = |written: &str| contents.reference(written);
        let loaded = match last_good {
            None => self.documents.load_whole(&contents.files, &read, pause),
            Some(last_good) => self.documents.load_around(&contents.files, &read, last_good, pause),
        }?;
        match contents.files.is_empty() && !contents.is_transactional() {
            true => Err(vec![Problem::nothing_written("the folder", "holds no .yaml, .yml or .json file")]),
            false => Ok(loaded),
        }
    }

    /// Checks TLS material, conditions that use the authorizer, and hazards. Adds the hazards to the snapshot.
    fn check_servable(
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
            problems.extend(authorizer_problems(&snapshot));
            problems.extend(policy_problems(&snapshot));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let findings = on_hazard.judge(&snapshot, &self.own, pause)?;
        Ok((snapshot.with_findings(findings), tls))
    }

    fn make_candidate(
        &mut self,
        contents: &Contents,
        (snapshot, tls): (Snapshot, TlsConfigs),
        documents: LastGoodDocuments,
        quarantined: Vec<HeldBackDocument>,
    ) -> Candidate {
        let cacheable = tls.iter().filter(|((wanted, _), _)| wanted.ca_pem.is_some());
        self.tls = cacheable.map(|(key, config)| (key.clone(), Arc::clone(config))).collect();
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

/// Returns a problem for each condition that uses the authorizer.
fn authorizer_problems(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    let origins = (0..).map_while(|index| snapshot.origin(index));
    origins.flat_map(|origin| {
        let conditions = origin.conditions.iter().enumerate().filter(|(_, condition)| condition.uses_authorizer());
        conditions.map(move |(place, _)| Problem {
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

/// Returns a problem for each policy that needs a cluster, if there is none.
fn policy_problems(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.policies().iter().enumerate().filter_map(|(index, policy)| {
        let definition = &policy.definition;
        let has_params =
            definition.param_kind.is_some() && policy.bindings.iter().any(|binding| binding.param_ref.is_some());
        let needs = [
            (definition.uses_authorizer(), "asks the authorizer"),
            (definition.uses_namespace(), "reads namespaceObject"),
            (has_params, "has params"),
        ];
        let (_, what) = needs.into_iter().find(|(needs, _)| *needs)?;
        let place = snapshot.policy_place(index)?;
        Some(Problem {
            file: place.file.clone(),
            path: place.path.clone(),
            what: format!("policy {:?} {what}", definition.name),
            why: "and there is no cluster to ask".to_owned(),
            fix: "name the cluster: serve --namespaces-from KUBECONFIG, and check --authorizer".to_owned(),
        })
    })
}

/// Returns the digest (hex) of a configuration with quarantined documents, which no state of the source contains. It
/// covers the newest contents, and the states that replace some of them.
fn mixed_digest(newest: &str, documents: &LastGoodDocuments, held: &[HeldBackDocument]) -> String {
    let mut digest = PartsDigest::default();
    digest.part("held back");
    digest.part(newest);
    for held in held {
        digest.part(&held.file);
        digest.part([u8::from(held.keeps)]);
    }
    let names: HashSet<_> = held.iter().map(|held| &*held.file).collect();
    for state in documents.parts().filter(|state| names.contains(&*state.file().name)) {
        digest.part(&state.file().bytes);
        for (path, content) in state.references() {
            digest.part(path);
            digest.part(content);
        }
    }
    digest.hex()
}
