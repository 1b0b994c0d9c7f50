//! Decode: reply of a hook, decoded into its answer and the change that it asks for.

use crate::{
    hooks::Reply,
    model::{Answer, CallFailure, HookType, HttpForm},
    patch::{Patch, PatchError},
    wire::{answer, http_answer},
};

/// An answer that was read.
pub(super) struct Decoded {
    pub(super) answer: Answer,
    /// Its patch as it was read. One that is read and lacks something is found out when its turn comes.
    pub(super) patch: Option<Box<Result<Patch, PatchError>>>,
    /// Fault of the patch that makes the answer unusable: its warnings and annotations count all the same, as upstream.
    pub(super) failure: Option<CallFailure>,
}

/// Reply of a hook, decoded. A patch that cannot be read is no usable answer; one that is read, and cannot be applied,
/// is found out when it is. One without operations is none. Its type matters only where the review has an object, as
/// upstream: without one, any operation is refused when its turn comes, whatever the failure policy.
pub(super) fn decode(
    hook_type: HookType,
    form: Option<HttpForm>,
    (uid, has_object): (&str, bool),
    reply: Reply,
) -> Result<Decoded, CallFailure> {
    let mut answer = decode_answer(hook_type, form, uid, reply)?;
    let Some(proposed) = answer.patch.take() else { return Ok(Decoded { answer, patch: None, failure: None }) };
    let patch = Patch::parse(proposed.text.clone());
    let failure = match (&patch, &proposed.other_type) {
        (Ok(patch), _) if patch.is_empty() => return Ok(Decoded { answer, patch: None, failure: None }),
        (Err(error), _) if error.is_undecodable() || *error == PatchError::TooManyOperations => {
            Some(CallFailure::UndecodablePatch(error.to_string()))
        }
        (_, Some(other)) if has_object => Some(CallFailure::PatchType(other.to_string())),
        _ => None,
    };
    answer.patch = Some(proposed).filter(|_| failure.is_none());
    let patch = failure.is_none().then(|| Box::new(patch));
    Ok(Decoded { answer, patch, failure })
}

/// Answer of a hook, decoded by its type and `form`, which is `None` for gRPC.
fn decode_answer(hook_type: HookType, form: Option<HttpForm>, uid: &str, reply: Reply) -> Result<Answer, CallFailure> {
    match (reply, form) {
        (Reply::Http(reply), Some(form)) => {
            // The seeds' contract is three statuses; in Kubernetes' the type comes before all else.
            if !reply.readable_type && form != HttpForm::Legacy {
                return Err(CallFailure::Undecodable("its Content-Type is not a media type".into()));
            }
            http_answer::decode(hook_type, form, uid, reply.status, reply.body()?)
        }
        (Reply::Grpc(message), _) => answer::decode(hook_type, uid, message),
        // No channel answers in a language that was not spoken to it.
        (Reply::Http(reply), None) => Err(CallFailure::NotGrpc(format!("HTTP {}", reply.status))),
    }
}
