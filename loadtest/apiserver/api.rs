//! Api: requests to the apiserver: registrations of webhooks, and the writes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};

use super::{
    cluster::Cluster,
    connection::{Connection, text},
    object, registration,
    rig::Rig,
    service,
    task::Kind,
    variant::Variant,
    writers::Writers,
};
use crate::{Fallible, size::Size};

/// Time for the apiserver to follow a changed configuration.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes in a row that must ask exactly the right hooks before the apiserver counts as having followed.
const IN_A_ROW: usize = 3;

/// Everything that is said to the apiserver.
#[derive(Debug)]
pub(super) struct Api<'a> {
    cluster: &'a Cluster,
    plugged: Option<&'a Cluster>,
}

impl<'a> Api<'a> {
    /// Of a stock apiserver, and of one with the plugin.
    pub(super) fn of(cluster: &'a Cluster, plugged: Option<&'a Cluster>) -> Self {
        Self { cluster, plugged }
    }

    /// Processes of both.
    pub(super) fn pids(&self) -> (u32, Option<u32>) {
        (self.cluster.pid, self.plugged.map(|cluster| cluster.pid))
    }

    /// Writers to the apiserver of `variant`.
    pub(super) fn writers(&self, variant: Variant) -> Writers<'a> {
        Writers::to(self.plugged.filter(|_| variant.has_plugin()).unwrap_or(self.cluster))
    }

    /// One question over a connection of its own: minutes may lie between two.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Fallible<(StatusCode, Bytes)> {
        Connection::open(self.cluster).await?.ask(method, path, body).await
    }

    /// The apiserver's version.
    pub(super) async fn version(&mut self) -> Fallible<String> {
        let (_, body) = self.ask(Method::GET, "/version", Bytes::new()).await?;
        let version: serde_json::Value = serde_json::from_slice(&body)?;
        Ok(version["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned())
    }

    /// Has writes ask the hooks of `variant`, and returns once they do.
    pub(super) async fn switch(&mut self, variant: Variant, rig: &Rig) -> Fallible<()> {
        self.unregister().await?;
        rig.configure(variant)?;
        if variant.has_service() {
            self.lead_to(variant, rig).await?;
        }
        if let Some(document) = rig.registered(variant) {
            let (status, body) = self.ask(Method::POST, &rig.task.kind.configurations(), document.into()).await?;
            if status != StatusCode::CREATED {
                return Err(format!("the configuration was refused: {status} {}", text(&body)).into());
            }
        }
        self.settle(variant, rig).await
    }

    /// Lets the Service of `variant` lead to its sidecar.
    async fn lead_to(&mut self, variant: Variant, rig: &Rig) -> Fallible<()> {
        let address = rig.address(variant).ok_or("no sidecar")?;
        for object in service::objects(variant, address) {
            if object.is_moving {
                let path = format!("{}/{}", object.path, variant.as_str());
                self.ask(Method::DELETE, &path, Bytes::new()).await?;
            }
            let (status, body) = self.ask(Method::POST, object.path, object.document.to_string().into()).await?;
            let was_there = status == StatusCode::CONFLICT && !object.is_moving;
            if status != StatusCode::CREATED && !was_there {
                return Err(format!("{} was refused: {status} {}", object.path, text(&body)).into());
            }
        }
        Ok(())
    }

    /// Writes ask nobody any more, sooner or later.
    pub(super) async fn unregister(&mut self) -> Fallible<()> {
        for kind in [Kind::Validating, Kind::Mutating] {
            let path = format!("{}/{}", kind.configurations(), registration::NAME);
            let (status, body) = self.ask(Method::DELETE, &path, Bytes::new()).await?;
            if ![StatusCode::OK, StatusCode::NOT_FOUND].contains(&status) {
                return Err(format!("the configuration cannot be deleted: {status} {}", text(&body)).into());
            }
        }
        Ok(())
    }

    async fn settle(&mut self, variant: Variant, rig: &Rig) -> Fallible<()> {
        let (start, object) = (Instant::now(), object::config_map(Size(2 << 10)));
        let mut right = 0;
        loop {
            let before = rig.asked()?;
            let written = self.writers(variant).write(&object, 1, 1).await;
            let outcome = written.and_then(|_| rig.check(variant, &before, 1));
            right = if outcome.is_ok() { right + 1 } else { 0 };
            match outcome {
                Ok(_) if right == IN_A_ROW => return Ok(()),
                Err(error) if start.elapsed() > PATIENCE => {
                    return Err(format!("the apiserver never came to {}: {error}", variant.label()).into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Ok(_) => {}
            }
        }
    }
}
