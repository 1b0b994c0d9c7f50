//! A sidecar beside a cluster: its objects, namespaces, replicas and credentials.

#[path = "../support/apiserver.rs"]
mod apiserver;
#[path = "../support/cluster.rs"]
mod cluster;
#[path = "../support/front.rs"]
mod front;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;

mod a_cluster_is_read_as_one_state;
mod a_replica_that_starts_gives_back;
mod a_sidecar_may_start_before_its_apiserver;
mod access_is_reviewed_by_the_cluster;
mod bindings_are_parked;
mod conditions_are_applied_and_removed;
mod credentials_for_a_cluster_are_followed;
mod import_separates_what_is_served;
mod namespaces_are_followed;
mod objects_are_initialized_by_label;
mod objects_of_policies_are_read;
mod receivers_of_reviews_are_read;
mod registration_drift_is_told;
mod replicas_in_a_cluster;
mod runlevels_are_labelled;
mod services_of_hooks_are_followed;
mod what_a_cluster_serves_is_followed;
mod who_may_initialize_is_asked;
