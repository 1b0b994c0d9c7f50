//! Park: the originals of imported files stay in the cluster, and kube-apiserver does not call them.
//!
//! Each webhook gets the match condition that adoption writes, so that `import` and `release` know it. Nobody watches
//! over it here: adoption, where it serves, gives back what it has not taken itself.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path, time::Duration};

use gatepost_operator::command::with_fix;

use super::object::Object;
use gatepost_adopt::{ClusterEntry, EntryKind, MANAGER, conditions_document, remove_mark, webhooks_of};
use gatepost_api::HookType;
use gatepost_kube_support::{KubeAccess, KubeClient};
use gatepost_replicas::{AdminUrl, HookStanding};
use serde_json::Value;

/// Timeout of reading the report of one sidecar.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// One webhook configuration of the cluster whose copy in the folder is what it says now.
struct Original {
    kind: EntryKind,
    name: String,
    webhooks: Vec<ClusterEntry>,
}

/// Parks the originals of the files in the folder, once all these sidecars call their hooks. Returns a report.
///
/// # Errors
/// A message, if a sidecar does not call a hook, or the cluster cannot be read or written. Originals that the report names
/// before it are parked then.
pub(super) async fn park(
    access: &KubeAccess,
    folder: &Path,
    kinds: &[HookType],
    sidecars: &[AdminUrl],
) -> Result<String, String> {
    let client = KubeClient::open(access).await.map_err(with_fix)?;
    let (originals, mut report) = originals(&client, folder, kinds).await?;
    let names = originals.iter().flat_map(|original| &original.webhooks).map(|webhook| &*webhook.key.name);
    let names: BTreeSet<_> = names.collect();
    for sidecar in sidecars {
        if let Some(name) = uncalled(sidecar, &names).await?.first() {
            return Err(format!(
                "{sidecar} does not call {name}, so nothing is parked; see `gatepost status --admin {sidecar}`"
            ));
        }
    }
    for Original { kind, name, webhooks } in originals {
        let Some(first) = webhooks.first() else { continue };
        let conditions: Vec<_> = webhooks.iter().map(|it| (it.key.name.clone(), it.condition.to_string())).collect();
        let document = conditions_document(kind.hook_type(), &name, &first.uid, Some(&first.version), &conditions);
        let stored = client.apply_conditions(MANAGER, &kind.path(&name), &document).await;
        let stored = stored.map_err(|error| format!("{report}{name} is not parked: {}", with_fix(error)))?;
        if !webhooks_of(kind.hook_type(), &stored).iter().all(|it| it.carries) {
            return Err(format!(
                "{report}{name} is not parked: the apiserver leaves the condition out; before 1.30, match conditions \
                 need the feature gate AdmissionWebhookMatchConditions"
            ));
        }
        // Writing to a String cannot fail.
        let _ = writeln!(report, "parked     {name}: the apiserver calls its {} webhooks no more", webhooks.len());
    }
    report.push_str("give them back by `gatepost import --give-back FOLDER`\n");
    Ok(report)
}

/// Gives back the originals of the files in the folder. Returns a report.
///
/// # Errors
/// A message, if the cluster cannot be read or written.
pub(super) async fn give_back(access: &KubeAccess, folder: &Path, kinds: &[HookType]) -> Result<String, String> {
    let client = KubeClient::open(access).await.map_err(with_fix)?;
    let (originals, mut report) = originals(&client, folder, kinds).await?;
    for Original { name, webhooks, .. } in originals {
        let parked: Vec<_> = webhooks.iter().filter(|webhook| webhook.carries).map(|webhook| &webhook.key).collect();
        if parked.is_empty() {
            let _ = writeln!(report, "unchanged  {name}: the apiserver calls it already");
            continue;
        }
        let given = remove_mark(&client, &parked, &Value::Null).await;
        given.map_err(|error| format!("{report}{name} is not given back: {}", with_fix(error)))?;
        let _ = writeln!(report, "given back {name}: the apiserver calls it again");
    }
    Ok(report)
}

/// Reads the originals of the files in the folder. Returns a line for each that has none, or another one.
async fn originals(client: &KubeClient, folder: &Path, kinds: &[HookType]) -> Result<(Vec<Original>, String), String> {
    let (mut originals, mut report) = (Vec::new(), String::new());
    for &hook_type in kinds {
        let kind = EntryKind::Webhook(hook_type);
        let path = format!("/apis/admissionregistration.k8s.io/v1/{}", hook_type.resource());
        let list = client.list(&path).await.map_err(with_fix)?;
        for item in list.items {
            let webhooks = webhooks_of(hook_type, &item);
            let Ok(object) = Object::new(hook_type, item) else { continue };
            if object.is_our_own() {
                continue;
            }
            match fs::read(folder.join(object.file())) {
                Ok(text) if text == object.text()?.as_bytes() => {
                    originals.push(Original { kind, name: object.name, webhooks });
                }
                Ok(_) => {
                    let _ = writeln!(report, "left       {}: its file differs from it; import again", object.name);
                }
                Err(_) => {
                    let _ = writeln!(report, "left       {}: it has no file in the folder", object.name);
                }
            }
        }
    }
    Ok((originals, report))
}

/// Returns those of the hooks that the sidecar does not call.
async fn uncalled<'a>(sidecar: &AdminUrl, names: &BTreeSet<&'a str>) -> Result<Vec<&'a str>, String> {
    let report = sidecar.report(None, REPORT_TIMEOUT).await;
    let report = report.map_err(|why| format!("no answer from {sidecar}: {why}; nothing is parked"))?;
    if report.stale {
        return Err(format!("{sidecar} has no fresh configuration; nothing is parked"));
    }
    let called = report.hooks.iter().filter(|hook| hook.state == HookStanding::Active);
    let called: BTreeSet<_> = called.map(|hook| &*hook.name).collect();
    Ok(names.iter().filter(|name| !called.contains(**name)).copied().collect())
}
