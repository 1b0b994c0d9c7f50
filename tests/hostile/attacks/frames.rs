//! Frames that break the rules, and frames that keep them too often.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{
        caller::Caller,
        http2::{self, frame},
        peer::Peer,
    },
    hook::{Hook, greeted},
    stage::Stage,
};

type Breach = (&'static str, fn(u32) -> Vec<u8>);
type Flood = (&'static str, fn() -> Vec<u8>);

/// Frames that a hook may not send; RFC 9113 has a connection error for each. The stream is one that is open.
const BREACHES: [Breach; 10] = [
    ("SETTINGS of a stream", |stream| frame(http2::SETTINGS, 0, stream, &[])),
    ("SETTINGS of five bytes", |_| frame(http2::SETTINGS, 0, 0, &[0; 5])),
    ("SETTINGS that acknowledge and have bytes", |_| frame(http2::SETTINGS, http2::ACK, 0, &[0; 6])),
    ("PING of a stream", |stream| frame(http2::PING, 0, stream, &[0; 8])),
    ("PING of seven bytes", |_| frame(http2::PING, 0, 0, &[0; 7])),
    ("GOAWAY of a stream", |stream| frame(http2::GOAWAY, 0, stream, &[0; 8])),
    ("GOAWAY of four bytes", |_| frame(http2::GOAWAY, 0, 0, &[0; 4])),
    ("WINDOW_UPDATE of nothing", |_| http2::window_update(0, 0)),
    ("WINDOW_UPDATE of three bytes", |_| frame(http2::WINDOW_UPDATE, 0, 0, &[0; 3])),
    ("empty CONTINUATIONs without end", |stream| {
        let head = http2::fields(&[(":status", "200")]);
        let mut bytes = frame(http2::HEADERS, 0, stream, &head);
        bytes.extend(frame(http2::CONTINUATION, 0, stream, &[]).repeat(20_000));
        bytes
    }),
];

/// Each review meets one of them.
pub fn invalid_frames_of_hooks() -> Attack {
    Attack {
        name: "frames-that-break-the-rules",
        item: "18",
        hooks: |notes| {
            let notes = notes.clone();
            let script = greeted(move |mut peer: Peer| {
                let Ok(asked) = peer.asked() else { return };
                let (name, breach) = BREACHES[(notes.count("breaches") - 1) as usize % BREACHES.len()];
                peer.send(&breach(asked.stream));
                if !peer.closed_within(Duration::from_secs(1)) {
                    notes.count(&format!("open {name}"));
                }
            });
            vec![Hook::grpc("breacher", script).within("1500ms")]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let press = Press { reviews: 10, every: Duration::from_millis(60), at_once: 1, ..Press::USUAL };
            let tally = press::pods(stage, press)?;
            thread::sleep(Duration::from_millis(300));
            let open: Vec<&str> = BREACHES
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| stage.notes.counted(&format!("open {name}")) > 0)
                .collect();
            match open.is_empty() && tally.allowed == 0 {
                true => Ok(format!("{} breaches; {}", stage.notes.counted("breaches"), tally.said())),
                false => Err(format!("the connection stays open after {}; {}", open.join(", "), tally.said())),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// Frames that a caller may send, but not for ever.
const FLOODS: [Flood; 4] = [
    ("PING", || frame(http2::PING, 0, 0, &[7; 8])),
    ("SETTINGS", || http2::settings(&[(http2::INITIAL_WINDOW_SIZE, 65_535)])),
    ("PRIORITY", || frame(http2::PRIORITY, 0, 3, &[0, 0, 0, 0, 7])),
    ("WINDOW_UPDATE", || http2::window_update(0, 1)),
];

/// Each for a while, on a connection of its own that does nothing else.
pub fn floods_of_callers() -> Attack {
    Attack {
        name: "floods-of-small-frames",
        item: "39",
        hooks: |_| Vec::new(),
        serve: Serve::PLAIN,
        during: |stage| {
            let cut: Vec<(&str, Option<u64>)> =
                FLOODS.iter().map(|(name, one)| (*name, flood(stage, &one()))).collect();
            let message = format!("cut after {cut:?}");
            match cut.iter().all(|(_, after)| after.is_some()) {
                true => Ok(message),
                false => Err(message),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// Sends that frame 200,000 times, reading what is sent back; the number by which the connection was cut.
fn flood(stage: &Stage, one: &[u8]) -> Option<u64> {
    const BATCH: usize = 500;
    let mut caller = Caller::elsewhere(stage.process.tcp, &[])?;
    // The greeting of the other side is in.
    caller.peer.socket.patience(Duration::from_secs(1));
    caller.peer.frame().ok()?;
    let (reader, batch) = (caller.peer.socket.again().ok()?, one.repeat(BATCH));
    let draining = thread::spawn(move || {
        let mut peer = Peer::new(reader);
        while peer.take(1).is_ok() {}
    });
    let until = Instant::now() + Duration::from_secs(3);
    let mut sent = 0;
    while sent < 200_000 && Instant::now() < until {
        if draining.is_finished() || !caller.peer.send(&batch) {
            return Some(sent);
        }
        sent += BATCH as u64;
        // Half the machine is not ours.
        thread::sleep(Duration::from_millis(2));
    }
    let cut = draining.is_finished();
    caller.peer.socket.shut();
    let _ = draining.join();
    cut.then_some(sent)
}
