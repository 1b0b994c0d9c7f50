//! Reader of HTTP/1.1 answers, compiled without the rest of the product's `hooks`.
#![allow(dead_code, unused_imports)]

#[path = "../src/hooks/answer_buffer.rs"]
mod answer_buffer;
#[path = "../src/hooks/header_values.rs"]
mod header_values;
#[path = "../src/hooks/http1/reader.rs"]
mod reader;
#[path = "../src/hooks/reply.rs"]
mod reply;

pub use self::{
    reader::read_http1,
    reply::{HttpReply, Reply},
};
