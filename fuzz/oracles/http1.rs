//! The answer to a POST over HTTP/1.1, as we read it and as a plain reader does: httparse for heads, and the framing of
//! RFC 9112 §6 spelled out.
//!
//! The first byte says in parts of how many bytes the rest arrives (0: all at once); then the server hangs up. For any
//! answer there is one result, nothing hangs, and no more is held than an answer's limit allows.
//!
//! Of chunked bodies only what both take must agree: how far the syntax of sizes and trailers is bent is hyper's
//! choice.

use gatepost::hooks::{HttpReply, read_http1};
use gatepost_api::CallFailure;
use gatepost_base::memory::MemoryBudget;
use httparse::{EMPTY_HEADER, Response, Status};

/// The largest answer.
const LIMIT: usize = 4096;
/// As our reader has it.
const MOST_HEADERS: usize = 512;

/// An answer, read plainly.
#[derive(Debug)]
struct Plain {
    status: u16,
    /// Values of `retry-after` and `content-encoding`, the first of each.
    retry_after: Option<Vec<u8>>,
    encoding: Option<Vec<u8>>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// It is whole, and has these bytes.
    Whole(Vec<u8>),
    /// It is in chunks; these bytes where they can be read.
    Chunked(Option<Vec<u8>>),
}

pub(crate) fn check(input: &[u8]) {
    let Some((&size, said)) = input.split_first() else { return };
    let memory = MemoryBudget::new(1 << 20);
    let reply = read(size, said, &memory);
    let plain = plain(said);
    match reply {
        Ok(reply) => agrees(reply, plain.expect("what is no answer is none for us"), &memory),
        Err(failure) => {
            let long = |plain: &Plain| matches!(&plain.body, Body::Whole(body) if body.len() > LIMIT);
            let excused = plain.as_ref().is_none_or(|plain| long(plain) || matches!(plain.body, Body::Chunked(_)));
            assert!(excused, "{failure} although it is {plain:?}");
            let too_large = matches!(failure, CallFailure::TooLarge { limit: LIMIT });
            assert!(!plain.as_ref().is_some_and(long) || too_large, "{failure}");
        }
    }
    assert_eq!(memory.held(), 0, "all of it is given back");
}

/// Reply or failure that our own reader makes of the bytes.
pub(crate) fn read(size: u8, said: &[u8], memory: &std::sync::Arc<MemoryBudget>) -> Result<HttpReply, CallFailure> {
    let size = if size == 0 { said.len().max(1) } else { size.into() };
    let parts: Vec<&[u8]> = said.chunks(size).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(read_http1(&parts, LIMIT, memory))
}

fn agrees(reply: HttpReply, plain: Plain, memory: &MemoryBudget) {
    assert_eq!(reply.status, plain.status);
    assert!(memory.held() <= 2 * LIMIT, "{} bytes are held", memory.held());
    let seconds = plain.retry_after.as_deref().and_then(|value| std::str::from_utf8(value).ok()?.parse::<i64>().ok());
    assert_eq!(reply.retry_after.map(|pause| pause.as_secs()), seconds.map(|seconds| seconds.max(0).unsigned_abs()));
    let packed = plain.encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"gzip"));
    let body = reply.body();
    if packed {
        // The contents are another decoder's to compare; here unpacking must end, and be bounded by the budget.
        return;
    }
    let body = body.expect("as it came");
    match plain.body {
        Body::Whole(expected) | Body::Chunked(Some(expected)) => assert_eq!(body, expected),
        Body::Chunked(None) => panic!("chunks that cannot be read"),
    }
}

/// The final answer; `None` where there is none.
fn plain(mut said: &[u8]) -> Option<Plain> {
    loop {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut response = Response::new(&mut headers);
        let Ok(Status::Complete(head)) = response.parse(said) else { return None };
        let (status, version, rest) = (response.code?, response.version?, &said[head..]);
        match status {
            0..=99 | 101 => return None,
            100 | 102..=199 => {
                said = rest;
                continue;
            }
            _ => {}
        }
        let all = |name: &str| {
            let named = response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            named.map(|header| header.value.to_vec()).collect::<Vec<_>>()
        };
        let first = |name: &str| all(name).into_iter().next();
        let encodings = all("transfer-encoding");
        let body = if matches!(status, 204 | 304) {
            Body::Whole(Vec::new())
        } else if let Some(last) = encodings.last() {
            let is_text = last.iter().all(|byte| *byte == b'\t' || (b' '..=b'~').contains(byte));
            let last = last.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            match is_text && last.eq_ignore_ascii_case(b"chunked") {
                _ if version == 0 => return None,
                true => Body::Chunked(chunks(rest)),
                false => Body::Whole(rest.to_vec()),
            }
        } else {
            match length(&all("content-length"))? {
                Some(length) => {
                    Body::Whole(rest.get(..length).or((length > LIMIT).then_some(&[0; LIMIT + 1]))?.to_vec())
                }
                None => Body::Whole(rest.to_vec()),
            }
        };
        return Some(Plain { status, retry_after: first("retry-after"), encoding: first("content-encoding"), body });
    }
}

/// The length that these say together: `Some(None)` where nothing is said, `None` where it is no length.
fn length(said: &[Vec<u8>]) -> Option<Option<usize>> {
    let mut known = None;
    for value in said.iter().flat_map(|value| value.split(|byte| *byte == b',')) {
        let digits = std::str::from_utf8(value.trim_ascii()).ok()?;
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?.parse().ok()?;
        // hyper keeps the two largest numbers for itself.
        if number > u64::MAX - 2 || known.is_some_and(|known| known != number) {
            return None;
        }
        known = Some(number);
    }
    Some(known.map(|known| usize::try_from(known).unwrap_or(usize::MAX)))
}

/// The contents of chunks, read as leniently as can be.
fn chunks(mut said: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = said.iter().position(|byte| *byte == b'\n')?;
        let digits = said[..line].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = usize::from_str_radix(std::str::from_utf8(&said[..digits]).ok()?, 16).ok()?;
        said = &said[line + 1..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(said.get(..size)?);
        said = said[size..].strip_prefix(b"\r\n")?;
    }
}
