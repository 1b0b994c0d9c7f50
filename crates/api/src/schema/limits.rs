//! Limits on one object. A cluster reckons what its rules cost at worst, from these numbers, and takes no definition
//! whose rules could cost too much; a larger configuration is spread over several objects.

/// Hooks in one object.
pub(super) const ENTRIES: u32 = 512;
/// Resources with initializers in one object.
pub(super) const RESOURCES: u32 = 128;
/// Initializers of one resource.
pub(super) const INITIALIZERS: u32 = 32;
/// Bypasses in one object.
pub(super) const BYPASSES: u32 = 128;
/// Conditions of one hook. As upstream.
pub(super) const CONDITIONS: u32 = 64;
/// Rules of one hook or bypass.
pub(super) const RULES: u32 = 32;
/// Entries of one list in a rule.
pub(super) const WORDS: u32 = 64;
/// Requirements of one selector.
pub(super) const REQUIREMENTS: u32 = 32;
/// Names in one list of a bypass, hooks that a break glass opens, values of one requirement.
pub(super) const NAMES: u32 = 256;
