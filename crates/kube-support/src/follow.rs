//! Follow: objects of one resource, one list, then their changes; a new list when those cannot be had.
//!
//! | what happens | what we do |
//! | --- | --- |
//! | the apiserver ends the watch, as it does after [`WATCH`] | watch on from the last revision |
//! | the revision is forgotten (410), the machine has slept, or [`FollowHandler::RELIST`] has passed | list anew |
//! | a page breaks off | ask for half as many objects |
//! | one object cannot be read | skip it, count it, and go on |
//! | the apiserver cannot be reached, says no, or says nonsense | log it once, wait a little longer each time, list anew |
//!
//! A list is read object by object: no more is held of it than one object and [`MAX_BATCH`] of what the follower takes.

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
    client::{MAX_OBJECT, read_json},
    list::{ObjectIdentity, Oversized},
};
use gatepost_base::{
    clock::{Backoff, Moment, slept},
    throttle::Throttle,
};

/// Form in which an apiserver leaves out of a list all but metadata.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// Objects asked for at a time. Their metadata alone may be some hundred KiB each.
const PAGE: usize = 100;
/// Texts of listed objects are handed on when there are so many bytes of them.
const MAX_BATCH: usize = 1 << 20;
/// Requested duration of one watch: when an apiserver is gone without a word, there is time to find that out, to wait
/// in vain for one more answer, and to ask again before what is known is too old.
const WATCH: Duration = Duration::from_secs(30);
/// Pauses after failures: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Interval of looks at whether the follower still wants the same.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Log lines about objects that cannot be read.
static UNREADABLE_LOG: Throttle = Throttle::new();

/// Objects to be followed.
#[derive(Clone, Debug)]
pub struct FollowTarget {
    /// The cluster.
    pub client: KubeClient,
    /// Path of the objects.
    pub path: String,
    /// Label selector; "" selects all.
    pub selector: String,
}

/// News of the objects.
#[derive(Debug)]
pub enum FollowEvent<T> {
    /// A list begins. Objects of one before that has not ended do not count.
    Listing,
    /// Some objects of the list, maybe not for the first time.
    Listed {
        /// The objects.
        objects: Vec<T>,
        /// Time by the apiserver's clock, in seconds since 1970.
        now: Option<i64>,
    },
    /// The list is complete, and as new as that moment.
    ListEnd(Moment),
    /// An object is new, or has changed.
    Changed(T),
    /// An object is gone, or selected no longer.
    Gone(T),
    /// An object is new, has changed or is gone, and cannot be read: what was known of it is outdated.
    Unreadable(ObjectIdentity),
    /// The events so far were current at that moment.
    Current(Moment),
}

/// A follower of the objects of one resource.
pub trait FollowHandler: Send {
    /// An object, as far as it is needed. Fields that it does not have are skipped.
    type Object: DeserializeOwned + Send + 'static;
    /// Asks for metadata alone.
    const METADATA_ONLY: bool;
    /// Everything is listed anew so often, whatever the watch says.
    const RELIST: Duration;
    /// Log line when they cannot be followed.
    const LOST: &'static str;
    /// Log line when they are followed again.
    const FOUND: &'static str;

    /// Objects to be followed now; `None` where there are none for the time being.
    fn target(&mut self) -> impl Future<Output = Result<Option<FollowTarget>, KubeError>> + Send;

    /// Takes up news.
    fn take(&mut self, event: FollowEvent<Self::Object>) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Looks at the time, once a second and after each event; false: the objects are others by now.
    fn look(&mut self) -> impl Future<Output = Result<bool, KubeError>> + Send {
        std::future::ready(Ok(true))
    }

    /// Counts an object that cannot be read.
    fn count_unreadable(&self);

    /// Following has failed for this reason.
    fn failed(&mut self, _failure: &KubeError) {}
}

/// Follows the objects that the follower wants until dropped.
pub async fn follow<F: FollowHandler>(follower: &mut F) {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let mut log = FollowLog::default();
    let mut pages = PAGE;
    loop {
        let began = Instant::now();
        let ended = match follower.target().await {
            Ok(Some(target)) => {
                let mut round = Round { target, follower: &mut *follower, log: &mut log, pages: &mut pages };
                round.list_and_watch().await
            }
            Ok(None) => {
                sleep(LOOK_INTERVAL).await;
                continue;
            }
            Err(failure) => Err(failure),
        };
        if ended.is_ok() || began.elapsed() > PAUSES.1 {
            backoff.reset();
        }
        if let Err(failure) = ended {
            follower.failed(&failure);
            log.failed(F::LOST, failure);
        }
        sleep(backoff.pause()).await;
    }
}

/// Lines of the log about one resource.
#[derive(Debug, Default)]
struct FollowLog {
    /// The last reported failure.
    failure: Option<KubeError>,
}

impl FollowLog {
    fn failed(&mut self, lost: &str, failure: KubeError) {
        if self.failure.as_ref() != Some(&failure) {
            tracing::warn!(%failure, fix = failure.fix(), "{lost}");
            self.failure = Some(failure);
        }
    }

    fn follows(&mut self, found: &str) {
        if self.failure.take().is_some() {
            tracing::info!("{found}");
        }
    }
}

/// One list, and the watches that follow it.
struct Round<'a, F> {
    target: FollowTarget,
    follower: &'a mut F,
    log: &'a mut FollowLog,
    /// Objects of a page; 0 where everything is asked for at once.
    pages: &'a mut usize,
}

