//! A hook that answers at once, at the least cost there can be: HTTP/2 by hand, one read and one write for all that is
//! there. With a full HTTP/2 server in its place, 16 hooks and the generator fill their core before a fast sidecar
//! fills its own, and throughput would measure them.
//!
//! Header blocks are not looked at: every call is a review, and what is sent refers to no table. Answers are tens of
//! bytes, a handful in flight, so they always fit the window every peer begins with.

use bytes::Buf;
use rustc_hash::FxHashMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Behaviour, answer};
use crate::Fallible;

const HEAD: usize = 9;
const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
/// END_STREAM on DATA and HEADERS, ACK on SETTINGS and PING.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Holds one largest frame (16 KiB, as we ask for no larger) many times over.
const ROOM: usize = 256 << 10;
/// `:status 200`, `content-type: application/grpc`, without a table.
const HEADER_BLOCK: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`
const TRAILER_BLOCK: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Bytes of one review that have arrived.
struct Arriving {
    beginning: [u8; answer::BEGINNING],
    kept: usize,
    length: usize,
    /// Bytes whose window was not yet given back.
    unreturned: u32,
}

/// Answers until the peer hangs up.
pub(super) async fn connection(mut socket: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour) -> Fallible<()> {
    let mut buffer = vec![0; ROOM];
    let mut out = Vec::with_capacity(16 << 10);
    let mut streams = FxHashMap::default();
    let mut unreturned = 0;
    // SETTINGS_INITIAL_WINDOW_SIZE, and the connection's window to match.
    let settings = [&[0, 4][..], &behaviour.window.to_be_bytes()].concat();
    frame(&mut out, SETTINGS, 0, 0, &settings);
    window_update(&mut out, 0, behaviour.window.saturating_sub(65_535));
    socket.read_exact(&mut buffer[..PREFACE]).await?;
    let mut filled = 0;
    loop {
        if !out.is_empty() {
            socket.write_all(&out).await?;
            socket.flush().await?;
            out.clear();
        }
        match socket.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            n => filled += n,
        }
        let mut rest = &buffer[..filled];
        while let Some(head) = rest.first_chunk::<HEAD>() {
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head;
            let len = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            if rest.len() < HEAD + len {
                break;
            }
            let stream = u32::from_be_bytes([s0, s1, s2, s3]);
            let payload = &rest[HEAD..HEAD + len];
            match kind {
                DATA => {
                    unreturned += len as u32;
                    if unreturned >= behaviour.window / 2 {
                        window_update(&mut out, 0, std::mem::take(&mut unreturned));
                    }
                    data(&mut out, &mut streams, behaviour, (stream, flags), payload);
                }
                SETTINGS | PING if flags & ACK == 0 => {
                    frame(&mut out, kind, ACK, 0, if kind == PING { payload } else { &[] });
                }
                _ => {}
            }
            rest.advance(HEAD + len);
        }
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
    }
}

fn data(
    out: &mut Vec<u8>,
    streams: &mut FxHashMap<u32, Arriving>,
    behaviour: Behaviour,
    (stream, flags): (u32, u8),
    payload: &[u8],
) {
    let begin = || Arriving { beginning: [0; answer::BEGINNING], kept: 0, length: 0, unreturned: 0 };
    let arriving = streams.entry(stream).or_insert_with(begin);
    let wanted = payload.len().min(answer::BEGINNING - arriving.kept);
    arriving.beginning[arriving.kept..arriving.kept + wanted].copy_from_slice(&payload[..wanted]);
    arriving.kept += wanted;
    arriving.length += payload.len();
    if flags & END_STREAM == 0 {
        arriving.unreturned += payload.len() as u32;
        if arriving.unreturned >= behaviour.window / 2 {
            window_update(out, stream, std::mem::take(&mut arriving.unreturned));
        }
        return;
    }
    let verdict = answer::verdict(&arriving.beginning[..arriving.kept], arriving.length);
    streams.remove(&stream);
    frame(out, HEADERS, END_HEADERS, stream, HEADER_BLOCK);
    frame(out, DATA, 0, stream, &verdict);
    frame(out, HEADERS, END_HEADERS | END_STREAM, stream, TRAILER_BLOCK);
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    if increment > 0 {
        frame(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }
}
