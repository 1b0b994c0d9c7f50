//! A server made of bytes.

mod hostile;

use super::{
    super::{
        frame::{FrameHead, code, flag, kind, setting},
        testing::{End, Ends, TestExchange, frame, frames},
    },
    *,
};

const BATCH: usize = 64 << 10;

/// A connection and what a test holds of it.
struct Client {
    connection: ClientConnection<TestExchange>,
    ends: Ends,
}

impl Client {
    /// Its handshake is done, and nothing queued.
    fn established(settings: &[(u16, u32)]) -> Self {
        let mut client = Self::new();
        client.take();
        client.hears(&frame(kind::SETTINGS, 0, 0, &payload_of(settings))).expect("established");
        assert_eq!(client.sends()[0].0.kind, kind::SETTINGS, "the acknowledgement");
        client
    }

    fn new() -> Self {
        let config = Config { batch: BATCH, clock: Instant::now };
        Self { connection: ClientConnection::new(config, Default::default()), ends: Ends::default() }
    }

    fn ask(&mut self, tag: u32, body: &'static [u8]) {
        self.connection.submit(TestExchange::with(tag, body, &self.ends));
    }

    /// Takes in bytes of the server.
    fn hears(&mut self, mut bytes: &[u8]) -> Result<(), ProtocolFault> {
        while !bytes.is_empty() {
            let room = self.connection.read_buffer();
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.connection.receive(len)?;
        }
        Ok(())
    }

    /// All bytes that it has to send now.
    fn take(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        loop {
            self.connection.queue_frames();
            let offered = self.connection.offer(|slices| {
                let all = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
                sent.extend_from_slice(&all);
                ((), all.len())
            });
            if offered.is_none() {
                return sent;
            }
        }
    }

    fn sends(&mut self) -> Vec<(FrameHead, Vec<u8>)> {
        frames(&self.take())
    }

    /// Exchanges that have ended since the last time.
    fn ended(&self) -> Vec<End> {
        std::mem::take(&mut *self.ends.borrow_mut())
    }
}

fn payload_of(settings: &[(u16, u32)]) -> Vec<u8> {
    settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect()
}

/// A whole answer: `:status: 200`, then this.
fn answer(stream: u32, body: &[u8]) -> Vec<u8> {
    [frame(kind::HEADERS, flag::END_HEADERS, stream, &[0x88]), frame(kind::DATA, flag::END_STREAM, stream, body)]
        .concat()
}

fn kinds(sent: &[(FrameHead, Vec<u8>)]) -> Vec<(u8, u32, usize, bool)> {
    sent.iter().map(|(head, _)| (head.kind, head.stream, head.len, head.has(flag::END_STREAM))).collect()
}

#[test]
fn a_connection_begins_with_preface_settings_and_window() {
    let mut client = Client::new();
    let sent = client.take();
    assert!(sent.starts_with(frame::PREFACE));
    let sent = frames(&sent);
    assert_eq!(kinds(&sent), [(kind::SETTINGS, 0, 18, false), (kind::WINDOW_UPDATE, 0, 4, false)]);
    assert_eq!(sent[0].1[..6], [0, 1, 0, 0, 0, 0], "no dynamic table");
    client.ask(1, b"early");
    assert!(client.sends().is_empty(), "nothing is asked before the server has spoken");
}

#[test]
fn requests_and_answers_cross_in_any_order() {
    let mut client = Client::established(&[]);
    client.ask(1, b"one");
    client.ask(2, b"");
    let sent = client.sends();
    let heads = [(kind::HEADERS, 1, 4, false), (kind::HEADERS, 3, 4, false)];
    assert_eq!(kinds(&sent)[..2], heads);
    assert_eq!(kinds(&sent)[2..], [(kind::DATA, 1, 3, true), (kind::DATA, 3, 0, true)]);
    let interim = frame(kind::HEADERS, flag::END_HEADERS, 3, b"\x08\x03103");
    client.hears(&[interim, answer(3, b"b"), answer(1, b"a")].concat()).expect("sound");
    assert_eq!(client.ended(), [(2, Ok((200, b"b".to_vec()))), (1, Ok((200, b"a".to_vec())))]);
    assert!(client.connection.is_idle() && client.connection.has_answered() && client.sends().is_empty());
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut client = Client::established(&[]);
    client.ask(1, b"one");
    client.take();
    for byte in answer(1, b"answered") {
        client.hears(&[byte]).expect("sound");
    }
    assert_eq!(client.ended(), [(1, Ok((200, b"answered".to_vec())))]);
}

