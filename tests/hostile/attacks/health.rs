//! The health service.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{caller::Caller, http2},
};

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Messages of 4 MiB that never end, on every stream that one connection may have; then the same to the others.
pub fn endless_checks() -> Attack {
    Attack {
        name: "endless-health-checks",
        item: "32",
        hooks: |_| Vec::new(),
        serve: Serve::PLAIN,
        during: |stage| {
            let mut text = Vec::new();
            for path in [CHECK, WATCH, REFLECTION] {
                let mut caller = Caller::elsewhere(stage.process.tcp, &[]).ok_or("not let in")?;
                // Nearly all of a message of 4 MiB, and never its end.
                let mut message = vec![0];
                message.extend_from_slice(&(4_u32 << 20).to_be_bytes());
                message.resize(3 << 20, b'x');
                let until = Instant::now() + Duration::from_millis(1200);
                let mut sent = 0;
                while Instant::now() < until && sent < 100 {
                    let stream = caller.begin(path, "1S");
                    let soon = Instant::now() + Duration::from_millis(100);
                    sent += usize::from(caller.body(stream, &message, 16_384, false, soon));
                    caller.peer.send(&http2::window_update(0, 1));
                }
                text.push(sent);
                thread::sleep(Duration::from_millis(100));
            }
            Ok(format!("{text:?} bodies of 3 MiB taken"))
        },
        bounds: Bounds::USUAL,
    }
}
