//! Nesting: objects and arrays that a scan passes by, recorded or not.

/// Observer of objects and arrays, in the order of their brackets.
pub trait Nesting {
    /// One opens at this byte.
    fn opens(&mut self, at: usize);
    /// The innermost that is open closes before this byte.
    fn closes(&mut self, end: usize);
}

/// Ends of containers that are not recorded.
impl Nesting for () {
    #[inline]
    fn opens(&mut self, _: usize) {}

    #[inline]
    fn closes(&mut self, _: usize) {}
}
