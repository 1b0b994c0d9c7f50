//! Shared parts of the rotator's tests: contents to read, and the state of hooks afterwards.

mod drains;
mod initializers;
mod mixture;
mod params;
mod pending_confirmation;
mod placements;
mod quarantined;
mod reads;
mod unproven;

use std::collections::BTreeMap;

use super::*;
use crate::{
    hooks::{Channel, ProbeFailure, ProbePost},
    live::Rotation,
    source::ReadError,
};
use gatepost_api::{Endpoint, Step, Unreachable};
use gatepost_base::clock::suspended_time;
use gatepost_config::SourceFile;

/// Contents that configure these hooks: name and port.
fn contents(hooks: &[(&str, u16)]) -> Contents {
    let mut yaml = "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\n\
                    metadata: {name: test}\nexternalAdmissionHooks:\n"
        .to_owned();
    for (name, port) in hooks {
        yaml.push_str(&format!(
            "- name: {name}.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:{port}'}}\n  rules: []\n"
        ));
    }
    if hooks.is_empty() {
        yaml.push_str("  []\n");
    }
    written(&yaml)
}

fn written(yaml: &str) -> Contents {
    let file = SourceFile { name: "test.yaml".to_owned(), bytes: yaml.to_owned().into() };
    Contents::new(vec![file], BTreeMap::new())
}

/// Configurations of Kubernetes' kind, each with one webhook of the same name: name and port.
fn namesakes(configurations: &[(&str, u16)]) -> Contents {
    // The same at every call: another authority would be another endpoint.
    static AUTHORITY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap().cert.pem());
    let one = |(name, port): &(&str, u16)| {
        format!(
            "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
             metadata: {{name: {name}}}\nwebhooks:\n- {{name: same.example.com, sideEffects: None, \
             admissionReviewVersions: [v1], clientConfig: {{url: 'https://127.0.0.1:{port}', caBundle: {}}}}}\n",
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority)
        )
    };
    written(&configurations.iter().map(one).collect::<String>())
}

fn options() -> RotatorOptions {
    RotatorOptions::new(vec![Handle::current()], Duration::from_secs(31))
}

/// Its probes run, but nobody listens to them: the tests say how each went.
fn rotator() -> Rotator {
    rotator_with(options())
}

/// The same, which leaves out documents that cannot be served at the start.
fn skipping() -> Rotator {
    rotator_with(RotatorOptions { on_invalid: OnInvalid::Skip, ..options() })
}

fn rotator_with(options: RotatorOptions) -> Rotator {
    let current = Arc::new(Current::new(Instant::now().into_std()));
    Rotator::new(current, Arc::new(Metrics::new(1)), options)
}

async fn started(hooks: &[(&str, u16)]) -> Rotator {
    let mut rotator = rotator();
    read(&mut rotator, contents(hooks)).await;
    rotator.apply_read(reading(Ok(contents(hooks)))).await;
    rotator
}

/// The contents are read; once more where they have to be confirmed.
async fn read(rotator: &mut Rotator, contents: Contents) {
    rotator.apply_read(reading(Ok(contents.clone()))).await;
    if rotator.pending_confirmation.is_some() {
        rotator.apply_read(reading(Ok(contents))).await;
    }
}

/// A read that begins now.
fn reading(outcome: Result<Contents, ReadError>) -> TimedRead {
    TimedRead { started: Moment::now(suspended_time), took: Duration::from_millis(1), outcome }
}

/// State of each hook: name, port it is asked at (0 where it is not), port it moves to (0 where it does not).
fn standing(rotator: &Rotator) -> Vec<(String, u16, u16)> {
    let port = |endpoint: &Endpoint| match &endpoint.address {
        gatepost_api::hook::Address::Tcp { port, .. } => *port,
        gatepost_api::hook::Address::Unix(_) => 0,
    };
    let standing_of = |live: &LiveHook| {
        let asked = matches!(live.rotation, Rotation::Active { .. });
        let moves = live.replacing.as_ref().map_or(0, |replacement| port(replacement.channel.endpoint()));
        let name = live.hook.name.split('.').next().unwrap_or_default().to_owned();
        (name, if asked { port(live.target.endpoint()) } else { 0 }, moves)
    };
    rotator.current.load().hooks.iter().map(standing_of).collect()
}

fn standing_of(name: &str, asked: u16, moves: u16) -> (String, u16, u16) {
    (name.to_owned(), asked, moves)
}

fn number(rotator: &Rotator) -> u64 {
    rotator.current.load().number
}

/// The only endpoint being probed.
fn probed(rotator: &Rotator) -> Arc<Channel> {
    assert_eq!(rotator.placements.probing.len(), 1);
    let (_, probing) = rotator.placements.probing.iter().next().unwrap();
    Arc::clone(&probing.channel)
}

/// Result of a probe of it which posted nothing.
fn news(channel: Arc<Channel>, outcome: Result<(), ProbeFailure>) -> ProbeResult {
    ProbeResult { channel, post: None, outcome }
}

fn refused() -> ProbeFailure {
    Unreachable::at(Step::Connect, "refused").into()
}
