//! Calls that the hook has not looked at.

use std::time::Duration;

use super::*;
use crate::hooks::{
    ProcessingEvidence,
    http2::testing::{call, headers},
};
use gatepost_http2_client::frame::{code, flag, kind, setting};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_reported_and_its_connection_goes_on() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    assert_eq!(scene.hook.call().await, 1);
    scene.hook.send(kind::RST_STREAM, 0, 1, &code::REFUSED_STREAM.to_be_bytes()).await;
    let lost = scene.lost().await;
    assert_eq!(lost.evidence, ProcessingEvidence::Refused);
    assert!(lost.failure.to_string().ends_with("it is overloaded"), "{lost:?}");
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    assert_eq!(scene.hook.call().await, 3);
    scene.hook.answer(3, b"yes").await;
    assert!(scene.arrived().await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_partial_answer_counts_as_processed() {
    for refuses in [true, false] {
        let mut scene = connected(1 << 20, 1 << 20, &[]).await;
        scene.submit(call(&scene.responses, 0, body(10), SECOND));
        assert_eq!(scene.hook.call().await, 1);
        scene.hook.send(kind::HEADERS, flag::END_HEADERS, 1, &headers()).await;
        if refuses {
            scene.hook.send(kind::RST_STREAM, 0, 1, &code::REFUSED_STREAM.to_be_bytes()).await;
        } else {
            scene.hook.goaway(0, code::NO_ERROR).await;
        }
        let lost = tokio::time::timeout(SECOND / 2, scene.lost()).await.expect("lost in time");
        assert!(lost.failure.to_string().contains("it began to answer"), "{lost:?}");
        assert_eq!(lost.evidence, ProcessingEvidence::Unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_goaway_is_reported_with_its_code() {
    for (resends, connections) in [(0, 1), (2, 3)] {
        let mut scene = connected(1 << 20, 1 << 20, &[]).await;
        scene.submit(Call { resends, ..call(&scene.responses, 0, body(10), SECOND) });
        scene.hook.call().await;
        scene.hook.goaway(0, code::ENHANCE_YOUR_CALM).await;
        let ended = scene.ended.await.expect("no panic");
        assert!(ended.why.expect("it leaves").contains("GOAWAY ENHANCE_YOUR_CALM") && !ended.answered);
        assert!(ended.unsent.is_empty());
        let lost = scene.responses.take_now().remove(0).1.expect_err("failed");
        assert_eq!(lost.evidence, ProcessingEvidence::BeyondGoAway);
        let end = format!("on none of {connections} connections: GOAWAY ENHANCE_YOUR_CALM");
        assert!(lost.failure.to_string().ends_with(&end), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unsent_call_is_returned_by_a_closing_connection() {
    let mut scene = connected(1 << 20, 1 << 20, &[(setting::MAX_CONCURRENT_STREAMS, 0)]).await;
    scene.submit(Call { resends: 2, ..call(&scene.responses, 0, body(10), SECOND) });
    tokio::task::yield_now().await;
    scene.hook.goaway(0, code::NO_ERROR).await;
    let unsent = scene.ended.await.expect("no panic").unsent;
    assert_eq!(unsent.iter().map(|call| call.resends).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_second_goaway_excludes_more_calls() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    for tag in 0..3 {
        scene.submit(call(&scene.responses, tag, body(10), SECOND));
        scene.hook.call().await;
    }
    scene.hook.goaway(3, code::NO_ERROR).await;
    let ended = scene.ended.await.expect("no panic");
    let mut leaving = ended.draining.expect("two are due");
    scene.hook.goaway(1, code::NO_ERROR).await;
    scene.hook.answer(1, b"yes").await;
    leaving.finish_calls().await;
    assert!(leaving.protocol.is_idle());
    let arrived = scene.responses.take_now();
    let came: Vec<_> =
        arrived.iter().map(|(tag, result)| (*tag, result.as_ref().err().map(|lost| lost.evidence))).collect();
    let beyond = Some(ProcessingEvidence::BeyondGoAway);
    assert_eq!(came, [(2, beyond), (0, None), (1, beyond)]);
}

#[tokio::test(start_paused = true)]
async fn a_draining_connection_ends_with_the_last_deadline() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    scene.hook.goaway(1, code::NO_ERROR).await;
    let mut leaving = scene.ended.await.expect("no panic").draining.expect("one is due");
    let began = tokio::time::Instant::now();
    leaving.finish_calls().await;
    assert!(leaving.protocol.is_idle() && began.elapsed() < 2 * SECOND);
    assert_eq!(Arc::strong_count(&scene.responses), 1, "its call is let go");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dropped_with_calls_on_it_fails_them() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    scene.ended.abort();
    assert_eq!(scene.failure().await, "connection lost: gatepost gave the connection up");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_up_after_goaway_is_quoted() {
    let mut scene = connected(1 << 20, 1 << 20, &[]).await;
    scene.submit(call(&scene.responses, 0, body(10), SECOND));
    scene.hook.call().await;
    let goaway = [&1_u32.to_be_bytes()[..], &2_u32.to_be_bytes(), b"secret of an object"].concat();
    let both = [&[0, 0, goaway.len() as u8, kind::GOAWAY, 0, 0, 0, 0, 0][..], &goaway].concat();
    tokio::io::AsyncWriteExt::write_all(&mut scene.hook.0, &both).await.expect("written");
    drop(scene.hook);
    let mut ended = scene.ended.await.expect("no panic");
    if let Some(leaving) = &mut ended.draining {
        leaving.finish_calls().await;
    }
    let failure = scene.responses.take_now().remove(0).1.expect_err("failed").failure.to_string();
    assert_eq!(failure, "connection lost: the hook closed the connection, after GOAWAY INTERNAL_ERROR");
}
