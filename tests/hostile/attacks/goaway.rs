//! Hooks that send GOAWAY.

use std::{thread, time::Duration};

use serde_json::json;

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{http2, peer::Peer},
    hook::{Hook, greeted},
};

/// Every review is said to be unseen, on every connection.
pub fn loops() -> Attack {
    Attack {
        name: "goaway-loop",
        item: "9",
        hooks: |notes| {
            let notes = notes.clone();
            let script = move |mut peer: Peer| {
                notes.count("connections");
                if peer.greet(&[]).is_err() {
                    return;
                }
                while let Ok(asked) = peer.asked() {
                    notes.count(&format!("asked {}", asked.uid));
                    peer.send(&http2::goaway(0, 0));
                }
            };
            // The hook may have processed a review although it says that it has not seen it.
            vec![Hook::grpc("leaver", script).with(json!({"sideEffects": "Unknown"}))]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let tally = press::pods(stage, Press { reviews: 6, every: Duration::from_millis(400), ..Press::USUAL })?;
            let (most, connections) = (stage.notes.most("asked "), stage.notes.counted("connections"));
            let message = format!("asked {most} times at most, {connections} connections; {}", tally.said());
            match tally.allowed == 0 && most <= 6 {
                true => Ok(message),
                false => Err(message),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// It will answer what it has, it says, and takes no more: a connection is left behind with each review.
pub fn leftovers() -> Attack {
    Attack {
        name: "goaway-leftovers",
        item: "10",
        hooks: |notes| {
            let notes = notes.clone();
            let script = greeted(move |mut peer: Peer| {
                notes.count("connections");
                // The head of a review, and never its body: no window is given for that.
                while let Ok(frame) = peer.frame() {
                    if frame.kind == http2::HEADERS {
                        peer.send(&http2::goaway(frame.stream, 0));
                        thread::sleep(Duration::from_secs(30));
                    }
                }
            });
            vec![Hook::grpc("hoarder", script).within("100ms")]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let before = stage.process.descriptors();
            let press =
                Press { reviews: 100, every: Duration::from_millis(25), size: 1 << 20, at_once: 8, ..Press::USUAL };
            let tally = press::pods(stage, press)?;
            let open = stage.process.descriptors().saturating_sub(before);
            let message =
                format!("{open} descriptors, {} connections; {}", stage.notes.counted("connections"), tally.said());
            match open <= 24 && tally.allowed == 0 {
                true => Ok(message),
                false => Err(message),
            }
        },
        bounds: Bounds::USUAL,
    }
}
