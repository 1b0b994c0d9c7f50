//! The objects of a Kubernetes cluster, read from its apiserver.
//!
//! Reads are not admitted: an apiserver that waits for our verdict answers them all the same, and one that is not up
//! yet needs none. So the apiserver that asks us may be the one that we read from.

pub mod adopting;
mod objects;

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    path::PathBuf,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

pub use self::objects::ObjectSelection;
use self::{
    adopting::{SharedReader, Upkeep},
    objects::{ConvertedObject, Kind},
};
use super::{
    contents::{Contents, READ_DEADLINE, ReadError},
    references,
};
use gatepost_adopt::{
    AdoptionReads, AdoptionSettings, AdoptionView, Lease, MAX_WEBHOOKS, Startup, UnservedWebhook, names,
};
use gatepost_base::{
    clock::{Moment, slept},
    files::BlockingReads,
};
use gatepost_config::{Note, SourceFile};
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, List, ReloadingClient};

/// Namespace whose uid stands for the whole cluster, as is the custom: every cluster has it as long as it lives.
const CLUSTER: &str = "/api/v1/namespaces/kube-system";
/// No configuration is this large.
const LIMIT: usize = 64 << 20;

/// Cluster, and the objects to read there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(unpredictable_function_pointer_comparisons, reason = "there is one maker of registrations")]
pub struct KubernetesLocation {
    /// Address of the apiserver, and credentials.
    pub access: KubeAccess,
    /// Kinds to read.
    pub objects: ObjectSelection,
    /// Folder on this machine for the files that hooks refer to.
    pub files: Option<PathBuf>,
    /// Webhooks of others to take over; `None` where none are.
    pub adopt: Option<AdoptionSettings>,
    /// Maker of the webhooks of our registrations, if adoption keeps these up to date.
    pub upkeep: Option<Upkeep>,
}

impl KubernetesLocation {
    /// Kinds to list: those to read, and webhooks where some are taken over.
    fn listed(&self) -> ObjectSelection {
        ObjectSelection { webhooks: self.objects.webhooks || self.adopt.is_some(), ..self.objects }
    }
}

impl fmt::Display for KubernetesLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster of {}", self.access)
    }
}

/// The objects of one cluster.
///
/// One read is one state of the store:
///
/// 1. The first kind is listed without a resourceVersion. The apiserver then answers with what a quorum of its store
///    holds at some moment after we asked, never with what a cache of its own has heard of so far.
/// 2. The answer says which revision that is. The other kinds are listed at exactly that revision, and so are further
///    pages. (Kinds that an apiserver keeps in another store, `--etcd-servers-overrides`, have no such revision: the
///    read fails.)
/// 3. The cluster's identity is asked for last, on the same connection, with every read: it is answered from memory,
///    and nothing of another cluster is ever conditions_document.
///
/// All of it has [`READ_DEADLINE`] together.
#[derive(Debug)]
pub struct KubernetesSource {
    place: KubernetesLocation,
    connection: ReloadingClient,
    /// The uid of the cluster that answered first.
    cluster: Option<String>,
    /// The latest revision seen.
    newest: u64,
    last: Option<Contents>,
    assembling: BlockingReads,
    adoption: Option<Adoption>,
}

/// State of adoption between reads, and the channel that publishes each read.
#[derive(Debug)]
struct Adoption {
    holder: String,
    opened: Moment,
    /// Its lease has been written.
    registered: bool,
    startup: Startup,
    reader: SharedReader,
    views: watch::Sender<Arc<AdoptionView>>,
    /// Webhooks that were given back before anything was served.
    given_back: mpsc::Sender<UnservedWebhook>,
    /// The other end, until the loop that writes has it.
    records: Option<mpsc::Receiver<UnservedWebhook>>,
}

impl Adoption {
    fn new(replica: &str) -> Self {
        let instance = RandomState::new().build_hasher().finish();
        let (given_back, records) = mpsc::channel(MAX_WEBHOOKS);
        Self {
            holder: format!("{replica}/{instance:016x}"),
            opened: Moment::now(slept),
            registered: false,
            startup: Startup::default(),
            reader: SharedReader::default(),
            views: watch::channel(Arc::default()).0,
            given_back,
            records: Some(records),
        }
    }
}

/// Everything of one read, as the apiserver returned it.
struct Lists {
    revision: String,
    lists: Vec<(Kind, Vec<Value>)>,
    cluster: String,
    leases: Option<ReadLeases>,
}

/// Leases of replicas that take webhooks over, and when they were asked for.
type ReadLeases = (Duration, Vec<Lease>);

