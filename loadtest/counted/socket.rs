//! The socket the counts are read over, on its own thread, whose own allocations are not counted.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread,
};

use tracking_allocator::AllocationRegistry;

use super::counter;

/// Answers on `path` until the process ends.
pub(super) fn serve(path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    thread::spawn(move || {
        AllocationRegistry::untracked(|| {
            for stream in listener.incoming().map_while(Result::ok) {
                // A questioner that goes away is its own problem.
                let _ = answer(&stream);
            }
        });
    });
    Ok(())
}

fn answer(mut stream: &UnixStream) -> io::Result<()> {
    let mut question = String::new();
    BufReader::new(stream).read_line(&mut question)?;
    if question.trim() == "reset" {
        counter::reset();
    }
    writeln!(stream, "{}", counter::read())
}
