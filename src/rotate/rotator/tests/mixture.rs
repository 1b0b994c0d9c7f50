//! At no moment is a hook asked by a mixture of two configurations, whatever the configurations were and however probes
//! went meanwhile.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use gatepost_api::Protocol;

/// One entry: where and how its hook is asked.
#[derive(Clone, Debug)]
struct Written {
    port: u16,
    path: Option<&'static str>,
    how: &'static str,
    side_effects: &'static str,
    seconds: u8,
    /// Is it enforced where it does not answer within a minute?
    enforced: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// This configuration is read: hooks by name, some of them absent.
    Configure([Option<Written>; 3]),
    /// A probe of one of the endpoints that are being probed has ended.
    Probe { which: usize, passed: bool },
    /// A while passes.
    Wait(u16),
}

fn written() -> impl Strategy<Value = Written> {
    let over_http = prop::sample::select(vec![
        (None, "grpc"),
        (Some("a"), "json"),
        (Some("b"), "json"),
        (Some("a"), "json, admissionReviewVersions: [v1beta1]"),
        (Some("a"), "protobuf"),
        (Some("b"), "legacy"),
    ]);
    let side_effects = prop::sample::select(vec!["None", "Some"]);
    (1..4_u16, over_http, side_effects, 1..3_u8, any::<bool>()).prop_map(
        |(port, (path, how), side_effects, seconds, enforced)| Written {
            port,
            path,
            how,
            side_effects,
            seconds,
            enforced,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hook = || prop::option::weighted(0.8, written());
    let step = prop_oneof![
        4 => (hook(), hook(), hook()).prop_map(|(a, b, c)| Step::Configure([a, b, c])),
        3 => (0..3_usize, any::<bool>()).prop_map(|(which, passed)| Step::Probe { which, passed }),
        1 => (0..600_u16).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..24)
}

fn configuration(hooks: &[Option<Written>; 3], revision: u64) -> Contents {
    let entry = |(name, written): (&str, &Written)| {
        let Written { port, path, how, side_effects, seconds, enforced } = written;
        let rollout = if *enforced { "rollout: {probeWithin: 1m, onProbeFailure: Enforce}, " } else { "" };
        let url = match path {
            Some(path) => format!("http://127.0.0.1:{port}/{path}"),
            None => format!("grpc://127.0.0.1:{port}"),
        };
        format!(
            "- {{name: {name}.example.com, clientConfig: {{url: '{url}'}}, protocol: {how}, sideEffects: {side_effects}, \
             timeoutSeconds: {seconds}, {rollout}rules: []}}\n"
        )
    };
    let entries = ["a", "b", "c"].into_iter().zip(hooks).filter_map(|(name, hook)| Some((name, hook.as_ref()?)));
    let entries: String = entries.map(entry).collect();
    let entries = if entries.is_empty() { "  []\n".to_owned() } else { entries };
    super::written(&format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: test}}\n\
         externalAdmissionHooks:\n{entries}"
    ))
    .with_revision(revision)
}

/// Everything that identifies the way in which a hook of that id is asked.
type How = (String, String, Protocol, Duration, &'static str);

fn how(id: &str, endpoint: &Endpoint, protocol: &Protocol, timeout: Duration, side_effects: &'static str) -> How {
    (id.to_owned(), endpoint.to_string(), protocol.clone(), timeout, side_effects)
}

async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut rotator = rotator();
    let mut accepted = Vec::<How>::new();
    let mut asked = HashSet::<String>::new();
    for (step, revision) in steps.into_iter().zip(1..) {
        match step {
            Step::Configure(hooks) => {
                read(&mut rotator, configuration(&hooks, revision)).await;
                prop_assert!(
                    rotator.options.status.rejected.get().is_none(),
                    "{:?}",
                    rotator.options.status.rejected.get()
                );
                for hook in &rotator.current.load().snapshot.hooks {
                    let effects = hook.side_effects.as_str();
                    accepted.push(how(&hook.id, &hook.endpoint, &hook.protocol, hook.timeout, effects));
                }
            }
            Step::Probe { which, passed } => {
                let mut probed: Vec<_> = rotator.placements.probing.values().collect();
                probed.sort_by_key(|probing| probing.channel.endpoint().to_string());
                let Some(probing) = probed.get(which % probed.len().max(1)) else { continue };
                let (channel, post) = (Arc::clone(&probing.channel), probing.post());
                rotator.on_probe_result(ProbeResult {
                    channel,
                    post,
                    outcome: if passed { Ok(()) } else { Err(refused()) },
                });
            }
            Step::Wait(seconds) => {
                tokio::time::advance(Duration::from_secs(seconds.into())).await;
                rotator.mark_overdue_hooks();
            }
        }
        let generation = rotator.current.load();
        let now: HashMap<_, _> = generation.hooks.iter().map(|live| (live.hook.id.to_string(), live)).collect();
        for (id, live) in now.iter().filter(|(_, live)| live.rotation.is_called()) {
            let (target, effects) = (&live.target, live.target.entry.side_effects.as_str());
            let used = how(id, target.channel.endpoint(), &target.entry.protocol, target.timeout(), effects);
            prop_assert!(accepted.contains(&used), "{used:?} is of no single configuration");
        }
        for id in asked.iter().filter(|id| now.contains_key(*id)) {
            prop_assert!(
                now[id].rotation.is_called(),
                "{id} was proven, is still configured, and is not asked any more"
            );
        }
        asked = now.into_iter().filter(|(_, live)| live.is_proven()).map(|(id, _)| id).collect();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hook_is_never_called_by_a_mixture_of_configurations(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.map_err(|error| TestCaseError::fail(error.to_string()))?.block_on(play(steps))?;
    }
}
