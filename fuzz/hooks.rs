//! Reader of HTTP/1.1 answers, compiled without the rest of the product's `hooks`.
#![allow(dead_code, unused_imports)]

#[path = "../src/hooks/answer_room.rs"]
mod answer_room;
#[path = "../src/hooks/collected.rs"]
mod collected;
#[path = "../src/hooks/gzip.rs"]
mod gzip;
#[path = "http1.rs"]
mod http1;
#[path = "../src/hooks/media_type.rs"]
mod media_type;
#[path = "../src/hooks/reply.rs"]
mod reply;
#[path = "../src/hooks/retry_after.rs"]
mod retry_after;
#[path = "../src/hooks/failed_call.rs"]
mod failed_call;

pub use self::{
    http1::read_http1,
    reply::{HttpReply, Reply},
};
