//! RuleIndex: a stream on which a plugin follows the rule index, and acknowledges it.
//!
//! ```text
//!   poll ──> beat ────────────────────┐
//!   another index ──> beat with it ───┤  until the plugin or the process ends, or no poll comes
//!   poll with its version: known ─────┘
//! ```
//!
//! A beat is valid from when the plugin sent the poll that it names, so delays only shorten the validity, and no two
//! clocks are compared. While every request gets more than "allowed", that is, while the configuration is stale or
//! break-glass is open, beats are valid for no time, and the plugin sends every request.
//!
//! Everything is bounded: the number of streams, the rate of polls, the length of an index, and how often it is sent.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::HeaderMap;
use prost::Message as _;
use tokio::time::sleep_until;
use tonic::Code;

use super::{CallMessage, CallMessages, End, GONE, StreamSender, UNREADABLE, begin_stream};
use crate::{
    front::{outgoing::Outgoing, refusal::Refusal, state::ConnectionContext},
    live::rule_index::{IndexFollower, IndexVersion, MAX_VALIDITY},
};
use gatepost_base::clock::now;
use gatepost_config::coverage::rule_index::{IndexRule, PhaseRules};
use gatepost_wire::{outbound::framed, pb::gatepost::v1 as pb};

/// Maximum size of a message of a plugin, in bytes.
const MAX_MESSAGE: usize = 256;
/// Memory of one stream besides the index.
const STREAM_MEMORY: usize = 16 << 10;
/// Time without a poll after which the stream ends. A plugin polls every 250 ms.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Polls within [`POLL_PERIOD`], beyond which the stream ends. Polls of a connection that hung arrive together.
const MAX_POLLS: u32 = 100;
const POLL_PERIOD: Duration = Duration::from_secs(5);
/// Time after which the same index is sent again to a plugin that does not say that it has it.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);

const TOO_MANY_POLLS: End = (Code::ResourceExhausted, "more polls than one every 50 ms");
const NO_ROOM: End = (Code::ResourceExhausted, "no room for the rule index at the moment: follow again later");
const IDLE: End = (Code::DeadlineExceeded, "no poll for too long: follow again");

/// Serves one stream until it ends.
pub(crate) async fn answer(
    context: &ConnectionContext,
    headers: &HeaderMap,
    body: RecvStream,
    mut respond: SendResponse<Outgoing>,
) {
    let Some((_quota_guard, to)) = begin_stream(context, headers, &mut respond, STREAM_MEMORY) else { return };
    let follower = context.front.deps.current.rule_index().follow();
    let polls = PollMeter { since: now(), count: 0 };
    let mut stream = Stream { to, context, follower, last: None, sent: None, polls };
    let end = stream.serve(CallMessages::new(body, context.front.budget(), MAX_MESSAGE, MAX_MESSAGE)).await;
    stream.to.end(end);
}

/// Stream of one plugin.
struct Stream<'a> {
    to: StreamSender<'a>,
    context: &'a ConnectionContext,
    follower: IndexFollower<'a>,
    /// Last poll; `None` before the first.
    last: Option<pb::IndexPoll>,
    /// Version of the last index that was sent, and the time.
    sent: Option<(u64, Instant)>,
    polls: PollMeter,
}

impl Stream<'_> {
    /// Transfers messages in both directions until the stream ends.
    async fn serve(&mut self, mut messages: CallMessages<'_>) -> Result<End, End> {
        let mut draining = pin!(self.context.drain.begun());
        let mut idle = pin!(sleep_until((now() + IDLE_TIMEOUT).into()));
        loop {
            tokio::select! {
                biased;
                () = self.to.reset() => return Ok(GONE),
                // The plugin drops its index when the stream ends, and finds the next instance.
                () = &mut draining => return Ok((Code::Unavailable, "shutting down")),
                () = self.follower.changed(), if self.last.is_some() => self.beat()?,
                message = messages.next() => match message {
                    Ok(Some(CallMessage::Whole(message, _room))) => {
                        self.handle(message)?;
                        idle.as_mut().reset((now() + IDLE_TIMEOUT).into());
                    }
                    Ok(None) => return Ok((Code::Ok, "")),
                    Err(Refusal::Cancelled) => return Ok(GONE),
                    Ok(Some(CallMessage::Skipped { .. })) | Err(_) => return Ok(UNREADABLE),
                },
                () = &mut idle => return Ok(IDLE),
            }
        }
    }

    /// Handles one poll.
    fn handle(&mut self, message: Bytes) -> Result<(), End> {
        let poll = pb::IndexPoll::decode(message).map_err(|_| UNREADABLE)?;
        if !self.polls.admits(now()) {
            return Err(TOO_MANY_POLLS);
        }
        self.follower.acknowledge(poll.version);
        self.last = Some(poll);
        self.beat()
    }

    /// Answers the last poll.
    fn beat(&mut self) -> Result<(), End> {
        let Some(pb::IndexPoll { sequence, version: held }) = self.last else { return Ok(()) };
        let now = now();
        // Read before the index, which is then at least as new as the age says.
        let valid_for_milliseconds = self.validity(now).as_millis() as u32;
        let IndexVersion { number, index } = self.follower.version(valid_for_milliseconds > 0);
        let was_sent = self.sent.is_some_and(|(version, at)| version == number && now < at + RESEND_INTERVAL);
        let mut rules = None;
        if held != number && !was_sent {
            self.sent = Some((number, now));
            rules = Some(pb::IndexRules {
                mutating: Some(phase(&index.mutating)),
                validating: Some(phase(&index.validating)),
            });
        }
        let message = framed(&pb::IndexBeat { sequence, version: number, valid_for_milliseconds, rules });
        self.to.send_held(message, NO_ROOM)
    }

    /// Returns the time for which the index may be used: at most until the configuration is stale.
    fn validity(&self, now: Instant) -> Duration {
        let deps = &self.context.front.deps;
        // Break-glass adds a warning to every verdict.
        if !deps.break_glass.open(now).is_empty() || deps.current.load().number == 0 {
            return Duration::ZERO;
        }
        let freshness = deps.current.freshness();
        let left = freshness.age(now).map(|age| freshness.stale_after().saturating_sub(age));
        left.unwrap_or_default().min(MAX_VALIDITY)
    }
}

/// Counts the polls of one stream.
#[derive(Debug)]
struct PollMeter {
    /// Start of the period.
    since: Instant,
    /// Polls since then.
    count: u32,
}

impl PollMeter {
    /// Counts one more poll. Returns false if there are too many.
    fn admits(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= POLL_PERIOD {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= MAX_POLLS
    }
}

fn phase(rules: &PhaseRules) -> pb::PhaseRules {
    match rules {
        PhaseRules::All => pb::PhaseRules { all: true, rules: Vec::new() },
        PhaseRules::Rules(rules) => pb::PhaseRules { all: false, rules: rules.iter().map(rule).collect() },
    }
}

fn rule(rule: &IndexRule) -> pb::IndexRule {
    let texts = |texts: &[Box<str>]| texts.iter().map(ToString::to_string).collect();
    pb::IndexRule {
        operations: rule.operations.iter().map(ToString::to_string).collect(),
        api_groups: texts(&rule.groups),
        api_versions: texts(&rule.versions),
        resources: texts(&rule.resources),
        scope: rule.scope.to_owned(),
        namespaces: texts(&rule.namespaces),
        protobuf_objects: rule.protobuf_objects,
    }
}

#[cfg(test)]
mod tests;
