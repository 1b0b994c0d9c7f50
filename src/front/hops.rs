//! Hops: the header, or gRPC metadata, that counts the Gateposts a review has passed through.

use http::{HeaderMap, HeaderName};

use super::refusal::Refusal;
use crate::model::Hops;

const HEADER: HeaderName = HeaderName::from_static(Hops::HEADER);

/// The hops of a review with these headers; none where no Gatepost sent it. One that has come too far is refused.
pub(super) fn hops(headers: &HeaderMap) -> Result<Hops, Refusal> {
    let mut values = headers.get_all(HEADER).iter();
    let hops = match (values.next(), values.next()) {
        (None, _) => return Ok(Hops::default()),
        (Some(only), None) => Hops::parse(only.as_bytes()).ok_or(Refusal::Hops)?,
        (Some(_), Some(_)) => return Err(Refusal::Hops),
    };
    if hops.is_too_many() { Err(Refusal::Loop(hops.get())) } else { Ok(hops) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_passes_through_four_gateposts_and_no_fifth() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, value.parse().expect("a value"));
            }
            hops(&headers).map(Hops::get)
        };
        assert_eq!([read(&[]), read(&["1"]), read(&["3"])], [Ok(0), Ok(1), Ok(3)]);
        assert_eq!([read(&["4"]), read(&["255"])], [Err(Refusal::Loop(4)), Err(Refusal::Loop(255))]);
        for wrong in [&["x"][..], &[""], &["1", "1"], &["-1"]] {
            assert_eq!(read(wrong), Err(Refusal::Hops), "{wrong:?}");
        }
    }
}
