//! Initialization: the unary calls of an apiserver that stores objects before they are initialized.
//!
//! `ReadPolicy` and `QuotaPhase` are answered immediately; `Hold` waits for the end of an object's initialization, at
//! most until the call's deadline. In a drain a `Hold` ends with UNAVAILABLE, and the apiserver retries it elsewhere.

use gatepost_api::initialization::{HiddenAs, HiddenObject, ReadVerb, Visibility, hidden};
use std::{future::poll_fn, sync::Arc, time::Instant};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;
use tokio::time::timeout_at;

use super::{CallMessage, CallMessages, follow::MAX_NAME};
use crate::{
    front::{
        answer,
        head::GrpcHead,
        limits::QuotaGuard,
        outgoing::Outgoing,
        refusal::Refusal,
        route::InitializationCall,
        state::{ConnectionContext, Front},
    },
    review::{self, ObjectRead},
};
use gatepost_api::{Deadline, StatusInfo};
use gatepost_base::memory::Reservation;
use gatepost_cel::User;
use gatepost_initializers::{
    Charge, QuotaPhase, QuotaStage,
    failure::TIMED_OUT,
    quota_phase,
    stored_objects::{HoldTimeout, SoughtObject},
    unfinished::{HoldOutcome, StoredObject},
};
use gatepost_wire::{initializers as wire, outbound::framed, pb::gatepost::v1 as pb};

/// Maximum size of a message of these calls, in bytes: a user with all groups.
const MAX_MESSAGE: usize = 256 << 10;
/// Memory of one call besides its message.
const CALL_MEMORY: usize = 4 << 10;
/// Approximate bytes of one group of a user, or of one value of `extra`, besides its text.
const ENTRY_OVERHEAD: usize = 64;
/// Lifetime of a read policy: the interval at which the configuration is read.
const TTL_MILLISECONDS: u32 = 1000;

/// Answers one call.
pub(crate) async fn answer(
    context: &ConnectionContext,
    call: InitializationCall,
    headers: &HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let ConnectionContext { front, session, .. } = context;
    let arrived = Instant::now();
    let answering = async {
        let Call { _quota_guard, message, room, deadline } = read_call(context, headers, body, arrived).await?;
        match call {
            InitializationCall::ReadPolicy => read_policy(front, message, room, deadline).await,
            InitializationCall::QuotaPhase => quota(message),
            InitializationCall::Hold => {
                let (sought, version) = sought(message)?;
                // The call's own reservation covers the rest of the message.
                drop(room);
                hold(context, &sought, &version, deadline).await
            }
        }
    };
    let answered = tokio::select! {
        biased;
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
        answered = answering => answered,
    };
    match answered {
        // An error means that the caller is gone.
        Ok(message) => {
            let now = Instant::now();
            let expiring = session.unsent.add(now, now + front.limits.timeout);
            drop(answer::send_message(&mut respond, Outgoing::from(message).until(expiring)));
        }
        Err(refusal) => front.send_refusal(&mut respond, &refusal),
    }
}

/// One call with its message.
struct Call<'a> {
    _quota_guard: QuotaGuard<'a>,
    message: Bytes,
    /// Reservation for the message.
    room: Reservation,
    deadline: Deadline,
}

async fn read_call<'a>(
    ConnectionContext { front, session, .. }: &'a ConnectionContext,
    headers: &HeaderMap,
    body: RecvStream,
    arrived: Instant,
) -> Result<Call<'a>, Refusal> {
    let GrpcHead { deadline, .. } = GrpcHead::read(headers, arrived, front.limits.timeout)?;
    let _quota_guard = front.initialization_quota.take(session, CALL_MEMORY)?;
    let mut messages = CallMessages::new(body, front.budget(), MAX_MESSAGE, MAX_MESSAGE);
    let within = deadline.left(arrived);
    let first = timeout_at(deadline.instant().into(), messages.next()).await;
    let first = first.map_err(|_| Refusal::CallDeadline { within })??;
    match first {
        Some(CallMessage::Whole(message, room)) => Ok(Call { _quota_guard, message, room, deadline }),
        Some(CallMessage::Skipped { .. }) | None => Err(Refusal::NoMessage { received: 0 }),
    }
}

