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

/// Checks that each name of a client's own list is one of `known`. One that is misspelt would act on nothing, and so pass
/// by the initializer that it means.
///
/// # Errors
/// The first that is not.
pub fn check_known<'a>(list: &Initializers, known: impl Iterator<Item = &'a str> + Clone) -> Result<(), RefusedList> {
    match list.pending.iter().position(|name| !known.clone().any(|known| *known == **name)) {
        None => Ok(()),
        Some(at) => {
            let (name, known) = (&list.pending[at], known.collect::<Vec<_>>().join(", "));
            let why = format!("{name:?} is no initializer of this resource; it has: {known}");
            Err(RefusedList::invalid(&format!("pending[{at}].name"), why))
        }
    }
}