impl KubernetesSource {
    /// Checks that address and credentials can be read; connects to nothing yet.
    ///
    /// # Errors
    /// Unusable settings.
    pub async fn new(place: KubernetesLocation) -> Result<Self, ReadError> {
        references::check(place.files.as_deref())?;
        let connection = ReloadingClient::new(place.access.clone()).await?;
        let adoption = place.adopt.as_ref().map(|adopt| Adoption::new(&adopt.replica));
        let assembling = BlockingReads::default();
        Ok(Self { place, connection, cluster: None, newest: 0, last: None, assembling, adoption })
    }

    /// Input of the loop that takes webhooks over, once; `None` where none are.
    pub fn adoption(&mut self) -> Option<AdoptionReads> {
        let (adopt, adoption) = (self.place.adopt.clone()?, self.adoption.as_mut()?);
        Some(AdoptionReads {
            settings: adopt,
            access: self.place.access.clone(),
            holder: adoption.holder.clone(),
            opened: adoption.opened,
            views: adoption.views.subscribe(),
            given_back: adoption.records.take()?,
        })
    }

    /// One full consistent read, within [`READ_DEADLINE`].
    ///
    /// # Errors
    /// [`ReadError`]; nothing of what was read is remembered then.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        let began = Instant::now();
        let asking = timeout(READ_DEADLINE, ask(&mut self.connection, &self.place, self.adoption.as_mut())).await;
        let asked = asking.unwrap_or_else(|_| {
            let server = self.connection.server();
            Err(KubeError::Late { server, patience: READ_DEADLINE }.into())
        });
        if let Err(ReadError::Kube(error)) = &asked {
            self.connection.failed(error);
        }
        let lists = asked?;
        self.take(lists, began + READ_DEADLINE).await
    }

    /// Takes up what was read, if it is of the same store as before, and not from its past.
    async fn take(&mut self, lists: Lists, until: Instant) -> Result<Contents, ReadError> {
        let left = || until.saturating_duration_since(Instant::now());
        let store = self.connection.server();
        if let Some(known) = self.cluster.as_ref().filter(|known| **known != lists.cluster) {
            return Err(ReadError::OtherStore { store, known: known.clone(), found: lists.cluster });
        }
        let Ok(now) = lists.revision.parse::<u64>() else {
            return Err(ReadError::Garbled { store, cause: "the list's resourceVersion is not a number".to_owned() });
        };
        if now < self.newest {
            return Err(ReadError::WentBack { store, before: self.newest, now });
        }
        let (place, last) = (self.place.clone(), self.last.clone());
        let ours = self.adoption.as_ref().map(|adoption| (adoption.holder.clone(), Arc::clone(&adoption.reader)));
        let leases = lists.leases.zip(ours);
        let assembled = self.assembling.run(left(), move || assemble(lists.lists, &place, last, now, leases)).await;
        let garbled = |cause| ReadError::Garbled { store: store.clone(), cause };
        let unfinished = |_| ReadError::Unfinished { store: store.clone(), within: READ_DEADLINE };
        let (contents, view) = assembled.map_err(unfinished)?.map_err(garbled)?;
        if let Some((view, adoption)) = view.zip(self.adoption.as_mut()) {
            let waits = adoption.startup.waits_for(view.now, &view.calls);
            if !waits.is_empty() {
                let client = self.connection.client().await?;
                for given_back in adoption.startup.give_back(&client, &waits, left()).await {
                    let webhook = given_back.key.clone();
                    if adoption.given_back.try_send(given_back).is_err() {
                        tracing::warn!(%webhook, "given back: this replica starts, and cannot serve it");
                    }
                }
                return Err(ReadError::GivesBack { webhooks: names(&waits), contents: Arc::new(contents) });
            }
            let cluster = lists.cluster.clone();
            adoption.views.send_replace(Arc::new(AdoptionView { cluster, ..view }));
        }
        let logged = |note: &&Note| self.last.as_ref().is_some_and(|last| last.notes.contains(note));
        contents.notes.iter().filter(|note| !logged(note)).for_each(|note| tracing::warn!(%store, "{note}"));
        self.cluster = Some(lists.cluster);
        self.newest = now;
        self.last = Some(contents.clone());
        Ok(contents)
    }
}

