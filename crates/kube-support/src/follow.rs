//! Follows the objects of one resource: lists them, watches their changes, and lists them again if the watch fails.
//!
//! | event | reaction |
//! | --- | --- |
//! | the apiserver ends the watch, as it does after [`WATCH_DURATION`] | watch from the last revision |
//! | the revision expired (410), the machine was suspended, [`FollowHandler::RELIST_INTERVAL`] is over | list again |
//! | a page breaks off | request half as many objects |
//! | an object cannot be read | skip it and count it |
//! | the apiserver is unreachable, refuses, or sends an invalid response | log it once, back off, list again |
//!
//! A list is parsed object by object: memory is limited to the text of one object and [`MAX_BATCH_BYTES`] of parsed
//! objects.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{
    KubeClient, KubeError, Watch, WatchedChange,
    client::{WHOLE, labels, percent_encoded},
    list::{Page, PageMetadata},
    object::METADATA,
};
use crate::{
    client::{MAX_OBJECT_BYTES, read_json},
    list::{ObjectIdentity, Oversized},
};
use gatepost_base::{
    clock::{Backoff, Moment, suspended_time},
    throttle::Throttle,
};

/// Media type for which an apiserver sends only the metadata of the objects in a list.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Objects per page. Their metadata alone may be some hundred KiB each.
const PAGE_OBJECTS: usize = 100;
/// Size of the texts, in bytes, from which on the objects listed so far are passed to the handler.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Requested duration of one watch. Leaves time to detect an apiserver that is gone without a reset, to wait for one
/// more response until it times out, and to retry before the known state is too old.
const WATCH_DURATION: Duration = Duration::from_secs(30);
/// Pauses after failures: the first and the longest.
const FAILURE_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Interval of the calls to [`FollowHandler::tick`], and of [`FollowHandler::target`] while there is no target.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Rate limiter for logs about objects that cannot be read.
static UNREADABLE_LOG: Throttle = Throttle::new();

/// Objects to follow.
#[derive(Clone, Debug)]
pub struct FollowTarget {
    /// Client of the cluster.
    pub client: KubeClient,
    /// API path of the collection.
    pub path: String,
    /// Label selector; "" selects all.
    pub selector: String,
}

/// Event about the followed objects.
#[derive(Debug)]
pub enum FollowEvent<T> {
    /// A list begins. The objects of an earlier list that is not complete are void.
    Listing,
    /// Some objects of the list. An object may be listed more than once.
    Listed {
        /// The objects.
        objects: Vec<T>,
        /// Time of the apiserver's clock, in seconds since 1970.
        now: Option<i64>,
    },
    /// The list is complete, and not older than this moment.
    ListEnd(Moment),
    /// An object was created or has changed.
    Changed(T),
    /// An object was deleted or is no longer selected.
    Gone(T),
    /// An object in the list or in a change cannot be read: what is known of it is outdated.
    Unreadable(ObjectIdentity),
    /// All events up to this moment were passed to the handler.
    Current(Moment),
}

/// Handler of the events about the objects of one resource.
pub trait FollowHandler: Send {
    /// Type of the objects. Fields that it does not have are skipped.
    type Object: DeserializeOwned + Send + 'static;
    /// Whether only metadata is requested.
    const METADATA_ONLY: bool;
    /// Interval after which all objects are listed again, whatever the watch reports.
    const RELIST_INTERVAL: Duration;
    /// Log message if following fails.
    const FAILURE_MESSAGE: &'static str;
    /// Log message if following works again.
    const RECOVERY_MESSAGE: &'static str;

    /// Returns the objects to follow now; `None` if there are none at present.
    fn target(&mut self) -> impl Future<Output = Result<Option<FollowTarget>, KubeError>> + Send;

    /// Handles an event.
    fn handle(&mut self, event: FollowEvent<Self::Object>) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Runs once a second and after each event. Returns false if the objects to follow have changed.
    fn tick(&mut self) -> impl Future<Output = Result<bool, KubeError>> + Send {
        std::future::ready(Ok(true))
    }

    /// Counts an object that cannot be read.
    fn count_unreadable(&self);

    /// Handles a failure to follow the objects.
    fn on_failure(&mut self, _failure: &KubeError) {}
}

