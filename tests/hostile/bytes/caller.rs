//! Caller: reviews over one HTTP/2 connection, and whatever else its owner writes on it.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
use prost::Message;
use socket2::{Domain, Type};

use super::{
    http2,
    peer::{Nothing, Peer, Socket},
    reviews,
};

pub const REVIEW: &str = "/gatepost.v1.Admission/Review";

/// Address of attackers that are to be distinct from the bystander.
pub const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Result of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Allowed,
    Denied,
    /// An answer without a verdict.
    Refused,
    /// No answer: the connection is gone, or time is up.
    Lost,
}

impl Answer {
    pub fn allowed(&self) -> bool {
        *self == Self::Allowed
    }
}

/// One connection.
pub struct Caller {
    pub peer: Peer,
    next: u32,
    /// Bytes that may be sent on the connection, and at first on a stream.
    window: i64,
    first_window: i64,
    windows: HashMap<u32, i64>,
    came: HashMap<u32, Vec<u8>>,
    ended: HashMap<u32, bool>,
    /// Metadata that every call carries besides.
    pub metadata: Vec<(&'static str, String)>,
}

/// A connection from that address.
pub fn connect_from(from: IpAddr, to: SocketAddr) -> Option<TcpStream> {
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.bind(&SocketAddr::new(from, 0).into()).ok()?;
    socket.connect_timeout(&to.into(), Duration::from_secs(2)).ok()?;
    socket.set_tcp_nodelay(true).ok()?;
    Some(socket.into())
}

impl Caller {
    pub fn connect(to: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(2)).ok()?;
        stream.set_nodelay(true).ok()?;
        Self::over(Socket::Tcp(stream), &[])
    }

    /// From the address of those who attack.
    pub fn elsewhere(to: SocketAddr, settings: &[(u16, u32)]) -> Option<Self> {
        Self::over(Socket::Tcp(connect_from(ELSEWHERE, to)?), settings)
    }

    pub fn over(socket: Socket, settings: &[(u16, u32)]) -> Option<Self> {
        socket.patience(Duration::from_secs(2));
        let mut peer = Peer::new(socket);
        let greeting = [http2::PREFACE, &http2::settings(settings)].concat();
        peer.send(&greeting).then_some(Self {
            peer,
            next: 1,
            window: 65_535,
            first_window: 65_535,
            windows: HashMap::new(),
            came: HashMap::new(),
            ended: HashMap::new(),
            metadata: Vec::new(),
        })
    }

    /// Begins a call; its message is yet to be sent.
    pub fn begin(&mut self, path: &str, timeout: &str) -> u32 {
        let stream = self.next;
        self.next += 2;
        let more: Vec<_> = self.metadata.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let head = http2::call_head(path, timeout, &more);
        self.peer.send(&http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &head));
        self.windows.insert(stream, self.first_window);
        stream
    }

    /// Sends a message in frames of that size, as the windows allow, until that time.
    pub fn body(&mut self, stream: u32, body: &[u8], frame: usize, ends: bool, until: Instant) -> bool {
        let mut rest = body;
        let mut batch = Vec::new();
        loop {
            let window = self.window.min(self.windows.get(&stream).copied().unwrap_or_default()).max(0) as usize;
            let len = rest.len().min(frame).min(window);
            if len > 0 {
                let (piece, behind) = rest.split_at(len);
                rest = behind;
                self.window -= len as i64;
                *self.windows.entry(stream).or_default() -= len as i64;
                let flags = if rest.is_empty() && ends { http2::END_STREAM } else { 0 };
                batch.extend(http2::frame(http2::DATA, flags, stream, piece));
            }
            if (rest.is_empty() || len == 0 || batch.len() > 32 << 10) && !batch.is_empty() {
                if !self.peer.send(&batch) {
                    return false;
                }
                batch.clear();
            }
            if rest.is_empty() {
                return true;
            }
            if len == 0 && (!self.hear(until) || self.ended.contains_key(&stream)) {
                return false;
            }
        }
    }

    /// Sends a whole review.
    pub fn ask(&mut self, uid: &str, resource: &str, size: usize, timeout: &str) -> u32 {
        let message = reviews::review(uid, resource, size);
        let stream = self.begin(REVIEW, timeout);
        self.body(stream, &message, 16_384, true, Instant::now() + Duration::from_secs(5));
        stream
    }

    /// Takes one frame; false where none came until then.
    fn hear(&mut self, until: Instant) -> bool {
        self.peer.socket.patience(until.saturating_duration_since(Instant::now()));
        let frame = match self.peer.frame() {
            Ok(frame) => frame,
            Err(Nothing::Late | Nothing::Closed) => return false,
        };
        self.peer.oblige(&frame);
        match frame.kind {
            http2::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.number(0),
            http2::WINDOW_UPDATE => *self.windows.entry(frame.stream).or_default() += frame.number(0),
            http2::SETTINGS => {
                let more = frame.first_window().unwrap_or(self.first_window) - self.first_window;
                self.first_window += more;
                self.windows.values_mut().for_each(|window| *window += more);
            }
            http2::DATA => self.came.entry(frame.stream).or_default().extend(&frame.payload),
            http2::RST_STREAM => {
                self.ended.entry(frame.stream).or_insert(false);
            }
            _ => {}
        }
        if frame.ends_stream() {
            self.ended.insert(frame.stream, true);
        }
        true
    }

    /// The answer to that call, within that time.
    pub fn answer(&mut self, stream: u32, within: Duration) -> Answer {
        let until = Instant::now() + within;
        while !self.ended.contains_key(&stream) {
            if Instant::now() >= until || !self.hear(until) {
                return Answer::Lost;
            }
        }
        let whole = self.ended.remove(&stream).unwrap_or_default();
        self.windows.remove(&stream);
        let body = self.came.remove(&stream).unwrap_or_default();
        let response =
            AdmissionReview::decode(body.get(5..).unwrap_or_default()).ok().and_then(|review| review.response);
        match response {
            Some(response) if response.allowed() => Answer::Allowed,
            Some(_) => Answer::Denied,
            None if whole => Answer::Refused,
            None => Answer::Lost,
        }
    }

    /// A review and its answer.
    pub fn review(&mut self, uid: &str, resource: &str, size: usize, timeout: &str) -> Answer {
        let stream = self.ask(uid, resource, size, timeout);
        self.answer(stream, Duration::from_secs(8))
    }
}
