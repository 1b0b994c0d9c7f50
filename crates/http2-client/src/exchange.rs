//! Exchange: a request and its response, as the user of a connection implements it.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::hpack::{DecoderError, HeaderName, HeaderText};

/// A request, and its response while it arrives.
///
/// Exactly one of [`Exchange::complete`] and [`Exchange::fail`] is called, unless the exchange is handed back
/// ([`UnprocessedExchange`](super::UnprocessedExchange)) or dropped because its deadline has passed or it is abandoned.
pub trait Exchange: Sized {
    /// Fields of a response's header blocks that matter to it.
    type Fields: HeaderFields;
    /// Writer of the heads of requests.
    type Head: RequestHead<Self>;
    /// Reason for which it rejects a response.
    type Error;

    /// Time from which the response is of no use.
    fn deadline(&self) -> Instant;

    /// True if the response is of no use already before the deadline.
    fn is_abandoned(&self) -> bool;

    /// The request's body as a sequence of pieces, the same at each call. They are sent without a copy.
    fn body(&self) -> &[Bytes];

    /// Receives the final head of the response, once and before any data.
    ///
    /// # Errors
    /// The exchange fails with [`ExchangeFailure::Refused`], and its stream is reset.
    fn head(&mut self, status: u16, fields: Self::Fields) -> Result<(), Self::Error>;

    /// Receives a part of the response's body.
    ///
    /// # Errors
    /// As of [`Exchange::head`].
    fn data(&mut self, part: &[u8]) -> Result<(), Self::Error>;

    /// Completes the exchange: the whole response has arrived, with trailers if there were any.
    fn complete(self, trailers: Option<Self::Fields>);

    /// Ends the exchange without a response.
    fn fail(self, failure: ExchangeFailure<'_, Self::Error>);
}

/// Reason for which an exchange has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeFailure<'a, R> {
    /// The connection is lost, for this reason.
    Lost(&'a str),
    /// The server reset the stream, with the code of this name.
    Reset(&'static str),
    /// The server broke a rule of the protocol that concerns this stream alone. The text is a sentence that begins with
    /// "it".
    Malformed(&'static str),
    /// Rejected by its own [`Exchange::head`] or [`Exchange::data`].
    Refused(R),
}

/// Fields of one header block that matter to an exchange.
pub trait HeaderFields: Default {
    /// Reads a field that is no pseudo-header. False if the exchange does not know it. `scratch` is space for decoding.
    ///
    /// # Errors
    /// The field cannot be decoded, or must not be there.
    fn field(&mut self, name: HeaderName<'_>, value: HeaderText<'_>, scratch: &mut Vec<u8>)
    -> Result<bool, FieldError>;
}

/// Fault of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// It cannot be decoded, which ends the connection.
    Undecodable(DecoderError),
    /// It must not be there, which fails the exchange.
    Malformed(&'static str),
}

impl From<DecoderError> for FieldError {
    fn from(error: DecoderError) -> Self {
        Self::Undecodable(error)
    }
}

/// Writer of the heads of a connection's requests. It knows which entries of the server's dynamic table they use.
pub trait RequestHead<E> {
    /// Receives the server's SETTINGS_HEADER_TABLE_SIZE.
    fn table_size(&mut self, size: u32);

    /// Appends the header block of a request that has the time `left`. True if later blocks rely on it, so that it must
    /// be sent.
    fn write(&mut self, exchange: &E, left: Duration, out: &mut Vec<u8>) -> bool;
}
