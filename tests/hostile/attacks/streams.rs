//! Abuses of streams by hooks, and of our header blocks.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{
        caller::{Answer, Caller},
        http2,
        peer::Peer,
    },
    hook::{Hook, approve, greeted},
};

/// A hook with one stream at a time never answers the first call on it. That call is over after 200 ms, its review,
/// which waits for another hook, is not.
pub fn held_by_a_late_call() -> Attack {
    Attack {
        name: "late-call-holds-the-stream",
        item: "11",
        hooks: |notes| {
            let (single, slow) = (notes.clone(), notes.clone());
            let one_stream = move |mut peer: Peer| {
                if peer.greet(&[(http2::MAX_CONCURRENT_STREAMS, 1)]).is_err() {
                    return;
                }
                while let Ok(frame) = peer.frame() {
                    peer.oblige(&frame);
                    if frame.kind == http2::RST_STREAM {
                        single.count("cancelled");
                    }
                    let Some(asked) = peer.gather(frame) else { continue };
                    single.count("asked");
                    if !asked.uid.starts_with("late") {
                        approve(&mut peer, "single", &single, &asked);
                    }
                }
            };
            let slowly = greeted(move |mut peer: Peer| {
                while let Ok(asked) = peer.asked() {
                    if asked.uid.starts_with("late") {
                        thread::sleep(Duration::from_millis(1500));
                    }
                    approve(&mut peer, "slow", &slow, &asked);
                }
            });
            vec![Hook::grpc("single", one_stream).ignored().within("200ms"), Hook::grpc("slow", slowly)]
        },
        // One worker: one connection, and so one stream.
        serve: Serve { arguments: &["--workers", "1"], ..Serve::PLAIN },
        during: |stage| {
            let mut late = Caller::connect(stage.process.tcp).ok_or("not let in")?;
            let stream = late.ask("late", "pods", 1000, "3S");
            let until = Instant::now() + Duration::from_secs(1);
            while stage.notes.counted("cancelled") == 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            let in_time = stage.notes.counted("cancelled") > 0;
            let answer = late.answer(stream, Duration::from_secs(4));
            let others = press::pods(stage, Press { reviews: 10, ..Press::USUAL })?;
            match in_time && answer == Answer::Allowed && stage.notes.counted("asked") >= 11 {
                true => Ok(format!("cancelled in time; {}", others.said())),
                false => Err(format!(
                    "cancelled in time: {in_time}; {answer:?}; {} reviews reached the hook; {}",
                    stage.notes.counted("asked"),
                    others.said()
                )),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// Each review is refused once with REFUSED_STREAM, and answered then.
pub fn refused_once() -> Attack {
    Attack {
        name: "refused-stream",
        item: "12",
        hooks: |notes| {
            let notes = notes.clone();
            let script = greeted(move |mut peer: Peer| {
                while let Ok(asked) = peer.asked() {
                    if notes.count(&format!("asked {}", asked.uid)) == 1 {
                        peer.send(&http2::reset(asked.stream, 7));
                    } else {
                        approve(&mut peer, "refuser", &notes, &asked);
                    }
                }
            });
            vec![Hook::grpc("refuser", script)]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let tally = press::pods(stage, Press { reviews: 40, ..Press::USUAL })?;
            match tally.allowed {
                40 => Ok(tally.said()),
                _ => Err(tally.said()),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// The hook lowers its header table to 2,048 bytes. RFC 7541 §4.2: the first block behind our ACK begins with the new
/// size.
pub fn small_header_table() -> Attack {
    Attack {
        name: "header-table-2048",
        item: "15",
        hooks: |notes| {
            let notes = notes.clone();
            let script = move |mut peer: Peer| {
                if peer.greet(&[(http2::HEADER_TABLE_SIZE, 2048)]).is_err() {
                    return;
                }
                let mut acknowledged = false;
                while let Ok(frame) = peer.frame() {
                    peer.oblige(&frame);
                    acknowledged |= frame.kind == http2::SETTINGS && frame.flags & http2::ACK != 0;
                    let Some(asked) = peer.gather(frame) else { continue };
                    // A table size update has 001 in front.
                    let updated = asked.block.first().is_some_and(|first| first & 0xe0 == 0x20);
                    if std::mem::take(&mut acknowledged) && !updated {
                        notes.count("blocks without an update");
                        // COMPRESSION_ERROR, and the connection is over.
                        peer.send(&http2::goaway(0, 9));
                        return;
                    }
                    approve(&mut peer, "table", &notes, &asked);
                }
            };
            vec![Hook::grpc("table", script)]
        },
        serve: Serve::PLAIN,
        during: |stage| {
            let tally = press::pods(stage, Press { reviews: 40, ..Press::USUAL })?;
            let without = stage.notes.counted("blocks without an update");
            match (tally.allowed, without) {
                (40, 0) => Ok(tally.said()),
                _ => Err(format!("{without} blocks without an update; {}", tally.said())),
            }
        },
        bounds: Bounds::USUAL,
    }
}
