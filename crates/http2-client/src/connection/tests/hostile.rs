//! Every frame, malformed in every field, at every state of a stream.

use super::*;

/// State of the stream that a frame speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none: stream 0.
    Connection,
    /// Never opened, though it might be later.
    Idle,
    /// Of those that only a server could open.
    Servers,
    /// The request is sent in part.
    Open,
    /// The request is sent.
    Awaiting,
    /// An interim head has come.
    Interim,
    /// The answer's head has come.
    Head,
    /// Some of the answer has come.
    Body,
    /// The answer has come, and was taken.
    Done,
    /// We have reset it.
    Cancelled,
    /// The server has reset it.
    Reset,
    /// It was refused unprocessed.
    Refused,
    /// The server has ruled it out by GOAWAY.
    RuledOut,
}

use State::*;

const ALL: [State; 13] =
    [Connection, Idle, Servers, Open, Awaiting, Interim, Head, Body, Done, Cancelled, Reset, Refused, RuledOut];

/// Columns of the table: stream 0; a stream that was never opened, or that only servers open; one whose answer has not
/// begun; one whose answer has; one that is over.
fn column(state: State) -> usize {
    match state {
        Connection => 0,
        Idle | Servers => 1,
        Open | Awaiting | Interim => 2,
        Head | Body => 3,
        Done | Cancelled | Reset | Refused | RuledOut => 4,
    }
}

/// A client with a stream in that state, and the stream's number.
fn client_in(state: State) -> (Client, u32) {
    let mut client = Client::established(&[(setting::INITIAL_WINDOW_SIZE, 100_000)]);
    let stream = match state {
        Connection => return (client, 0),
        Idle => return (client, 1),
        Servers => return (client, 2),
        _ => 1,
    };
    client.ask(7, b"a request");
    if state == Open {
        client.connection.window = 4;
    }
    client.take();
    let reset = |code: u32| frame(kind::RST_STREAM, 0, 1, &code.to_be_bytes());
    let said = match state {
        Interim => frame(kind::HEADERS, flag::END_HEADERS, 1, b"\x08\x03103"),
        Head => frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x88]),
        Body => [frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x88]), frame(kind::DATA, 0, 1, b"a")].concat(),
        Done => answer(1, b"answer"),
        Reset => reset(code::CANCEL),
        Refused => reset(code::REFUSED_STREAM),
        RuledOut => frame(kind::GOAWAY, 0, 0, &[0; 8]),
        _ => Vec::new(),
    };
    client.hears(&said).expect("sound");
    if state == Cancelled {
        client.connection.expire(Instant::now() + std::time::Duration::from_secs(7200));
    }
    client.take();
    client.ended();
    client.connection.take_unprocessed();
    (client, stream)
}

/// Reaction of a client to these bytes: `C` and a code where the connection is lost, `S` and a code where it resets the
/// stream; `done`, `failed`, `refused` where the exchange has ended otherwise; else nothing.
fn outcome(client: &mut Client, stream: u32, bytes: &[u8]) -> String {
    let asked = !client.connection.is_idle();
    if let Err(fault) = client.hears(bytes) {
        client.connection.send_goaway(fault);
        client.connection.fail(fault.what);
        let ended = client.ended();
        assert_eq!(ended.len(), usize::from(asked), "settled once: {ended:?}");
        let sent = client.sends();
        let message = sent.last().expect("a frame");
        assert_eq!((message.0.kind, &message.1[4..]), (kind::GOAWAY, &fault.code.to_be_bytes()[..]));
        return format!("C{}", fault.code);
    }
    let (sent, ended) = (client.sends(), client.ended());
    let refused = client.connection.take_unprocessed().len();
    let left = usize::from(!client.connection.is_idle());
    assert_eq!(ended.len() + refused + left, usize::from(asked), "settled once, or not at all: {ended:?}");
    let reset = sent.iter().find(|(head, _)| head.kind == kind::RST_STREAM && head.stream == stream);
    match (reset, ended.first()) {
        (Some((_, payload)), Some((_, Err(_)))) => format!("S{}", payload[3]),
        (None, Some((_, Ok(_)))) => "done".to_owned(),
        (Some((_, payload)), Some((_, Ok(_)))) if payload[..] == [0; 4] => "done".to_owned(),
        (None, Some((_, Err(_)))) => "failed".to_owned(),
        (None, None) if refused > 0 => "refused".to_owned(),
        (None, None) => String::new(),
        other => panic!("{other:?}"),
    }
}

