//! The attacks; one file for each kind.

mod answers;
mod bodies;
mod configuration;
mod descriptors;
mod frames;
mod goaway;
mod health;
mod memory;
mod pieces;
mod press;
mod stalled;
mod streams;
mod trailers;
mod unread;

use crate::attack::Attack;

/// All of them, in the order in which they are played.
pub fn all() -> Vec<Attack> {
    let mut all = vec![
        answers::many_annotations(),
        answers::repeated_warnings(),
        answers::bad_keys(),
        pieces::repeated_fields(),
        pieces::small_pieces(),
        unread::deaf_hook(),
        goaway::loops(),
        goaway::leftovers(),
        streams::held_by_a_late_call(),
        streams::refused_once(),
        streams::small_header_table(),
        bodies::declared_and_never_sent(),
        bodies::idle_connections(),
        bodies::large_reviews(),
        frames::invalid_frames_of_hooks(),
        frames::floods_of_callers(),
        health::endless_checks(),
        stalled::log_nobody_reads(),
        stalled::audit_nobody_reads(),
        descriptors::hung_hook(),
        descriptors::greet_and_leave(),
        configuration::swapped_for_a_pipe(),
        configuration::leased(),
        trailers::contradictions(),
        trailers::kinds_that_do_not_belong(),
    ];
    all.extend(memory::all());
    all
}
