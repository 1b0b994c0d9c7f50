//! Exchange: a request on its way to a server, and what becomes of its response.

use std::time::{Duration, Instant};

use gatepost_json::Rope;

use crate::hpack::{DecodedName, DecodedText, DecoderError};

/// A request, its response while it arrives, and whoever waits for it. Exactly one of [`Exchange::complete`] and
/// [`Exchange::fail`] is called, unless it is handed back ([`Unprocessed`](super::Unprocessed)) or dropped: because its
/// deadline has passed, or because nobody waits for it.
pub trait Exchange: Sized {
    /// Fields of a response's header blocks that matter.
    type Fields: HeaderFields;
    /// Writes the heads of requests.
    type Head: RequestHead<Self>;
    /// Reason for which the rest of a response need not be heard.
    type Error;

    /// Time from which the response is of no use any more.
    fn deadline(&self) -> Instant;

    /// Does nobody wait for it any more, whatever its deadline?
    fn is_abandoned(&self) -> bool;

    /// The request's body.
    fn body(&self) -> &Rope;

    /// The head of the response has come (not an interim one). It comes once, and before any data.
    ///
    /// # Errors
    /// The rest need not be heard.
    fn head(&mut self, status: u16, fields: Self::Fields) -> Result<(), Self::Error>;

    /// Part of the response's body has come.
    ///
    /// # Errors
    /// The rest need not be heard.
    fn data(&mut self, part: &[u8]) -> Result<(), Self::Error>;

    /// The response is whole; it may have had trailers.
    fn complete(self, trailers: Option<Self::Fields>);

    /// There will be no response.
    fn fail(self, failure: ExchangeFailure<'_, Self::Error>);
}

/// Reason for which an exchange has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeFailure<'a, R> {
    /// The connection is lost, and this is why.
    Lost(&'a str),
    /// The server reset the stream, with the code of this name.
    Reset(&'static str),
    /// The server broke a rule of the protocol that concerns this stream alone: its deed, as the rest of a sentence
    /// that begins with "it".
    Malformed(&'static str),
    /// Rejected by its own [`Exchange::head`] or [`Exchange::data`].
    Refused(R),
}

/// Fields of one header block that matter to an exchange.
pub trait HeaderFields: Default {
    /// Takes in a field that is no pseudo-header; `false` where it means nothing. `scratch` is for what has to be
    /// decoded.
    ///
    /// # Errors
    /// The block cannot be read, or contradicts itself.
    fn field(
        &mut self,
        name: DecodedName<'_>,
        value: DecodedText<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, FieldError>;
}

/// Fault of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// It cannot be decoded: the connection is beyond use.
    Undecodable(DecoderError),
    /// It must not be there: the response is none.
    Malformed(&'static str),
}

impl From<DecoderError> for FieldError {
    fn from(error: DecoderError) -> Self {
        Self::Undecodable(error)
    }
}

/// Writes the heads of a connection's requests, and knows what of the server's dynamic table they use.
pub trait RequestHead<E> {
    /// The server's SETTINGS_HEADER_TABLE_SIZE.
    fn table_size(&mut self, size: u32);

    /// Appends the header block of a request with so much time left. True where later blocks rely on it: then the
    /// server must be sent it.
    fn write(&mut self, exchange: &E, left: Duration, out: &mut Vec<u8>) -> bool;
}
