//! Conditions: what hooks' `matchConditions` say of one request, each hook decided at most once.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell, RefCell},
    ops::Range,
    sync::Arc,
    time::Instant,
};

use rustc_hash::FxHashMap;

use super::{Caller, now, status, status::Refusal};
use crate::{
    cel::{self, Allowance, Condition, Decision, Document, Input, Request},
    model::{Encoding, Gvk, Gvr, Review, Target},
    offload::{self, LARGE},
    wire::encodings,
};

/// Steps that one request may take on its worker's thread: about two milliseconds.
const STEPS: u64 = 50_000;

/// Bytes of text that are looked at once, for whether they are UTF-8, in the time of a step.
const LOOKED_AT_A_STEP: usize = 256;

/// Decision of a hook's conditions.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// It is asked.
    Asked,
    /// It is not asked.
    Excluded,
    /// Its failure policy decides; as upstream words it.
    Failed(String),
    /// The request's time ended before that was known.
    Refused(Refusal),
}

impl From<Decision<'_>> for Said {
    fn from(decision: Decision<'_>) -> Self {
        match decision {
            Decision::Matches => Self::Asked,
            Decision::Excluded(_) => Self::Excluded,
            Decision::Failed(why) => Self::Failed(why),
            Decision::TooLong => Self::Failed("the conditions take too long".to_owned()),
        }
    }
}

/// The conditions of hooks about one review.
pub(super) struct Conditions<'a> {
    review: &'a Review,
    caller: &'a Caller,
    steps: Cell<u64>,
    /// Hooks whose conditions are to be evaluated beside the worker.
    slow: RefCell<Vec<(u32, Arc<[Condition]>)>>,
    said: FxHashMap<u32, Said>,
}

impl<'a> Conditions<'a> {
    pub(super) fn new(review: &'a Review, caller: &'a Caller) -> Self {
        Self { review, caller, steps: Cell::new(STEPS), slow: RefCell::default(), said: FxHashMap::default() }
    }

    /// Are there hooks that [`Conditions::evaluate`] is to decide?
    pub(super) fn has_slow(&self) -> bool {
        !self.slow.borrow().is_empty()
    }

    /// Evaluates beside the worker what takes longer, within the request's time.
    pub(super) async fn evaluate(&mut self) {
        let slow = self.slow.take();
        let hooks: Vec<u32> = slow.iter().map(|(hook, _)| *hook).collect();
        let (review, until) = (self.review.clone(), self.caller.deadline.instant());
        let evaluating = offload::run(LARGE, move || {
            let input = input(&review, true);
            let steps = Cell::new(u64::MAX);
            let allowance = Allowance { steps: &steps, over: &|| Instant::now() >= until };
            let say = |(hook, conditions): &(u32, Arc<[Condition]>)| {
                (*hook, Said::from(cel::decide(conditions, &input, &allowance)))
            };
            slow.iter().map(say).collect::<Vec<_>>()
        });
        match tokio::time::timeout_at(until.into(), evaluating).await {
            Ok(said) => self.said.extend(said),
            Err(_) => {
                let refused = |hook| (hook, Said::Refused(Box::new(status::out_of_time())));
                self.said.extend(hooks.into_iter().map(refused));
            }
        }
    }
}

