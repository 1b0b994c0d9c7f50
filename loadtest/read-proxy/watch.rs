//! Watch: two watches of one object, one of them through the proxy, and the time between the arrivals of an event at both.
//!
//! One writer changes the object and waits for both events before it does so again. Which of the watches is opened first
//! alternates: an apiserver sends to its watches one after another.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{
    Settings,
    objects::{NAME, WATCHED, config_map},
    sides::Sides,
};
use crate::{
    Fallible,
    apiserver::{
        cluster::Cluster,
        connection::{Connection, text},
    },
    figures::median,
    results::{Finding, Findings},
    size::Size,
    targets,
};

/// Events of a repetition, and those before them that are not measured.
const EVENTS: usize = 100;
const WARM_UP: usize = 10;

/// The median of a repetition's delays.
pub(super) async fn measure(settings: &Settings, sides: &Sides<'_>, findings: &mut Findings) -> Fallible<()> {
    let mut repetitions = Vec::with_capacity(settings.reps());
    for number in 0..settings.reps() {
        repetitions.push(once(settings, sides, number).await?);
    }
    // Milliseconds; below zero where the proxied event was there first.
    findings.keep("watch", &repetitions)?;
    let delay = median(repetitions.iter().map(|delays| median(delays.clone())).collect());
    let mut finding = |figure, value, target| {
        let cell = format!("one of {}", settings.size);
        findings.add(Finding {
            figure,
            cell,
            unit: "ms",
            beside: None,
            ours: value,
            value,
            target,
            few: settings.quick,
        })
    };
    finding("watch_event_later_ms", delay, (!settings.control).then_some(targets::PROXIED_EVENT))?;
    let mut all: Vec<f64> = repetitions.into_iter().flatten().collect();
    all.sort_by(f64::total_cmp);
    let at = all.len().saturating_sub(1) * 99 / 100;
    finding("watch_event_later_p99_ms", all.get(at).copied().unwrap_or(f64::NAN), None)
}

/// Delays of the events of one repetition.
async fn once(settings: &Settings, sides: &Sides<'_>, number: usize) -> Fallible<Vec<f64>> {
    let mut writer = Connection::open(sides.direct).await?;
    let version = change(&mut writer, settings.size, &format!("begin-{number}")).await?;
    let (mut direct, mut proxied) = if number.is_multiple_of(2) {
        let direct = Watch::open(sides.direct, &version).await?;
        (direct, Watch::open(sides.proxied, &version).await?)
    } else {
        let proxied = Watch::open(sides.proxied, &version).await?;
        (Watch::open(sides.direct, &version).await?, proxied)
    };
    let mut delays = Vec::with_capacity(settings.of(EVENTS));
    for event in 0..WARM_UP + settings.of(EVENTS) {
        let mark = format!("{number}-{event}");
        let (written, direct, proxied) =
            tokio::try_join!(change(&mut writer, settings.size, &mark), direct.next(), proxied.next())?;
        for (_, line) in [&direct, &proxied] {
            let seen: Value = serde_json::from_slice(line)?;
            if seen["type"] != "MODIFIED" || seen["object"]["metadata"]["resourceVersion"] != *written {
                return Err(format!("VOID: another event was expected: {}", text(line)).into());
            }
        }
        if event >= WARM_UP {
            let ahead = direct.0.saturating_duration_since(proxied.0).as_secs_f64();
            delays.push((proxied.0.saturating_duration_since(direct.0).as_secs_f64() - ahead) * 1e3);
        }
    }
    Ok(delays)
}

/// Changes the object; its version.
async fn change(writer: &mut Connection, size: Size, mark: &str) -> Fallible<String> {
    let object = config_map(NAME, json!({"mark": mark}), size);
    let (status, body) = writer.ask(Method::PUT, &format!("{WATCHED}/{NAME}"), object.to_string().into()).await?;
    if status != StatusCode::OK {
        return Err(format!("a change was not taken: {status} {}", text(&body)).into());
    }
    let object: Value = serde_json::from_slice(&body)?;
    Ok(object["metadata"]["resourceVersion"].as_str().ok_or("an object without a version")?.to_owned())
}

/// One watch.
struct Watch {
    _connection: Connection,
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    /// All events behind that version.
    async fn open(cluster: &Cluster, version: &str) -> Fallible<Self> {
        let mut connection = Connection::open(cluster).await?;
        let path = format!("{WATCHED}?watch=1&resourceVersion={version}");
        let (status, body) = connection.send(Method::GET, &path, Bytes::new()).await?;
        match status {
            StatusCode::OK => Ok(Self { _connection: connection, body, buffer: BytesMut::new() }),
            _ => Err(format!("a watch was not opened: {status}").into()),
        }
    }

    /// Arrival of the end of the next event, and the event.
    async fn next(&mut self) -> Fallible<(Instant, Bytes)> {
        loop {
            let frame = self.body.frame().await.ok_or("a watch has ended")??;
            let arrived = Instant::now();
            if let Some(data) = frame.data_ref() {
                self.buffer.extend_from_slice(data);
            }
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Ok((arrived, self.buffer.split_to(end + 1).freeze()));
            }
        }
    }
}
