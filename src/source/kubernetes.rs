//! Source: the objects of a Kubernetes cluster, read from its apiserver.
//!
//! The apiserver that calls Gatepost may be the one that Gatepost reads from: reads are not admitted, so an apiserver
//! that waits for a verdict answers them, and one that has not started yet needs no verdict.

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

pub use self::objects::{Kind, ObjectSelection};
use self::{
    adopting::{SharedReader, Upkeep},
    objects::ConvertedObject,
};
use super::{
    contents::{Contents, READ_TIMEOUT, ReadError},
    hints::{ClusterRead, Hints},
    references,
};
use gatepost_adopt::{
    AdoptionReads, AdoptionSettings, AdoptionView, Lease, MAX_ENTRIES, Startup, UnservedEntry, names,
};
use gatepost_base::{
    clock::{Moment, suspended_time},
    files::BlockingReads,
};
use gatepost_config::{Note, SourceFile};
use gatepost_kube_support::{KubeAccess, KubeClient, KubeError, List, ReloadingClient};

/// Namespace whose uid identifies the cluster, by convention: it exists as long as the cluster.
const CLUSTER: &str = "/api/v1/namespaces/kube-system";
/// Maximum size in bytes of all documents.
const LIMIT: usize = 64 << 20;

/// Location of the configuration in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(unpredictable_function_pointer_comparisons, reason = "there is one maker of registrations")]
pub struct KubernetesLocation {
    /// Address of the apiserver, and credentials.
    pub access: KubeAccess,
    /// Kinds to read.
    pub objects: ObjectSelection,
    /// Folder on this machine for the files that hooks refer to.
    pub files: Option<PathBuf>,
    /// Webhooks of others to adopt; `None` if there are none.
    pub adopt: Option<AdoptionSettings>,
    /// Function that makes the webhooks of our registrations, if adoption keeps these up to date.
    pub upkeep: Option<Upkeep>,
}

impl KubernetesLocation {
    /// Creates the location of these kinds in a cluster, without files, adoption and upkeep.
    pub fn new(access: KubeAccess, objects: ObjectSelection) -> Self {
        Self { access, objects, files: None, adopt: None, upkeep: None }
    }

    /// Returns the kinds to list: those to read, and what can be taken over if anything is adopted.
    fn kinds_to_list(&self) -> impl Iterator<Item = Kind> {
        self.objects.kinds(self.adopt.is_some())
    }
}

impl fmt::Display for KubernetesLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster of {}", self.access)
    }
}

/// Source of the objects of one cluster.
///
/// One read is one state of the store:
///
/// 1. The first kind is listed without a resourceVersion. The apiserver then answers from a quorum of its store, with a
///    state that is not older than the request, and never from its own cache.
/// 2. The other kinds, and further pages, are listed at exactly the revision of that answer. (Kinds that an apiserver
///    stores elsewhere, `--etcd-servers-overrides`, have no such revision: the read fails.)
/// 3. Each read ends with a request for the cluster's identity, on the same connection. The apiserver answers it from
///    memory, and no object of another cluster is ever put in force.
///
/// All requests together have the timeout [`READ_TIMEOUT`].
#[derive(Debug)]
pub struct KubernetesSource {
    place: KubernetesLocation,
    connection: ReloadingClient,
    /// Uid of the cluster that answered first.
    cluster: Option<String>,
    /// Contents of the latest revision seen.
    last: Option<Contents>,
    assembling: BlockingReads,
    adoption: Option<Adoption>,
    /// Client and revision of the last good read.
    read: watch::Sender<ClusterRead>,
}

/// State of adoption between reads, and the channel that publishes each read.
#[derive(Debug)]
struct Adoption {
    holder: String,
    opened: Moment,
    /// True once the lease has been written.
    registered: bool,
    startup: Startup,
    reader: SharedReader,
    views: watch::Sender<Arc<AdoptionView>>,
    /// Sends webhooks that were given back before anything was served.
    given_back: mpsc::Sender<UnservedEntry>,
    /// Receiver of these webhooks, until the adoption loop has taken it.
    records: Option<mpsc::Receiver<UnservedEntry>>,
}

impl Adoption {
    fn new(replica: &str) -> Self {
        let instance = RandomState::new().build_hasher().finish();
        let (given_back, records) = mpsc::channel(MAX_ENTRIES);
        Self {
            holder: format!("{replica}/{instance:016x}"),
            opened: Moment::now(suspended_time),
            registered: false,
            startup: Startup::default(),
            reader: SharedReader::default(),
            views: watch::channel(Arc::default()).0,
            given_back,
            records: Some(records),
        }
    }
}

/// Lists of one read, as the apiserver returned them.
struct Lists {
    client: KubeClient,
    revision: String,
    lists: Vec<(Kind, Vec<Value>)>,
    cluster: String,
    leases: Option<ReadLeases>,
    /// Error of listing policies, which are then not adopted.
    forbidden: Option<KubeError>,
}

