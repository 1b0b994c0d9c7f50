//! Candidate: a configuration without a single problem, not yet in force.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rustls::ClientConfig;

use super::OnHazard;
use crate::{
    clock::Pauses,
    model::{
        BreakGlass, Endpoint, Revision,
        hook::{EndpointTls, Transport},
    },
    snapshot::{self, Problem, Snapshot},
    source::Contents,
    tls,
};

/// A configuration without a single problem, not yet in force.
#[derive(Debug)]
pub struct Candidate {
    /// Digest of the contents it comes from.
    pub digest: String,
    /// What the source calls them.
    pub revision: Revision,
    /// The compiled configuration.
    pub snapshot: Arc<Snapshot>,
    /// What is opened in an emergency.
    pub break_glass: Vec<BreakGlass>,
    tls: TlsConfigs,
}

impl Candidate {
    /// How TLS is done with that endpoint; `None` where it is not done.
    pub fn tls(&self, endpoint: &Endpoint) -> Option<Arc<ClientConfig>> {
        self.tls.get(&(endpoint.tls.clone()?, endpoint.transport)).cloned()
    }
}

/// What was checked last, so that what has not changed since is not made again.
#[derive(Debug, Default)]
pub struct Known {
    documents: snapshot::Known,
    /// How TLS is done with endpoints that bring their own authorities. The system's may change without a word.
    tls: TlsConfigs,
}

/// For so long, all in all, a check lets reviews go first between its steps.
const GIVES_WAY: Duration = Duration::from_secs(1);

type TlsConfigs = HashMap<(EndpointTls, Transport), Arc<ClientConfig>>;

/// Checks everything that can be checked without asking a hook: documents, the files they refer to, TLS material, and
/// what can go wrong with hooks that are well written.
///
/// # Errors
/// Every problem there is, not just the first.
pub fn candidate(contents: &Contents, on_hazard: OnHazard) -> Result<Candidate, Vec<Problem>> {
    Known::default().candidate(contents, on_hazard)
}

impl Known {
    /// What was last checked opens in an emergency, whatever else is wrong with it.
    pub fn break_glass(&self) -> Vec<BreakGlass> {
        self.documents.break_glass()
    }

    /// As [`candidate`], and sooner the less has changed.
    ///
    /// # Errors
    /// Every problem there is, not just the first.
    pub fn candidate(&mut self, contents: &Contents, on_hazard: OnHazard) -> Result<Candidate, Vec<Problem>> {
        let pauses = Pauses::of(GIVES_WAY);
        let pause = || pauses.pause();
        let snapshot = self.documents.load(&contents.files, &|written| contents.reference(written), &pause)?;
        if contents.files.is_empty() && !contents.is_transactional() {
            return Err(vec![Problem::nothing_written("the folder", "holds no .yaml, .yml or .json file")]);
        }
        let snapshot = snapshot.noted(&contents.notes);
        let system = tls::SystemRoots::default();
        let mut tls = TlsConfigs::new();
        let mut problems = Vec::new();
        for (index, hook) in (0..).zip(&snapshot.hooks) {
            let Some(wanted) = &hook.endpoint.tls else { continue };
            let key = (wanted.clone(), hook.endpoint.transport);
            if tls.contains_key(&key) {
                continue;
            }
            let known = self.tls.get(&key).map(|config| Ok(Arc::clone(config)));
            match known.unwrap_or_else(|| tls::client_config(wanted, hook.endpoint.transport, &system)) {
                Ok(config) => drop(tls.insert(key, config)),
                Err(error) => problems.push(Problem {
                    file: snapshot.origin(index).map_or_else(String::new, |origin| origin.file.clone()),
                    path: format!("hook {:?}, TLS", hook.name),
                    what: error.to_string(),
                    fix: error.fix().to_owned(),
                }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let findings = on_hazard.judge(&snapshot, &pause)?;
        let lasting = tls.iter().filter(|((wanted, _), _)| wanted.ca_pem.is_some());
        self.tls = lasting.map(|(key, config)| (key.clone(), Arc::clone(config))).collect();
        Ok(Candidate {
            digest: contents.digest.clone(),
            revision: contents.revision.clone(),
            snapshot: Arc::new(snapshot.with_findings(findings)),
            break_glass: self.documents.break_glass(),
            tls,
        })
    }
}
