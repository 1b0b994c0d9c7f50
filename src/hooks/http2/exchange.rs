//! Exchange: a call over HTTP/2, its answer while it arrives, and its result.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::hooks::{
    answer_buffer::{AnswerBudget, AnswerBuffer},
    call::{Call, FailedCall, ProcessingEvidence},
    protocol::request_head::{RequestHeads, ResponseFields, ResponseHead},
    reply::Reply,
};
use gatepost_api::CallFailure;
use gatepost_http2_client::{Exchange, ExchangeFailure, GoAway, RequestHead, UnprocessedExchange};

/// A call and its answer while it arrives.
#[derive(Debug)]
pub(in crate::hooks) struct CallExchange {
    pub(super) call: Call,
    /// Maximum size of the answer in bytes.
    limit: usize,
    head: Option<ResponseHead>,
    body: AnswerBuffer,
}

impl CallExchange {
    /// Creates the exchange of a call whose answer may have at most `limit` bytes.
    pub(super) fn new(call: Call, limit: usize, answers: &Arc<AnswerBudget>) -> Self {
        let body = AnswerBuffer::new(answers.of_answer(call.responses.are_spare()));
        Self { call, limit, head: None, body }
    }

    /// Delivers the failure of a call that the hook reports as not processed.
    pub(super) fn report(unprocessed: UnprocessedExchange<Self>, goaway: Option<GoAway>) {
        let (exchange, evidence, why) = match unprocessed {
            UnprocessedExchange::Refused(exchange) => {
                (exchange, ProcessingEvidence::Refused, "the hook refused the call: it is overloaded".to_owned())
            }
            UnprocessedExchange::BeyondGoAway(exchange) => {
                let times = exchange.call.resends + 1;
                let goaway = goaway.map_or(String::new(), |goaway| format!(": {goaway}"));
                let why = format!("the hook took the call on none of {times} connections{goaway}");
                (exchange, ProcessingEvidence::BeyondGoAway, why)
            }
        };
        exchange.deliver(Err(FailedCall { failure: CallFailure::Connection(why), evidence }));
    }

    fn deliver(self, result: Result<Reply, FailedCall>) {
        self.call.responses.deliver(self.call.tag, result);
    }
}

impl Exchange for CallExchange {
    type Fields = ResponseFields;
    type Head = RequestHeads;
    type Error = CallFailure;

    fn deadline(&self) -> Instant {
        self.call.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.call.is_abandoned()
    }

    fn body(&self) -> &[Bytes] {
        self.call.body.chunks()
    }

    fn head(&mut self, status: u16, fields: ResponseFields) -> Result<(), CallFailure> {
        let head = self.head.insert(ResponseHead { status, fields });
        self.call.request.early_failure(head, self.limit).map_or(Ok(()), Err)
    }

    fn data(&mut self, part: &[u8]) -> Result<(), CallFailure> {
        let limit = self.limit;
        if self.body.len() + part.len() > limit + self.call.request.overhead() {
            return Err(CallFailure::TooLarge { limit });
        }
        self.body.extend(part)
    }

    fn complete(self, trailers: Option<ResponseFields>) {
        let result = self.call.request.judge(self.head.unwrap_or_default(), trailers, self.body);
        self.call.responses.deliver(self.call.tag, result.map_err(FailedCall::from));
    }

    fn fail(self, failure: ExchangeFailure<'_, CallFailure>) {
        let failure = match failure {
            ExchangeFailure::Lost(why) => CallFailure::Connection(why.to_owned()),
            ExchangeFailure::Reset(code) => CallFailure::Connection(format!("the hook reset the call: {code}")),
            ExchangeFailure::Malformed(what) => self.call.request.malformed(what),
            ExchangeFailure::AnswerRejected(failure) => failure,
        };
        self.deliver(Err(failure.into()));
    }
}

impl RequestHead<CallExchange> for RequestHeads {
    fn table_size(&mut self, size: u32) {
        self.encoder.table_size(size);
    }

    fn write(&mut self, exchange: &CallExchange, left: Duration, out: &mut Vec<u8>) -> bool {
        let call = &exchange.call;
        call.request.write_head(&call.forwarded, call.body.len(), left, self, out);
        self.encoder.is_relied_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{HookRequest, HttpReply, HttpRequest, Responses, Reuse::Allowed};
    use gatepost_api::{Hops, HttpForm, Rope};

    const LIMIT: usize = 8;

    fn posted() -> (Arc<Responses>, CallExchange) {
        let request =
            HookRequest::Http(HttpRequest { path: "/".into(), form: HttpForm::Legacy, timeout: Duration::ZERO });
        let responses = Arc::new(Responses::default());
        let (body, deadline, forwarded) = (Rope::new([]), Instant::now(), Hops::FIRST.into());
        let call = Call {
            request,
            body,
            deadline,
            responses: responses.clone(),
            tag: 0,
            reuse: Allowed,
            resends: 0,
            forwarded,
        };
        (responses, CallExchange::new(call, LIMIT, &AnswerBudget::unlimited()))
    }

    fn settled(responses: &Responses) -> Result<Reply, FailedCall> {
        responses.take_now().remove(0).1
    }

    #[test]
    fn trailers_of_a_post_are_ignored() {
        let (responses, mut exchange) = posted();
        assert_eq!(exchange.head(409, ResponseFields::default()), Ok(()));
        assert_eq!(exchange.data(b"no"), Ok(()));
        exchange.complete(Some(ResponseFields { grpc_status: Some(13), ..Default::default() }));
        assert_eq!(settled(&responses), Ok(Reply::Http(HttpReply::new(409, "no".into()))));
    }

    #[test]
    fn an_answer_beyond_the_limit_is_a_call_failure() {
        let (_, mut exchange) = posted();
        assert_eq!(exchange.data(&[0; LIMIT]), Ok(()));
        assert_eq!(exchange.data(b"x"), Err(CallFailure::TooLarge { limit: LIMIT }));
    }

    #[test]
    fn a_failed_exchange_is_reported_in_the_terms_of_its_protocol() {
        for (failure, message) in [
            (ExchangeFailure::Lost("gone"), CallFailure::Connection("gone".into())),
            (ExchangeFailure::Reset("CANCEL"), CallFailure::Connection("the hook reset the call: CANCEL".into())),
            (ExchangeFailure::Malformed("it lied"), CallFailure::NotHttp("it lied".into())),
            (ExchangeFailure::AnswerRejected(CallFailure::Overloaded), CallFailure::Overloaded),
        ] {
            let (responses, exchange) = posted();
            exchange.fail(failure);
            assert_eq!(settled(&responses), Err(message.into()));
        }
    }
}
