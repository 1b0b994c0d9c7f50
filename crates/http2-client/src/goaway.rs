//! GoAway: content of a server's GOAWAY.

use std::fmt;

use super::{
    fault::ProtocolFault,
    frame::{MAX_ID, code_name},
};

/// Contents of a server's GOAWAY. RFC 9113 §6.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// The server will look at no stream beyond this one.
    pub(super) last_seen: u32,
    code: u32,
    /// Its text, where it is one that is known. Any other may repeat what an object holds.
    text: Option<&'static str>,
}

/// Texts that servers are known to send.
const KNOWN: [&str; 5] = ["too_many_pings", "max_age", "max_idle", "graceful_stop", "ping_timeout"];

impl GoAway {
    /// From the frame's payload; `before` is what the server said earlier, and must not be taken back.
    pub(super) fn read(payload: &[u8], before: Option<Self>) -> Result<Self, ProtocolFault> {
        let Some((&[a, b, c, d, e, f, g, h], text)) = payload.split_first_chunk() else {
            return Err(ProtocolFault::frame_size("cut a frame short"));
        };
        let last = u32::from_be_bytes([a, b, c, d]) & MAX_ID;
        Ok(Self {
            last_seen: before.map_or(last, |before| before.last_seen.min(last)),
            code: u32::from_be_bytes([e, f, g, h]),
            text: KNOWN.into_iter().find(|known| known.as_bytes() == text),
        })
    }
}

impl fmt::Display for GoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAWAY {}", code_name(self.code))?;
        self.text.map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goaway_names_its_code_and_no_text_of_the_server_s_own() {
        let read = |last: u8, code: u8, text: &str, before| {
            GoAway::read(&[&[0, 0, 0, last, 0, 0, 0, code], text.as_bytes()].concat(), before).expect("whole")
        };
        let first = read(5, 11, "too_many_pings", None);
        assert_eq!((first.last_seen, &*first.to_string()), (5, "GOAWAY ENHANCE_YOUR_CALM (too_many_pings)"));
        let second = read(9, 0, "password=hunter2", Some(first));
        assert_eq!((second.last_seen, &*second.to_string()), (5, "GOAWAY NO_ERROR"), "it cannot be taken back");
        assert_eq!(read(1, 200, "", Some(second)).to_string(), "GOAWAY an unknown code");
        assert!(GoAway::read(&[0; 7], None).is_err());
    }
}