/// A name, the frame on that stream, and what it comes to, column by column.
type Row = (&'static str, fn(u32) -> Vec<u8>, [&'static str; 5]);

const ENDS: u8 = flag::END_HEADERS | flag::END_STREAM;
const PRIORITY: [u8; 5] = [0, 0, 0, 0, 9];

fn number(kind: u8, stream: u32, value: u32) -> Vec<u8> {
    frame(kind, 0, stream, &value.to_be_bytes())
}

fn setting(stream: u32, id: u16, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, stream, &payload_of(&[(id, value)]))
}

/// With the reserved bit of the stream set.
fn reserved(mut frame: Vec<u8>) -> Vec<u8> {
    frame[5] |= 0x80;
    frame
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    // A frame of a connection, which on no stream may stand.
    const OF_CONNECTION: [&str; 5] = ["", "C1", "C1", "C1", "C1"];
    const PROTOCOL: [&str; 5] = ["C1"; 5];
    vec![
        ("DATA, empty", |id| frame(kind::DATA, 0, id, b""), ["C1", "C1", "S1", "", ""]),
        ("DATA", |id| frame(kind::DATA, 0, id, b"x"), ["C1", "C1", "S1", "", ""]),
        ("DATA with unknown flags", |id| frame(kind::DATA, 0xf6, id, b"x"), ["C1", "C1", "S1", "", ""]),
        ("DATA with the reserved bit", |id| reserved(frame(kind::DATA, 0, id, b"x")), ["C1", "C1", "S1", "", ""]),
        ("DATA that ends", |id| frame(kind::DATA, flag::END_STREAM, id, b"x"), ["C1", "C1", "S1", "done", ""]),
        ("DATA, the largest", |id| frame(kind::DATA, 0, id, &[0; 16_384]), ["C1", "C1", "S1", "", ""]),
        ("DATA, too large", |id| frame(kind::DATA, 0, id, &[0; 16_385]), ["C6"; 5]),
        ("DATA, all padding", |id| frame(kind::DATA, flag::PADDED, id, &[3, 0, 0, 0]), ["C1", "C1", "S1", "", ""]),
        ("DATA, more padding than data", |id| frame(kind::DATA, flag::PADDED, id, &[4, 0, 0, 0]), PROTOCOL),
        ("DATA without its padding's length", |id| frame(kind::DATA, flag::PADDED, id, &[]), PROTOCOL),
        ("HEADERS", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x88]), ["C1", "C1", "", "S1", ""]),
        ("HEADERS that end", |id| frame(kind::HEADERS, ENDS, id, &[0x88]), ["C1", "C1", "done", "S1", ""]),
        ("HEADERS of a refusal", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x8e]), ["C1", "C1", "S8", "S1", ""]),
        ("HEADERS, empty", |id| frame(kind::HEADERS, flag::END_HEADERS, id, b""), ["C1", "C1", "S1", "S1", ""]),
        ("trailers", |id| frame(kind::HEADERS, ENDS, id, b"\0\x01a\x01b"), ["C1", "C1", "S1", "done", ""]),
        ("trailers, empty", |id| frame(kind::HEADERS, ENDS, id, b""), ["C1", "C1", "S1", "done", ""]),
        ("HEADERS, interim", |id| frame(kind::HEADERS, flag::END_HEADERS, id, b"\x08\x03100"), ["C1", "C1", "", "S1", ""]),
        ("HEADERS, interim, that end", |id| frame(kind::HEADERS, ENDS, id, b"\x08\x03100"), ["C1", "C1", "S1", "S1", ""]),
        ("HEADERS with two statuses", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x88, 0x88]), ["C1", "C1", "S1", "S1", ""]),
        ("HEADERS of a request", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x83, 0x86, 0x84]), ["C1", "C1", "S1", "S1", ""]),
        ("HEADERS, padded", |id| frame(kind::HEADERS, flag::END_HEADERS | flag::PADDED, id, &[1, 0x88, 0]), ["C1", "C1", "", "S1", ""]),
        ("HEADERS, more padding than headers", |id| frame(kind::HEADERS, flag::END_HEADERS | flag::PADDED, id, &[2, 0x88]), PROTOCOL),
        ("HEADERS with a priority", |id| frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, id, &[&PRIORITY[..], &[0x88]].concat()), ["C1", "C1", "", "S1", ""]),
        ("HEADERS with half a priority", |id| frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, id, &[0; 4]), ["C1", "C1", "C6", "C6", "C6"]),
        ("HEADERS, padded, with half a priority", |id| frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY | flag::PADDED, id, &[1, 0, 0, 0, 0, 0]), ["C1", "C1", "C6", "C6", "C6"]),
        ("HEADERS that cannot be decoded", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0xff]), ["C1", "C1", "C9", "C9", "C9"]),
        ("HEADERS that refer to a dynamic table", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x88, 0xbe]), ["C1", "C1", "C9", "C9", "C9"]),
        ("HEADERS, too large", |id| frame(kind::HEADERS, flag::END_HEADERS, id, &[0x88; 16_385]), ["C6"; 5]),
        ("PRIORITY", |id| frame(kind::PRIORITY, 0, id, &PRIORITY), ["C1", "", "", "", ""]),
        ("PRIORITY, short", |id| frame(kind::PRIORITY, 0, id, &[0; 4]), ["C1", "C6", "C6", "C6", "C6"]),
        ("PRIORITY, long", |id| frame(kind::PRIORITY, 0, id, &[0; 6]), ["C1", "C6", "C6", "C6", "C6"]),
        ("RST_STREAM", |id| number(kind::RST_STREAM, id, code::CANCEL), ["C1", "C1", "failed", "failed", ""]),
        ("RST_STREAM without an error", |id| number(kind::RST_STREAM, id, 0), ["C1", "C1", "failed", "failed", ""]),
        ("RST_STREAM of an unknown code", |id| number(kind::RST_STREAM, id, u32::MAX), ["C1", "C1", "failed", "failed", ""]),
        ("RST_STREAM that refuses", |id| number(kind::RST_STREAM, id, code::REFUSED_STREAM), ["C1", "C1", "refused", "failed", ""]),
        ("RST_STREAM, short", |id| frame(kind::RST_STREAM, 0, id, &[0; 3]), ["C1", "C6", "C6", "C6", "C6"]),
        ("RST_STREAM, long", |id| frame(kind::RST_STREAM, 0, id, &[0; 5]), ["C1", "C6", "C6", "C6", "C6"]),
        ("SETTINGS, empty", |id| frame(kind::SETTINGS, 0, id, b""), OF_CONNECTION),
        ("SETTINGS of an unknown kind", |id| setting(id, 0x7777, u32::MAX), OF_CONNECTION),
        ("SETTINGS, acknowledged", |id| frame(kind::SETTINGS, flag::ACK, id, b""), OF_CONNECTION),
        ("SETTINGS, acknowledged with some", |id| frame(kind::SETTINGS, flag::ACK, id, &[0; 6]), ["C6", "C1", "C1", "C1", "C1"]),
        ("SETTINGS, half of one", |id| frame(kind::SETTINGS, 0, id, &[0; 5]), ["C6", "C1", "C1", "C1", "C1"]),
        ("SETTINGS, one and a half", |id| frame(kind::SETTINGS, 0, id, &[0; 7]), ["C6", "C1", "C1", "C1", "C1"]),
        ("SETTINGS, too large", |id| frame(kind::SETTINGS, 0, id, &[0; 16_386]), ["C6"; 5]),
        ("SETTINGS that ask to push", |id| setting(id, setting::ENABLE_PUSH, 1), PROTOCOL),
        ("SETTINGS of an odd push", |id| setting(id, setting::ENABLE_PUSH, 2), PROTOCOL),
        ("SETTINGS without push", |id| setting(id, setting::ENABLE_PUSH, 0), OF_CONNECTION),
        ("SETTINGS of the largest window", |id| setting(id, setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1), OF_CONNECTION),
        ("SETTINGS of too large a window", |id| setting(id, setting::INITIAL_WINDOW_SIZE, 1 << 31), ["C3", "C1", "C1", "C1", "C1"]),
        ("SETTINGS of too small a frame", |id| setting(id, setting::MAX_FRAME_SIZE, 16_383), PROTOCOL),
        ("SETTINGS of too large a frame", |id| setting(id, setting::MAX_FRAME_SIZE, 1 << 24), PROTOCOL),
        ("SETTINGS of the largest frame", |id| setting(id, setting::MAX_FRAME_SIZE, (1 << 24) - 1), OF_CONNECTION),
        ("SETTINGS of an endless table", |id| setting(id, setting::HEADER_TABLE_SIZE, u32::MAX), OF_CONNECTION),
        ("SETTINGS of endless streams", |id| setting(id, setting::MAX_CONCURRENT_STREAMS, u32::MAX), OF_CONNECTION),
        ("PUSH_PROMISE", |id| frame(kind::PUSH_PROMISE, flag::END_HEADERS, id, &[0, 0, 0, 2, 0x82]), PROTOCOL),
        ("PUSH_PROMISE, empty", |id| frame(kind::PUSH_PROMISE, 0, id, b""), PROTOCOL),
        ("PING", |id| frame(kind::PING, 0, id, &[7; 8]), OF_CONNECTION),
        ("PING, acknowledged unasked", |id| frame(kind::PING, flag::ACK, id, &[7; 8]), OF_CONNECTION),
        ("PING, short", |id| frame(kind::PING, 0, id, &[7; 7]), ["C6", "C1", "C1", "C1", "C1"]),
        ("PING, long", |id| frame(kind::PING, 0, id, &[7; 9]), ["C6", "C1", "C1", "C1", "C1"]),
        ("GOAWAY", |id| frame(kind::GOAWAY, 0, id, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]), OF_CONNECTION),
        ("GOAWAY with a long text", |id| frame(kind::GOAWAY, 0, id, &[0xff; 16_384]), OF_CONNECTION),
        ("GOAWAY, short", |id| frame(kind::GOAWAY, 0, id, &[0; 7]), ["C6", "C1", "C1", "C1", "C1"]),
        ("WINDOW_UPDATE", |id| number(kind::WINDOW_UPDATE, id, 1), ["", "C1", "", "", ""]),
        ("WINDOW_UPDATE with the reserved bit", |id| number(kind::WINDOW_UPDATE, id, 0x8000_0001), ["", "C1", "", "", ""]),
        ("WINDOW_UPDATE by nothing", |id| number(kind::WINDOW_UPDATE, id, 0), ["C1", "C1", "S1", "S1", ""]),
        ("WINDOW_UPDATE by too much", |id| number(kind::WINDOW_UPDATE, id, (1 << 31) - 1), ["C3", "C1", "S3", "S3", ""]),
        ("WINDOW_UPDATE, short", |id| frame(kind::WINDOW_UPDATE, 0, id, &[0; 3]), ["C6"; 5]),
        ("WINDOW_UPDATE, long", |id| frame(kind::WINDOW_UPDATE, 0, id, &[0; 5]), ["C6"; 5]),
        ("CONTINUATION of nothing", |id| frame(kind::CONTINUATION, flag::END_HEADERS, id, &[0x88]), PROTOCOL),
        ("a frame of an unknown kind", |id| frame(0x0b, 0xff, id, &[1; 99]), [""; 5]),
        ("a frame of an unknown kind, too large", |id| frame(0xff, 0, id, &[0; 16_385]), ["C6"; 5]),
    ]
}