/// Follows the objects of the handler until dropped.
pub async fn follow<F: FollowHandler>(follower: &mut F) {
    let mut backoff = Backoff::new(FAILURE_PAUSES.0, FAILURE_PAUSES.1);
    let mut log = FailureLog::default();
    let mut pages = PAGE_OBJECTS;
    loop {
        let began = Instant::now();
        let ended = match follower.target().await {
            Ok(Some(target)) => {
                let mut round = Round { target, follower: &mut *follower, log: &mut log, pages: &mut pages };
                round.list_and_watch().await
            }
            Ok(None) => {
                sleep(TICK_INTERVAL).await;
                continue;
            }
            Err(failure) => Err(failure),
        };
        if ended.is_ok() || began.elapsed() > FAILURE_PAUSES.1 {
            backoff.reset();
        }
        if let Err(failure) = ended {
            follower.on_failure(&failure);
            log.failed(F::FAILURE_MESSAGE, failure);
        }
        sleep(backoff.pause()).await;
    }
}

/// Log of the failures of one kind of request: a failure is logged when it differs from the one before.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// The last logged failure.
    failure: Option<KubeError>,
}

impl FailureLog {
    /// Logs a failure, with the message `lost`.
    pub fn failed(&mut self, lost: &str, failure: KubeError) {
        if self.failure.as_ref() != Some(&failure) {
            tracing::warn!(%failure, fix = failure.fix(), "{lost}");
            self.failure = Some(failure);
        }
    }

    /// Returns true if the last request failed.
    pub fn is_failing(&self) -> bool {
        self.failure.is_some()
    }

    /// Logs the message `found` after a failure.
    pub fn recovered(&mut self, found: &str) {
        if self.failure.take().is_some() {
            tracing::info!("{found}");
        }
    }
}

/// One list, and the watches after it.
struct Round<'a, F> {
    target: FollowTarget,
    follower: &'a mut F,
    log: &'a mut FailureLog,
    /// Objects per page; 0 requests all objects in one page.
    pages: &'a mut usize,
}

