//! Initializers: named parties that act on a new object before it becomes visible.
//!
//! | item | module |
//! | --- | --- |
//! | [`Initializers`], an object's own list, the list of a new object, and changes of it | `list` |
//! | [`Lifecycle`] of an object, its quota, and each initializer's share of time | `lifecycle` |
//! | the result of an object on which an initializer does not act | [`failure`] |
//! | initializers that need no process | [`built_in`] |
//! | [`Desk`], the instances that have claimed a name and the tasks that they share | [`desk`] |
//! | [`Hub`], the streams of those instances and the requests that wait for them | [`hub`] |
//! | [`Unfinished`], stored objects that are not initialized | [`unfinished`] |
//! | [`Controller`], which corrects heads that do not act | [`controller`] |
//! | [`StoredObjects`], reports of apiservers about unfinished objects | [`stored_objects`] |
//! | [`Marks`], which hide unfinished objects of a stock apiserver | [`marks`] |
//!
//! Callers pass the user's permission to `initialize`, and the current time. Only modules that wait read the clock.
//! [`gatepost_api::initialization`] has the names and rules that other crates use, too.
#![forbid(unsafe_code)]

pub mod built_in;
pub mod controller;
pub mod desk;
pub mod failure;
pub mod hub;
mod lifecycle;
mod list;
pub mod marks;
pub mod stored_objects;
pub mod unfinished;

pub use self::{
    controller::{Controller, Correction, CorrectiveAction, HeadRule, ReadRepair},
    desk::Desk,
    failure::{TurnFailure, stored_result},
    hub::Hub,
    lifecycle::{Charge, Initialization, Lifecycle, QuotaPhase, QuotaStage, StepError, quota_phase, share},
    list::{
        Actor, Initializers, ListError, OwnedNames, check_known, create, needs_permission, transition,
        without_late_head,
    },
    marks::Marks,
    stored_objects::StoredObjects,
    unfinished::Unfinished,
};

#[cfg(test)]
mod tests;
