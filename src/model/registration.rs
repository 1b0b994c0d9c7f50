//! Registration: how our own with an apiserver is told from the hooks of others.

/// Label of whom an object belongs to, and its value on what `gatepost register` prints.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gatepost");
/// Ending of the names of the webhooks that `gatepost register` writes.
pub const OUR_WEBHOOKS: &str = ".validate.gatepost.dev";
