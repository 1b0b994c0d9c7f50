//! Peer: one socket with HTTP/2 frames on it, from either side.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use gatepost_wire::pb::k8s::io::api::admission::v1::{AdmissionResponse, AdmissionReview};
use prost::Message;

use super::http2::{self, Frame};

/// A socket of either family.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    pub fn shut(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    pub fn patience(&self, time: Duration) {
        let time = Some(time.max(Duration::from_millis(1)));
        let _ = match self {
            Self::Tcp(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
            Self::Unix(stream) => stream.set_read_timeout(time).and(stream.set_write_timeout(time)),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reason why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    Closed,
    /// Nothing came in the time that the socket was given.
    Late,
}

/// A review that a hook was sent whole.
#[derive(Debug)]
pub struct Asked {
    pub stream: u32,
    pub uid: String,
    /// The header block as it came.
    pub block: Vec<u8>,
}

/// One end of a connection.
pub struct Peer {
    pub socket: Socket,
    read: Vec<u8>,
    at: usize,
    /// Header blocks and bodies of streams that are not whole yet.
    open: HashMap<u32, (Vec<u8>, Vec<u8>)>,
}

impl Peer {
    pub fn new(socket: Socket) -> Self {
        Self { socket, read: Vec::new(), at: 0, open: HashMap::new() }
    }

    /// Writes all of it; false where the other end is gone or does not read.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).is_ok()
    }

    /// Next bytes, as they came.
    pub fn take(&mut self, count: usize) -> Result<Vec<u8>, Nothing> {
        while self.read.len() - self.at < count {
            if self.at > 1 << 20 || self.at == self.read.len() {
                self.read.drain(..self.at);
                self.at = 0;
            }
            let mut buffer = [0; 32 << 10];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(Nothing::Closed),
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Nothing::Late),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Nothing::Closed),
                },
            }
        }
        let taken = self.read[self.at..self.at + count].to_vec();
        self.at += count;
        Ok(taken)
    }

    /// The next frame.
    pub fn frame(&mut self) -> Result<Frame, Nothing> {
        let head = self.take(9)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = match self.take(len) {
            Ok(payload) => payload,
            Err(why) => {
                // The head is read again when more has come.
                self.at -= 9;
                return Err(why);
            }
        };
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// A hook's greeting: the caller's preface, and our settings.
    pub fn greet(&mut self, settings: &[(u16, u32)]) -> Result<(), Nothing> {
        self.take(http2::PREFACE.len())?;
        match self.send(&http2::settings(settings)) {
            true => Ok(()),
            false => Err(Nothing::Closed),
        }
    }

    /// Answers what a connection itself asks for, and gives back the window that data took.
    pub fn oblige(&mut self, frame: &Frame) {
        match frame.kind {
            http2::SETTINGS if frame.flags & http2::ACK == 0 => {
                self.send(&http2::frame(http2::SETTINGS, http2::ACK, 0, &[]));
            }
            http2::PING if frame.flags & http2::ACK == 0 => {
                self.send(&http2::frame(http2::PING, http2::ACK, 0, &frame.payload));
            }
            http2::DATA if !frame.payload.is_empty() => {
                let by = frame.payload.len() as u32;
                let mut updates = http2::window_update(0, by);
                if !frame.ends_stream() {
                    updates.extend(http2::window_update(frame.stream, by));
                }
                self.send(&updates);
            }
            _ => {}
        }
    }

    /// The next review that is whole, as a well-behaved hook reads it.
    pub fn asked(&mut self) -> Result<Asked, Nothing> {
        loop {
            let frame = self.frame()?;
            self.oblige(&frame);
            if let Some(asked) = self.gather(frame) {
                return Ok(asked);
            }
        }
    }

    /// Adds a frame to its stream; the review, where that made it whole.
    pub fn gather(&mut self, frame: Frame) -> Option<Asked> {
        let ends = frame.ends_stream();
        match frame.kind {
            http2::HEADERS => self.open.entry(frame.stream).or_default().0.extend(&frame.payload),
            http2::DATA => self.open.entry(frame.stream).or_default().1.extend(&frame.payload),
            http2::RST_STREAM => {
                self.open.remove(&frame.stream);
            }
            _ => {}
        }
        if !ends {
            return None;
        }
        let (block, body) = self.open.remove(&frame.stream).unwrap_or_default();
        let review = AdmissionReview::decode(body.get(5..).unwrap_or_default()).ok();
        let uid = review.and_then(|review| review.request).map(|request| request.uid().to_owned()).unwrap_or_default();
        Some(Asked { stream: frame.stream, uid, block })
    }

    /// Answers a review over gRPC as a hook should.
    pub fn answer(&mut self, stream: u32, response: AdmissionResponse) -> bool {
        let head = http2::fields(&[(":status", "200"), ("content-type", "application/grpc")]);
        let mut bytes = http2::frame(http2::HEADERS, http2::END_HEADERS, stream, &head);
        for piece in framed(response).chunks(16_384) {
            bytes.extend(http2::frame(http2::DATA, 0, stream, piece));
        }
        let trailers = http2::fields(&[("grpc-status", "0")]);
        bytes.extend(http2::frame(http2::HEADERS, http2::END_HEADERS | http2::END_STREAM, stream, &trailers));
        self.send(&bytes)
    }

    /// Is it closed by the other end within that time? Bytes until then are skipped.
    pub fn closed_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.socket.patience(Duration::from_millis(50));
            if self.frame().is_err_and(|why| why == Nothing::Closed) {
                return true;
            }
        }
        false
    }
}

/// Allowed.
pub fn yes(uid: &str) -> AdmissionResponse {
    AdmissionResponse { uid: Some(uid.to_owned()), allowed: Some(true), ..Default::default() }
}

/// The answer as one gRPC message with its head.
pub fn framed(response: AdmissionResponse) -> Vec<u8> {
    let review = AdmissionReview { request: None, response: Some(response) };
    super::reviews::grpc_message(&review.encode_to_vec())
}
