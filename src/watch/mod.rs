//! Watch: the loops that keep what is in force current, beside the configuration itself. One file a loop.

pub mod break_glass;
mod discovery;
pub mod namespaces;
pub mod registration;

pub use self::{namespaces::NamespaceWatcher, registration::RegistrationWatch};
