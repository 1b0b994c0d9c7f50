//! Registration: how our own with an apiserver is told from the hooks of others.

use super::HookType;

/// Label of whom an object belongs to, and its value on what `gatepost register` prints.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gatepost");

/// Ending of the names of the webhooks that `gatepost register` writes for hooks of that type.
pub const fn our_webhooks(hook_type: HookType) -> &'static str {
    match hook_type {
        HookType::Validating => ".validate.gatepost.dev",
        HookType::Mutating => ".mutate.gatepost.dev",
    }
}

/// Is it the name of such a webhook?
pub fn is_our_webhook(name: &str) -> bool {
    [HookType::Validating, HookType::Mutating].into_iter().any(|hook_type| name.ends_with(our_webhooks(hook_type)))
}
