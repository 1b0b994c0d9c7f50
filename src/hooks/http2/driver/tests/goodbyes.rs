//! Calls that the hook has not looked at.

use std::time::Duration;

use super::*;
use crate::{
    hooks::http2::scripted::{call, headers},
    http2::frame::{code, flag, kind, setting},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_asked_once_more() {
    let mut held = connected(1 << 20, 1 << 20, &[]).await;
    held.ask(call(&held.inbox, 0, body(10), SECOND));
    for stream in [1, 3] {
        assert_eq!(held.hook.call().await, stream);
        held.hook.send(kind::RST_STREAM, 0, stream, &code::REFUSED_STREAM.to_be_bytes()).await;
    }
    assert!(held.failure().await.contains("it is overloaded"));
    held.ask(call(&held.inbox, 1, body(10), SECOND));
    assert_eq!(held.hook.call().await, 5);
    held.hook.send(kind::RST_STREAM, 0, 5, &code::REFUSED_STREAM.to_be_bytes()).await;
    assert_eq!(held.hook.call().await, 7);
    held.hook.answer(7, b"yes").await;
    assert!(held.arrived().await.1.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_has_begun_is_not_asked_anew_whatever_the_hook_says() {
    for refuses in [true, false] {
        let mut held = connected(1 << 20, 1 << 20, &[]).await;
        held.ask(call(&held.inbox, 0, body(10), SECOND));
        assert_eq!(held.hook.call().await, 1);
        held.hook.send(kind::HEADERS, flag::END_HEADERS, 1, &headers()).await;
        if refuses {
            held.hook.send(kind::RST_STREAM, 0, 1, &code::REFUSED_STREAM.to_be_bytes()).await;
        } else {
            held.hook.goaway(0, code::NO_ERROR).await;
        }
        let failure = tokio::time::timeout(SECOND / 2, held.failure()).await.expect("told");
        assert!(failure.contains("it began to answer"), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_goaway_leaves_is_sent_anew_twice_and_then_fails_with_its_code() {
    for (resends, is_sent) in [(0, true), (1, true), (2, false)] {
        let mut held = connected(1 << 20, 1 << 20, &[]).await;
        held.ask(Call { resends, ..call(&held.inbox, 0, body(10), SECOND) });
        held.hook.call().await;
        held.hook.goaway(0, code::ENHANCE_YOUR_CALM).await;
        let ended = held.ended.await.expect("no panic");
        let sent: Vec<u8> = ended.unseen.iter().map(|call| call.resends).collect();
        assert_eq!(sent, if is_sent { vec![resends + 1] } else { vec![] }, "{resends}");
        assert!(ended.why.expect("it leaves").contains("GOAWAY ENHANCE_YOUR_CALM") && !ended.answered);
        if !is_sent {
            let failure = held.inbox.take_now().remove(0).1.expect_err("failed").to_string();
            assert!(failure.ends_with("on none of 3 connections: GOAWAY ENHANCE_YOUR_CALM"), "{failure}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_began_may_go_on_for_as_long_as_it_has_time() {
    let mut held = connected(1 << 20, 1 << 20, &[(setting::MAX_CONCURRENT_STREAMS, 0)]).await;
    held.ask(Call { resends: 2, ..call(&held.inbox, 0, body(10), SECOND) });
    tokio::task::yield_now().await;
    held.hook.goaway(0, code::NO_ERROR).await;
    let unseen = held.ended.await.expect("no panic").unseen;
    assert_eq!(unseen.iter().map(|call| call.resends).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_second_goaway_sends_more_calls_elsewhere() {
    let mut held = connected(1 << 20, 1 << 20, &[]).await;
    for tag in 0..3 {
        held.ask(call(&held.inbox, tag, body(10), SECOND));
        held.hook.call().await;
    }
    held.hook.goaway(3, code::NO_ERROR).await;
    let ended = held.ended.await.expect("no panic");
    assert_eq!(ended.unseen.iter().map(|call| call.tag).collect::<Vec<_>>(), [2]);
    let mut leaving = ended.leaving.expect("two are due");
    held.hook.goaway(1, code::NO_ERROR).await;
    let unseen = leaving.finish_calls().await;
    assert_eq!(unseen.iter().map(|call| (call.tag, call.resends)).collect::<Vec<_>>(), [(1, 1)]);
    assert!(!leaving.is_settled());
    held.hook.answer(1, b"yes").await;
    assert!(leaving.finish_calls().await.is_empty() && leaving.is_settled());
    assert_eq!(held.inbox.take_now().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_leaves_ends_with_the_last_deadline() {
    let mut held = connected(1 << 20, 1 << 20, &[]).await;
    held.ask(call(&held.inbox, 0, body(10), SECOND));
    held.hook.call().await;
    held.hook.goaway(1, code::NO_ERROR).await;
    let mut leaving = held.ended.await.expect("no panic").leaving.expect("one is due");
    let began = tokio::time::Instant::now();
    leaving.finish_calls().await;
    assert!(leaving.is_settled() && began.elapsed() < 2 * SECOND);
    assert_eq!(Arc::strong_count(&held.inbox), 1, "its call is let go");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dropped_with_calls_on_it_fails_them() {
    let mut held = connected(1 << 20, 1 << 20, &[]).await;
    held.ask(call(&held.inbox, 0, body(10), SECOND));
    held.hook.call().await;
    held.ended.abort();
    assert_eq!(held.failure().await, "connection lost: gatepost gave the connection up");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_hangs_up_after_goaway_is_quoted() {
    let mut held = connected(1 << 20, 1 << 20, &[]).await;
    held.ask(call(&held.inbox, 0, body(10), SECOND));
    held.hook.call().await;
    let goaway = [&1_u32.to_be_bytes()[..], &2_u32.to_be_bytes(), b"secret of an object"].concat();
    let both = [&[0, 0, goaway.len() as u8, kind::GOAWAY, 0, 0, 0, 0, 0][..], &goaway].concat();
    tokio::io::AsyncWriteExt::write_all(&mut held.hook.0, &both).await.expect("written");
    drop(held.hook);
    let mut ended = held.ended.await.expect("no panic");
    if let Some(leaving) = &mut ended.leaving {
        leaving.finish_calls().await;
    }
    let failure = held.inbox.take_now().remove(0).1.expect_err("failed").to_string();
    assert_eq!(failure, "connection lost: the hook closed the connection, after GOAWAY INTERNAL_ERROR");
}
