//! Press: reviews one after the other over one connection, not waiting for their answers.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use base64::Engine;

use crate::{
    bytes::{
        caller::{Answer, Caller},
        reviews,
    },
    stage::Stage,
};

/// Number and rate of reviews.
#[derive(Clone, Copy)]
pub struct Press {
    pub reviews: u32,
    pub every: Duration,
    /// Of the object, in bytes.
    pub size: usize,
    /// Timeout that the caller gives each, as gRPC writes it.
    pub timeout: &'static str,
    /// Most of them under way at once.
    pub at_once: usize,
    /// Bytes of labels of the namespace that come with each.
    pub labels: usize,
}

impl Press {
    pub const USUAL: Self =
        Self { reviews: 100, every: Duration::from_millis(10), size: 1000, timeout: "2S", at_once: 200, labels: 0 };
}

/// Results of the reviews.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub allowed: u32,
    pub denied: u32,
    pub refused: u32,
    pub lost: u32,
    /// The longest that one took, as far as was looked.
    pub slowest: Duration,
}

impl Tally {
    pub fn said(&self) -> String {
        format!("{} allowed, {} denied, {} refused, {} lost", self.allowed, self.denied, self.refused, self.lost)
    }
}

/// Sends reviews about pods; an allowed one that no hook has approved is an error.
pub fn pods(stage: &Stage, press: Press) -> Result<Tally, String> {
    about(stage, "pods", press)
}

/// The same about another resource.
pub fn about(stage: &Stage, resource: &str, press: Press) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut caller = None;
    let mut open: VecDeque<(String, u32, Instant)> = VecDeque::new();
    let began = Instant::now();
    // All are over by then: nobody waits longer.
    let until = began + press.every * press.reviews + Duration::from_secs(8);
    for number in 0..press.reviews {
        if Instant::now() > until {
            tally.lost += press.reviews - number;
            break;
        }
        thread::sleep((began + press.every * number).saturating_duration_since(Instant::now()));
        if open.len() >= press.at_once {
            settle(stage, resource, &mut caller, &mut open, &mut tally, until)?;
        }
        let connected = match caller.take() {
            Some(connected) => connected,
            None => {
                tally.lost += open.drain(..).count() as u32;
                let mut caller = Caller::connect(stage.process.tcp).ok_or("a caller is not let in")?;
                caller.metadata.extend(labels(press.labels));
                caller
            }
        };
        let connected = caller.insert(connected);
        let uid = format!("{resource}-{number}");
        let stream = connected.ask(&uid, resource, press.size, press.timeout);
        open.push_back((uid, stream, Instant::now()));
    }
    while !open.is_empty() {
        settle(stage, resource, &mut caller, &mut open, &mut tally, until)?;
    }
    Ok(tally)
}

/// Waits for the oldest.
fn settle(
    stage: &Stage,
    resource: &str,
    caller: &mut Option<Caller>,
    open: &mut VecDeque<(String, u32, Instant)>,
    tally: &mut Tally,
    until: Instant,
) -> Result<(), String> {
    let (Some((uid, stream, since)), Some(connected)) = (open.pop_front(), caller.as_mut()) else { return Ok(()) };
    match connected.answer(stream, until.saturating_duration_since(Instant::now()).min(Duration::from_secs(6))) {
        Answer::Allowed => {
            tally.allowed += 1;
            stage.check_allowed(&uid, resource)?;
        }
        Answer::Denied => tally.denied += 1,
        Answer::Refused => tally.refused += 1,
        Answer::Lost => tally.lost += 1,
    }
    tally.slowest = tally.slowest.max(since.elapsed());
    Ok(())
}

/// A label of that many bytes, as callers send it.
fn labels(size: usize) -> Option<(&'static str, String)> {
    let entry = [reviews::field(1, b"pad"), reviews::field(2, &vec![b'a'; size])].concat();
    let value = base64::engine::general_purpose::STANDARD_NO_PAD.encode(reviews::field(1, &entry));
    (size > 0).then_some(("gatepost-namespace-labels-bin", value))
}
