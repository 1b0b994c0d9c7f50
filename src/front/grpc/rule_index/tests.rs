//! A plugin on a connection in memory, on the paused clock.

use std::{future::poll_fn, sync::Arc, time::SystemTime};

use bytes::{Buf, BytesMut};
use h2::{
    SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::Request;
use prost::Message as _;
use tokio::{sync::watch, time::advance};

use super::*;
use crate::{
    front::{
        drain::ServerStage,
        state::Front,
        testing::{connect, front},
    },
    live::{Generation, break_glass::BreakGlassOrigin},
    telemetry::Metrics,
};
use gatepost_api::{BreakGlass, Revision};
use gatepost_config::SourceFile;

struct World {
    front: Arc<Front>,
    send: SendRequest<Bytes>,
    life: watch::Sender<ServerStage>,
}

/// A front with one hook for these resources, and a connection to it.
async fn world(resources: &str) -> World {
    let front = front(64 << 20);
    publish(&front, 1, resources);
    let (io, life, _serving) = connect(&front);
    let (send, connection) = client::handshake(io).await.expect("handshake");
    tokio::spawn(connection);
    World { front, send, life }
}

fn publish(front: &Front, number: u64, resources: &str) {
    let text = format!(
        "apiVersion: gatepost.dev/v1alpha1\nkind: AdmissionControlConfiguration\nmetadata: {{name: t}}\n\
         externalAdmissionHooks:\n- name: a.example.com\n  clientConfig: {{url: 'grpc://127.0.0.1:1'}}\n  \
         failurePolicy: Ignore\n  rules:\n  - {{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: \
         [{resources}]}}\n"
    );
    let files = [SourceFile { name: "t.yaml".into(), bytes: text.into() }];
    let snapshot = gatepost_config::load(&files, &|path| std::fs::read(path)).expect("a valid configuration");
    front.deps.current.publish(Arc::new(Generation {
        number,
        revision: Revision::Store(number),
        ..Generation::of(Arc::new(snapshot), &Metrics::new(1))
    }));
}

impl World {
    async fn follow(&self) -> Plugin {
        let request = Request::post("http://gatepost/gatepost.v1.RuleIndex/Follow");
        let request = request.header("content-type", "application/grpc").body(()).expect("request");
        let (response, to) =
            self.send.clone().ready().await.expect("ready").send_request(request, false).expect("sent");
        Plugin { to, response: Some(response), from: None, buffer: BytesMut::new() }
    }

    fn known(&self) -> u64 {
        self.front.deps.current.known_to_plugins(now()).id.number
    }
}

struct Plugin {
    to: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    from: Option<RecvStream>,
    buffer: BytesMut,
}

impl Plugin {
    fn poll(&mut self, sequence: u64, version: u64) {
        self.to.send_data(framed(&pb::IndexPoll { sequence, version }), false).expect("sent");
    }

    /// Returns the next beat; `None` at the end of the stream.
    async fn next(&mut self) -> Option<pb::IndexBeat> {
        if let Some(response) = self.response.take() {
            self.from = Some(response.await.expect("answered").into_body());
        }
        let from = self.from.as_mut().expect("a body");
        loop {
            if let Some(&[_, a, b, c, d]) = self.buffer.first_chunk::<5>()
                && self.buffer.len() >= 5 + u32::from_be_bytes([a, b, c, d]) as usize
            {
                self.buffer.advance(5);
                let message = self.buffer.split_to(u32::from_be_bytes([a, b, c, d]) as usize).freeze();
                return Some(pb::IndexBeat::decode(message).expect("a beat"));
            }
            let data = poll_fn(|cx| from.poll_data(cx)).await?.expect("data");
            from.flow_control().release_capacity(data.len()).expect("released");
            self.buffer.extend_from_slice(&data);
        }
    }

    async fn beat(&mut self) -> pb::IndexBeat {
        self.next().await.expect("the stream lives")
    }

    /// Returns the status with which the stream ends.
    async fn end(mut self) -> String {
        while self.next().await.is_some() {}
        let trailers = self.from.expect("a body").trailers().await.expect("trailers").expect("trailers");
        trailers.get("grpc-status").expect("a status").to_str().expect("text").to_owned()
    }
}

/// Resources of the hook in the beat's index.
fn resources(beat: &pb::IndexBeat) -> Vec<String> {
    let validating = beat.rules.as_ref().expect("an index").validating.as_ref().expect("both phases");
    let core = validating.rules.iter().filter(|rule| rule.api_groups == [""]);
    core.flat_map(|rule| rule.resources.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn index_is_resent_until_acknowledged() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    plugin.poll(1, 0);
    let beat = plugin.beat().await;
    assert_eq!((beat.sequence, beat.valid_for_milliseconds), (1, 1000));
    assert_eq!(resources(&beat), ["pods"]);
    let rules = beat.rules.as_ref().expect("an index");
    assert!(!rules.mutating.as_ref().expect("both phases").all);
    plugin.poll(2, beat.version);
    let next = plugin.beat().await;
    assert_eq!((next.sequence, next.version, next.rules), (2, beat.version, None));
}

#[tokio::test(start_paused = true)]
async fn changed_index_is_pushed_and_known_once_acknowledged() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    plugin.poll(1, 0);
    let version = plugin.beat().await.version;
    plugin.poll(2, version);
    plugin.beat().await;
    publish(&world.front, 2, "services");
    let beat = plugin.beat().await;
    assert_eq!((beat.sequence, resources(&beat)), (2, vec!["services".to_owned()]), "with the number of the last poll");
    assert_eq!(world.known(), 1);
    // It has crossed the beat on its way.
    plugin.poll(3, version);
    let crossed = plugin.beat().await;
    assert_eq!((crossed.sequence, crossed.version, crossed.rules), (3, beat.version, None), "it was sent already");
    assert_eq!(world.known(), 1);
    plugin.poll(4, beat.version);
    plugin.beat().await;
    assert_eq!(world.known(), 2);
    publish(&world.front, 3, "services");
    assert_eq!(world.known(), 3, "the index is the same");
}

#[tokio::test(start_paused = true)]
async fn index_is_sent_once_a_second_to_a_plugin_that_never_has_it() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    let mut sent = Vec::new();
    for sequence in 1..=9 {
        plugin.poll(sequence, 0);
        sent.push(plugin.beat().await.rules.is_some());
        advance(Duration::from_millis(250)).await;
    }
    assert_eq!(sent, [true, false, false, false, true, false, false, false, true]);
}

