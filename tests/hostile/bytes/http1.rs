//! HTTP/1.1, as text.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The head of a POST to `/validate` that declares a body of that length.
pub fn post_head(length: usize, query: &str) -> String {
    format!(
        "POST /validate{query} HTTP/1.1\r\nhost: gatepost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// The head of a POST whose body comes in chunks.
pub const CHUNKED: &str = "POST /validate?timeout=5s HTTP/1.1\r\nhost: gatepost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

/// Sends a review and reads the answer's first bytes: the status, where there was one, and what could be read.
pub fn post(stream: &mut TcpStream, body: &[u8], within: Duration) -> Option<(u16, String)> {
    stream.set_read_timeout(Some(within)).ok()?;
    stream.set_write_timeout(Some(within)).ok()?;
    // A refusal may come before all is sent.
    let _ = stream.write_all(post_head(body.len(), "?timeout=4s").as_bytes()).and_then(|()| stream.write_all(body));
    let mut buffer = vec![0; 64 << 10];
    let read = stream.read(&mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text))
}