#[test]
fn small_requests_do_not_wait_behind_large_ones() {
    static LARGE: [u8; 40_000] = [b'x'; 40_000];
    let mut client = Client::established(&[]);
    client.ask(1, &LARGE);
    client.ask(2, b"small");
    let data: Vec<_> = kinds(&client.sends()).into_iter().filter(|sent| sent.0 == kind::DATA).collect();
    let first = DEFAULT_MAX_FRAME;
    assert_eq!(data[..2], [(kind::DATA, 1, first, false), (kind::DATA, 3, 5, true)]);
    assert_eq!(data[2..], [(kind::DATA, 1, first, false), (kind::DATA, 1, 40_000 - 2 * first, true)]);
}

#[test]
fn a_stream_s_window_is_kept_and_follows_the_settings() {
    let mut client = Client::established(&[(setting::INITIAL_WINDOW_SIZE, 4), (setting::MAX_FRAME_SIZE, 16_384)]);
    client.ask(1, b"0123456789");
    assert_eq!(kinds(&client.sends()), [(kind::HEADERS, 1, 4, false), (kind::DATA, 1, 4, false)]);
    assert!(client.sends().is_empty());
    // Smaller by 3: the stream owes that now.
    client.hears(&frame(kind::SETTINGS, 0, 0, &payload_of(&[(setting::INITIAL_WINDOW_SIZE, 1)]))).expect("sound");
    client.hears(&frame(kind::WINDOW_UPDATE, 0, 1, &3_u32.to_be_bytes())).expect("sound");
    assert_eq!(kinds(&client.sends()), [(kind::SETTINGS, 0, 0, true)], "an acknowledgement and no more");
    client.hears(&frame(kind::WINDOW_UPDATE, 0, 1, &2_u32.to_be_bytes())).expect("sound");
    assert_eq!(kinds(&client.sends()), [(kind::DATA, 1, 2, false)]);
    client.hears(&frame(kind::SETTINGS, 0, 0, &payload_of(&[(setting::INITIAL_WINDOW_SIZE, 100)]))).expect("sound");
    assert_eq!(kinds(&client.sends())[1..], [(kind::DATA, 1, 4, true)]);
}

#[test]
fn the_connection_s_window_is_shared_and_what_is_taken_back_returns_to_it() {
    static WHOLE: [u8; 65_535] = [b'x'; 65_535];
    let mut client = Client::established(&[]);
    client.ask(1, &WHOLE);
    client.take();
    client.ask(2, b"more");
    assert_eq!(kinds(&client.sends()), [(kind::HEADERS, 3, 4, false)], "the first has it all");
    client.hears(&frame(kind::WINDOW_UPDATE, 0, 0, &3_u32.to_be_bytes())).expect("sound");
    assert_eq!(kinds(&client.sends()), [(kind::DATA, 3, 3, false)]);
    // Window taken by bytes that were queued and not sent when their exchange ended goes back to others.
    client.hears(&frame(kind::WINDOW_UPDATE, 0, 0, &9_u32.to_be_bytes())).expect("sound");
    client.ask(3, b"123456789");
    client.connection.queue_frames();
    assert!(client.connection.queued() > 0);
    client.hears(&frame(kind::RST_STREAM, 0, 5, &code::CANCEL.to_be_bytes())).expect("sound");
    client.ask(4, b"12345678");
    let data: usize = client.sends().iter().filter(|(head, _)| head.kind == kind::DATA).map(|(head, _)| head.len).sum();
    assert_eq!(data, 9, "the one byte that was owed, and eight");
}

#[test]
fn receive_windows_are_given_back_in_halves() {
    let mut client = Client::established(&[]);
    client.ask(1, b"one");
    client.take();
    client.hears(&frame(kind::HEADERS, flag::END_HEADERS, 1, &[0x88])).expect("sound");
    let mut given = 0;
    for sent in 1..=6 {
        client.hears(&frame(kind::DATA, flag::PADDED, 1, &[&[255][..], &[0; 16_383]].concat())).expect("sound");
        let back: u32 = client
            .sends()
            .iter()
            .map(|(_, payload)| u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]))
            .sum();
        given += back;
        assert_eq!(given, 0, "{sent}: not before half a mebibyte");
    }
    assert_eq!(client.connection.exchanges.streams[&1].receive_window.left, STREAM_WINDOW - 6 * 16_384);
    assert_eq!(client.connection.receive_window.left, CONNECTION_WINDOW - 6 * 16_384, "padding counts");
}