#[tokio::test(start_paused = true)]
async fn index_is_valid_until_the_configuration_is_stale_at_most() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    let freshness = world.front.deps.current.freshness();
    for (sequence, stale_after, valid_for) in [(1, 5000, 1000), (2, 300, 300), (3, 0, 0)] {
        freshness.set_stale_after(Duration::from_millis(stale_after));
        plugin.poll(sequence, 0);
        assert_eq!(plugin.beat().await.valid_for_milliseconds, valid_for, "{stale_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn index_is_valid_for_no_time_while_break_glass_is_open() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    let set = |documents| {
        let break_glasses = &world.front.deps.break_glass;
        break_glasses.set_documents(BreakGlassOrigin::File, documents, now(), SystemTime::now());
    };
    set(vec![BreakGlass {
        name: "x".into(),
        opened: SystemTime::now(),
        duration: Duration::from_secs(600),
        reason: "r".into(),
        hooks: Vec::new(),
        opened_by: "".into(),
    }]);
    plugin.poll(1, 0);
    assert_eq!(plugin.beat().await.valid_for_milliseconds, 0);
    set(Vec::new());
    plugin.poll(2, 0);
    assert_eq!(plugin.beat().await.valid_for_milliseconds, 1000);
}

#[tokio::test(start_paused = true)]
async fn index_stream_ends_without_polls_and_with_too_many() {
    let world = world("pods").await;
    let idle = world.follow().await;
    let began = now();
    assert_eq!((idle.end().await, (now() - began).as_secs()), ("4".to_owned(), IDLE_TIMEOUT.as_secs()));
    let mut flooding = world.follow().await;
    for sequence in 0..=u64::from(MAX_POLLS) {
        flooding.poll(sequence, 0);
    }
    assert_eq!(flooding.end().await, "8");
    let mut steady = world.follow().await;
    for sequence in 0..=2 * u64::from(MAX_POLLS) {
        steady.poll(sequence, 0);
        steady.beat().await;
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(world.front.deps.current.rule_index().followers(), 1, "the others have left");
}

#[tokio::test(start_paused = true)]
async fn index_stream_ends_at_a_message_that_is_no_poll() {
    let world = world("pods").await;
    for message in [Bytes::from_static(&[0, 0, 0, 0, 2, 8, 0xff]), Bytes::from_static(&[0, 0, 0, 2, 0])] {
        let mut plugin = world.follow().await;
        plugin.to.send_data(message, false).expect("sent");
        assert_eq!(plugin.end().await, "3");
    }
}

#[tokio::test(start_paused = true)]
async fn index_stream_ends_when_the_process_drains() {
    let world = world("pods").await;
    let mut plugin = world.follow().await;
    plugin.poll(1, 0);
    plugin.beat().await;
    world.life.send_replace(ServerStage::Draining);
    assert_eq!(plugin.end().await, "14");
    assert_eq!(world.front.deps.current.rule_index().followers(), 0);
}

#[tokio::test(start_paused = true)]
async fn index_streams_are_bounded() {
    let world = world("pods").await;
    let mut plugins = Vec::new();
    for _ in 0..32 {
        let mut plugin = world.follow().await;
        plugin.poll(1, 0);
        plugin.beat().await;
        plugins.push(plugin);
    }
    let mut refused = world.follow().await;
    let response = refused.response.take().expect("not awaited").await.expect("answered");
    assert_eq!(response.headers().get("grpc-status").expect("a status"), "8");
    drop(plugins);
}
