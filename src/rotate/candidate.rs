//! Candidate: a configuration without a single problem, not yet in force.

use std::{collections::HashMap, sync::Arc};

use rustls::ClientConfig;

use super::OnHazard;
use crate::{
    model::{
        Endpoint, Revision,
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
    tls: HashMap<(EndpointTls, Transport), Arc<ClientConfig>>,
}

impl Candidate {
    /// How TLS is done with that endpoint; `None` where it is not done.
    pub fn tls(&self, endpoint: &Endpoint) -> Option<Arc<ClientConfig>> {
        self.tls.get(&(endpoint.tls.clone()?, endpoint.transport)).cloned()
    }
}

/// Checks everything that can be checked without asking a hook: documents, the files they refer to, TLS material, and
/// what can go wrong with hooks that are well written.
///
/// # Errors
/// Every problem there is, not just the first.
pub fn candidate(contents: &Contents, on_hazard: OnHazard) -> Result<Candidate, Vec<Problem>> {
    let snapshot = snapshot::load(&contents.files, &|written| contents.reference(written))?.noted(&contents.notes);
    let system = tls::SystemRoots::default();
    let mut tls = HashMap::new();
    let mut problems = Vec::new();
    for (index, hook) in (0..).zip(&snapshot.hooks) {
        let Some(wanted) = &hook.endpoint.tls else { continue };
        let key = (wanted.clone(), hook.endpoint.transport);
        if tls.contains_key(&key) {
            continue;
        }
        match tls::client_config(wanted, hook.endpoint.transport, &system) {
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
    let findings = on_hazard.judge(&snapshot)?;
    Ok(Candidate {
        digest: contents.digest.clone(),
        revision: contents.revision.clone(),
        snapshot: Arc::new(snapshot.with_findings(findings)),
        tls,
    })
}
