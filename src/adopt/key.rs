//! WebhookKey: the name of one webhook of a cluster.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::model::HookType;

/// The name of one webhook of a cluster: names are unique in their configuration, and configurations in their kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookKey {
    /// The kind of its configuration.
    pub hook_type: HookType,
    /// The name of its configuration.
    pub configuration: String,
    /// Its own name.
    pub webhook: String,
}

impl WebhookKey {
    /// A short digest of it, for lists that have to be small.
    pub fn id(&self) -> String {
        let digest = Sha256::digest(self.to_string());
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The plural that the API has for configurations of that type.
    pub const fn resource(hook_type: HookType) -> &'static str {
        match hook_type {
            HookType::Validating => "validatingwebhookconfigurations",
            HookType::Mutating => "mutatingwebhookconfigurations",
        }
    }

    /// The kind of configurations of that type.
    pub const fn kind(hook_type: HookType) -> &'static str {
        match hook_type {
            HookType::Validating => "ValidatingWebhookConfiguration",
            HookType::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The path of its configuration below the API.
    pub fn path(&self) -> String {
        format!("/apis/admissionregistration.k8s.io/v1/{}/{}", Self::resource(self.hook_type), self.configuration)
    }

    /// Short name of a type, as `validating`.
    pub const fn word(hook_type: HookType) -> &'static str {
        match hook_type {
            HookType::Validating => "validating",
            HookType::Mutating => "mutating",
        }
    }
}

impl fmt::Display for WebhookKey {
    /// `validating/CONFIGURATION/WEBHOOK`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", Self::word(self.hook_type), self.configuration, self.webhook)
    }
}
