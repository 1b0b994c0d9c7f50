//! The attacks; one file for each kind.

mod answers;
mod configuration;
mod descriptors;
mod memory;
mod pieces;
mod press;
mod stalled;
mod trailers;

use crate::attack::Attack;

/// All of them, in the order in which they are played.
pub fn all() -> Vec<Attack> {
    let mut attacks = vec![
        answers::many_annotations(),
        answers::repeated_warnings(),
        answers::bad_keys(),
        pieces::repeated_fields(),
        pieces::small_pieces(),
        stalled::log_nobody_reads(),
        stalled::audit_nobody_reads(),
        descriptors::hung_hook(),
        configuration::swapped_for_a_pipe(),
        configuration::leased(),
        trailers::kinds_that_do_not_belong(),
    ];
    attacks.extend(memory::all());
    attacks
}
