//! Loops that keep the state in force current, besides the configuration itself.

pub mod access_reviews;
pub mod adoption;
pub mod break_glass;
mod discovery;
pub mod labelled;
pub mod namespaces;
pub mod registration;
pub mod services;

pub use self::{
    access_reviews::AccessReviews, adoption::AdoptionSidecar, labelled::LabelledObjects, namespaces::NamespaceWatcher,
    registration::RegistrationWatch, services::ServiceWatcher,
};
