//! Member: one endpoint and the connection to it.

use std::sync::{Arc, Mutex, PoisonError};

use http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::{EtcdError, access::EtcdEndpoint, dial::Dialler, trust::Version};

/// Calls in a row without an answer after which the connection is replaced: its other end may be gone without a word.
/// One is not enough, as a busy server would then get a new handshake each time.
const SILENT: u32 = 2;

/// One endpoint and the connection to it, made when it is first needed and again when it has broken.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) place: Arc<EtcdEndpoint>,
    connection: Mutex<MemberConnection>,
}

#[derive(Debug, Default)]
struct MemberConnection {
    channel: Option<(u64, Channel)>,
    unanswered: u32,
}

impl Member {
    pub(super) fn new(place: Arc<EtcdEndpoint>) -> Self {
        Self { place, connection: Mutex::default() }
    }

    /// The connection, over what TLS is done with now. Connects to nothing by itself.
    pub(super) fn channel(&self, index: usize, version: &Version) -> Result<Channel, EtcdError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, channel)) = &connection.channel
            && *number == version.number
            && connection.unanswered < SILENT
        {
            return Ok(channel.clone());
        }
        let tls = version.configs.get(index).cloned().flatten();
        let channel = self.open(Dialler { place: Arc::clone(&self.place), tls })?;
        *connection = MemberConnection { channel: Some((version.number, channel.clone())), unanswered: 0 };
        Ok(channel)
    }

    /// Has it said anything to what it was asked, whatever it was?
    pub(super) fn heard(&self, answered: bool) {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection.unanswered = if answered { 0 } else { connection.unanswered.saturating_add(1) };
    }

    fn open(&self, dialler: Dialler) -> Result<Channel, EtcdError> {
        let authority = self.place.authority();
        let wrong = |cause: &dyn std::fmt::Display| EtcdError::access(&self.place.written, &cause.to_string());
        let scheme = if self.place.tls { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{authority}").parse().map_err(|error| wrong(&error))?;
        // TLS is the dialler's part; by `https` the channel would take it for its own.
        let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| wrong(&error))?;
        let endpoint = endpoint.origin(origin);
        let endpoint = endpoint.user_agent(concat!("gatepost/", env!("CARGO_PKG_VERSION"))).map_err(|e| wrong(&e))?;
        Ok(endpoint.connect_with_connector_lazy(dialler))
    }
}
