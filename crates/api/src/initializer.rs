//! Initializer: a named party that must act on a new object before anyone else sees it.

use std::{hint::black_box, sync::Arc, time::Duration};

use super::{
    FailurePolicy, Selector, SideEffects,
    bypass::UserFilter,
    template::{JsonTemplate, Template, Variable},
};

/// One initializer of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initializer {
    /// Name in the object's pending list.
    pub name: Arc<str>,
    /// Effect if it does not act on an object in time: `Ignore` (default) or `Fail`.
    pub failure_policy: FailurePolicy,
    /// Maximum time that one object waits for it.
    pub timeout: Duration,
    /// Initializers of the same resource that act before it.
    pub after: Vec<Box<str>>,
    /// Selects objects by the labels of their namespaces.
    pub namespace_selector: Selector,
    /// Selects objects by their labels.
    pub object_selector: Selector,
    /// Built-in action, for which no process is needed.
    pub built_in: Option<Box<ObjectAdditions>>,
    /// Clients that may claim its name, if a process acts for it.
    pub attach: Option<Claimants>,
    /// Users who act on objects that are stored uninitialized. `None`: everyone who may `initialize` the resource.
    pub owners: Option<UserFilter>,
    /// True if the process may be called together with adjacent initializers that are parallel, too. Each of them
    /// changes other fields of the object.
    pub parallel: bool,
    /// Side effects of the process besides the changed object. Dry runs reach only a process that has none on dry runs.
    pub side_effects: SideEffects,
    /// True if it changes nothing outside of `metadata`. A patch that changes more fails.
    pub metadata_only: bool,
}

/// Clients that may claim the name of an initializer. One match is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimants {
    /// Common names of client certificates.
    pub common_names: Vec<Box<str>>,
    /// SHA-256 digests of tokens.
    pub token_digests: Vec<[u8; 32]>,
}

impl Claimants {
    /// Returns true if a client with a certificate of this name, or a token of this digest, may claim the initializer.
    pub fn admit(&self, certificate: Option<&str>, token: Option<[u8; 32]>) -> bool {
        certificate.is_some_and(|name| self.common_names.iter().any(|admitted| **admitted == *name))
            || token.is_some_and(|digest| self.holds(&digest))
    }

    /// Returns true if the digest is in the list. Takes the same time for every digest, so that it reveals nothing.
    fn holds(&self, digest: &[u8; 32]) -> bool {
        let differs = |known: &[u8; 32]| known.iter().zip(digest).fold(0, |bits, (one, other)| bits | (one ^ other));
        let equal = self.token_digests.iter().map(|known| u8::from(black_box(differs(known)) == 0));
        equal.fold(0, |any, equal| black_box(any | equal)) == 1
    }
}

/// Initializers of new objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInitializers {
    /// API group; the core group is "".
    pub api_group: Box<str>,
    /// Resource, plural and lower case.
    pub resource: Box<str>,
    /// Initializers, in the order in which they act.
    pub initializers: Vec<Initializer>,
    /// Users that may create objects with another list than this, or an empty one, without the verb `initialize` in the
    /// cluster. `None` for no users.
    pub may_initialize: Option<UserFilter>,
    /// True if an apiserver that does not support initializers stores new objects uninitialized, marked by a label, and
    /// Gatepost initializes them afterwards. Otherwise they are initialized in flight.
    pub by_label: bool,
}

impl ResourceInitializers {
    /// Returns the resource with its group, such as `pods` or `deployments.apps`.
    pub fn noun(&self) -> String {
        if self.api_group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.api_group)
        }
    }

    /// Returns true if a stock apiserver must send the new objects to Gatepost: an initializer acts on them, it is
    /// configured who may write their list, or objects are stored by label. Initializers that only have a name do not
    /// need the requests.
    pub fn need_requests(&self) -> bool {
        self.by_label || self.may_initialize.is_some() || self.initializers.iter().any(Initializer::acts_in_flight)
    }
}