/// Leases of replicas that adopt webhooks, and the time of the request for them.
type ReadLeases = (Duration, Vec<Lease>);

impl KubernetesSource {
    /// Checks that address and credentials can be read; connects to nothing yet.
    ///
    /// # Errors
    /// Returns an error if the settings are unusable.
    pub async fn new(place: KubernetesLocation) -> Result<Self, ReadError> {
        references::check(place.files.as_deref())?;
        let connection = ReloadingClient::new(place.access.clone()).await?;
        let adoption = place.adopt.as_ref().map(|adopt| Adoption::new(&adopt.replica));
        let assembling = BlockingReads::default();
        let read = watch::channel(None).0;
        Ok(Self { place, connection, cluster: None, last: None, assembling, adoption, read })
    }

    /// Returns the objects to watch for changes between reads.
    pub(super) fn hints(&self) -> Hints {
        Hints::Kubernetes(self.place.kinds_to_list().map(Kind::path).collect(), self.read.subscribe())
    }

    /// Returns the input of the adoption loop, once; `None` if nothing is adopted.
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

    /// Reads the objects consistently, within [`READ_TIMEOUT`].
    ///
    /// # Errors
    /// [`ReadError`]; the last good read stays cached.
    pub async fn read(&mut self) -> Result<Contents, ReadError> {
        let began = Instant::now();
        let lists = timeout(READ_TIMEOUT, fetch(&mut self.connection, &self.place, self.adoption.as_mut())).await;
        let lists = lists.unwrap_or_else(|_| {
            let server = self.connection.server();
            Err(KubeError::TimedOut { server, patience: READ_TIMEOUT }.into())
        });
        if let Err(ReadError::Kube(error)) = &lists {
            self.connection.failed(error);
        }
        self.process(lists?, began + READ_TIMEOUT).await
    }

    /// Processes the lists if the store is the known one and its revision has not decreased.
    async fn process(&mut self, lists: Lists, until: Instant) -> Result<Contents, ReadError> {
        let left = || until.saturating_duration_since(Instant::now());
        let store = self.connection.server();
        if let Some(known) = self.cluster.as_ref().filter(|known| **known != lists.cluster) {
            return Err(ReadError::OtherStore { store, known: known.clone(), found: lists.cluster });
        }
        let Ok(now) = lists.revision.parse::<u64>() else {
            return Err(ReadError::Garbled { store, cause: "the list's resourceVersion is not a number".to_owned() });
        };
        if let Some(before) = self.last.as_ref().and_then(|last| last.as_of).filter(|before| now < *before) {
            return Err(ReadError::WentBack { store, before, now });
        }
        let (place, last) = (self.place.clone(), self.last.clone());
        let ours = self.adoption.as_ref().map(|adoption| (adoption.holder.clone(), Arc::clone(&adoption.reader)));
        let leases = lists.leases.zip(ours);
        let notes = lists.forbidden.iter().map(forbidden_note).collect();
        let assembling = move || assemble((lists.lists, notes), &place, last, now, leases);
        let assembled = self.assembling.run(left(), assembling).await;
        let garbled = |cause| ReadError::Garbled { store: store.clone(), cause };
        let unfinished = |_| ReadError::Unfinished { store: store.clone(), within: READ_TIMEOUT };
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
        self.read.send_replace(Some((lists.client, lists.revision)));
        self.last = Some(contents.clone());
        Ok(contents)
    }
}

