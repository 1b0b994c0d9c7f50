//! Candidate: a configuration without a single problem, not yet in force.

use std::{collections::HashMap, sync::Arc};

use rustls::ClientConfig;

use crate::{
    model::{
        BreakGlass, Endpoint, Hook, Revision,
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
    tls: HashMap<(EndpointTls, Transport), Arc<ClientConfig>>,
}

impl Candidate {
    /// How TLS is done with that endpoint; `None` where it is not done.
    pub fn tls(&self, endpoint: &Endpoint) -> Option<Arc<ClientConfig>> {
        self.tls.get(&(endpoint.tls.clone()?, endpoint.transport)).cloned()
    }
}

/// Checks everything that can be checked without asking a hook: documents, the files they refer to, TLS material.
///
/// # Errors
/// Every problem there is, not just the first.
pub fn candidate(contents: &Contents) -> Result<Candidate, Vec<Problem>> {
    let snapshot = snapshot::load(&contents.files, &|written| contents.reference(written))?.noted(&contents.notes);
    let system = tls::SystemRoots::default();
    let mut tls = HashMap::new();
    let mut problems = Vec::new();
    for hook in &snapshot.hooks {
        let Some(wanted) = &hook.endpoint.tls else { continue };
        let key = (wanted.clone(), hook.endpoint.transport);
        if tls.contains_key(&key) {
            continue;
        }
        match tls::client_config(wanted, hook.endpoint.transport, &system) {
            Ok(config) => drop(tls.insert(key, config)),
            Err(error) => problems.push(Problem {
                file: file_of(hook, contents),
                path: format!("hook {:?}, TLS", hook.name),
                what: error.to_string(),
                fix: error.fix().to_owned(),
            }),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Candidate {
        digest: contents.digest.clone(),
        revision: contents.revision.clone(),
        snapshot: Arc::new(snapshot),
        break_glass: snapshot::break_glass(&contents.files),
        tls,
    })
}

/// The file that speaks of the hook, where only one does. (A compiled hook does not know where it was written.)
fn file_of(hook: &Hook, contents: &Contents) -> String {
    let speaks = |bytes: &[u8]| bytes.windows(hook.name.len()).any(|window| window == hook.name.as_bytes());
    let mut files = contents.files.iter().filter(|file| speaks(&file.bytes));
    match (files.next(), files.next()) {
        (Some(only), None) => only.name.clone(),
        _ => "configuration".to_owned(),
    }
}
