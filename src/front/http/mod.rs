//! Reviews over plain HTTP: head, body, reply. [`webhook`] is the road of one.

pub(crate) mod body;
pub(crate) mod duration;
pub(crate) mod head;
pub(crate) mod reply;
pub(crate) mod webhook;
