//! Park: the originals of imported files stay in the cluster, and kube-apiserver does not call them.
//!
//! Each webhook gets the match condition that adoption writes, so that `import` and `release` know it. Nobody watches
//! over it here: adoption, if it runs, gives back webhooks that it has not taken itself.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use gatepost_operator::command::{counted, with_fix};
use serde_json::Value;

use super::{ALL, object::Object};
use crate::{
    commands::load::READ_TIMEOUT,
    source::{FileSource, kubernetes::Kind},
};
use gatepost_adopt::{ClusterEntry, EntryKind, MANAGER, conditions_document, remove_mark, webhooks_of};
use gatepost_api::HookType;
use gatepost_kube_support::{KubeAccess, KubeClient};
use gatepost_replicas::{AdminUrl, HookStanding};

/// Timeout of reading the report of one sidecar.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// One webhook configuration of the cluster.
struct Original {
    kind: EntryKind,
    name: String,
    webhooks: Vec<ClusterEntry>,
    copy: CopyState,
}

/// State of the file in the folder that `import` has made of a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyState {
    /// Its content equals the object in the cluster.
    Current,
    /// It says something else.
    Different,
    /// There is no such file.
    Missing,
}

/// The webhook configurations of a cluster, without Gatepost's own.
struct Originals {
    all: Vec<Original>,
    /// Types for which Gatepost has a registration in the cluster.
    registered: Vec<HookType>,
}

/// Parks the originals of the files in the folder, once all these sidecars call their hooks. Returns a report.
///
/// # Errors
/// A message, if there is nothing to park, a sidecar does not call a hook, nothing is registered to call Gatepost (unless
/// `may_be_unregistered`), or the cluster cannot be read or written. Originals that the message names are parked then.
pub(super) async fn park(
    access: &KubeAccess,
    folder: &Path,
    kinds: &[HookType],
    sidecars: &[AdminUrl],
    may_be_unregistered: bool,
) -> Result<String, String> {
    let client = KubeClient::open(access).await.map_err(with_fix)?;
    let Originals { all, registered } = originals(&client, folder, kinds).await?;
    let mut report = String::new();
    for original in all.iter().filter(|original| original.copy != CopyState::Current) {
        let why = if original.copy == CopyState::Missing {
            "it has no file in the folder"
        } else {
            "its file differs; import again"
        };
        // Writing to a String cannot fail.
        let _ = writeln!(report, "left       {}: {why}", original.name);
    }
    let originals: Vec<_> =
        all.into_iter().filter(|it| it.copy == CopyState::Current && !it.webhooks.is_empty()).collect();
    if originals.is_empty() {
        return Err(format!("{report}nothing is parked: no original has a copy in {}", folder.display()));
    }
    let unregistered = originals.iter().find(|it| !registered.contains(&it.kind.hook_type()));
    if let Some(original) = unregistered.filter(|_| !may_be_unregistered) {
        let kind = original.kind.hook_type().as_str().to_lowercase();
        return Err(format!(
            "the cluster has no registration of Gatepost for {kind} hooks, so nothing is parked: nobody would call {}; \
             register Gatepost first, or give --unregistered where it is registered on the apiservers' disks",
            original.name
        ));
    }
    let contents = FileSource::new(folder).read(READ_TIMEOUT).map_err(|error| error.to_string())?;
    for sidecar in sidecars {
        if let Some(why) = uncalled(sidecar, &originals, &contents.digest).await? {
            return Err(format!("{why}, so nothing is parked; see `gatepost status --admin {sidecar}`"));
        }
    }
    for Original { kind, name, webhooks, .. } in originals {
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
        let number = counted(webhooks.len(), "webhook");
        let _ = writeln!(report, "parked     {name}: the apiserver calls its {number} no more");
    }
    let _ = writeln!(report, "give them back by: gatepost import --give-back {}", folder.display());
    Ok(report)
}

/// Gives back every original that is parked and has a file in the folder; the content of the file does not matter.
/// Returns a report, and true if nothing is parked any more.
///
/// # Errors
/// A message, if the cluster cannot be read or written.
pub(super) async fn give_back(access: &KubeAccess, folder: &Path) -> Result<(String, bool), String> {
    let client = KubeClient::open(access).await.map_err(with_fix)?;
    let (mut report, mut all_given) = (String::new(), true);
    for Original { name, webhooks, copy, .. } in originals(&client, folder, ALL).await?.all {
        let parked: Vec<_> = webhooks.iter().filter(|webhook| webhook.carries).map(|webhook| &webhook.key).collect();
        if parked.is_empty() {
            continue;
        }
        if copy == CopyState::Missing {
            all_given = false;
            let _ = writeln!(
                report,
                "PARKED     {name}: it has no file in the folder, and is left; see `gatepost release`"
            );
            continue;
        }
        let given = remove_mark(&client, &parked, &Value::Null).await;
        given.map_err(|error| format!("{report}{name} is not given back: {}", with_fix(error)))?;
        let _ = writeln!(report, "given back {name}: the apiserver calls it again");
    }
    if report.is_empty() {
        report.push_str("nothing is parked: the apiserver calls every webhook itself\n");
    }
    Ok((report, all_given))
}

/// Reads the webhook configurations of these kinds.
async fn originals(client: &KubeClient, folder: &Path, kinds: &[HookType]) -> Result<Originals, String> {
    let (mut all, mut registered) = (Vec::new(), Vec::new());
    for &hook_type in kinds {
        let kind = EntryKind::Webhook(hook_type);
        for item in client.list(&Kind::Webhooks(hook_type).path()).await.map_err(with_fix)?.items {
            let webhooks = webhooks_of(hook_type, &item);
            let Ok(object) = Object::new(hook_type, item) else { continue };
            if object.is_our_own() {
                registered.push(hook_type);
                continue;
            }
            let copy = match fs::read(folder.join(object.file())) {
                Ok(text) if text == object.text()?.as_bytes() => CopyState::Current,
                Ok(_) => CopyState::Different,
                Err(_) => CopyState::Missing,
            };
            all.push(Original { kind, name: object.name, webhooks, copy });
        }
    }
    Ok(Originals { all, registered })
}

/// Returns what keeps the sidecar from calling, and enforcing, each hook of these originals; `None` if nothing does.
async fn uncalled(sidecar: &AdminUrl, originals: &[Original], digest: &str) -> Result<Option<String>, String> {
    let report = sidecar.report(None, REPORT_TIMEOUT).await;
    let report = report.map_err(|why| format!("no answer from {sidecar}: {why}; nothing is parked"))?;
    if report.stale || report.digest != digest {
        return Ok(Some(format!("{sidecar} has not this folder in force, or not freshly")));
    }
    // Hooks of two types may have one name.
    let mut left: Vec<_> = report.hooks.iter().filter(|hook| hook.state == HookStanding::Active).collect();
    for webhook in originals.iter().flat_map(|original| &original.webhooks) {
        let name = &webhook.key.name;
        let Some(place) = left.iter().position(|hook| hook.name == *name) else {
            return Ok(Some(format!("{sidecar} does not call {name}")));
        };
        left.swap_remove(place);
        if report.unenforced_left_out + report.canaries_left_out > 0
            || report.unenforced.iter().any(|it| it.what == "hook" && it.name == *name)
        {
            return Ok(Some(format!("{sidecar} does not enforce what {name} says (or has no room to say so)")));
        }
    }
    Ok(None)
}
