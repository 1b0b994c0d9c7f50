//! A hook that does not read.

use std::{thread, time::Duration};

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{http2, peer::Peer},
    hook::Hook,
};

/// It greets, opens every window, and never reads again.
fn deaf(mut peer: Peer) {
    if peer.greet(&[(http2::INITIAL_WINDOW_SIZE, (1 << 31) - 1)]).is_ok() {
        peer.send(&http2::window_update(0, (1 << 31) - 1 - 65_535));
        peer.send(&http2::frame(http2::SETTINGS, http2::ACK, 0, &[]));
        thread::sleep(Duration::from_secs(60));
    }
}

/// Nothing is in flight, and the queue to it grew by every review.
pub fn deaf_hook() -> Attack {
    Attack {
        name: "hook-that-does-not-read",
        item: "8",
        hooks: |_| vec![Hook::unix("deaf", deaf).within("5ms"), Hook::grpc("deafer", deaf).within("5ms")],
        serve: Serve::PLAIN,
        during: |stage| {
            // Heads as large as they may be: they were queued however much was queued already.
            let press = Press { reviews: 1500, every: Duration::from_millis(2), size: 2000, ..Press::USUAL };
            let tally = press::pods(stage, Press { at_once: 20, labels: 9000, ..press })?;
            match tally.allowed {
                0 => Ok(tally.said()),
                _ => Err(tally.said()),
            }
        },
        bounds: Bounds { peak: 48 << 20, left: 12 << 20, ..Bounds::USUAL },
    }
}