#[test]
fn each_frame_has_a_defined_outcome_in_each_state_of_its_stream() {
    let (mut cases, mut wrong) = (0, Vec::new());
    for (what, frame, expected) in rows() {
        for state in ALL {
            let (mut client, stream) = client_in(state);
            let outcome = outcome(&mut client, stream, &frame(stream));
            let expected = expected[column(state)];
            if outcome != expected {
                wrong.push(format!("{what}, {state:?}: {outcome:?} and not {expected:?}"));
            }
            cases += 1;
        }
    }
    assert!(wrong.is_empty() && cases > 800, "{}", wrong.join("\n"));
}

#[test]
fn before_its_settings_a_server_may_say_nothing_else() {
    for (what, frame, _) in rows() {
        let mut client = Client::new();
        client.ask(7, b"x");
        client.take();
        let settings = what.starts_with("SETTINGS") && !what.contains("acknowledged");
        let outcome = outcome(&mut client, 0, &frame(0));
        assert!(settings || outcome == "C1" || outcome == "C6" && what.contains("too large"), "{what}: {outcome}");
    }
}

#[test]
fn a_header_block_is_not_interrupted() {
    for (what, bytes, _) in rows() {
        for stream in [0, 1, 3] {
            let mut client = Client::established(&[]);
            client.ask(7, b"x");
            client.take();
            client.hears(&frame(kind::HEADERS, 0, 1, &[0x88])).expect("begun");
            if what.starts_with("CONTINUATION") && stream == 1 {
                assert_eq!(outcome(&mut client, 1, &bytes(1)), "S1", "two statuses");
                continue;
            }
            let outcome = outcome(&mut client, stream, &bytes(stream));
            assert!(outcome == "C1" || outcome == "C6" && what.contains("too large"), "{what}: {outcome}");
        }
    }
}

