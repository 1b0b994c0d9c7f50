//! Reviews in many small frames.

use std::time::{Duration, Instant};

use crate::{
    attack::{Attack, Bounds, Serve, scaled},
    bytes::{
        caller::{Answer, Caller, REVIEW},
        reviews,
    },
    hook::Hook,
    stage::Stage,
};

/// Sends that message in frames of 1 KiB, twice, as two callers of both workers would.
fn twice(stage: &Stage, message: &[u8]) -> Result<String, String> {
    let began = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut caller = Caller::connect(stage.process.tcp).ok_or("not let in")?;
        let stream = caller.begin(REVIEW, "3S");
        caller.body(stream, message, 1024, true, Instant::now() + Duration::from_secs(6));
        answers.push((caller, stream));
    }
    let answers: Vec<Answer> =
        answers.into_iter().map(|(mut caller, stream)| caller.answer(stream, Duration::from_secs(30))).collect();
    let took = began.elapsed();
    if answers.iter().any(Answer::allowed) {
        return Err("what is no review was allowed".to_owned());
    }
    // Milliseconds, on a machine that is not busy.
    match took < Duration::from_secs(2) {
        true => Ok(format!("{answers:?} in {took:?}")),
        false => Err(format!("{took:?} for {} KiB in frames of 1 KiB", message.len() >> 10)),
    }
}

/// `uid` two million times.
pub fn repeated_fields() -> Attack {
    Attack {
        name: "repeated-fields",
        item: "7",
        hooks: |notes| vec![Hook::good("pieces", notes)],
        serve: Serve::PLAIN,
        during: |stage| {
            let request = reviews::field(1, b"a").repeat(2 * scaled(1_000_000));
            twice(stage, &reviews::grpc_message(&reviews::field(1, &request)))
        },
        bounds: Bounds::USUAL,
    }
}

/// Many short messages inside the request (`kind`), each looked into: the walk went back to the first piece each time.
pub fn small_pieces() -> Attack {
    Attack {
        name: "messages-in-pieces",
        item: "7, 34",
        hooks: |notes| vec![Hook::good("pieces", notes)],
        serve: Serve::PLAIN,
        during: |stage| {
            let kind = reviews::field(2, &reviews::field(3, b"Pod"));
            let request = kind.repeat(2 * scaled(3 << 20) / kind.len());
            twice(stage, &reviews::grpc_message(&reviews::field(1, &request)))
        },
        bounds: Bounds::USUAL,
    }
}