#[test]
fn the_server_says_how_many_at_once_also_none() {
    let mut client = Client::established(&[(setting::MAX_CONCURRENT_STREAMS, 0)]);
    client.ask(1, b"one");
    client.ask(2, b"two");
    assert!(client.sends().is_empty());
    client.hears(&frame(kind::SETTINGS, 0, 0, &payload_of(&[(setting::MAX_CONCURRENT_STREAMS, 1)]))).expect("sound");
    assert_eq!(kinds(&client.sends())[1..], [(kind::HEADERS, 1, 4, false), (kind::DATA, 1, 3, true)]);
    client.hears(&answer(1, b"")).expect("sound");
    assert_eq!(kinds(&client.sends()), [(kind::HEADERS, 3, 4, false), (kind::DATA, 3, 3, true)]);
}

#[test]
fn unprocessed_exchanges_are_handed_back() {
    let mut client = Client::established(&[(setting::MAX_CONCURRENT_STREAMS, 4)]);
    for tag in 1..=5 {
        client.ask(tag, b"x");
    }
    client.take();
    let refuse = |stream| frame(kind::RST_STREAM, 0, stream, &code::REFUSED_STREAM.to_be_bytes());
    let begun = frame(kind::HEADERS, flag::END_HEADERS, 3, &[0x88]);
    client.hears(&[refuse(1), begun, refuse(3)].concat()).expect("sound");
    let goaway = |last: u32| frame(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    client.hears(&[goaway(5), goaway(7)].concat()).expect("sound");
    let tags = |unprocessed: Vec<UnprocessedExchange<TestExchange>>| {
        let tag = |one: UnprocessedExchange<TestExchange>| match one {
            UnprocessedExchange::Refused(exchange) => (exchange.tag, true),
            UnprocessedExchange::BeyondGoAway(exchange) => (exchange.tag, false),
        };
        unprocessed.into_iter().map(tag).collect::<Vec<_>>()
    };
    assert_eq!(tags(client.connection.take_unprocessed()), [(1, true), (4, false)]);
    assert!(client.ended()[0].1.as_ref().is_err_and(|why| why.contains("it began to answer")));
    assert!(client.connection.is_closing());
    assert_eq!(client.connection.take_waiting().map(|exchange| exchange.tag).collect::<Vec<_>>(), [5]);
    client.hears(&answer(5, b"yes")).expect("sound");
    assert_eq!(client.ended(), [(3, Ok((200, b"yes".to_vec())))]);
    assert!(client.connection.is_idle());
}

#[test]
fn an_answer_before_the_end_of_the_request_is_taken_and_the_rest_not_sent() {
    static WHOLE: [u8; 100_000] = [b'x'; 100_000];
    let mut client = Client::established(&[]);
    client.ask(1, &WHOLE);
    client.take();
    client.hears(&answer(1, b"enough")).expect("sound");
    assert_eq!(client.ended(), [(1, Ok((200, b"enough".to_vec())))]);
    let sent = client.sends();
    assert_eq!((kinds(&sent), &sent[0].1[..]), (vec![(kind::RST_STREAM, 1, 4, false)], &[0, 0, 0, 0][..]));
}

#[test]
fn a_connection_that_is_dropped_fails_what_is_left() {
    let mut client = Client::established(&[(setting::MAX_CONCURRENT_STREAMS, 1)]);
    client.ask(1, b"x");
    client.ask(2, b"y");
    client.take();
    let ends = std::rc::Rc::clone(&client.ends);
    drop(client);
    assert_eq!(ends.borrow().iter().filter(|(_, end)| end.is_err()).count(), 2);
}

#[test]
fn deadlines_and_callers_that_leave_end_exchanges_unsettled() {
    let mut client = Client::established(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    let now = Instant::now();
    let soon = now + std::time::Duration::from_secs(1);
    let made = |tag, deadline| {
        let mut made = TestExchange::with(tag, b"x", &Ends::default());
        made.deadline = deadline;
        made
    };
    let left = made(1, soon + std::time::Duration::from_secs(9));
    let abandoned = std::rc::Rc::clone(&left.abandoned);
    for exchange in [left, made(2, soon), made(3, soon), made(4, now)] {
        client.connection.submit(exchange);
    }
    client.take();
    client.connection.track_waiting();
    client.connection.expire(now);
    assert!(client.sends().is_empty());
    assert!(client.connection.next_deadline().is_some_and(|next| next <= soon));
    client.connection.expire(soon);
    let sent = client.sends();
    assert_eq!((kinds(&sent), &sent[0].1[..]), (vec![(kind::RST_STREAM, 3, 4, false)], &[0, 0, 0, 8][..]));
    *abandoned.borrow_mut() = true;
    client.connection.cancel_abandoned();
    assert_eq!(kinds(&client.sends()), [(kind::RST_STREAM, 1, 4, false)]);
    assert!(client.connection.is_idle());
    // Late frames for them belong to no exchange, and are no fault.
    client.hears(&[answer(1, b"late"), answer(3, b"late")].concat()).expect("sound");
}
