//! Floods, and traffic that is not one.

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

fn begun() -> Frames {
    let mut meter = Frames::new(Instant::now());
    assert!(meter.count(HTTP2_PREFACE));
    meter
}

/// Number of these frames that are taken, at most `most`.
fn taken(meter: &mut Frames, frame: &[u8], most: usize) -> usize {
    (0..most).find(|_| !meter.count(frame)).unwrap_or(most)
}

#[tokio::test(start_paused = true)]
async fn meter_limits_frames_without_a_request() {
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
async fn meter_passes_calls_and_large_data() {
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
async fn meter_passes_a_regular_keepalive() {
    let mut meter = begun();
    let ping = frame(PING, 0, 8);
    for _ in 0..10_000 {
        assert!(meter.count(&ping));
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(taken(&mut begun(), &ping, 100_000), 2048);
}

#[tokio::test(start_paused = true)]
async fn meter_finds_frame_heads_in_pieces() {
    let pings = frame(PING, 0, 8).repeat(2048);
    let whole = [HTTP2_PREFACE.as_slice(), &frame(DATA, 0, 1000), &pings].concat();
    for size in [1, 2, 5, 8, 9, 10, 17, 1000, usize::MAX] {
        let mut meter = Frames::new(Instant::now());
        assert!(whole.chunks(size.min(whole.len())).all(|piece| meter.count(piece)), "{size}");
        assert!(!meter.count(&frame(PING, 0, 8)), "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn meter_counts_the_bytes_of_a_partial_large_frame() {
    let mut meter = begun();
    let large = frame(DATA, 0, 100_000);
    assert!(meter.count(&large[..HEAD + 40_000]));
    assert_eq!(meter.partial(), 40_000);
    assert!(meter.count(&large[HEAD + 40_000..]));
    assert_eq!(meter.partial(), 0, "it is whole");
    assert!(meter.count(&frame(DATA, 0, 1000)[..500]));
    assert_eq!(meter.partial(), 0, "it is small");
}
