//! One call, from an idle connection or a new one to its result.

use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::{Notify, mpsc::unbounded_channel};

use super::{
    super::{
        call::{Call, Reply, Request},
        dial::Socket,
        dialler::{Dialled, Dialler, LARGEST_ANSWER},
        http2::Connection,
        inbox::Inbox,
    },
    link::{Link, Lost, request},
    turns::Turns,
};
use crate::model::CallFailure;

/// What carrying a call takes, besides the call.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    pub(super) dialler: Arc<Dialler>,
    pub(super) host: HeaderValue,
    /// Rings when a connection has ended.
    pub(super) gone: Arc<Notify>,
    pub(super) turns: Arc<Turns>,
}

/// What a call begins with.
#[derive(Debug)]
pub(super) enum Way {
    /// A connection that has carried calls before.
    Used(Link),
    /// One that the lane dialled when this call was waiting already.
    Dialled(Socket),
    /// Nothing: it dials.
    Dial,
}

/// What came of a call, and the connection where it can carry another.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) result: Result<Reply, CallFailure>,
    pub(super) link: Option<Link>,
    /// The hook was found to speak HTTP/2.
    pub(super) http2: bool,
}

impl Carrier {
    /// Carries out one call. A used connection may be dead without our knowing. Where nothing of the call was sent over
    /// it, or it ended before the hook said anything and asking twice does no harm, the call is made once more, on a
    /// new one.
    pub(super) async fn carry(self, call: Call, way: Way) -> Carried {
        let dialled = match way {
            Way::Used(link) => match self.post(link, &call).await {
                Ok(carried) => return carried,
                Err(lost) if !(lost.unsent || lost.silent && call.again) => return failed(lost.failure),
                Err(_) => None,
            },
            Way::Dialled(socket) => Some(socket),
            Way::Dial => None,
        };
        self.turns.patiently(self.carry_anew(call, dialled)).await
    }

    /// Carries out a call over a new connection.
    async fn carry_anew(&self, call: Call, dialled: Option<Socket>) -> Carried {
        let dialled = match dialled {
            Some(socket) => Ok(Dialled::Http1(socket)),
            None => self.dialler.dial().await,
        };
        let socket = match dialled {
            Err(why) => return failed(CallFailure::Connect(why)),
            Ok(Dialled::Http2(connection)) => return alone(connection, call).await,
            Ok(Dialled::Http1(socket)) => socket,
        };
        let link = match Link::over(socket, self.gone.clone()).await {
            Err(failure) => return failed(failure),
            Ok(link) => link,
        };
        match self.post(link, &call).await {
            Err(lost) => failed(lost.failure),
            Ok(carried) => {
                self.turns.answered();
                carried
            }
        }
    }

    async fn post(&self, link: Link, call: &Call) -> Result<Carried, Lost> {
        let Request::Http { path, form } = &call.request else {
            return Ok(failed(CallFailure::NotGrpc("it is asked over HTTP/1.1".into())));
        };
        let request = match request(&self.host, call, path, *form) {
            Ok(request) => request,
            Err(failure) => return Ok(Carried { result: Err(failure), link: Some(link), http2: false }),
        };
        let (reply, link) = link.post(request, LARGEST_ANSWER).await?;
        Ok(Carried { result: Ok(Reply::Http(reply)), link, http2: false })
    }
}

pub(super) fn failed(failure: CallFailure) -> Carried {
    Carried { result: Err(failure), link: None, http2: false }
}

/// A call over an HTTP/2 connection of its own. Behind one address may stand servers that speak HTTP/2 and others that
/// do not, while they are being replaced; the lane changes over once no HTTP/1.1 connection is left.
async fn alone(connection: Connection<Socket>, call: Call) -> Carried {
    let inbox = Arc::new(Inbox::default());
    // Nobody else will ask over it.
    let (_, mut commands) = unbounded_channel();
    let ended = connection.drive(&mut commands, vec![Call { inbox: inbox.clone(), ..call }]).await;
    if !ended.unseen.is_empty() {
        let failure = CallFailure::Connection("the hook takes no calls on a new connection".into());
        return Carried { http2: true, ..failed(failure) };
    }
    if let Some(mut leaving) = ended.leaving {
        leaving.finish_calls().await;
    }
    let arrived = inbox.take().await.into_iter().next();
    let lost = || Err(CallFailure::Connection("the hook took no call".into()));
    Carried { result: arrived.map_or_else(lost, |(_, result)| result), link: None, http2: true }
}