#[test]
fn a_header_block_in_parts_is_one_and_has_bounds() {
    let part = |flags, bytes: &[u8]| frame(kind::CONTINUATION, flags, 1, bytes);
    let begun = |flags| frame(kind::HEADERS, flags, 1, b"\x88\0");
    let message = |bytes: Vec<u8>| {
        let (mut client, stream) = client_in(Awaiting);
        outcome(&mut client, stream, &bytes)
    };
    assert_eq!(
        message([begun(flag::END_STREAM), part(0, b""), part(flag::END_HEADERS, b"\x01a\x01b")].concat()),
        "done"
    );
    // A flag of END_STREAM means nothing on a CONTINUATION.
    assert_eq!(message([begun(0), part(flag::END_HEADERS | flag::END_STREAM, b"\x01a\x01b")].concat()), "");
    assert_eq!(message([begun(0), part(flag::END_HEADERS, b"\x05a")].concat()), "C9");
    assert_eq!(message([begun(0), part(0, b"").repeat(33)].concat()), "C11", "too many parts");
    assert_eq!(message([begun(0), part(0, &[0; 16_384]).repeat(4)].concat()), "C11", "too long");
    // Decoding such fields keeps its connection even where its stream is gone.
    let (mut client, _) = client_in(Done);
    let late = [begun(0), part(flag::END_HEADERS, b"\x01a\x01b")].concat();
    assert_eq!(outcome(&mut client, 1, &late), "");
}

