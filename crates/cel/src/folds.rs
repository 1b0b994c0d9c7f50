//! Folds: variables of a loop.

use super::types::{Type, Unknowns};

/// The types of a loop's variables over a range of this type. One alone is an item of a list or a key of a map; two are
/// place and item, or key and value.
pub(super) fn variables(unknowns: &mut Unknowns, range: &Type, two: bool) -> Result<(Type, Option<Type>), String> {
    let (first, second) = match unknowns.seen(range) {
        Type::Dyn => (Type::Dyn, Type::Dyn),
        unknown @ Type::Var(_) => {
            unknowns.fits(&Type::Dyn, &unknown);
            (Type::Dyn, Type::Dyn)
        }
        Type::List(item) if two => (Type::Int, Type::clone(&item)),
        Type::List(item) => (Type::clone(&item), Type::Dyn),
        Type::Map(key, value) => (Type::clone(&key), Type::clone(&value)),
        other => {
            let of = unknowns.known(&other);
            return Err(format!(
                "expression of type '{of}' cannot be range of a comprehension (must be list, map, or dynamic)"
            ));
        }
    };
    Ok((first, two.then_some(second)))
}
