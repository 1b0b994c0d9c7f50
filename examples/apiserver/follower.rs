//! Follower: reports unfinished objects to Gatepost, and makes the corrections that it is told.
//!
//! One stream to each replica of Gatepost, for as long as this process lives. When one ends another begins, with a report
//! of all that is there.

use std::time::Duration;

use gatepost_wire::{
    initializers,
    pb::gatepost::v1::{
        Correction, Gone, Initialized, Look, StoredObject, StoredObjectEvent, Synced, correction::Remedy,
        follower_message::Message, initialization_client::InitializationClient, stored_object_event::Event,
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::{
    apiserver::{Apiserver, Caller},
    etcd::Failure,
    kind::Kind,
    object::{Object, Place, ROOT, failed},
    refusal::Refusal,
};

const WAITING: usize = 256;
const AGAIN: Duration = Duration::from_millis(200);

/// Follows one replica for ever.
pub(crate) async fn follow(apiserver: &'static Apiserver, channel: Channel) {
    loop {
        if let Err(failure) = stream(apiserver, channel.clone()).await {
            eprintln!("following Gatepost: {failure}");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// One stream, to its end.
async fn stream(apiserver: &'static Apiserver, channel: Channel) -> Result<(), Failure> {
    let (to, events) = mpsc::channel(WAITING);
    let mut told = InitializationClient::new(channel).follow(ReceiverStream::new(events)).await?.into_inner();
    let correcting = async {
        loop {
            match told.message().await?.map(|message| message.message) {
                Some(Some(Message::Correction(correction))) => {
                    // Beside each other: a review of one may take long.
                    tokio::spawn(async move {
                        if let Err(refusal) = correct(apiserver, &correction).await {
                            eprintln!("a correction is not made: {}", refusal.0.message);
                        }
                    });
                }
                Some(Some(Message::Look(look))) => to.send(looked(apiserver, &look).await?).await?,
                Some(_) => {}
                None => return Ok(()),
            }
        }
    };
    tokio::select! {
        ended = correcting => ended,
        // The storage has ended its watch.
        ended = report(apiserver, &to) => ended,
    }
}

/// All unfinished objects there are, and then each change of one.
async fn report(apiserver: &Apiserver, to: &mpsc::Sender<StoredObjectEvent>) -> Result<(), Failure> {
    let (entries, revision) = apiserver.etcd.list(ROOT).await?;
    for object in entries.iter().filter_map(Object::of).filter(|object| !object.is_initialized()) {
        to.send(unfinished(&object)).await?;
    }
    to.send(event(Event::Synced(Synced {}))).await?;
    let mut changes = apiserver.etcd.watch(ROOT, revision + 1).await?;
    while let Some(changed) = changes.next().await? {
        for changed in changed {
            let [before, after] = [&changed.before, &changed.after].map(|entry| entry.as_ref().and_then(Object::of));
            let was_unfinished = before.as_ref().is_some_and(|object| !object.is_initialized());
            match (before, after) {
                (_, Some(object)) if !object.is_initialized() => to.send(unfinished(&object)).await?,
                (_, Some(object)) if was_unfinished => to.send(initialized(&object)).await?,
                (Some(object), None) if was_unfinished => to.send(gone(object.uid())).await?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// One object as the storage has it.
async fn looked(apiserver: &Apiserver, look: &Look) -> Result<StoredObjectEvent, Failure> {
    let kind = Kind::of(&look.resource);
    let place = kind.map(|kind| Place { kind, namespace: look.namespace.clone(), name: look.name.clone() });
    let found = match &place {
        Some(place) => apiserver.stored(place).await?.filter(|object| object.uid() == look.uid),
        None => None,
    };
    Ok(match found {
        None => gone(&look.uid),
        Some(object) if object.is_initialized() => initialized(&object),
        Some(object) => unfinished(&object),
    })
}

/// Makes one correction, while the object is as Gatepost saw it.
async fn correct(apiserver: &'static Apiserver, correction: &Correction) -> Result<(), Refusal> {
    let Some(kind) = Kind::of(&correction.resource) else { return Ok(()) };
    let place = Place { kind, namespace: correction.namespace.clone(), name: correction.name.clone() };
    let Some(object) = apiserver.stored(&place).await? else { return Ok(()) };
    if object.uid() != correction.uid || object.revision.to_string() != correction.resource_version {
        return Ok(());
    }
    match &correction.remedy {
        Some(Remedy::RemoveHead(head)) => apiserver.remove_head(&object, head).await,
        Some(Remedy::Fail(status)) => {
            let json = failed(&object.json, initializers::status_info(status.clone()));
            apiserver.update(&Caller::itself(), object, json).await.map(drop)
        }
        Some(Remedy::Delete(_)) => apiserver.removed(&object).await.map(drop),
        None => Ok(()),
    }
}

fn event(event: Event) -> StoredObjectEvent {
    StoredObjectEvent { event: Some(event) }
}

fn gone(uid: &str) -> StoredObjectEvent {
    event(Event::Gone(Gone { uid: uid.to_owned() }))
}

fn initialized(object: &Object) -> StoredObjectEvent {
    let (uid, resource_version) = (object.uid().to_owned(), object.revision.to_string());
    event(Event::Initialized(Initialized { uid, resource_version }))
}

fn unfinished(object: &Object) -> StoredObjectEvent {
    let list = object.list().unwrap_or_default();
    event(Event::Unfinished(StoredObject {
        group: String::new(),
        resource: object.place.kind.resource.to_owned(),
        namespace: object.place.namespace.clone(),
        name: object.place.name.clone(),
        uid: object.uid().to_owned(),
        resource_version: object.revision.to_string(),
        pending: list.pending.iter().map(|name| name.to_string()).collect(),
        result: list.result.as_deref().map(initializers::status),
    }))
}