/// Answers a `ReadPolicy`. The user's memory stays reserved until the authorizer has answered.
async fn read_policy(
    front: &Front,
    message: Bytes,
    mut room: Reservation,
    deadline: Deadline,
) -> Result<Bytes, Refusal> {
    let request = wire::read_policy(message).ok_or(Refusal::NotAMessage)?;
    let verb = match request.verb() {
        pb::ReadVerb::Get => ReadVerb::Get,
        pb::ReadVerb::List => ReadVerb::List,
        pb::ReadVerb::Watch => ReadVerb::Watch,
        pb::ReadVerb::Deletecollection => ReadVerb::DeleteCollection,
    };
    let user = request.user.unwrap_or_default();
    let entries = user.groups.len() + user.extra.values().map(|values| 2 + values.items.len()).sum::<usize>();
    let bytes = ENTRY_OVERHEAD * entries;
    if !room.try_grow(bytes) {
        return Err(Refusal::Overloaded { bytes });
    }
    let username = user.username.unwrap_or_default();
    let attributes = User {
        uid: user.uid.unwrap_or_default(),
        groups: user.groups,
        extra: user.extra.into_iter().map(|(key, values)| (key, values.items)).collect(),
    };
    let how = HiddenAs::to(|wanted| attributes.groups.iter().any(|group| group == wanted));
    let read = ObjectRead {
        verb,
        username: username.into(),
        user: Arc::new(attributes),
        group: request.group.into(),
        resource: request.resource.into(),
        namespace: request.namespace.into(),
        name: request.name.into(),
        includes_unfinished: request.include_uninitialized,
    };
    let policy = review::read_policy(&front.deps, &read, deadline.instant()).await;
    let ObjectRead { group, resource, name, .. } = &read;
    let object = HiddenObject { group, resource, name, uid: "", resource_version: "" };
    let hidden = StatusInfo { metadata: None, ..hidden(how, object) };
    let older_than = (policy.repair.older_than + policy.repair.skew).as_secs();
    let answer = pb::ReadPolicyResponse {
        visibility: match policy.visibility {
            Visibility::Initialized => pb::Visibility::Initialized,
            Visibility::All => pb::Visibility::All,
        }
        .into(),
        ttl_milliseconds: TTL_MILLISECONDS,
        revision: policy.revision,
        hidden: Some(wire::status(&hidden)),
        repair: policy.must_act.map(|names| pb::ReadRepair {
            older_than_seconds: u32::try_from(older_than).unwrap_or(u32::MAX),
            must_act: names.iter().map(ToString::to_string).collect(),
        }),
    };
    Ok(framed(&answer))
}

fn quota(message: Bytes) -> Result<Bytes, Refusal> {
    let request: pb::QuotaPhaseRequest = wire::decode(message).ok_or(Refusal::NotAMessage)?;
    let stage = |stage| match stage {
        pb::QuotaStage::Absent => QuotaStage::Absent,
        pb::QuotaStage::Unfinished => QuotaStage::Unfinished,
        pb::QuotaStage::Initialized => QuotaStage::Initialized,
    };
    let charge = |charge| match charge {
        Charge::Nothing => pb::Charge::Nothing,
        Charge::Now => pb::Charge::Now,
        Charge::AtCompletion => pb::Charge::AtCompletion,
        Charge::Difference => pb::Charge::Difference,
        Charge::Release => pb::Charge::Release,
    };
    let QuotaPhase { count, rest } =
        quota_phase(stage(request.before()), stage(request.after())).ok_or(Refusal::NotAMessage)?;
    Ok(framed(&pb::QuotaPhaseResponse { count: charge(count).into(), rest: charge(rest).into() }))
}

/// Returns the object that a `Hold` names, and its resource version. Rejects texts longer than an object can have.
fn sought(message: Bytes) -> Result<(Arc<SoughtObject>, Box<str>), Refusal> {
    let pb::HoldRequest { group, resource, namespace, name, uid, resource_version } =
        wire::decode(message).ok_or(Refusal::NotAMessage)?;
    let texts = [&group, &resource, &namespace, &name, &uid, &resource_version];
    if uid.is_empty() || texts.iter().any(|text| text.len() > MAX_NAME) {
        return Err(Refusal::NotAMessage);
    }
    let (group, resource, namespace, name) = (group.into(), resource.into(), namespace.into(), name.into());
    Ok((Arc::new(SoughtObject { group, resource, namespace, name, uid: uid.into() }), resource_version.into()))
}

async fn hold(
    ConnectionContext { front, session, drain, .. }: &ConnectionContext,
    sought: &Arc<SoughtObject>,
    version: &str,
    deadline: Deadline,
) -> Result<Bytes, Refusal> {
    let current = &front.deps.current;
    let client = session.client.identity.to_key();
    let rule =
        |object: &StoredObject| current.freshness().is_fresh(Instant::now()).then(|| current.load().head_rule(object));
    let end = tokio::select! {
        biased;
        end = current.stored().hold(&client, sought, deadline.instant(), rule) => end,
        () = drain.begun() => return Err(Refusal::Draining),
    };
    Ok(framed(&pb::HoldResponse { end: Some(ended(end, sought, version)) }))
}

fn ended(end: Result<HoldOutcome, HoldTimeout>, sought: &SoughtObject, version: &str) -> pb::hold_response::End {
    use pb::hold_response::End;
    match end {
        Ok(HoldOutcome::Completed(version)) => End::Completed(pb::Completed { resource_version: version.into() }),
        Ok(HoldOutcome::Deleted) => End::Deleted(pb::Deleted {}),
        Ok(HoldOutcome::Failed(status)) => {
            let late = status.causes.iter().any(|cause| cause.reason == TIMED_OUT);
            let status = wire::status(&status);
            if late {
                End::TimedOut(pb::TimedOut { status: Some(status), pending: false })
            } else {
                End::Failed(status)
            }
        }
        Err(HoldTimeout(object)) => {
            // An object without a report is assumed to be as it was stored.
            let object = object.unwrap_or_else(|| Arc::new(sought.as_stored(version)));
            End::TimedOut(pb::TimedOut { status: Some(wire::status(&object.still_pending())), pending: true })
        }
    }
}