/// Every list at one revision, and the cluster's identity.
async fn ask(
    connection: &mut ReloadingClient,
    place: &KubernetesLocation,
    adoption: Option<&mut Adoption>,
) -> Result<Lists, ReadError> {
    let client = connection.client().await?;
    let leases = match place.adopt.as_ref().zip(adoption) {
        None => None,
        Some((adopt, Adoption { holder, opened, registered, .. })) => {
            let now = Moment::now(slept).since(*opened);
            // Before the webhooks: a leader that announces one waits for replicas whose lease exists.
            Some((now, adopt.register_and_read_leases(&client, holder, registered).await?))
        }
    };
    let (mut revision, mut lists) = (None, Vec::new());
    for kind in place.listed().kinds() {
        if let Some(list) = listed(&client, kind, revision.as_deref()).await? {
            revision.get_or_insert(list.revision);
            lists.push((kind, list.items));
        }
    }
    // Any revision will do for what never changes, so that an apiserver need not ask its store for it.
    let namespace = client.get(&format!("{CLUSTER}?resourceVersion=0")).await?;
    let garbled = |cause: &str| ReadError::Garbled { store: client.server().to_owned(), cause: cause.to_owned() };
    let uid = namespace.pointer("/metadata/uid").and_then(Value::as_str).filter(|uid| !uid.is_empty());
    let cluster = uid.ok_or_else(|| garbled("the namespace kube-system has no uid"))?.to_owned();
    Ok(Lists { revision: revision.ok_or_else(|| garbled("nothing was listed"))?, lists, cluster, leases })
}

/// The objects of one kind; `None` where nobody has to know that kind.
async fn listed(client: &KubeClient, kind: Kind, revision: Option<&str>) -> Result<Option<List>, ReadError> {
    let path = kind.path();
    let list = match revision {
        None => client.list(&path).await,
        Some(revision) => client.list_at(&path, revision).await,
    };
    match (list, kind) {
        (Err(KubeError::Refused { code: 404, .. }), Kind::BreakGlass) => Ok(None),
        (Err(KubeError::Refused { code: 404, server, .. }), Kind::Configuration) => {
            Err(ReadError::NotInstalled { store: server, resource: kind.full_name() })
        }
        (list, _) => Ok(Some(list?)),
    }
}

/// Contents of the objects, in the order of their kinds and names, and the files they refer to. Its revision is that of
/// the last read that found the objects changed.
fn assemble(
    lists: Vec<(Kind, Vec<Value>)>,
    place: &KubernetesLocation,
    last: Option<Contents>,
    now: u64,
    leases: Option<(ReadLeases, (String, SharedReader))>,
) -> Result<(Contents, Option<AdoptionView>), String> {
    let (mut files, mut notes, mut size) = (Vec::new(), Vec::new(), 0);
    let mut adopted = None;
    if let Some((((at, leases), (holder, shared)), adopt)) = leases.zip(place.adopt.as_ref()) {
        let (taken, view) = locked(&shared).read((at, adopt, &holder), leases, &lists)?;
        size += taken.iter().map(|file| file.bytes.len()).sum::<usize>();
        files.extend(taken);
        adopted = Some((adopt, shared, view));
    }
    // Files of webhooks that are taken over have been added above.
    let (others, lists): (Vec<_>, Vec<_>) =
        lists.into_iter().partition(|(kind, _)| adopted.is_some() && !kind.is_ours());
    for (kind, items) in lists {
        for item in items {
            match objects::taken(kind, item)? {
                ConvertedObject::File(file) => {
                    size += file.bytes.len();
                    files.push(file);
                }
                ConvertedObject::LeftOut(note) => notes.push(note),
            }
        }
    }
    if size > LIMIT {
        return Err(format!("it holds more than {LIMIT} bytes of configuration"));
    }
    notes.extend(nothing(&files, place));
    let folder = place.files.as_deref();
    let contents = match last.filter(|last| last.files == files && last.notes == notes) {
        Some(last) if references::unchanged(&last, folder) => Contents { as_of: Some(now), ..last },
        Some(last) => references::follow(Contents { as_of: Some(now), ..last }, folder),
        None => references::follow(Contents::new(files, Default::default()).noted(notes).at(now), folder),
    };
    let view = adopted.map(|(adopt, shared, view)| {
        let updates = place.upkeep.map(|upkeep| locked(&shared).updates((adopt, upkeep), &others, (&contents, &view)));
        AdoptionView { updates: updates.unwrap_or_default(), ..view }
    });
    Ok((contents, view))
}

fn locked(reader: &SharedReader) -> MutexGuard<'_, adopting::WebhookReader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Note that there are no hooks at all: a state like any other, and perhaps not an intended one. With webhooks to take
/// over there is none: until then the apiserver calls them.
fn nothing(files: &[SourceFile], place: &KubernetesLocation) -> Option<Note> {
    if place.adopt.is_some() {
        return None;
    }
    let kinds: Vec<_> = place.listed().kinds().filter(|kind| *kind != Kind::BreakGlass).collect();
    if files.iter().any(|file| kinds.iter().any(|kind| file.name.starts_with(kind.resource()))) {
        return None;
    }
    let kinds: Vec<_> = kinds.into_iter().map(Kind::full_name).collect();
    Some(Note {
        file: "the cluster".to_owned(),
        path: kinds.join(", "),
        what: "there is no such object".to_owned(),
        why: "so there are no hooks, and every write is allowed".to_owned(),
        fix: "create one; `gatepost check --help` shows how a configuration is checked first".to_owned(),
    })
}
