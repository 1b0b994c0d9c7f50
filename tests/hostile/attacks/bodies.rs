//! Bodies and connections that hold room.

use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::press::{self, Press};
use crate::{
    attack::{Attack, Bounds, Serve},
    bytes::{
        caller::{Caller, ELSEWHERE, REVIEW, connect_from},
        http1, http2, reviews,
    },
    hook::Hook,
    stage::Stage,
};

const LARGEST: usize = 16 << 20;

/// 32 POSTs that declare the largest body and send nothing of it, and as many gRPC calls whose message's head does.
pub fn declared_and_never_sent() -> Attack {
    Attack {
        name: "bodies-that-never-come",
        item: "13",
        hooks: |_| Vec::new(),
        serve: Serve::PLAIN,
        during: |stage| {
            let mut posts: Vec<TcpStream> =
                (0..32).filter_map(|_| connect_from(ELSEWHERE, stage.process.tcp)).collect();
            for post in &mut posts {
                let _ = post.write_all(http1::post_head(LARGEST, "?timeout=30s").as_bytes());
            }
            let mut caller = Caller::elsewhere(stage.process.tcp, &[]);
            if let Some(caller) = &mut caller {
                let head = [&[0][..], &((LARGEST - 5) as u32).to_be_bytes()].concat();
                for _ in 0..32 {
                    let stream = caller.begin(REVIEW, "30S");
                    caller.peer.send(&http2::frame(http2::DATA, 0, stream, &head));
                }
            }
            thread::sleep(Duration::from_millis(1500));
            Ok(format!("{} POSTs", posts.len()))
        },
        bounds: Bounds::USUAL,
    }
}

/// As many connections as there may be, which greet and say no more.
pub fn idle_connections() -> Attack {
    Attack {
        name: "1024-idle-connections",
        item: "13",
        hooks: |_| Vec::new(),
        serve: Serve::PLAIN,
        during: |stage| {
            let idle: Vec<Caller> = (0..1100).map_while(|_| Caller::elsewhere(stage.process.tcp, &[])).collect();
            thread::sleep(Duration::from_millis(1500));
            Ok(format!("{} connections, {} descriptors", idle.len(), stage.process.descriptors()))
        },
        bounds: Bounds::USUAL,
    }
}

/// Ordinary reviews of 15 MiB, as JSON and as protobuf, one after the other.
pub fn large_reviews() -> Attack {
    Attack {
        name: "15-mib-reviews",
        item: "14",
        hooks: |notes| vec![Hook::good("large", notes).within("3s")],
        serve: Serve::PLAIN,
        during: large,
        bounds: Bounds::USUAL,
    }
}

fn large(stage: &Stage) -> Result<String, String> {
    let size = 15 << 20;
    let json = reviews::json("json", "pods", size);
    let mut statuses = Vec::new();
    let began = Instant::now();
    for _ in 0..2 {
        let mut stream = connect_from(ELSEWHERE, stage.process.tcp).ok_or("not let in")?;
        let answer = http1::post(&mut stream, &json, Duration::from_secs(8));
        if answer.as_ref().is_some_and(|(_, text)| text.contains(r#""allowed":true"#)) {
            stage.check_allowed("json", "pods")?;
        }
        statuses.push(answer.map(|(status, _)| status));
        thread::sleep(Duration::from_millis(200));
    }
    let press =
        Press { reviews: 2, every: Duration::from_millis(300), size, timeout: "3S", at_once: 1, ..Press::USUAL };
    let tally = press::pods(stage, press)?;
    Ok(format!("POSTs {statuses:?}; {}; {:?}", tally.said(), began.elapsed()))
}
