//! An HTTP/2 connection with exchanges on it, under whatever a server says.
//!
//! An input is a script of a server's frames, or bytes of no frame, and of events on our side meanwhile: requests,
//! sockets that take a little, time, callers that leave. Our output is read by a model of a server's half: it must be
//! sound frames, within the windows it has given, and the bodies that were to be sent. Each exchange is settled once,
//! handed back, or dropped for a reason. Queues are bounded.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::OnceLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost_http2_client::{
    ClientConnection, Config, Exchange, ExchangeFailure, FieldError, HeaderFields, RequestHead,
    hpack::{FieldName, HeaderName, HeaderText, entry, literal},
};

const BATCH: usize = 64 << 10;
/// The most that may be queued: a batch, frames on top of it, and a little for each that is answered.
const MOST_QUEUED: usize = BATCH + (2 << 18) + (64 << 10);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const EACH: Duration = Duration::from_millis(500);

thread_local! {
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn clock() -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + PASSED.get()
}

/// Fate of one exchange.
#[derive(Debug, Default)]
struct Fate {
    settled: Cell<u32>,
    handed_back: Cell<bool>,
    dropped: Cell<bool>,
    abandoned: Cell<bool>,
    answer: RefCell<usize>,
}

#[derive(Debug)]
struct Asked {
    fate: Rc<Fate>,
    deadline: Instant,
    body: [Bytes; 3],
    tag: usize,
    has_head: bool,
}

#[derive(Default)]
struct Seen;

impl HeaderFields for Seen {
    fn field(
        &mut self,
        name: HeaderName<'_>,
        value: HeaderText<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, FieldError> {
        name.read(scratch)?;
        let known = scratch.starts_with(b"x");
        value.read(scratch)?;
        Ok(known)
    }
}

struct Heads;

impl RequestHead<Asked> for Heads {
    fn table_size(&mut self, _: u32) {}

    fn write(&mut self, exchange: &Asked, _: Duration, out: &mut Vec<u8>) -> bool {
        entry(3, out);
        literal(FieldName::Static(4), exchange.tag.to_string().as_bytes(), out);
        // As if the peer's table were changed by some of them.
        exchange.tag.is_multiple_of(3)
    }
}

impl Exchange for Asked {
    type Fields = Seen;
    type Head = Heads;
    type Error = ();

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.fate.abandoned.get()
    }

    fn body(&self) -> &[Bytes] {
        &self.body
    }

    fn head(&mut self, status: u16, _: Seen) -> Result<(), ()> {
        assert!((200..1000).contains(&status) && !self.has_head, "{status}");
        self.has_head = true;
        if status == 500 { Err(()) } else { Ok(()) }
    }

    fn data(&mut self, part: &[u8]) -> Result<(), ()> {
        assert!(self.has_head, "data before the head");
        *self.fate.answer.borrow_mut() += part.len();
        if *self.fate.answer.borrow() > 4096 { Err(()) } else { Ok(()) }
    }

    fn complete(self, _: Option<Seen>) {
        assert!(self.has_head, "complete without a head");
        self.fate.settled.set(self.fate.settled.get() + 1);
    }

    fn fail(self, _: ExchangeFailure<'_, ()>) {
        self.fate.settled.set(self.fate.settled.get() + 1);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.fate.settled.get() == 0 && !self.fate.handed_back.get() {
            assert!(self.fate.abandoned.get() || self.deadline <= clock(), "dropped without a reason");
            self.fate.dropped.set(true);
        }
    }
}