impl<F: FollowHandler> Round<'_, F> {
    /// Returns when all objects have to be listed again; returns an error if a failure is the reason.
    async fn list_and_watch(&mut self) -> Result<(), KubeError> {
        let listed = Instant::now();
        let Some(mut revision) = self.list().await? else { return Ok(()) };
        while listed.elapsed() < F::RELIST_INTERVAL {
            let mut changes = match self.watch(&revision).await {
                Err(KubeError::Refused { code: 410, .. }) => return Ok(()),
                changes => changes?,
            };
            self.log.recovered(F::RECOVERY_MESSAGE);
            let (opened, began) = (Moment::now(suspended_time), Instant::now());
            self.follower.handle(FollowEvent::Current(opened)).await?;
            // Stop the watch if the apiserver is gone without a reset: after the requested duration and a margin.
            while began.elapsed() <= WATCH_DURATION + FAILURE_PAUSES.1 {
                let change = timeout(TICK_INTERVAL, changes.next::<Box<RawValue>>()).await;
                // An event received after the machine was suspended may have been sent before.
                if suspended_time() > opened.suspended_time + FAILURE_PAUSES.0 {
                    return Ok(());
                }
                match change {
                    Err(_) => {}
                    Ok(Ok(None)) => break,
                    Ok(Ok(Some(WatchedChange::Expired))) => return Ok(()),
                    Ok(change) => {
                        if let Some(change) = change? {
                            self.change(change, &mut revision).await?;
                        }
                        self.follower.handle(FollowEvent::Current(Moment::now(suspended_time))).await?;
                    }
                }
                if !self.follower.tick().await? {
                    return Ok(());
                }
            }
            // Limits the rate of watches if the apiserver closes each immediately.
            sleep(FAILURE_PAUSES.0.saturating_sub(began.elapsed())).await;
        }
        Ok(())
    }

    /// Lists the objects and returns their revision; `None` if the pages are of different or expired revisions.
    async fn list(&mut self) -> Result<Option<String>, KubeError> {
        let began = Moment::now(suspended_time);
        self.follower.handle(FollowEvent::Listing).await?;
        let (mut revision, mut token) = (None::<String>, String::new());
        let mut limit = *self.pages;
        loop {
            let FollowTarget { client, path, selector } = &self.target;
            let from = if token.is_empty() { String::new() } else { format!("&continue={}", percent_encoded(&token)) };
            let at = format!("{path}?limit={limit}{}{from}", labels(selector));
            let form = if F::METADATA_ONLY { METADATA_LIST } else { WHOLE };
            let page = match client.page(&at, form, usize::MAX).await {
                // The token's revision has expired (compaction). A response without pages needs no token.
                Err(KubeError::Refused { code: 410, .. }) => {
                    *self.pages = 0;
                    return Ok(None);
                }
                page => page?,
            };
            let page = match self.page(page).await {
                Err(KubeError::Unreachable { .. } | KubeError::TimedOut { .. }) if limit != 1 => {
                    limit = if limit == 0 { PAGE_OBJECTS } else { limit / 2 };
                    sleep(FAILURE_PAUSES.0).await;
                    // The first page is requested again at a later revision, at which objects passed on may be gone.
                    if token.is_empty() {
                        self.follower.handle(FollowEvent::Listing).await?;
                    }
                    continue;
                }
                page => page?,
            };
            if *revision.get_or_insert_with(|| page.revision.clone()) != page.revision {
                return Ok(None);
            }
            token = page.next;
            if token.is_empty() {
                *self.pages = PAGE_OBJECTS;
                self.follower.handle(FollowEvent::ListEnd(began)).await?;
                return Ok(revision);
            }
        }
    }

    /// Passes the objects of a page to the handler.
    async fn page(&mut self, mut page: Page) -> Result<PageMetadata, KubeError> {
        let (mut objects, mut size) = (Vec::new(), 0);
        while let Some(texts) = page.next().await? {
            for text in texts {
                let text = match text {
                    Ok(text) => text,
                    Err(Oversized) => {
                        self.unreadable(&format!("it is larger than {MAX_OBJECT_BYTES} bytes"));
                        continue;
                    }
                };
                size += text.len();
                match read_json(text).await {
                    (_, Ok(object)) => objects.push(object),
                    (text, Err(why)) => {
                        self.unreadable(&why);
                        if let Some(identity) = ObjectIdentity::of(&text) {
                            self.follower.handle(FollowEvent::Unreadable(identity)).await?;
                        }
                    }
                }
            }
            if size >= MAX_BATCH_BYTES {
                size = 0;
                let objects = std::mem::take(&mut objects);
                self.follower.handle(FollowEvent::Listed { objects, now: page.now }).await?;
            }
        }
        let now = page.now;
        let page = page.end()?;
        self.follower.handle(FollowEvent::Listed { objects, now }).await?;
        Ok(page)
    }

    async fn watch(&self, revision: &str) -> Result<Watch, KubeError> {
        let FollowTarget { client, path, selector } = &self.target;
        let (revision, seconds, selector) = (percent_encoded(revision), WATCH_DURATION.as_secs(), labels(selector));
        let query = "watch=1&allowWatchBookmarks=true";
        let at = format!("{path}?{query}&timeoutSeconds={seconds}&resourceVersion={revision}{selector}");
        client.open_watch(&at, if F::METADATA_ONLY { METADATA } else { WHOLE }).await
    }

    /// Passes a change to the handler, and advances the revision.
    async fn change(&mut self, change: WatchedChange<Box<RawValue>>, revision: &mut String) -> Result<(), KubeError> {
        let (text, is_gone) = match change {
            WatchedChange::Changed(text) => (text, false),
            WatchedChange::Gone(text) => (text, true),
            WatchedChange::Bookmark(at) => {
                *revision = at;
                return Ok(());
            }
            WatchedChange::Expired => return Ok(()),
        };
        let text = Box::<str>::from(text).into_boxed_bytes().into_vec();
        let identity = ObjectIdentity::of(&text);
        let event = match (read_json(text).await.1, &identity) {
            (Ok(object), _) if is_gone => FollowEvent::Gone(object),
            (Ok(object), _) => FollowEvent::Changed(object),
            (Err(why), Some(identity)) => {
                self.unreadable(&why);
                FollowEvent::Unreadable(identity.clone())
            }
            // It is unknown which object is outdated.
            (Err(why), None) => return Err(self.target.client.invalid_response(&self.target.path, why)),
        };
        if let Some(ObjectIdentity { resource_version, .. }) = identity.filter(|it| !it.resource_version.is_empty()) {
            *revision = resource_version.into();
        }
        self.follower.handle(event).await
    }

    /// Counts an object that cannot be read. Logs the reason, but nothing of the object.
    fn unreadable(&self, why: &str) {
        self.follower.count_unreadable();
        if let Some(more) = UNREADABLE_LOG.pass() {
            let (path, fix) = (&*self.target.path, "look for odd or very large metadata there, by `kubectl get --raw`");
            tracing::warn!(path, why, more, fix, "an object cannot be read; it is skipped");
        }
    }
}
