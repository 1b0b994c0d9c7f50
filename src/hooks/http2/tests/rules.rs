//! Hooks that break the rules of HTTP/2, or of gRPC. RFC 9113 §5 and §6.

use std::time::Duration;

use super::*;
use crate::hooks::http2::testing::{call, field, headers};
use gatepost_http2_client::frame::{code, flag, kind, setting};

const SECOND: Duration = Duration::from_secs(1);
const ENDS: u8 = flag::END_HEADERS | flag::END_STREAM;

/// A frame: kind, flags, stream, payload.
type Frame = (u8, u8, u32, Vec<u8>);

/// Header blocks of one answer, each with its flags.
type Blocks = Vec<(u8, Vec<u8>)>;

/// Error code of the GOAWAY that the hook gets when it sends these frames while it has one call on stream 1.
async fn goaway_code(frames: Vec<Frame>) -> Option<u32> {
    tokio::time::timeout(60 * SECOND, last_goaway_code(frames)).await.expect("an end")
}

async fn last_goaway_code(frames: Vec<Frame>) -> Option<u32> {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    for (kind, flags, stream, payload) in frames {
        if !scene.hook.try_send(kind, flags, stream, &payload).await {
            break;
        }
    }
    let mut code = None;
    while let Some((head, payload)) = scene.hook.next().await {
        if head.kind == kind::GOAWAY {
            code = payload.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        }
        if head.kind == kind::RST_STREAM {
            // At the call's deadline, at the latest: the connection lives on.
            return None;
        }
    }
    assert!(matches!(scene.arrived().await.1, Err(CallFailure::Connection(_))), "its calls have failed");
    code
}

#[tokio::test(start_paused = true)]
async fn a_breach_of_the_protocol_ends_the_connection() {
    let setting = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let window = |by: u32| by.to_be_bytes().to_vec();
    let cases: Vec<(&str, u32, Frame)> = vec![
        ("DATA on stream 0", code::PROTOCOL_ERROR, (kind::DATA, 0, 0, vec![0])),
        ("HEADERS on stream 0", code::PROTOCOL_ERROR, (kind::HEADERS, ENDS, 0, headers())),
        ("DATA on a stream not yet opened", code::PROTOCOL_ERROR, (kind::DATA, 0, 3, vec![0])),
        ("HEADERS on a stream of its own", code::PROTOCOL_ERROR, (kind::HEADERS, ENDS, 2, headers())),
        ("RST_STREAM on a stream not yet opened", code::PROTOCOL_ERROR, (kind::RST_STREAM, 0, 9, window(8))),
        ("WINDOW_UPDATE on a stream not yet opened", code::PROTOCOL_ERROR, (kind::WINDOW_UPDATE, 0, 5, window(1))),
        ("SETTINGS on a stream", code::PROTOCOL_ERROR, (kind::SETTINGS, 0, 1, vec![])),
        ("PING on a stream", code::PROTOCOL_ERROR, (kind::PING, 0, 1, vec![0; 8])),
        ("GOAWAY on a stream", code::PROTOCOL_ERROR, (kind::GOAWAY, 0, 1, vec![0; 8])),
        ("a short PING", code::FRAME_SIZE_ERROR, (kind::PING, 0, 0, vec![0; 7])),
        ("a short GOAWAY", code::FRAME_SIZE_ERROR, (kind::GOAWAY, 0, 0, vec![0; 4])),
        ("half a setting", code::FRAME_SIZE_ERROR, (kind::SETTINGS, 0, 0, vec![0; 7])),
        ("an acknowledgement with settings", code::FRAME_SIZE_ERROR, (kind::SETTINGS, flag::ACK, 0, setting(1, 1))),
        ("a long RST_STREAM", code::FRAME_SIZE_ERROR, (kind::RST_STREAM, 0, 1, vec![0; 5])),
        ("a long WINDOW_UPDATE", code::FRAME_SIZE_ERROR, (kind::WINDOW_UPDATE, 0, 0, vec![0; 5])),
        ("a short PRIORITY", code::FRAME_SIZE_ERROR, (kind::PRIORITY, 0, 1, vec![0; 4])),
        (
            "HEADERS too short for their priority",
            code::FRAME_SIZE_ERROR,
            (kind::HEADERS, ENDS | flag::PRIORITY, 1, vec![0; 3]),
        ),
        ("no room at all", code::PROTOCOL_ERROR, (kind::WINDOW_UPDATE, 0, 0, window(0))),
        ("too much room", code::FLOW_CONTROL_ERROR, (kind::WINDOW_UPDATE, 0, 0, window(u32::MAX >> 1))),
        (
            "too much room at first",
            code::FLOW_CONTROL_ERROR,
            (kind::SETTINGS, 0, 0, setting(setting::INITIAL_WINDOW_SIZE, 1 << 31)),
        ),
        (
            "a frame size that cannot be",
            code::PROTOCOL_ERROR,
            (kind::SETTINGS, 0, 0, setting(setting::MAX_FRAME_SIZE, 100)),
        ),
        ("pushing", code::PROTOCOL_ERROR, (kind::SETTINGS, 0, 0, setting(setting::ENABLE_PUSH, 1))),
        ("a push", code::PROTOCOL_ERROR, (kind::PUSH_PROMISE, flag::END_HEADERS, 1, vec![0; 4])),
        ("more padding than data", code::PROTOCOL_ERROR, (kind::DATA, flag::PADDED, 1, vec![9, 0])),
        ("more padding than headers", code::PROTOCOL_ERROR, (kind::HEADERS, flag::PADDED | ENDS, 1, vec![9, 0])),
        ("padding of a stream that is gone", code::PROTOCOL_ERROR, (kind::DATA, flag::PADDED, 1, vec![])),
        ("headers from a table that is not there", code::COMPRESSION_ERROR, (kind::HEADERS, ENDS, 1, vec![0xff, 0])),
        ("a continuation of nothing", code::PROTOCOL_ERROR, (kind::CONTINUATION, flag::END_HEADERS, 1, vec![])),
    ];
    for (what, code, frame) in cases {
        assert_eq!(goaway_code(vec![frame]).await, Some(code), "{what}");
    }
    let broken_off = vec![(kind::HEADERS, 0, 1, vec![]), (kind::PING, 0, 0, vec![0; 8])];
    assert_eq!(goaway_code(broken_off).await, Some(code::PROTOCOL_ERROR));
    assert_eq!(goaway_code(vec![(0x77, 0, 0, vec![1]), (kind::PRIORITY, 0, 7, vec![0; 5])]).await, None, "passed by");
}