/// Additions to an object by Gatepost itself. Fields that the object has stay unchanged, except image pull policies and
/// images, which are replaced. A second addition changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectAdditions {
    /// Labels of the object.
    pub labels: Vec<(Box<str>, Template)>,
    /// Annotations of the object.
    pub annotations: Vec<(Box<str>, Template)>,
    /// Additions to its Pods; `None` if the resource has no Pods, or nothing is added.
    pub pods: Option<PodAdditions>,
}

/// Additions to a Pod or a Pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAdditions {
    /// Path of the Pod's spec in the object.
    pub place: PodPlace,
    /// Environment variables of every container, each with its name.
    pub env: Vec<(Box<str>, JsonTemplate)>,
    /// Volumes, each with its name.
    pub volumes: Vec<(Box<str>, JsonTemplate)>,
    /// Mounts of every container, each with its path.
    pub volume_mounts: Vec<(Box<str>, JsonTemplate)>,
    /// Containers, each with its name.
    pub containers: Vec<(Box<str>, JsonTemplate)>,
    /// Containers that run before the others, or beside them with `restartPolicy: Always`, each with its name.
    pub init_containers: Vec<(Box<str>, JsonTemplate)>,
    /// Requests of every container that has no request for that resource.
    pub requests: Vec<(Box<str>, Box<str>)>,
    /// Limits of every container that has no limit for that resource.
    pub limits: Vec<(Box<str>, Box<str>)>,
    /// `imagePullPolicy` of every container, which replaces the container's own.
    pub image_pull_policy: Option<Box<str>>,
    /// `activeDeadlineSeconds` of Pods that run once and do not set it.
    pub active_deadline_seconds: Option<u32>,
    /// Images that containers name, each with its replacement.
    pub images: Vec<(Box<str>, Box<str>)>,
}

/// Path of a Pod's spec in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPlace {
    /// `spec`
    Pod,
    /// `spec.template.spec`
    Template,
    /// `spec.jobTemplate.spec.template.spec`
    JobTemplate,
}

impl PodPlace {
    /// Returns the path for a built-in resource of Kubernetes; `None` if it has no Pods.
    pub fn of(group: &str, resource: &str) -> Option<Self> {
        Some(match (group, resource) {
            ("", "pods") => Self::Pod,
            ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs") => Self::Template,
            ("batch", "cronjobs") => Self::JobTemplate,
            _ => return None,
        })
    }
}

impl Initializer {
    /// Returns true if Gatepost itself or an attached process acts, while the request is in flight. Otherwise somebody
    /// updates the stored object.
    pub fn acts_in_flight(&self) -> bool {
        self.built_in.is_some() || self.attach.is_some()
    }

    /// Returns true if it changes nothing outside of `metadata`.
    pub fn changes_only_metadata(&self) -> bool {
        self.metadata_only || self.built_in.as_ref().is_some_and(|built_in| built_in.pods.is_none())
    }
}

impl ObjectAdditions {
    /// Returns true if `meets` returns true for a variable of any template.
    pub fn any(&self, meets: &dyn Fn(&Variable) -> bool) -> bool {
        let texts = self.labels.iter().chain(&self.annotations);
        texts.flat_map(|(_, template)| template.variables()).any(meets)
            || self.pods.as_ref().is_some_and(|pods| pods.shapes().any(|shape| shape.any(meets)))
    }

    /// Returns true if a template uses labels of the request's namespace.
    pub fn reads_namespace(&self) -> bool {
        self.any(&|variable| matches!(variable, Variable::NamespaceLabel(_)))
    }
}

impl PodAdditions {
    fn shapes(&self) -> impl Iterator<Item = &JsonTemplate> {
        let Self { env, volumes, volume_mounts, containers, init_containers, .. } = self;
        [env, volumes, volume_mounts, containers, init_containers].into_iter().flatten().map(|(_, shape)| shape)
    }
}
