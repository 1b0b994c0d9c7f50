//! The part of the product's `hooks::http1` that reads.

#[path = "../src/hooks/http1/in_memory.rs"]
mod in_memory;
#[path = "../src/hooks/http1/limited_socket.rs"]
mod limited_socket;
#[path = "../src/hooks/http1/reader.rs"]
mod reader;

pub use in_memory::read_http1;