#[test]
fn windows_are_counted_in_both_directions() {
    // A byte more than a stream's mebibyte, given back by halves.
    let (mut client, stream) = client_in(Head);
    client.connection.exchanges.streams.get_mut(&1).expect("open").receive_window.left = 9;
    let data = |len: usize| frame(kind::DATA, 0, 1, &vec![0; len]);
    assert_eq!(outcome(&mut client, stream, &data(9)), "");
    assert_eq!(outcome(&mut client, stream, &data(1)), "S3");
    // On the connection also what comes for streams that are gone.
    for state in [Head, Done, Cancelled] {
        let (mut client, stream) = client_in(state);
        client.connection.receive_window.left = 9;
        assert_eq!(outcome(&mut client, stream, &data(10)), "C3", "{state:?}");
    }
    // A setting may overflow the window that an update has made large.
    let (mut client, stream) = client_in(Awaiting);
    let update = number(kind::WINDOW_UPDATE, 1, (1 << 31) - 1 - 100_000 + 9);
    assert_eq!(outcome(&mut client, stream, &update), "");
    assert_eq!(outcome(&mut client, 0, &setting(0, setting::INITIAL_WINDOW_SIZE, 100_001)), "C3");
}

#[test]
fn a_server_that_says_much_and_answers_nothing_is_lost() {
    for flood in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::SETTINGS, 0, 0, b""),
        frame(kind::DATA, 0, 1, b""),
        frame(kind::PRIORITY, 0, 1, &PRIORITY),
        frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(kind::HEADERS, flag::END_HEADERS, 1, b"\x08\x03103"),
        frame(0x0b, 0, 0, b""),
        number(kind::RST_STREAM, 3, code::CANCEL),
    ] {
        let (mut client, _) = client_in(if flood[3] == kind::DATA { Head } else { Awaiting });
        client.ask(8, b"x");
        client.take();
        let mut heard = 0;
        let fault = loop {
            match client.hears(&flood) {
                Ok(()) => heard += 1,
                Err(fault) => break fault,
            }
            assert!(heard < 20_000, "{flood:?}");
            client.take();
        };
        assert_eq!(fault.code, code::ENHANCE_YOUR_CALM, "{flood:?}");
    }
}
