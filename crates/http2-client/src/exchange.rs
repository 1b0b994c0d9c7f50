//! Traits that the user of a connection implements: [`Exchange`], a request and its response, and its parts.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::hpack::{DecoderError, HeaderName, HeaderText};

/// A request and its response.
///
/// Exactly one of [`Exchange::complete`] and [`Exchange::fail`] is called, unless the exchange is handed back
/// ([`UnprocessedExchange`](super::UnprocessedExchange)) or dropped because its deadline has passed or it is abandoned.
pub trait Exchange: Sized {
    /// Fields that the exchange reads from a response's header blocks.
    type Fields: HeaderFields;
    /// Writer of the requests' header blocks.
    type Head: RequestHead<Self>;
    /// Reason for rejecting a response.
    type Error;

    /// Returns the time after which the response is not needed any more.
    fn deadline(&self) -> Instant;

    /// Returns true if the response is not needed any more, even before the deadline.
    fn is_abandoned(&self) -> bool;

    /// Returns the request's body as a sequence of pieces, the same at each call. They are sent without a copy.
    fn body(&self) -> &[Bytes];

    /// Receives the status and fields of the final response header block, once and before any data.
    ///
    /// # Errors
    /// The exchange fails with [`ExchangeFailure::AnswerRejected`], and its stream is reset.
    fn head(&mut self, status: u16, fields: Self::Fields) -> Result<(), Self::Error>;

    /// Receives a part of the response's body.
    ///
    /// # Errors
    /// As [`Exchange::head`].
    fn data(&mut self, part: &[u8]) -> Result<(), Self::Error>;

    /// Completes the exchange: the whole response has arrived, with trailers if there were any.
    fn complete(self, trailers: Option<Self::Fields>);

    /// Ends the exchange without a response.
    fn fail(self, failure: ExchangeFailure<'_, Self::Error>);
}

/// Reason why an exchange has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeFailure<'a, R> {
    /// The connection was lost, for this reason.
    Lost(&'a str),
    /// The server reset the stream, with the error code of this name.
    Reset(&'static str),
    /// The server violated the protocol on this stream only. The text is a clause with the subject "it".
    Malformed(&'static str),
    /// Rejected by its own [`Exchange::head`] or [`Exchange::data`].
    AnswerRejected(R),
}

/// Fields that an exchange reads from one header block.
pub trait HeaderFields: Default {
    /// Reads a field that is not a pseudo-header. Returns false if the exchange does not know it. `scratch` is a buffer
    /// for decoding.
    ///
    /// # Errors
    /// The field cannot be decoded or is not allowed.
    fn field(&mut self, name: HeaderName<'_>, value: HeaderText<'_>, scratch: &mut Vec<u8>)
    -> Result<bool, FieldError>;
}

/// Fault of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The field cannot be decoded, which ends the connection.
    Undecodable(DecoderError),
    /// The field is not allowed, which fails the exchange.
    Malformed(&'static str),
}

impl From<DecoderError> for FieldError {
    fn from(error: DecoderError) -> Self {
        Self::Undecodable(error)
    }
}

/// Writer of the header blocks of a connection's requests. Tracks the entries of the server's dynamic table.
pub trait RequestHead<E> {
    /// Receives the server's SETTINGS_HEADER_TABLE_SIZE.
    fn table_size(&mut self, size: u32);

    /// Appends the header block of a request whose remaining time is `left`. Returns true if later blocks rely on it,
    /// so that it must be sent.
    fn write(&mut self, exchange: &E, left: Duration, out: &mut Vec<u8>) -> bool;
}
