//! Keepalive: HTTP/2 connections that nobody uses, and peers that are gone. Looked at once a second.

use std::{future::poll_fn, task::Poll, time::Duration};

use futures_util::FutureExt;
use h2::{Ping, PingPong};

/// Interval at which a connection is looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Seconds without a call until a connection is sent GOAWAY. Longer than the 90 for which client-go keeps an idle
/// connection, so that usually it is the caller who closes one.
const IDLE: u32 = 120;
/// Seconds between two PINGs.
const PING_EVERY: u32 = 30;
/// Seconds in which a PING has to be answered. A peer that neither reads nor ends the frame it has begun cannot.
const ANSWER: u32 = 20;
/// Seconds that a connection may take to close once it has been sent GOAWAY and has no call.
const CLOSE: u32 = 10;

/// Action due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// Nothing.
    Alive,
    /// It has no calls: it is to be sent GOAWAY.
    Idle,
    /// Its peer is gone, or does not go: it is to be dropped.
    Dead,
}

/// Ages of a connection's states, in seconds.
#[derive(Debug)]
pub(crate) struct Keepalive {
    ping: Option<PingPong>,
    /// Since the last PING.
    since: u32,
    answered: bool,
    idle: u32,
}

impl Keepalive {
    /// Of a connection that begins now.
    pub(crate) fn new(ping: Option<PingPong>) -> Self {
        Self { ping, since: 0, answered: true, idle: 0 }
    }

    /// A call has begun.
    pub(crate) fn used(&mut self) {
        self.idle = 0;
    }

    /// One more second has passed, at whose end there were calls or not, and GOAWAY had been sent or not.
    pub(crate) fn beat(&mut self, has_calls: bool, closing: bool) -> Beat {
        self.idle = if has_calls { 0 } else { self.idle + 1 };
        if closing {
            return if self.idle > CLOSE { Beat::Dead } else { Beat::Alive };
        }
        if self.idle >= IDLE {
            self.idle = 0;
            return Beat::Idle;
        }
        self.since += 1;
        if let Some(ping) = &mut self.ping {
            let pong = poll_fn(|cx| match ping.poll_pong(cx) {
                Poll::Ready(pong) => Poll::Ready(pong.is_ok()),
                Poll::Pending => Poll::Ready(false),
            });
            self.answered |= pong.now_or_never().unwrap_or(false);
            if !self.answered && self.since >= ANSWER {
                return Beat::Dead;
            }
            if self.answered && self.since >= PING_EVERY {
                (self.since, self.answered) = (0, ping.send_ping(Ping::opaque()).is_err());
            }
        }
        Beat::Alive
    }
}
