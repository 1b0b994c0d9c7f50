use super::*;

fn read(block: &[u8]) -> Result<Headers, BadHeaders> {
    HeaderReader::default().read(block)
}

#[test]
fn a_grpc_answer() {
    // Size update to 0, :status 200, content-type: application/grpc (Huffman), date: x (with indexing).
    let mut block = vec![0x20, 0x88, 0x0f, 0x10, 0x8b];
    block.extend([0x1d, 0x75, 0xd0, 0x62, 0x0d, 0x26, 0x3d, 0x4c, 0x4d, 0x65, 0x64]);
    block.extend([0x61, 0x01, b'x']);
    let headers = read(&block).expect("read");
    let told = Headers { status: 200, grpc: Some(true), readable_type: Some(true), ..Default::default() };
    assert_eq!(headers, told);
}

#[test]
fn trailers_plain_and_never_indexed() {
    let mut block = vec![0x00, 11];
    block.extend(b"grpc-status\x025");
    block[13] = 1;
    block.extend([0x10, 12]);
    block.extend(b"grpc-message\x03no!");
    let headers = read(&block).expect("read");
    assert_eq!(headers.grpc_status, Some(5));
    assert_eq!(headers.grpc_message.as_deref(), Some(&b"no!"[..]));
}

#[test]
fn an_http_answer() {
    // :status by its static name, content-length by its static name, retry-after spelled out.
    let mut block = vec![0x08, 3];
    block.extend(b"503\x0f\x0d\x0212\x00\x0bretry-after\x017");
    let headers = read(&block).expect("read");
    assert_eq!((headers.status, headers.content_length), (503, Some(12)));
    assert_eq!(headers.retry_after, Some(Duration::from_secs(7)));
    block.extend(b"\x0f\x0d\x0213");
    assert_eq!(read(&block).expect("read").content_length, Some(NO_LENGTH), "two lengths are none");
}

/// A literal without indexing, spelled out.
fn field(name: &str, value: &str) -> Vec<u8> {
    [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
}

fn of(fields: &[(&str, &str)]) -> Headers {
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    read(&block).expect("read")
}

#[test]
fn what_contradicts_itself_or_the_protocol_is_malformed() {
    for fields in [
        &[(":status", "200"), (":status", "200")][..],
        &[(":status", "+200")],
        &[(":status", "20")],
        &[("date", "x"), (":status", "200")],
        &[(":status", "200"), (":path", "/")],
        &[(":status", "200"), (":made-up", "x")],
        &[(":status", "200"), ("Grpc-Status", "0")],
        &[(":status", "200"), ("", "x")],
        &[(":status", "200"), ("a b", "x")],
        &[("grpc-status", "0"), ("grpc-status", "0")],
        &[("grpc-status", "0"), ("grpc-status", "7")],
        &[("grpc-message", "a\nb")],
    ] {
        assert!(of(fields).malformed.is_some(), "{fields:?}");
    }
    assert!(read(&[0x88, 0x88]).expect("read").malformed.is_some(), "two statuses of the table");
    assert!(read(&[0x88, 0x84]).expect("read").malformed.is_some(), "a path of the table");
    let huffman = [&[0x00, 0x80 | huffman::coded_len(b"X-Y") as u8][..], &huffman::encode::<3>(b"X-Y"), b"\x01z"];
    assert!(read(&huffman.concat()).expect("read").malformed.is_some(), "a large letter that is coded");
    let sound = of(&[(":status", "200"), ("x-y_z", "A b"), ("content-type", "application/grpc+proto")]);
    assert_eq!((sound.malformed, sound.grpc), (None, Some(true)));
}

#[test]
fn numbers_are_digits() {
    let status = |text| of(&[("grpc-status", text)]).grpc_status;
    assert_eq!(["0", "7", "+0", "00", "", "x"].map(status), [0, 7, 2, 2, 2, 2].map(Some));
    assert_eq!(of(&[("content-length", "+5")]).content_length, Some(NO_LENGTH));
}

#[test]
fn a_content_type_is_grpc_or_not() {
    let grpc = |types: &[&str]| {
        let fields: Vec<_> = types.iter().map(|value| ("content-type", *value)).collect();
        of(&fields).grpc
    };
    assert_eq!(grpc(&["application/grpc"]), Some(true));
    assert_eq!(grpc(&["application/grpc;x=y"]), Some(true));
    assert_eq!(grpc(&["application/grpc-web"]), Some(false));
    assert_eq!(grpc(&["text/html", "application/grpc"]), Some(false));
    assert_eq!(grpc(&["application/grpc", "text/html"]), Some(false));
    assert_eq!(grpc(&[]), None);
}

#[test]
fn damaged_blocks_are_refused() {
    assert!(read(&[0xff]).is_err(), "a number without its end");
    assert!(read(&[0xbe]).is_err(), "entry 62 would be in the dynamic table");
    assert!(read(&[0x3f, 0x01]).is_err(), "a table of 32 bytes");
    assert!(read(&[0x00, 0x05, b'a']).is_err(), "a string without its end");
    assert!(read(&[0x80]).is_err(), "entry 0");
}

#[test]
fn of_what_go_reads_once_the_first_counts() {
    let told = of(&[
        (":status", "503"),
        ("content-type", "no type,"),
        ("content-type", "application/json"),
        ("content-encoding", "GZIP"),
        ("content-encoding", "br"),
        ("retry-after", "soon"),
        ("retry-after", "7"),
    ]);
    assert_eq!((told.readable_type, told.gzip, told.retry_after), (Some(false), Some(true), None));
    assert_eq!(of(&[(":status", "200")]).gzip, None);
    // :status 200, content-encoding by its static name.
    assert_eq!(read(b"\x88\x0f\x0b\x04gzip").expect("read").gzip, Some(true));
    assert_eq!(read(b"\x88\x0f\x0b\x07deflate").expect("read").gzip, Some(false));
}
