//! A proxy on the loopback interface that counts the bytes it carries, both ways.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

pub(crate) struct Proxy {
    pub(crate) url: String,
    carried: Arc<AtomicU64>,
}

impl Proxy {
    /// Before the server at that port.
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let carried = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&carried);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let counter = Arc::clone(&counter);
                    thread::spawn(move || carry(from, to, &counter));
                }
            }
        });
        Self { url, carried }
    }

    /// Bytes so far.
    pub(crate) fn carried(&self) -> u64 {
        self.carried.load(Ordering::SeqCst)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
