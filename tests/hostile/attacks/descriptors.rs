//! Hooks that cost descriptors, and dials.

use std::{
    io::{Read, Write},
    thread,
    time::Duration,
};

use super::press::{self, Press, Tally};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::peer::Peer,
    hook::Hook,
    notes::Notes,
    stage::Stage,
};

/// It takes each connection, and says nothing.
fn hung(mut peer: Peer) {
    let mut buffer = [0; 4096];
    while matches!(peer.socket.read(&mut buffer), Ok(1..)) {}
}

/// Over HTTP/1.1, one connection for each review, which it closes.
fn unrelated(notes: &Notes) -> Hook {
    let notes = notes.clone();
    Hook::http("unrelated", move |mut peer: Peer| {
        peer.socket.patience(Duration::from_secs(2));
        let mut text = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = peer.socket.read(&mut buffer) {
            text.extend_from_slice(&buffer[..read]);
            let shown = String::from_utf8_lossy(&text);
            // The uid is the review's, and small; the last bytes of a review close its objects.
            let Some((_, rest)) = shown.split_once(r#""uid":""#) else { continue };
            let Some((uid, _)) = rest.split_once('"') else { continue };
            if !shown.ends_with("}}") {
                continue;
            }
            notes.approve("unrelated", uid);
            let body = format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"{uid}","allowed":true}}}}"#
            );
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let _ = peer.socket.write_all(format!("{head}{body}").as_bytes());
            return;
        }
    })
    .of("secrets")
}

/// A hung hook over HTTP/1.1 at 200 reviews a second takes a descriptor each, of 256.
pub fn hung_hook() -> Attack {
    Attack {
        name: "hung-http1-hook",
        item: "35",
        hooks: |notes| vec![Hook::http("hung", hung).within("3s"), unrelated(notes)],
        serve: Serve { descriptors: Some(256), ..Serve::PLAIN },
        during: |stage| {
            let (pods, secrets) = thread::scope(|scope| {
                let pods = scope.spawn(|| {
                    let press = Press { reviews: 500, every: Duration::from_millis(5), timeout: "3S", ..Press::USUAL };
                    // Two connections' worth of streams.
                    press::pods(stage, Press { at_once: 250, ..press })
                });
                let secrets = scope.spawn(|| {
                    let press = Press { reviews: 100, every: Duration::from_millis(30), at_once: 4, ..Press::USUAL };
                    press::about(stage, "secrets", press)
                });
                let joined = |handle: thread::ScopedJoinHandle<'_, Result<Tally, String>>| {
                    handle.join().unwrap_or_else(|_| Err("a caller of the attack panicked".to_owned()))
                };
                (joined(pods), joined(secrets))
            });
            let (pods, secrets) = (pods?, secrets?);
            let message = format!(
                "{} descriptors; hung: {}; unrelated: {}",
                stage.process.descriptors(),
                pods.said(),
                secrets.said()
            );
            match secrets.allowed == 100 && pods.allowed == 0 && stage.process.lives() {
                true => Ok(message),
                false => Err(message),
            }
        },
        bounds: Bounds::USUAL,
    }
}

/// Hooks that greet and hang up, while nobody asks them anything after one review.
pub fn greet_and_leave() -> Attack {
    fn leaver(name: &'static str, notes: &Notes, last: &'static [u8]) -> Hook {
        let notes = notes.clone();
        Hook::grpc(name, move |mut peer: Peer| {
            notes.count("dials");
            if peer.greet(&[]).is_ok() {
                peer.send(last);
            }
        })
        .ignored()
    }
    // GOAWAY, NO_ERROR, nothing seen.
    const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    Attack {
        name: "greet-and-leave",
        item: "38",
        hooks: |notes| vec![leaver("leaver", notes, b""), leaver("polite", notes, GOAWAY)],
        serve: Serve::PLAIN,
        during: |stage: &Stage| {
            let tally = press::pods(stage, Press { reviews: 2, ..Press::USUAL })?;
            thread::sleep(Duration::from_millis(500));
            let before = stage.notes.counted("dials");
            thread::sleep(Duration::from_secs(2));
            let dials = stage.notes.counted("dials") - before;
            let message = format!("{dials} dials in 2 s of silence; {}", tally.said());
            // Two hooks, two workers, and a pause that has grown.
            match dials <= 24 {
                true => Ok(message),
                false => Err(message),
            }
        },
        bounds: Bounds::USUAL,
    }
}
