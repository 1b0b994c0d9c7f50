use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

use super::*;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).expect("room");
    encoder.finish().expect("room")
}

fn read(bytes: Vec<u8>) -> (Vec<String>, Option<io::ErrorKind>) {
    let mut lines = match Lines::of(io::Cursor::new(bytes)) {
        Ok(lines) => lines,
        Err(error) => return (Vec::new(), Some(error.kind())),
    };
    let mut all = Vec::new();
    loop {
        match lines.next() {
            Ok(LineRead::Line(line, whole)) => {
                all.push(String::from_utf8_lossy(line).into_owned() + if whole { "" } else { "|" });
            }
            Ok(LineRead::TooLong) => all.push("long".to_owned()),
            Ok(LineRead::End) => return (all, None),
            Err(error) => return (all, Some(error.kind())),
        }
    }
}

#[test]
fn audit_log_lines_are_read_from_plain_and_gzip_files() {
    assert_eq!(read(b"a\n\nb".to_vec()).0, ["a", "", "b|"]);
    assert_eq!(read(gzip(b"a\nb\n")).0, ["a", "b"]);
    assert_eq!(read([gzip(b"a\n"), gzip(b"b\n")].concat()).0, ["a", "b"], "as `cat` joins them");
    assert_eq!(read(Vec::new()), (vec![], None));
    let mut cut = gzip(&(0..9999).map(|n| format!("{n}\n")).collect::<String>().into_bytes());
    cut.truncate(cut.len() / 2);
    let (lines, error) = read(cut);
    assert!(lines.len() > 10 && error == Some(io::ErrorKind::UnexpectedEof), "{} {error:?}", lines.len());
    assert_eq!(read(b"\xfd7zXZ\0\0\0".to_vec()).1, Some(io::ErrorKind::Unsupported));
}

#[test]
fn audit_log_line_without_end_takes_bounded_memory() {
    let rubbish = io::repeat(0).take(3 * MAX_LINE_BYTES as u64).chain(io::Cursor::new(b"\na\n"));
    let mut lines = Lines::of(rubbish).expect("reads");
    assert_eq!(lines.next().expect("reads"), LineRead::TooLong);
    assert!(lines.line.capacity() <= 2 * (MAX_LINE_BYTES + 1), "{}", lines.line.capacity());
    assert_eq!(lines.next().expect("reads"), LineRead::Line(b"a", true));
    assert_eq!(lines.next().expect("reads"), LineRead::End);
}

fn record(time: u64) -> String {
    format!("{{\"time_us\":{time},\"uid\":\"{time}\",\"allowed\":true}}\n")
}

fn times(part: LogFile, since: u64) -> Vec<u64> {
    let (mut lines, mut times) = (part.lines(since).expect("reads"), Vec::new());
    while let LineRead::Line(line, _) = lines.next().expect("reads") {
        times.extend(Record::parse(line).map(|record| record.time_us));
    }
    times
}

#[test]
fn rotated_audit_logs_are_known_by_their_names() {
    for name in [
        "audit.jsonl.1",
        "audit.jsonl.12.gz",
        "audit.jsonl-20260101",
        "audit.jsonl-20260101.gz",
        "audit.jsonl-2026-01-01_03:00",
        "audit.jsonl-1767225600",
        "audit.jsonl.2026-01-01",
        "audit-20260101.jsonl",
        "audit-20260101.jsonl.gz",
        "audit.1.jsonl",
        "audit.2.jsonl.xz",
        "audit.jsonl.gz",
    ] {
        assert!(is_rotated("audit.jsonl", name), "{name}");
    }
    for name in [
        "audit.jsonl",
        "audit.jsonl.",
        "audit.jsonl.bak",
        "audit.jsonl.swp",
        "audit.jsonl-2",
        "audit.jsonl~",
        "audit-2.jsonl",
        "audit-b.jsonl",
        "other.jsonl.1",
        "audit.json",
        "xaudit.jsonl.1",
        "audit.jsonl.1.gz.tmp",
    ] {
        assert!(!is_rotated("audit.jsonl", name), "{name}");
    }
    assert!(is_rotated("audit", "audit.1") && is_rotated("audit", "audit-20260101") && !is_rotated("audit", "audit"));
}

#[test]
fn rotated_audit_logs_are_read_in_order_of_their_first_record() {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("audit.jsonl"), format!("not a record\n{}", record(40))).expect("written");
    fs::write(at("audit.jsonl.1"), record(30)).expect("written");
    // It is being compressed: the plain one is still there, and whole.
    fs::write(at("audit.jsonl.1.gz"), &gzip(record(30).as_bytes())[..9]).expect("written");
    fs::write(at("audit.jsonl.2.gz"), gzip(record(20).as_bytes())).expect("written");
    fs::write(at("audit.jsonl-20260101"), record(10)).expect("written");
    fs::write(at("audit.jsonl.3"), "").expect("written");
    fs::create_dir(at("audit.jsonl.4")).expect("made");
    fs::write(at("audit.jsonl.5.zst"), b"\x28\xb5\x2f\xfd").expect("written");
    let (parts, faults) = parts(&at("audit.jsonl")).expect("there");
    assert!(
        faults.len() == 1 && faults[0].contains("audit.jsonl.5.zst: it is compressed, and not by gzip"),
        "{faults:?}"
    );
    // Rotated on: what was found is read all the same.
    fs::rename(at("audit.jsonl"), at("moved")).expect("moved");
    let read: Vec<_> = parts.into_iter().flat_map(|part| times(part, 0)).collect();
    assert_eq!(read, [10, 20, 30, 40]);
    let (without, _) = self::parts(&at("audit.jsonl")).expect("the rotated ones are there");
    assert_eq!(without.len(), 3);
    let nothing = self::parts(&at("absent")).expect_err("nothing");
    assert!(nothing.contains("absent") && self::parts(folder.path()).is_err(), "{nothing}");
}

#[test]
fn audit_log_before_since_is_skipped() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("audit.jsonl");
    let mut file = io::BufWriter::new(File::create(&path).expect("made"));
    const COUNT: u64 = 200_000;
    for time in 0..COUNT {
        file.write_all(record(time).as_bytes()).expect("written");
        if time % 1000 == 0 {
            file.write_all(b"\x00\xff rubbish\n").expect("written");
        }
    }
    drop(file);
    assert!(fs::metadata(&path).expect("there").len() > 4 * PROBE_BYTES, "large enough to be skipped in");
    for since in [0, 1, 777, 99_999, 150_001, COUNT - 1, COUNT, u64::MAX] {
        let part = LogFile::open(path.clone()).expect("opens").expect("holds something");
        let read = times(part, since);
        let wanted = (0..COUNT).filter(|time| *time >= since).count();
        assert_eq!(read.iter().filter(|time| **time >= since).count(), wanted, "{since}");
        assert!(read.len() - wanted < 70_000, "{since}: {} too many", read.len() - wanted);
    }
}
