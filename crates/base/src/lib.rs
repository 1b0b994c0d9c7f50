//! Building blocks of a long-running server: clocks, a memory budget, offloaded work, and reads of files.
//!
//! ```
//! use gatepost_base::memory::{MemoryBudget, Purpose};
//!
//! let budget = MemoryBudget::new(1 << 20);
//! let review = budget.reserve(Purpose::Review, 64 << 10).expect("nothing is reserved yet");
//! assert_eq!(budget.held(), 64 << 10);
//! drop(review);
//! assert_eq!(budget.held(), 0);
//! ```
//!
//! This crate does not know what the bytes, the work or the files are. It has no configuration, logs nothing and counts
//! nothing. It follows no upstream.
#![forbid(unsafe_code)]

pub mod clock;
pub mod files;
pub mod memory;
pub mod offload;
pub mod throttle;

/// Defines an enum whose variants are values of a metric's label.
///
/// ```
/// gatepost_base::labels! {
///     /// End of a call.
///     pub enum End {
///         /// It was answered.
///         Answered = "answered",
///     }
/// }
/// assert_eq!(End::Answered.as_str(), End::LABELS[0]);
/// ```
#[macro_export]
macro_rules! labels {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$variant_about:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_about])* $variant,)* }

        impl $name {
            /// Values of the label, in the order of the variants.
            pub const LABELS: [&'static str; [$($label),*].len()] = [$($label),*];

            /// Value of the label.
            pub const fn as_str(self) -> &'static str {
                Self::LABELS[self as usize]
            }
        }
    };
}
