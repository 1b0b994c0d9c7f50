//! Tests for floods, and for traffic that is none.

use super::*;

const SETTINGS: u8 = 4;
const PRIORITY: u8 = 2;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, len: usize) -> Vec<u8> {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
    frame.resize(HEAD + len, 0xff);
    frame
}

fn begun() -> Meter {
    let mut meter = Meter::new(Instant::now());
    assert!(meter.take(&[b'x'; PREFACE]));
    meter
}

/// Number of these frames that are taken, at most `most`.
fn taken(meter: &mut Meter, frame: &[u8], most: usize) -> usize {
    (0..most).find(|_| !meter.take(frame)).unwrap_or(most)
}

#[tokio::test(start_paused = true)]
async fn frames_that_ask_nothing_are_cut_whatever_they_are() {
    for (kind, len) in [
        (PING, 8),
        (SETTINGS, 0),
        (SETTINGS, 6),
        (PRIORITY, 5),
        (WINDOW_UPDATE, 4),
        (DATA, 0),
        (CONTINUATION, 0),
        (77, 0),
    ] {
        assert_eq!(taken(&mut begun(), &frame(kind, 0, len), 100_000), 2048, "{kind}");
    }
    assert_eq!(taken(&mut begun(), &frame(DATA, PADDED, 255), 100_000), 16_384, "padding brings nothing");
    assert_eq!(taken(&mut begun(), &frame(DATA, 0, 1), 100_000), 16_384);
}

#[tokio::test(start_paused = true)]
async fn what_asks_or_brings_something_goes_on_for_ever() {
    let mut meter = begun();
    let large = frame(DATA, 0, 64);
    assert_eq!(taken(&mut meter, &large, 100_000), 100_000);
    // A call with a PING, its acknowledgement, and two WINDOW_UPDATEs for the answer.
    let call = [
        frame(HEADERS, 4, 30),
        frame(DATA, 1, 50),
        frame(PING, 0, 8),
        frame(PING, 1, 8),
        frame(WINDOW_UPDATE, 0, 4),
        frame(WINDOW_UPDATE, 0, 4),
    ];
    assert_eq!(taken(&mut meter, &call.concat(), 100_000), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_keepalive_every_now_and_then_goes_on_for_ever() {
    let mut meter = begun();
    let ping = frame(PING, 0, 8);
    for _ in 0..10_000 {
        assert!(meter.take(&ping));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(taken(&mut begun(), &ping, 100_000), 2048);
}

#[tokio::test(start_paused = true)]
async fn heads_are_found_in_whatever_pieces_they_arrive() {
    let pings = frame(PING, 0, 8).repeat(2048);
    let whole = [&[b'x'; PREFACE][..], &frame(DATA, 0, 1000), &pings].concat();
    for size in [1, 2, 5, 8, 9, 10, 17, 1000, usize::MAX] {
        let mut meter = Meter::new(Instant::now());
        assert!(whole.chunks(size.min(whole.len())).all(|piece| meter.take(piece)), "{size}");
        assert!(!meter.take(&frame(PING, 0, 8)), "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_come_of_a_large_frame_is_known() {
    let mut meter = begun();
    let large = frame(DATA, 0, 100_000);
    assert!(meter.take(&large[..HEAD + 40_000]));
    assert_eq!(meter.partial(), 40_000);
    assert!(meter.take(&large[HEAD + 40_000..]));
    assert_eq!(meter.partial(), 0, "it is whole");
    assert!(meter.take(&frame(DATA, 0, 1000)[..500]));
    assert_eq!(meter.partial(), 0, "it is small");
}
