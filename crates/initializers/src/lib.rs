//! Initializers: named parties that act on a new object before anyone else sees it.
//!
//! | noun | module |
//! | --- | --- |
//! | [`Initializers`], an object's own list, the list of a new object, and changes of it | `list` |
//! | [`Lifecycle`], from the first pending entry to the end, its quota, and each initializer's share of time | `lifecycle` |
//! | what becomes of an object on which an initializer does not act | [`failure`] |
//! | initializers that need no process | [`built_in`] |
//! | [`Desk`], the instances that have claimed a name and the tasks they share | [`desk`] |
//! | [`Hub`], the streams of those instances and the requests that wait for them | [`hub`] |
//! | [`Unfinished`], stored objects that are not initialized | [`unfinished`] |
//! | [`Controller`], which corrects heads that do not act | [`controller`] |
//! | [`StoredObjects`], reports of apiservers about such objects | [`stored_objects`] |
//! | [`Marks`], by which a stock apiserver stores objects unfinished and hides them | [`marks`] |
//!
//! The answer to "may this user `initialize`?" is always an argument, and so is the time, but for timers of the modules
//! that wait. Names and rules that others share are in [`gatepost_api::initialization`].
#![forbid(unsafe_code)]

pub mod built_in;
pub mod controller;
pub mod desk;
pub mod failure;
pub mod hub;
mod lifecycle;
mod list;
pub mod marks;
mod recent;
pub mod stored_objects;
pub mod unfinished;

pub use self::{
    controller::{Controller, Correction, CorrectiveAction, HeadRule, ReadRepair},
    desk::Desk,
    failure::{TurnFailure, stored_result},
    hub::Hub,
    lifecycle::{Charge, Initialization, Lifecycle, QuotaPhase, QuotaStage, StepError, quota_phase, share},
    list::{
        Actor, Initializers, OwnedNames, RefusedList, check_known, create, needs_permission, transition,
        without_late_head,
    },
    marks::Marks,
    stored_objects::StoredObjects,
    unfinished::Unfinished,
};

#[cfg(test)]
mod tests;
