//! Decode: what a hook sent back, to what it says and the change that it asks for.

use crate::{
    hooks::Reply,
    model::{Answer, CallFailure, HookType, HttpForm, ProposedPatch},
    patch::{Patch, PatchError},
    wire::{answer, http_answer},
};

/// An answer, and its patch as it was read. A patch that is read and lacks something is found out when its turn comes.
pub(super) type Decoded = (Answer, Option<Result<Patch, PatchError>>);

/// What a hook sent back, to what it says. A patch that cannot be read is no usable answer; one that is read, and cannot
/// be applied, is found out when it is. One without operations is none. Its type matters only where the review has an
/// object, as upstream: without one, any operation is refused when its turn comes, whatever the failure policy.
pub(super) fn decode(
    hook_type: HookType,
    form: Option<HttpForm>,
    (uid, has_object): (&str, bool),
    reply: Reply,
) -> Result<Decoded, CallFailure> {
    let mut answer = decode_answer(hook_type, form, uid, reply)?;
    let Some(ProposedPatch { text, other_type }) = &answer.patch else { return Ok((answer, None)) };
    let patch = Patch::parse(text.clone());
    match &patch {
        Ok(patch) if patch.is_empty() => {
            answer.patch = None;
            return Ok((answer, None));
        }
        Err(error) if error.is_undecodable() || *error == PatchError::TooManyOperations => {
            return Err(CallFailure::UndecodablePatch(error.to_string()));
        }
        Ok(_) | Err(_) => {
            if let Some(other) = other_type
                && has_object
            {
                return Err(CallFailure::PatchType(other.to_string()));
            }
        }
    }
    Ok((answer, Some(patch)))
}

/// What a hook sent back, to what it says; `form`: how it is spoken to, `None` for gRPC.
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