/// Decisions made at once, within one look at all hooks: an object is located once for all expressions.
pub(super) struct Judge<'a> {
    conditions: &'a Conditions<'a>,
    /// The request without its objects, and with them.
    request: OnceCell<Input<'a>>,
    whole: OnceCell<Input<'a>>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(conditions: &'a Conditions<'a>) -> Self {
        Self { conditions, request: OnceCell::new(), whole: OnceCell::new() }
    }

    /// Decision about hook number `hook`; `None` where [`Conditions::evaluate`] is to make it.
    pub(super) fn say(&self, hook: u32, conditions: &Arc<[Condition]>) -> Option<Said> {
        if conditions.is_empty() {
            return Some(Said::Asked);
        }
        if let Some(said) = self.conditions.said.get(&hook) {
            return Some(said.clone());
        }
        match self.at_once(conditions) {
            Some(decision) if decision != Decision::TooLong => Some(decision.into()),
            _ => {
                let mut slow = self.conditions.slow.borrow_mut();
                if !slow.iter().any(|(other, _)| *other == hook) {
                    slow.push((hook, Arc::clone(conditions)));
                }
                None
            }
        }
    }

    fn at_once<'c>(&'c self, conditions: &'c [Condition]) -> Option<Decision<'c>> {
        let Conditions { review, caller, steps, .. } = self.conditions;
        let deadline = caller.deadline;
        let allowance = Allowance { steps, over: &|| deadline.left(now()).is_zero() };
        let large = |place: &Option<Range<usize>>| place.as_ref().is_some_and(|place| place.len() >= LARGE);
        if large(&review.options) || large(&review.user) {
            return None;
        }
        let input: &'c Input<'c> = if conditions.iter().any(Condition::reads_objects) {
            if large(&review.object) || large(&review.old_object) {
                return None;
            }
            self.whole.get_or_init(|| self.input(true))
        } else {
            self.request.get_or_init(|| self.input(false))
        };
        Some(cel::decide(conditions, input, &allowance))
    }

    /// The input, for whose making steps are taken: each hook of a mutating phase has a judge of its own.
    fn input(&self, objects: bool) -> Input<'a> {
        let Conditions { review, steps, .. } = self.conditions;
        let len = |place: &Option<Range<usize>>| place.as_ref().map_or(0, Range::len);
        let of_objects = if objects { len(&review.object) + len(&review.old_object) } else { 0 };
        let bytes = len(&review.options) + of_objects;
        steps.set(steps.get().saturating_sub((bytes / LOOKED_AT_A_STEP) as u64));
        input(review, objects)
    }
}

/// Input of an expression. As upstream, `resource` is what the client asked for, and `kind` that of the object
/// as it is written.
fn input(review: &Review, objects: bool) -> Input<'_> {
    let made = Target::as_made(review);
    let mut request = Request::new(move || user_of(review));
    request.kind = kind_of(&review.kind);
    request.request_kind = kind_of(review.request_kind.as_ref().unwrap_or(&review.kind));
    request.resource = resource_of(made.resource);
    request.sub_resource = made.sub_resource;
    request.name = &review.name;
    request.namespace = &review.namespace;
    request.operation = review.operation.as_str();
    request.dry_run = review.dry_run;
    request.username = &review.username;
    request.user_bytes = review.user.as_ref().map_or(0, Range::len);
    request.options = review.options.clone().map(|place| document(review, place));
    let object = |place: &Option<Range<usize>>| place.clone().filter(|_| objects).map(|place| document(review, place));
    Input { request, object: object(&review.object), old_object: object(&review.old_object) }
}

fn kind_of(Gvk { group, version, kind }: &Gvk) -> [&str; 3] {
    [group, version, kind]
}

fn resource_of(Gvr { group, version, resource }: &Gvr) -> [&str; 3] {
    [group, version, resource]
}

/// Shared where it lies in one piece. A review in JSON was checked when it was read, and so were patches of its object.
fn document(review: &Review, place: Range<usize>) -> Document<'_> {
    let bytes = match review.bytes.contiguous(place.clone()) {
        Some(bytes) => Cow::Borrowed(bytes),
        None => Cow::Owned(review.bytes.copy_of(place).into()),
    };
    match review.encoding {
        Encoding::Json(_) => Document::checked(bytes),
        Encoding::Envelope(_) | Encoding::Grpc => Document::new(bytes),
    }
}

fn user_of(review: &Review) -> Result<cel::User, String> {
    let user = encodings::user_of(review).map_err(|failure| failure.to_string())?;
    Ok(cel::User {
        uid: user.uid.unwrap_or_default(),
        groups: user.groups,
        extra: user.extra.into_iter().map(|(key, values)| (key, values.items)).collect(),
    })
}
