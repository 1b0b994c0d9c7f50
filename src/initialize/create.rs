//! Create: the list that a new object gets.

use super::{Initializers, RefusedList, VERB};

/// Must the user hold the verb `initialize` for the object to be created with this list? Only where the client wrote
/// one, the empty one too, which passes every initializer by.
pub fn needs_permission(written: Option<&Initializers>) -> bool {
    written.is_some()
}

/// The list of a new object: the client's own, where it wrote one and is `permitted` to; else the `configured` names,
/// in order. `None` where nothing has to act: the object is initialized.
///
/// # Errors
/// The client's list is wrong, or it may not write one.
// source: kubernetes/apiserver 1.13 pkg/admission/plugin/initialization, Admit on Create. There a list that the client
// wrote is kept whatever stands in it; here a name twice, and a result that is no failure, are wrong.
pub fn create<'a>(
    written: Option<Initializers>,
    configured: impl IntoIterator<Item = &'a str>,
    permitted: bool,
) -> Result<Option<Initializers>, RefusedList> {
    let Some(written) = written else { return Ok(Initializers::of(configured).normalized()) };
    if !permitted {
        return Err(RefusedList::Forbidden(format!(
            "metadata.initializers may only be written by users with permission to {VERB:?} this resource"
        )));
    }
    written.check()?;
    Ok(written.normalized())
}