/// Lists every kind at one revision, and reads the cluster's identity.
async fn fetch(
    connection: &mut ReloadingClient,
    place: &KubernetesLocation,
    adoption: Option<&mut Adoption>,
) -> Result<Lists, ReadError> {
    let client = connection.client().await?;
    let leases = match place.adopt.as_ref().zip(adoption) {
        None => None,
        Some((adopt, Adoption { holder, opened, registered, .. })) => {
            let now = Moment::now(suspended_time).since(*opened);
            // Before the webhooks: a leader that announces a webhook waits for replicas whose lease exists.
            Some((now, adopt.register_and_read_leases(&client, holder, registered).await?))
        }
    };
    let (mut revision, mut lists) = (None, Vec::new());
    let (mut forbidden, mut missing) = (None, None);
    for kind in place.kinds_to_list() {
        match list_kind(&client, kind, revision.as_deref()).await {
            Ok(Some(list)) => {
                revision.get_or_insert(list.revision);
                lists.push((kind, list.items));
            }
            Ok(None) if kind.is_of_policies() => {
                missing.get_or_insert(kind);
            }
            Ok(None) => {}
            // The roles of a former version do not include policies.
            Err(ReadError::Kube(error @ KubeError::Refused { code: 403, .. })) if kind.is_of_policies() => {
                forbidden.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = &forbidden {
        lists.retain(|(kind, _)| !kind.is_of_policies());
        if !adopting::knows_announced(&lists, leases.as_ref().map_or(&[], |(_, leases)| leases)) {
            return Err(error.clone().into());
        }
    }
    // Another apiserver of this cluster may serve it.
    if let Some(kind) = missing
        && !adopting::knows_announced(&lists, leases.as_ref().map_or(&[], |(_, leases)| leases))
    {
        return Err(ReadError::NotInstalled { store: client.server().to_owned(), resource: kind.full_name() });
    }
    // The uid never changes, so any revision will do, and the apiserver need not query its store.
    let namespace = client.get(&format!("{CLUSTER}?resourceVersion=0")).await?;
    let garbled = |cause: &str| ReadError::Garbled { store: client.server().to_owned(), cause: cause.to_owned() };
    let uid = namespace.pointer("/metadata/uid").and_then(Value::as_str).filter(|uid| !uid.is_empty());
    let cluster = uid.ok_or_else(|| garbled("the namespace kube-system has no uid"))?.to_owned();
    let revision = revision.ok_or_else(|| garbled("nothing was listed"))?;
    Ok(Lists { client, revision, lists, cluster, leases, forbidden })
}

/// Lists the objects of one kind; `None` if an optional kind is not installed.
async fn list_kind(client: &KubeClient, kind: Kind, revision: Option<&str>) -> Result<Option<List>, ReadError> {
    let path = kind.path();
    let list = match revision {
        None => client.list(&path).await,
        Some(revision) => client.list_at(&path, revision).await,
    };
    match (list, kind) {
        (Err(KubeError::Refused { code: 404, .. }), kind) if kind == Kind::BreakGlass || kind.is_of_policies() => {
            Ok(None)
        }
        (Err(KubeError::Refused { code: 404, server, .. }), Kind::Configuration) => {
            Err(ReadError::NotInstalled { store: server, resource: kind.full_name() })
        }
        (list, _) => Ok(Some(list?)),
    }
}

/// Returns contents of the objects, in the order of their kinds and names, and of the files they refer to. Their
/// revision is that of the last read that found changed objects.
fn assemble(
    (lists, mut notes): (Vec<(Kind, Vec<Value>)>, Vec<Note>),
    place: &KubernetesLocation,
    last: Option<Contents>,
    now: u64,
    leases: Option<(ReadLeases, (String, SharedReader))>,
) -> Result<(Contents, Option<AdoptionView>), String> {
    let (mut files, mut size) = (Vec::new(), 0);
    let mut adopted = None;
    if let Some((((at, leases), (holder, shared)), adopt)) = leases.zip(place.adopt.as_ref()) {
        let (taken, view) = locked(&shared).read((at, adopt, &holder), leases, &lists)?;
        size += taken.iter().map(|file| file.bytes.len()).sum::<usize>();
        files.extend(taken);
        adopted = Some((adopt, shared, view));
    }
    // Files of adopted webhooks have been added above.
    let (others, lists): (Vec<_>, Vec<_>) =
        lists.into_iter().partition(|(kind, _)| adopted.is_some() && !kind.is_ours());
    for (kind, items) in lists {
        for item in items {
            match objects::convert(kind, item)? {
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
    notes.extend(no_hooks_note(&files, place));
    let folder = place.files.as_deref();
    let contents = match last.filter(|last| last.files == files && last.notes == notes) {
        Some(last) if references::unchanged(&last, folder) => Contents { as_of: Some(now), ..last },
        Some(last) => references::follow(Contents { as_of: Some(now), ..last }, folder),
        None => references::follow(Contents::new(files, Default::default()).noted(notes).with_revision(now), folder),
    };
    let view = adopted.map(|(adopt, shared, view)| {
        let updates =
            place.upkeep.map(|upkeep| locked(&shared).upkeep.updates((adopt, upkeep), &others, (&contents, &view)));
        AdoptionView { updates: updates.unwrap_or_default(), ..view }
    });
    Ok((contents, view))
}

fn locked(reader: &SharedReader) -> MutexGuard<'_, adopting::EntryReader> {
    reader.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a note that policies of the cluster are not taken over, because they cannot be listed.
fn forbidden_note(error: &KubeError) -> Note {
    Note {
        file: "the cluster".to_owned(),
        path: "validatingadmissionpolicies, mutatingadmissionpolicies and their bindings".to_owned(),
        what: error.to_string(),
        why: "so no policy is taken over".to_owned(),
        fix: "apply the role gatepost-adopt of this version (deploy/kubernetes/adopt.yaml)".to_owned(),
    }
}

/// Returns a note if there are no hooks: a valid state, but perhaps not an intended one. With adoption there is no
/// note, since the apiserver calls webhooks until they are adopted.
fn no_hooks_note(files: &[SourceFile], place: &KubernetesLocation) -> Option<Note> {
    if place.adopt.is_some() {
        return None;
    }
    let kinds: Vec<_> = place.kinds_to_list().filter(|kind| *kind != Kind::BreakGlass).collect();
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
