//! Watch: changes of objects as one client sees them.

use bytes::Bytes;
use gatepost_api::initialization::{WatchEvent, translated};
use gatepost_wire::pb::gatepost::v1::ReadVerb;
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    apiserver::{Apiserver, Caller, Policy},
    etcd::{Changed, Changes},
    kind::Kind,
    object::{Object, Place},
    query::Selection,
    refusal::Refusal,
};

/// Lines that wait to be read by the client.
const WAITING: usize = 64;

/// The lines of one watch, until its client is gone or the storage ends it.
pub(crate) async fn watch(
    apiserver: &'static Apiserver,
    caller: &Caller,
    kind: &'static Kind,
    selection: Selection,
    from: Option<i64>,
) -> Result<mpsc::Receiver<Bytes>, Refusal> {
    // Once for all that the watch will ever see.
    let policy = apiserver.policy(ReadVerb::Watch, caller, kind, &selection.namespace, "").await;
    let (to, lines) = mpsc::channel(WAITING);
    let mut first = Vec::new();
    let from = match from {
        Some(from) => from,
        None => {
            let (objects, revision) = apiserver.all(kind, &selection.namespace).await?;
            first.extend(objects.into_iter().filter(|object| policy.shows(object) && selection.has(object)));
            revision
        }
    };
    let changes = apiserver.etcd.watch(&Place::below(kind), from + 1).await?;
    tokio::spawn(async move {
        for object in first {
            if to.send(line(WatchEvent::Added, &object)).await.is_err() {
                return;
            }
        }
        send(changes, &policy, &selection, &to).await;
    });
    Ok(lines)
}

async fn send(mut changes: Changes, policy: &Policy, selection: &Selection, to: &mpsc::Sender<Bytes>) {
    loop {
        let next = tokio::select! {
            () = to.closed() => return,
            next = changes.next() => next,
        };
        // The client begins anew.
        let Ok(Some(changed)) = next else { return };
        for changed in &changed {
            let Some(line) = seen(changed, policy, selection) else { continue };
            if to.send(line).await.is_err() {
                return;
            }
        }
    }
}

/// The line for one change, where the client sees one.
fn seen(changed: &Changed, policy: &Policy, selection: &Selection) -> Option<Bytes> {
    let [before, after] = [&changed.before, &changed.after].map(|entry| entry.as_ref().and_then(Object::of));
    let sees = |object: &Option<Object>| object.as_ref().is_some_and(|it| policy.shows(it) && selection.has(it));
    let event = match (&before, &after) {
        (None, _) => WatchEvent::Added,
        (Some(_), Some(_)) => WatchEvent::Modified,
        (Some(_), None) => WatchEvent::Deleted,
    };
    let event = translated(event, sees(&before), sees(&after))?;
    // An object that leaves the selection is sent as it was before, with the revision at which it left.
    let mut object = if event == WatchEvent::Deleted { before? } else { after? };
    object.json["metadata"]["resourceVersion"] = changed.revision.to_string().into();
    Some(line(event, &object))
}

fn line(event: WatchEvent, object: &Object) -> Bytes {
    let event = match event {
        WatchEvent::Added => "ADDED",
        WatchEvent::Modified => "MODIFIED",
        WatchEvent::Deleted => "DELETED",
    };
    format!("{}\n", json!({"type": event, "object": object.json})).into()
}
