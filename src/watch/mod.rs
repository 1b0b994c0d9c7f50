//! Loops that keep the state in force current, besides the configuration itself.

pub mod access_reviews;
pub mod adoption;
pub mod break_glass;
pub mod cluster_objects;
mod discovery;
pub mod labelled;
pub mod namespaces;
pub mod registration;
pub mod services;

pub use self::{
    access_reviews::AccessReviews, adoption::AdoptionSidecar, cluster_objects::ClusterReader,
    labelled::LabelledObjects, namespaces::NamespaceWatcher, registration::RegistrationWatch, services::ServiceWatcher,
};
