//! Catch panic: a panic in one call ends that call alone.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::refusal::Refusal;
use crate::telemetry::Throttle;

/// Runs one call. Unwind safety: a panic's half-done state (the call's message and review) is dropped with the future.
/// The panic's message is not repeated here: it may quote the object.
///
/// No `async fn`: that would keep room for the call twice, and each of them is moved to the heap.
pub(super) fn catch_panic<T>(
    deciding: impl Future<Output = Result<T, Refusal>>,
) -> impl Future<Output = Result<T, Refusal>> {
    AssertUnwindSafe(deciding).catch_unwind().map(|ended| {
        ended.unwrap_or_else(|_| {
            static PANICS: Throttle = Throttle::new();
            if let Some(held_back) = PANICS.pass() {
                tracing::error!(held_back, "a panic while handling a review; this is a bug in gatepost");
            }
            Err(Refusal::Bug)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_call_with_a_refusal_that_says_nothing_of_the_object() {
        let panicking = async { panic!("secret") };
        let refusal = catch_panic::<()>(panicking).await.expect_err("refused");
        assert_eq!(refusal.to_string(), "the request could not be handled; this is a bug in gatepost");
        assert_eq!(catch_panic(async { Ok(1) }).await, Ok(1));
    }
}
