//! Answers that are many things at once.

use std::time::Duration;

use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse;

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve, scaled},
    bytes::peer::{Peer, yes},
    hook::{Hook, greeted},
    notes::Notes,
    stage::Stage,
};

/// A hook whose every yes is followed by that.
fn verbose(name: &'static str, notes: &Notes, answer: fn(&str) -> AdmissionResponse) -> Vec<Hook> {
    let notes = notes.clone();
    let script = greeted(move |mut peer: Peer| {
        while let Ok(asked) = peer.asked() {
            notes.approve(name, &asked.uid);
            if !peer.answer(asked.stream, answer(&asked.uid)) {
                return;
            }
        }
    });
    vec![Hook::grpc(name, script).ignored()]
}

fn few(stage: &Stage) -> Result<String, String> {
    let press = Press { reviews: 4, every: Duration::from_millis(500), timeout: "3S", at_once: 1, ..Press::USUAL };
    let tally = press::pods(stage, press)?;
    match tally.allowed {
        4 => Ok(tally.said()),
        _ => Err(format!("a hook that is ignored decides: {}", tally.said())),
    }
}

/// 100,000 audit annotations in one answer.
pub fn many_annotations() -> Attack {
    fn answer(uid: &str) -> AdmissionResponse {
        AdmissionResponse {
            audit_annotations: (0..scaled(100_000)).map(|n| (format!("k{n}"), "v".to_owned())).collect(),
            ..yes(uid)
        }
    }
    Attack {
        name: "many-annotations",
        item: "6",
        hooks: |notes| verbose("annotator", notes, answer),
        serve: Serve::PLAIN,
        during: few,
        bounds: Bounds::USUAL,
    }
}

/// 2,040 warnings that are all different, and then one of them 300,000 times.
pub fn repeated_warnings() -> Attack {
    fn distinct(uid: &str) -> AdmissionResponse {
        let letters: Vec<char> = ('!'..='~').collect();
        let pair = |n: usize| format!("{}{}", letters[n % letters.len()], letters[n / letters.len()]);
        let warnings = (0..2040).map(pair).chain((0..scaled(300_000)).map(|_| pair(2039))).collect();
        AdmissionResponse { warnings, ..yes(uid) }
    }
    Attack {
        name: "repeated-warnings",
        item: "34",
        hooks: |notes| verbose("warner", notes, distinct),
        serve: Serve::PLAIN,
        during: few,
        bounds: Bounds::USUAL,
    }
}

/// 100,000 keys that no annotation may have: each was a line of log.
pub fn bad_keys() -> Attack {
    fn answer(uid: &str) -> AdmissionResponse {
        AdmissionResponse {
            audit_annotations: (0..scaled(100_000)).map(|n| (format!("-{n}-"), "v".to_owned())).collect(),
            ..yes(uid)
        }
    }
    Attack {
        name: "bad-keys",
        item: "17",
        hooks: |notes| verbose("misnamer", notes, answer),
        serve: Serve::PLAIN,
        during: few,
        bounds: Bounds { log: 256 << 10, ..Bounds::USUAL },
    }
}
