//! Parser of a `caBundle`, which finds certificates as Go's `AppendCertsFromPEM` does.
//!
//! A section lies between an END line and the last BEGIN line before it. Other text is ignored, and a damaged section
//! is skipped without an effect on the others. So Gatepost trusts the certificates that an apiserver would trust.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};
use rustls_pki_types::CertificateDer;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// Ignores the unused bits of the last character, as Go's decoder does.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Returns the content of every intact CERTIFICATE section. Does not check that the content is a certificate.
pub fn sections(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some(end) = find(rest, END) {
        let (before, after) = (&rest[..end], &rest[end + END.len()..]);
        found.extend(section(before, after).map(CertificateDer::from));
        rest = after;
    }
    found
}

/// Decodes the section from the last BEGIN line to this END line; `None` if it is damaged or not a CERTIFICATE section.
fn section(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let begin = before.windows(BEGIN.len()).rposition(|window| window == BEGIN)?;
    if begin > 0 && before[begin - 1] != b'\n' {
        return None;
    }
    let (label, body) = line(&before[begin + BEGIN.len()..]);
    let label = label.strip_suffix(DASHES)?;
    let trailer = line(after).0.strip_prefix(label)?;
    // Only encrypted keys have headers; certificates have none.
    if label != b"CERTIFICATE" || trailer != DASHES || line(body).0.contains(&b':') {
        return None;
    }
    let text: Vec<u8> = body.iter().copied().filter(|byte| !b" \t\r\n".contains(byte)).collect();
    BASE64.decode(text).ok()
}

/// Returns the first line, without trailing white space, and the text after it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let (first, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[text.len()..]),
    };
    (first.trim_ascii_end(), rest)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    fn found(text: &str) -> Vec<Vec<u8>> {
        sections(text.as_bytes()).iter().map(|section| section.to_vec()).collect()
    }

    #[test]
    fn damaged_section_does_not_affect_others() {
        let one = vec![vec![1, 2, 3]];
        let good = |before: &str, after: &str| found(&format!("{before}{GOOD}{after}"));
        for before in [
            "",
            "text\n",
            "-----BEGIN CERTIFICATE-----\nAQ\n",
            "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
            "-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n",
            "-----BEGIN CERTIFICATE-----\nA: b\n\nAQID\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nAQID\n-----END OTHER-----\n",
            "-----BEGIN CERTIFICATE----\nAQID\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(good(before, ""), one, "{before:?}");
        }
        assert_eq!(good("", "-----BEGIN CERTIFICATE-----\nAQ"), one);
        assert_eq!(found(&GOOD.replace('\n', "\r\n")), one);
        assert_eq!(found(&GOOD.replace("AQID", "A Q\n\tID ")), one);
        assert_eq!(found(GOOD.trim_end()), one);
        assert_eq!(found(&format!("{GOOD}{GOOD}")).len(), 2);
    }

    #[test]
    fn sections_on_one_line_are_ignored() {
        let glued = format!("{}{GOOD}", GOOD.trim_end());
        assert_eq!(found(&glued), Vec::<Vec<u8>>::new());
        assert_eq!(found(&format!(" {GOOD}")), Vec::<Vec<u8>>::new());
        assert_eq!(found("-----BEGIN CERTIFICATE-----\nAQIDBA\n-----END CERTIFICATE-----\n"), Vec::<Vec<u8>>::new());
    }
}
