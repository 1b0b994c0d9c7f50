//! Control: work beside the workers. It accepts connections and hands them out, reads the configuration, rotates it,
//! and serves the admin pages.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};

use super::{DrainResult, certificates::Certificates, sampling::sample, saving::Saving};
use crate::{
    front::{self, Bound, Front, Worker, admin::Admin},
    replicas::Publishing,
    rotate::Rotator,
    source::{self, Source},
    watch::{
        AccessReviews, Adoption, LabelledObjects, NamespaceWatcher, RegistrationWatch, ServiceWatcher,
        break_glass::keep,
    },
};

/// The control plane.
pub(super) struct Control {
    pub(super) front: Arc<Front>,
    pub(super) sockets: Vec<Bound>,
    pub(super) pages: Admin,
    pub(super) admin: TcpListener,
    pub(super) certificates: Certificates,
    pub(super) workers: Vec<Arc<Worker>>,
    pub(super) rotator: Rotator,
    pub(super) source: Source,
    pub(super) following: Option<NamespaceWatcher>,
    pub(super) registration: Option<RegistrationWatch>,
    pub(super) services: Option<ServiceWatcher>,
    pub(super) access: Option<AccessReviews>,
    pub(super) adoption: Option<Adoption>,
    pub(super) labelled: Option<LabelledObjects>,
    pub(super) publishing: Publishing,
    pub(super) saving: Option<Saving>,
    pub(super) break_glass_file: Option<PathBuf>,
    pub(super) shutdown: watch::Receiver<bool>,
}

impl Control {
    /// Until stopped and drained. The configuration is followed, and the admin pages are served, to the last.
    pub(super) async fn run(self, read_every: Duration, outcome: &OnceLock<DrainResult>) -> DrainResult {
        let (mut shutdown, mut publishing, mut adoption) = (self.shutdown, self.publishing, self.adoption);
        let mut labelled = self.labelled;
        let shutdown = async move { shutdown.wait_for(|shutdown| *shutdown).await.map_or((), drop) };
        let (readings, read) = mpsc::channel(1);
        let current = Arc::clone(&self.pages.current);
        let (audit, metrics) = (Arc::clone(&self.front.gate().audit), Arc::clone(&self.pages.metrics));
        let serving = front::accept::listen::serve(self.front, self.sockets, self.workers, shutdown);
        let following = async {
            match self.following {
                Some(following) => following.run().await,
                None => std::future::pending().await,
            }
        };
        let registration = async {
            match self.registration {
                Some(registration) => registration.run().await,
                None => std::future::pending().await,
            }
        };
        let services = async {
            match self.services {
                Some(services) => services.run().await,
                None => std::future::pending().await,
            }
        };
        let access = async {
            match self.access {
                Some(access) => access.run().await,
                None => std::future::pending().await,
            }
        };
        let adopting = async {
            match &mut adoption {
                Some(adoption) => adoption.run().await,
                None => std::future::pending().await,
            }
        };
        let initializing = async {
            match &mut labelled {
                Some(labelled) => labelled.run().await,
                None => std::future::pending().await,
            }
        };
        let saving = async {
            match self.saving {
                Some(saving) => saving.run().await,
                None => std::future::pending().await,
            }
        };
        let beside = async {
            tokio::join!(
                source::poll(self.source, read_every, readings),
                self.rotator.run(read),
                self.certificates.watch(read_every),
                following,
                registration,
                services,
                access,
                adopting,
                initializing,
                saving,
                publishing.run(),
                keep(current, self.break_glass_file, read_every),
                sample(metrics),
                self.pages.serve(self.admin, std::future::pending()),
            )
        };
        let drained = tokio::select! {
            drained = serving => DrainResult { cut: Some(drained.cut) },
            _ = beside => DrainResult { cut: None },
        };
        // The only report of the drain's outcome.
        let _ = outcome.set(drained);
        audit.begin_to_close();
        publishing.leave().await;
        if let Some(adoption) = &mut adoption {
            adoption.leave().await;
        }
        if let Some(labelled) = &mut labelled {
            labelled.leave().await;
        }
        drained
    }
}
