//! Initialization: initializers that act on a new object before anyone else sees it. Pure.
//!
//! | noun | file |
//! | --- | --- |
//! | [`Initializers`], an object's own list and its result | `initializers` |
//! | the list of a new object | `create` |
//! | a change of the list by an update | `transition` |
//! | [`Lifecycle`], from the first pending entry to the end | `lifecycle` |
//! | [`Desk`], the instances that have claimed a name and the tasks they share | `desk` |
//! | the order of initializers that say `after` | `order` |
//! | initializers that need no process | `built_in` |
//! | the part of a request's time that one may use up | `share` |
//! | [`Visibility`], what reads show of stored unfinished objects | `visibility` |
//! | [`Unfinished`], those objects, and the corrections of what is stuck | `unfinished` |
//! | the result of one that has failed | `stored_result` |
//! | [`RecentFailures`], results of objects that are gone | `recent_failures` |
//! | [`Controller`], which finds heads that stay where they are | `controller` |
//! | [`ReadRepair`], the same by whoever reads | `read_repair` |
//! | [`QuotaPhase`], what a write charges and gives back | `quota` |
//! | objects that a stock apiserver stores unfinished, marked by a label that selectors hide | `label` |
//!
//! Nothing here reads a clock, opens a socket or asks for a permission: the time, and the answer to "may this user
//! `initialize`?", are arguments. Holding a CREATE in flight, answering an apiserver that stores unfinished objects,
//! and filtering reads share this core.

pub mod built_in;
pub mod controller;
pub mod create;
pub mod desk;
pub mod initializers;
pub mod label;
pub mod lifecycle;
pub mod order;
pub mod quota;
pub mod read_repair;
pub mod recent_failures;
pub mod refused;
pub mod share;
pub mod stored_result;
pub mod transition;
pub mod unfinished;
pub mod visibility;

pub use self::{
    controller::Controller,
    create::{check_known, create, needs_permission},
    desk::Desk,
    initializers::Initializers,
    lifecycle::{Initialization, Lifecycle},
    order::{Cycle, order},
    quota::{QuotaPhase, quota_phase},
    read_repair::ReadRepair,
    recent_failures::RecentFailures,
    refused::RefusedList,
    share::share,
    stored_result::stored_result,
    transition::{Actor, transition},
    unfinished::Unfinished,
    visibility::{Visibility, visibility},
};

/// The verb that a client needs to write an object's list itself, or to change an object that is not initialized.
// source: control-plane extension proposal, "the `initialize` verb".
pub const VERB: &str = "initialize";
/// The most entries of one list.
pub const MOST_PENDING: usize = 128;

#[cfg(test)]
mod tests;
