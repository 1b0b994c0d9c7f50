//! Race: overlapping connection attempts to the addresses of one name (Happy Eyeballs, RFC 8305).

use std::{collections::VecDeque, net::SocketAddr, pin::pin, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, sleep};

/// Connection Attempt Delay: an attempt that is silent for so long has the next one begun beside it.
// source: RFC 8305 §5, "a recommended value is 250 milliseconds".
const STAGGER: Duration = Duration::from_millis(250);
/// The most addresses of a name that one dial tries; the next dial begins with another.
const MOST_ADDRESSES: usize = 8;

/// One address that did not win, and its error; without one it was silent.
pub(super) type Loser<A, E> = (A, Option<E>);

/// Connects to the first of the addresses that lets us. The next attempt begins when the one before has failed, or has
/// been silent for 250 ms; attempts that are overtaken are dropped.
///
/// # Errors
/// Failures by address, when all have failed or the time is up. An address that was not tried is not in it.
pub(super) async fn race<A, T, E, F>(
    addresses: &[A],
    within: Duration,
    connect: impl Fn(A) -> F,
) -> Result<T, Vec<Loser<A, E>>>
where
    A: Copy + PartialEq,
    F: Future<Output = Result<T, E>>,
{
    let attempt = |address| {
        let connected = connect(address);
        async move { (address, connected.await) }
    };
    let mut waiting = addresses.iter().copied();
    let mut silent = Vec::new();
    let mut losers = Vec::new();
    let mut attempts = FuturesUnordered::new();
    let mut over = pin!(sleep(within));
    let mut next = pin!(sleep(Duration::ZERO));
    loop {
        if attempts.is_empty() && waiting.len() == 0 {
            return Err(losers);
        }
        tokio::select! {
            biased;
            Some((address, result)) = attempts.next() => {
                match result {
                    Ok(connected) => return Ok(connected),
                    Err(error) => losers.push((address, Some(error))),
                }
                silent.retain(|other| *other != address);
                next.as_mut().reset(Instant::now());
            }
            () = &mut over => {
                losers.extend(silent.into_iter().map(|address| (address, None)));
                return Err(losers);
            }
            () = &mut next, if waiting.len() > 0 => {
                if let Some(address) = waiting.next() {
                    silent.push(address);
                    attempts.push(attempt(address));
                }
                next.as_mut().reset(Instant::now() + STAGGER);
            }
        }
    }
}

/// The addresses in the order of their attempts: families taking turns, the resolver's first family first, each begun
/// with another of its addresses at every `start`, so that not everybody depends on the same one.
pub(super) fn interleaved(addresses: &[SocketAddr], start: usize) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (preferred, other): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut families = [preferred, other].map(|mut family| {
        family.dedup();
        let middle = start % family.len().max(1);
        family.rotate_left(middle);
        VecDeque::from(family)
    });
    let mut order = Vec::with_capacity(addresses.len().min(MOST_ADDRESSES));
    while order.len() < MOST_ADDRESSES && families.iter().any(|family| !family.is_empty()) {
        order.extend(families.iter_mut().filter_map(VecDeque::pop_front));
    }
    order.truncate(MOST_ADDRESSES);
    order
}

#[cfg(test)]
mod tests;
