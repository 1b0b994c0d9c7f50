//! `gatepost read-proxy` before a scripted apiserver.

#[path = "../support/tls.rs"]
mod tls;

mod world;

mod creates_are_held;
mod lengths_are_those_of_the_content;
mod operators_see_what_happens;
mod requests_pass_untouched;
mod unfinished_objects_are_hidden;
mod users_are_named_to_the_apiserver;