impl<F: FollowHandler> Round<'_, F> {
    /// Until everything has to be listed anew; an error where that is not ordinary.
    async fn list_and_watch(&mut self) -> Result<(), KubeError> {
        let listed = Instant::now();
        let Some(mut revision) = self.list().await? else { return Ok(()) };
        while listed.elapsed() < F::RELIST {
            let mut changes = match self.watch(&revision).await {
                Err(KubeError::Refused { code: 410, .. }) => return Ok(()),
                changes => changes?,
            };
            self.log.follows(F::FOUND);
            let (opened, began) = (Moment::now(slept), Instant::now());
            self.follower.take(FollowEvent::Current(opened)).await?;
            // An apiserver that is gone without a word must not be waited for: what it was asked for, and a little.
            while began.elapsed() <= WATCH + PAUSES.1 {
                let change = timeout(LOOK_INTERVAL, changes.next::<Box<RawValue>>()).await;
                // An event after the machine has slept may have been sent before it did.
                if slept() > opened.slept + PAUSES.0 {
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
                        self.follower.take(FollowEvent::Current(Moment::now(slept))).await?;
                    }
                }
                if !self.follower.look().await? {
                    return Ok(());
                }
            }
            // An apiserver that hangs up at once must not be called without pause.
            sleep(PAUSES.0.saturating_sub(began.elapsed())).await;
        }
        Ok(())
    }

    /// Lists the objects; the revision that they are of. `None` where it has expired meanwhile.
    async fn list(&mut self) -> Result<Option<String>, KubeError> {
        let began = Moment::now(slept);
        self.follower.take(FollowEvent::Listing).await?;
        let (mut revision, mut token) = (None::<String>, String::new());
        let mut limit = *self.pages;
        loop {
            let FollowTarget { client, path, selector } = &self.target;
            let from = if token.is_empty() { String::new() } else { format!("&continue={}", percent_encoded(&token)) };
            let at = format!("{path}?limit={limit}{}{from}", labels(selector));
            let form = if F::METADATA_ONLY { METADATA_LIST } else { WHOLE };
            let page = match client.page(&at, form, usize::MAX).await {
                // The token has outlived the revision (compaction). One answer without pages cannot.
                Err(KubeError::Refused { code: 410, .. }) => {
                    *self.pages = 0;
                    return Ok(None);
                }
                page => page?,
            };
            let page = match self.page(page).await {
                Err(KubeError::Unreachable { .. } | KubeError::Late { .. }) if limit != 1 => {
                    limit = if limit == 0 { PAGE } else { limit / 2 };
                    sleep(PAUSES.0).await;
                    // The first page comes again at a later revision; what was handed on of it may be gone by then.
                    if token.is_empty() {
                        self.follower.take(FollowEvent::Listing).await?;
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
                *self.pages = PAGE;
                self.follower.take(FollowEvent::ListEnd(began)).await?;
                return Ok(revision);
            }
        }
    }

    /// Hands on the objects of a page.
    async fn page(&mut self, mut page: Page) -> Result<PageMetadata, KubeError> {
        let (mut objects, mut size) = (Vec::new(), 0);
        while let Some(texts) = page.next().await? {
            for text in texts {
                let text = match text {
                    Ok(text) => text,
                    Err(Oversized) => {
                        self.unreadable(&format!("it is larger than {MAX_OBJECT} bytes"));
                        continue;
                    }
                };
                size += text.len();
                match read_json(text).await {
                    (_, Ok(object)) => objects.push(object),
                    (text, Err(why)) => {
                        self.unreadable(&why);
                        if let Some(identity) = ObjectIdentity::of(&text) {
                            self.follower.take(FollowEvent::Unreadable(identity)).await?;
                        }
                    }
                }
            }
            if size >= MAX_BATCH {
                size = 0;
                let objects = std::mem::take(&mut objects);
                self.follower.take(FollowEvent::Listed { objects, now: page.now }).await?;
            }
        }
        let now = page.now;
        let page = page.end()?;
        self.follower.take(FollowEvent::Listed { objects, now }).await?;
        Ok(page)
    }

    async fn watch(&self, revision: &str) -> Result<Watch, KubeError> {
        let FollowTarget { client, path, selector } = &self.target;
        let (revision, seconds, selector) = (percent_encoded(revision), WATCH.as_secs(), labels(selector));
        let query = "watch=1&allowWatchBookmarks=true";
        let at = format!("{path}?{query}&timeoutSeconds={seconds}&resourceVersion={revision}{selector}");
        client.open_watch(&at, if F::METADATA_ONLY { METADATA } else { WHOLE }).await
    }

    /// Hands on a change, and moves the revision.
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
            // It is not known which object is outdated now.
            (Err(why), None) => return Err(self.target.client.nonsense(&self.target.path, why)),
        };
        if let Some(ObjectIdentity { resource_version, .. }) = identity.filter(|it| !it.resource_version.is_empty()) {
            *revision = resource_version.into();
        }
        self.follower.take(event).await
    }

    /// Counts an object that cannot be read. The log says why, and nothing of the object.
    fn unreadable(&self, why: &str) {
        self.follower.count_unreadable();
        if let Some(more) = UNREADABLE_LOG.pass() {
            let (path, fix) = (&*self.target.path, "look for odd or very large metadata there, by `kubectl get --raw`");
            tracing::warn!(path, why, more, fix, "an object cannot be read; it is skipped");
        }
    }
}