/// A server's half: what it has allowed, and what it has heard.
struct Server {
    said: Vec<u8>,
    heard: Vec<u8>,
    greeted: bool,
    bodies: BTreeMap<usize, Bytes>,
    /// Of each stream its exchange, how much of its body has come, and whether it is over.
    streams: BTreeMap<u32, (usize, usize, bool)>,
    allowed: u64,
    sent: u64,
    first_window: u64,
    updates: BTreeMap<u32, u64>,
    frame: usize,
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

impl Server {
    /// Notes what it allows by these bytes, as far as they are whole frames.
    fn says(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        while self.said.len() >= 9 {
            let len = number(&self.said[..3]) as usize;
            if len > 16_384 || self.said.len() < 9 + len {
                return;
            }
            let frame: Vec<u8> = self.said.drain(..9 + len).collect();
            let (kind, flags, stream, payload) = (frame[3], frame[4], number(&frame[5..9]) << 1 >> 1, &frame[9..]);
            match kind {
                4 if flags & 1 == 0 => {
                    for setting in payload.chunks_exact(6) {
                        let value = number(&setting[2..]);
                        match number(&setting[..2]) {
                            4 => self.first_window = self.first_window.max(value.into()),
                            5 => self.frame = self.frame.max(value as usize),
                            _ => {}
                        }
                    }
                }
                8 if payload.len() == 4 && stream == 0 => self.allowed += u64::from(number(payload) << 1 >> 1),
                8 if payload.len() == 4 => {
                    *self.updates.entry(stream).or_default() += u64::from(number(payload) << 1 >> 1);
                }
                _ => {}
            }
        }
    }

    /// Judges what we have sent.
    fn hears(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
        if !self.greeted {
            let len = self.heard.len().min(PREFACE.len());
            assert_eq!(self.heard[..len], PREFACE[..len], "the preface");
            if len < PREFACE.len() {
                return;
            }
            self.heard.drain(..len);
            self.greeted = true;
        }
        while self.heard.len() >= 9 {
            let len = number(&self.heard[..3]) as usize;
            assert!(len <= self.frame, "a frame of {len} bytes");
            if self.heard.len() < 9 + len {
                return;
            }
            let frame: Vec<u8> = self.heard.drain(..9 + len).collect();
            self.frame(frame[3], frame[4], number(&frame[5..9]), &frame[9..]);
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        match kind {
            0 => {
                let (tag, sent, over) = self.streams.get_mut(&stream).expect("DATA on an open stream");
                let body = &self.bodies[tag];
                assert!(!*over && body[*sent..].starts_with(payload), "DATA that is no part of the body");
                *sent += payload.len();
                *over = flags & 1 != 0;
                assert_eq!(*over, *sent == body.len(), "the end of the body, and nothing else, ends the stream");
                self.sent += payload.len() as u64;
                assert!(self.sent <= self.allowed, "more than the connection's window");
                let window = self.first_window + self.updates.get(&stream).copied().unwrap_or_default();
                assert!(*sent as u64 <= window, "more than the stream's window");
            }
            1 => {
                assert!(
                    stream % 2 == 1 && self.streams.keys().all(|before| *before < stream),
                    "streams are odd, and rise"
                );
                assert_eq!((flags, payload[0], payload[1]), (4, 0x83, 0x04));
                let path = std::str::from_utf8(&payload[3..]).expect("a path");
                self.streams.insert(stream, (path.parse().expect("a tag"), 0, false));
            }
            3 => {
                let (.., over) = self.streams.get_mut(&stream).expect("RST_STREAM of an open stream");
                *over = true;
                assert_eq!(payload.len(), 4);
            }
            4 => assert!(stream == 0 && payload.len().is_multiple_of(6)),
            6 => assert!(stream == 0 && flags == 1 && payload.len() == 8),
            7 => assert!(stream == 0 && payload.len() == 8),
            8 => assert!(payload.len() == 4 && number(payload) > 0),
            other => panic!("a frame of kind {other}"),
        }
    }
}

struct Run {
    connection: ClientConnection<Asked>,
    server: Server,
    fates: Vec<Rc<Fate>>,
}

impl Run {
    fn submit(&mut self, len: usize) {
        let (tag, fate) = (self.fates.len(), Rc::<Fate>::default());
        let body: Bytes = (0..len).map(|at| (at + tag * 7) as u8).collect::<Vec<u8>>().into();
        self.server.bodies.insert(tag, body.clone());
        self.fates.push(Rc::clone(&fate));
        let middle = len / 2;
        let body = [body.slice(..middle), Bytes::new(), body.slice(middle..)];
        self.connection.submit(Asked { fate, deadline: clock() + EACH, body, tag, has_head: false });
    }

    /// The socket takes up to so many bytes.
    fn takes(&mut self, mut most: usize) {
        self.connection.queue_frames();
        assert!(self.connection.queued() <= MOST_QUEUED, "{} bytes are queued", self.connection.queued());
        while most > 0 {
            let server = &mut self.server;
            let taken = self.connection.offer(|slices| {
                let (mut taken, mut left) = (0, most);
                for slice in slices {
                    let len = slice.len().min(left);
                    server.hears(&slice[..len]);
                    (taken, left) = (taken + len, left - len);
                }
                (taken, taken)
            });
            match taken {
                None => return,
                Some(taken) => most -= taken,
            }
            self.connection.queue_frames();
        }
    }

