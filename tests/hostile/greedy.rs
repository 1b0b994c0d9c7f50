//! Greedy: hooks and callers that make a sidecar hold much for them. `loadtest/memory` measures with the same ones.

use std::{
    io::Write,
    net::SocketAddr,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionResponse;

use super::{
    bytes::{
        caller::{Caller, ELSEWHERE, REVIEW, connect_from},
        http1, http2,
        peer::{Peer, framed, yes},
        reviews,
    },
    hook::{Hook, greeted},
    notes::Notes,
};

/// One way to have much held.
pub struct Greedy {
    pub name: &'static str,
    /// Memory that it makes be held.
    pub holds: &'static str,
    /// The hooks that are asked about pods.
    pub hooks: fn(&Notes) -> Vec<Hook>,
    /// Load by callers; in so many times as much as it takes to show it.
    pub press: fn(SocketAddr, usize),
}

/// All of them.
pub const ALL: [Greedy; 4] = [
    Greedy {
        name: "huge-answers",
        holds: "answers of 7 MiB whose last byte never comes",
        hooks: |_| NAMES.map(|name| Hook::grpc(name, endless_answers).within("2s")).into(),
        press: |sidecar, times| ask(sidecar, 16 * times, 1000),
    },
    Greedy {
        name: "small-chunks",
        holds: "bodies in pieces of little more than a kibibyte, each in a read buffer of its own",
        hooks: |notes| vec![holding("holder", notes)],
        press: small_chunks,
    },
    Greedy {
        name: "json-at-a-full-budget",
        holds: "reviews of 7 MiB as JSON, as many as are let in, for hooks that want another form and do not answer",
        hooks: |notes| vec![holding("holder", notes)],
        press: large_json,
    },
    Greedy {
        name: "unread-verdicts",
        holds: "verdicts of a megabyte for a caller whose window never opens",
        hooks: |notes| vec![talker(notes)],
        press: unread_verdicts,
    },
];

const NAMES: [&str; 8] = ["huge-0", "huge-1", "huge-2", "huge-3", "huge-4", "huge-5", "huge-6", "huge-7"];
/// Length of a huge answer.
const ANSWER: usize = 7 << 20;

/// Asks so many times about pods, over a few connections, and waits until their deadlines are over.
fn ask(sidecar: SocketAddr, reviews: usize, size: usize) {
    let mut callers: Vec<Caller> = (0..2).filter_map(|_| Caller::elsewhere(sidecar, &[])).collect();
    for number in 0..reviews {
        let count = callers.len().max(1);
        if let Some(caller) = callers.get_mut(number % count) {
            caller.ask(&format!("greedy-{number}"), "pods", size, "2S");
        }
        thread::sleep(Duration::from_millis(40));
    }
    thread::sleep(Duration::from_millis(2200));
}

/// A hook that never ends an answer of 7 MiB.
fn endless_answers(mut peer: Peer) {
    static MESSAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let message = MESSAGE.get_or_init(|| {
        let annotation = ("k".to_owned(), "v".repeat(ANSWER));
        framed(AdmissionResponse { audit_annotations: [annotation].into(), ..yes("") })
    });
    if peer.greet(&[]).is_err() {
        return;
    }
    // As much as the windows allow: stream, what was sent on it, and its window.
    let mut answering: Vec<(u32, usize, i64)> = Vec::new();
    let (mut window, mut first_window) = (65_535_i64, 65_535_i64);
    while let Ok(frame) = peer.frame() {
        peer.oblige(&frame);
        match frame.kind {
            http2::WINDOW_UPDATE if frame.stream == 0 => window += frame.number(0),
            http2::WINDOW_UPDATE => {
                let of_stream = answering.iter_mut().filter(|(stream, ..)| *stream == frame.stream);
                of_stream.for_each(|(_, _, window)| *window += frame.number(0));
            }
            http2::SETTINGS => first_window = frame.first_window().unwrap_or(first_window),
            http2::RST_STREAM => answering.retain(|(stream, ..)| *stream != frame.stream),
            _ => {}
        }
        if let Some(asked) = peer.gather(frame) {
            let head = http2::fields(&[(":status", "200"), ("content-type", "application/grpc")]);
            peer.send(&http2::frame(http2::HEADERS, http2::END_HEADERS, asked.stream, &head));
            answering.push((asked.stream, 0, first_window));
        }
        for (stream, sent, of_stream) in &mut answering {
            loop {
                let len = 16_384.min(message.len() - *sent).min(window.min(*of_stream).max(0) as usize);
                if len == 0 || *sent + len >= message.len() {
                    break;
                }
                peer.send(&http2::frame(http2::DATA, 0, *stream, &message[*sent..*sent + len]));
                *sent += len;
                *of_stream -= len as i64;
                window -= len as i64;
            }
        }
    }
}

/// A hook that takes a second and a half over everything.
fn holding(name: &'static str, notes: &Notes) -> Hook {
    let notes = notes.clone();
    Hook::grpc(
        name,
        greeted(move |mut peer: Peer| {
            while let Ok(asked) = peer.asked() {
                thread::sleep(Duration::from_millis(1500));
                notes.approve(name, &asked.uid);
                if !peer.answer(asked.stream, yes(&asked.uid)) {
                    return;
                }
            }
        }),
    )
    .within("3s")
}

/// A hook whose answer is as large as the first windows of a connection let through at once.
fn talker(notes: &Notes) -> Hook {
    let notes = notes.clone();
    Hook::grpc(
        "talker",
        greeted(move |mut peer: Peer| {
            while let Ok(asked) = peer.asked() {
                notes.approve("talker", &asked.uid);
                let annotation = ("k".to_owned(), "v".repeat(1000 << 10));
                let response = AdmissionResponse { audit_annotations: [annotation].into(), ..yes(&asked.uid) };
                if !peer.answer(asked.stream, response) {
                    return;
                }
            }
        }),
    )
}

/// The pieces of a body that is never whole: each is a segment of its own, and a little too large to be copied.
fn small_chunks(sidecar: SocketAddr, times: usize) {
    const PIECE: usize = 1100;
    const PIECES: usize = 5000;
    let body = reviews::json("chunked", "pods", PIECE * PIECES + 4096);
    let message = reviews::review("chunked", "pods", PIECE * PIECES + 4096);
    thread::scope(|scope| {
        for number in 0..6 * times {
            let (body, message) = (&body, &message);
            scope.spawn(move || {
                let until = Instant::now() + Duration::from_secs(3);
                if number % 2 == 0 {
                    let Some(mut stream) = connect_from(ELSEWHERE, sidecar) else { return };
                    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
                    let _ = stream.write_all(http1::CHUNKED.as_bytes());
                    for piece in body.chunks(PIECE).take(PIECES) {
                        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                        if Instant::now() > until || stream.write_all(&chunk).is_err() {
                            break;
                        }
                        // So that it is read before the next one comes.
                        thread::sleep(Duration::from_micros(100));
                    }
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                } else if let Some(mut caller) = Caller::elsewhere(sidecar, &[]) {
                    let stream = caller.begin(REVIEW, "5S");
                    let sent = &message[..PIECE * PIECES];
                    for piece in sent.chunks(PIECE) {
                        // A frame of a kind that nobody knows fills the rest of the buffer, and is passed by.
                        let passed_by = http2::frame(0xbe, 0, 0, &[0; 7000]);
                        let sent = caller.body(stream, piece, PIECE, false, until) && caller.peer.send(&passed_by);
                        if !sent || Instant::now() > until {
                            break;
                        }
                        thread::sleep(Duration::from_micros(300));
                    }
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                }
            });
        }
    });
}

/// Whole reviews, all at once.
fn large_json(sidecar: SocketAddr, times: usize) {
    let body = reviews::json("large", "pods", 7 << 20);
    thread::scope(|scope| {
        for _ in 0..10 * times {
            let body = &body;
            scope.spawn(move || {
                if let Some(mut stream) = connect_from(ELSEWHERE, sidecar) {
                    let _ = http1::post(&mut stream, body, Duration::from_secs(5));
                }
            });
        }
    });
}

/// The connections stay open until long after the deadlines.
fn unread_verdicts(sidecar: SocketAddr, times: usize) {
    let mut callers = Vec::new();
    for number in 0..4 {
        let Some(mut caller) = Caller::elsewhere(sidecar, &[(http2::INITIAL_WINDOW_SIZE, 0)]) else { continue };
        for review in 0..80 * times {
            caller.ask(&format!("unread-{number}-{review}"), "pods", 500, "2S");
            thread::sleep(Duration::from_millis(4));
        }
        callers.push(caller);
    }
    thread::sleep(Duration::from_secs(3));
}