#[tokio::test(start_paused = true)]
async fn too_many_frames_without_an_answer_end_the_connection() {
    let many = |frame: Frame| vec![frame; 3000];
    for (what, frame) in [
        ("PING", (kind::PING, 0, 0, vec![0; 8])),
        ("acknowledged PING", (kind::PING, flag::ACK, 0, vec![0; 8])),
        ("SETTINGS", (kind::SETTINGS, 0, 0, vec![])),
        ("PRIORITY", (kind::PRIORITY, 0, 1, vec![0; 5])),
        ("WINDOW_UPDATE", (kind::WINDOW_UPDATE, 0, 0, vec![0, 0, 0, 1])),
        ("frames that nobody knows", (0x77, 0, 0, vec![])),
        ("interim headers", (kind::HEADERS, flag::END_HEADERS, 1, field(":status", "103"))),
    ] {
        assert_eq!(goaway_code(many(frame)).await, Some(code::ENHANCE_YOUR_CALM), "{what}");
    }
    let started = vec![(kind::HEADERS, flag::END_HEADERS, 1, headers())];
    let empty = [started, many((kind::DATA, 0, 1, vec![]))].concat();
    assert_eq!(goaway_code(empty).await, Some(code::ENHANCE_YOUR_CALM), "empty DATA");
    let resets =
        [vec![(kind::RST_STREAM, 0, 1, vec![0, 0, 0, 8])], many((kind::RST_STREAM, 0, 1, vec![0, 0, 0, 8]))].concat();
    assert_eq!(goaway_code(resets).await, Some(code::ENHANCE_YOUR_CALM), "resets of a stream that is gone");
    let block = [vec![(kind::HEADERS, 0, 1, vec![])], vec![(kind::CONTINUATION, 0, 1, vec![]); 40]].concat();
    assert_eq!(goaway_code(block).await, Some(code::ENHANCE_YOUR_CALM), "empty CONTINUATION");
}

#[tokio::test(start_paused = true)]
async fn a_working_hook_may_send_many_frames() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    for n in 0..500 {
        scene.submit(call(&scene.responses, n, body(10), SECOND));
        let stream = scene.hook.call().await;
        // As some servers do for every call: room on the stream and the connection, and a PING to measure it.
        for _ in 0..30 {
            scene.hook.send(kind::WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]).await;
            scene.hook.send(kind::PING, 0, 0, &[0; 8]).await;
        }
        scene.hook.answer(stream, b"yes").await;
        assert!(scene.arrived().await.1.is_ok(), "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_breach_on_one_stream_fails_one_call() {
    let ok = || (flag::END_HEADERS, headers());
    let status = |status: &str| (ENDS, field("grpc-status", status));
    let with = |fields: &[Vec<u8>]| [headers(), fields.concat()].concat();
    let trailers_with_status = (ENDS, [&[0x88][..], &field("grpc-status", "0")].concat());
    let cases: Vec<(&str, Blocks)> = vec![
        ("no content type", vec![(flag::END_HEADERS, vec![0x88]), status("0")]),
        ("a status among the trailers", vec![ok(), trailers_with_status]),
        ("two grpc-status", vec![ok(), (ENDS, [field("grpc-status", "0"), field("grpc-status", "7")].concat())]),
        ("an early grpc-status", vec![(flag::END_HEADERS, with(&[field("grpc-status", "0")])), status("0")]),
        ("a name in large letters", vec![(flag::END_HEADERS, with(&[field("X-Large", "1")])), status("0")]),
        ("a length that is not its own", vec![(flag::END_HEADERS, with(&[field("content-length", "3")])), status("0")]),
        ("headers in between", vec![ok(), (flag::END_HEADERS, field("x", "y"))]),
        ("an end that announces more", vec![(ENDS, field(":status", "100"))]),
        ("another status", vec![(flag::END_HEADERS, field(":status", "404")), status("0")]),
    ];
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    for (what, blocks) in cases {
        scene.submit(call(&scene.responses, 0, body(10), SECOND));
        let stream = scene.hook.call().await;
        let last = blocks.len() - 1;
        for (n, (flags, block)) in blocks.into_iter().enumerate() {
            scene.hook.send(kind::HEADERS, flags, stream, &block).await;
            if n < last {
                scene.hook.send(kind::DATA, 0, stream, &[0, 0, 0, 0, 1, 7]).await;
            }
        }
        let result = scene.arrived().await.1;
        assert!(matches!(result, Err(CallFailure::NotGrpc(_))), "{what}: {result:?}");
    }
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    let stream = scene.hook.call().await;
    scene.hook.send(kind::WINDOW_UPDATE, 0, stream, &[0; 4]).await;
    assert!(scene.failure().await.contains("gave no room"));
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    let stream = scene.hook.call().await;
    scene.hook.answer(stream, b"yes").await;
    assert!(scene.arrived().await.1.is_ok(), "the connection is unharmed");
}