    /// The server says so; `false` once the connection is lost.
    fn says(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let room = self.connection.read_buffer();
            assert!(!room.is_empty(), "no room");
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            self.server.says(&bytes[..len]);
            bytes = &bytes[len..];
            let received = self.connection.receive(len);
            for unprocessed in self.connection.take_unprocessed() {
                let (gatepost_http2_client::UnprocessedExchange::Refused(exchange)
                | gatepost_http2_client::UnprocessedExchange::BeyondGoAway(exchange)) = unprocessed;
                assert!(!exchange.has_head, "what has an answer was looked at");
                exchange.fate.handed_back.set(true);
            }
            assert!(self.connection.copied() <= self.connection.queued().max(1 << 24));
            if let Err(fault) = received {
                self.connection.send_goaway(fault);
                self.connection.fail(fault.what);
                assert!(self.connection.is_idle());
                self.takes(usize::MAX);
                return false;
            }
        }
        true
    }
}

pub(crate) fn check(input: &[u8]) {
    PASSED.set(Duration::ZERO);
    let mut run = Run {
        connection: ClientConnection::new(Config { batch: BATCH, clock }, Heads),
        server: Server {
            said: Vec::new(),
            heard: Vec::new(),
            greeted: false,
            bodies: BTreeMap::new(),
            streams: BTreeMap::new(),
            allowed: 65_535,
            sent: 0,
            first_window: 65_535,
            updates: BTreeMap::new(),
            frame: 16_384,
        },
        fates: Vec::new(),
    };
    play(&mut run, input);
    for exchange in run.connection.take_waiting() {
        exchange.fate.handed_back.set(true);
    }
    let fates = run.fates;
    drop(run.connection);
    for (tag, fate) in fates.iter().enumerate() {
        let ends = fate.settled.get() + u32::from(fate.handed_back.get()) + u32::from(fate.dropped.get());
        assert_eq!(ends, 1, "exchange {tag}: {fate:?}");
    }
}

/// Plays a script until it ends, or the connection is lost.
fn play(run: &mut Run, mut script: &[u8]) {
    while let Some((&step, rest)) = script.split_first() {
        let mut rest = rest;
        let mut next = || {
            let (&byte, behind) = rest.split_first().unwrap_or((&0, &[]));
            rest = behind;
            usize::from(byte)
        };
        let goes_on = match step {
            0x00..=0x1f => {
                let len = (usize::from(step) << 9) + next();
                run.submit(len);
                true
            }
            0x20..=0x2f => {
                let most = next();
                run.takes(most << (step & 0xf));
                true
            }
            0x30 => {
                run.takes(usize::MAX);
                true
            }
            0x31 => {
                let which = next();
                if let Some(fate) = run.fates.get(which) {
                    fate.abandoned.set(true);
                }
                run.connection.cancel_abandoned();
                true
            }
            0x32 => {
                PASSED.set(PASSED.get() + Duration::from_millis(next() as u64 * 10));
                run.connection.track_waiting();
                run.connection.expire(clock());
                true
            }
            0x40..=0x4f => {
                let (flags, stream, len) = (next() as u8, next(), next());
                let stream = if stream == 0xff { u32::MAX } else { stream as u32 };
                // Long ones are of nothing.
                let (shown, len) =
                    if len > 240 { (0, (len - 240) << 10) } else { (len.min(rest.len()), len.min(rest.len())) };
                let (payload, behind) = rest.split_at(shown);
                rest = behind;
                let head = [&(len as u32).to_be_bytes()[1..], &[step & 0xf, flags], &stream.to_be_bytes()].concat();
                let frame = [&head, payload, &vec![0; len - shown]].concat();
                run.says(&frame)
            }
            0x33 => {
                let len = next().min(rest.len());
                let (raw, behind) = rest.split_at(len);
                rest = behind;
                run.says(raw)
            }
            other => run.says(&[other]),
        };
        if !goes_on {
            return;
        }
        script = rest;
    }
}
