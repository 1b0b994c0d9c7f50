//! Initializer: a named party that must act on a new object before anyone else sees it.

use std::{hint::black_box, sync::Arc, time::Duration};

use super::{
    FailurePolicy, Selector, SideEffects,
    bypass::Who,
    template::{Shape, Template, Variable},
};

/// One initializer of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initializer {
    /// The name that is put on the object's pending list.
    pub name: Arc<str>,
    /// Effect of not acting on an object in time: `Ignore` (default) or `Fail`.
    pub failure_policy: FailurePolicy,
    /// Longest wait of one object for it.
    pub timeout: Duration,
    /// Initializers of the same resource behind which it stands.
    pub after: Vec<Box<str>>,
    /// It acts on objects in namespaces with such labels.
    pub namespace_selector: Selector,
    /// It acts on objects with such labels.
    pub object_selector: Selector,
    /// Built-in action, where it needs no process.
    pub built_in: Option<Box<BuiltIn>>,
    /// Clients that may claim its name, where a process acts for it.
    pub attach: Option<Claimants>,
    /// Users who act on objects that are stored unfinished. `None`: everyone who may `initialize` the resource.
    pub owners: Option<Who>,
    /// The process may be asked at once with its neighbours that say so as well; what it does to the object is its own
    /// part.
    pub parallel: bool,
    /// Effects of the process besides the changed object. A dry run reaches only one that has none then.
    pub side_effects: SideEffects,
    /// It changes nothing outside of `metadata`, and is held to that.
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
    /// May they claim it who show a certificate of that name, or a token of that digest?
    pub fn admit(&self, certificate: Option<&str>, token: Option<[u8; 32]>) -> bool {
        certificate.is_some_and(|name| self.common_names.iter().any(|admitted| **admitted == *name))
            || token.is_some_and(|digest| self.holds(&digest))
    }

    /// Is it one of the digests? Takes as long for every answer: the time reveals nothing of a digest.
    fn holds(&self, digest: &[u8; 32]) -> bool {
        let differs = |known: &[u8; 32]| known.iter().zip(digest).fold(0, |bits, (one, other)| bits | (one ^ other));
        let equal = self.token_digests.iter().map(|known| u8::from(black_box(differs(known)) == 0));
        equal.fold(0, |any, equal| black_box(any | equal)) == 1
    }
}

/// The initializers that new objects of one resource get, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInitializers {
    /// API group; the core group is "".
    pub api_group: Box<str>,
    /// Resource, plural and lower case.
    pub resource: Box<str>,
    /// In the order in which they act.
    pub initializers: Vec<Initializer>,
    /// Users that may create objects with another list than this, an empty one too: the verb `initialize`, where no
    /// Kubernetes is asked for it. By default no user may.
    pub may_initialize: Option<Who>,
    /// An apiserver that knows nothing of initializers stores new objects unfinished, marked by a label; Gatepost
    /// initializes them afterwards. Otherwise they are initialized in flight.
    pub by_label: bool,
}

impl ResourceInitializers {
    /// `pods`, `deployments.apps`.
    pub fn noun(&self) -> String {
        if self.api_group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.api_group)
        }
    }

    /// Must a stock apiserver send the new objects: because an initializer acts on them, or because it is said who may
    /// write their list? Names alone need nothing, unless objects are stored by label.
    pub fn need_requests(&self) -> bool {
        self.by_label || self.may_initialize.is_some() || self.initializers.iter().any(Initializer::acts_in_flight)
    }
}

/// Additions to an object that lacks them. Fields that it has stay as they are, so that adding twice adds once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltIn {
    /// Labels of the object.
    pub labels: Vec<(Box<str>, Template)>,
    /// Annotations of the object.
    pub annotations: Vec<(Box<str>, Template)>,
    /// Additions to its Pods; `None` where the resource has none, or nothing is added.
    pub pods: Option<PodAdditions>,
}

/// Additions to a Pod, or to the template of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAdditions {
    /// Place of the Pod's spec in the object.
    pub place: PodPlace,
    /// Environment variables of every container, each with its name.
    pub env: Vec<(Box<str>, Shape)>,
    /// Volumes, each with its name.
    pub volumes: Vec<(Box<str>, Shape)>,
    /// Mounts of every container, each with its path.
    pub volume_mounts: Vec<(Box<str>, Shape)>,
    /// Containers, each with its name.
    pub containers: Vec<(Box<str>, Shape)>,
    /// Containers that run before the others, or beside them with `restartPolicy: Always`, each with its name.
    pub init_containers: Vec<(Box<str>, Shape)>,
    /// Requests of every container that says nothing of that resource.
    pub requests: Vec<(Box<str>, Box<str>)>,
    /// Limits of every container that says nothing of that resource.
    pub limits: Vec<(Box<str>, Box<str>)>,
    /// `imagePullPolicy` of every container, whatever it says itself.
    pub image_pull_policy: Option<Box<str>>,
    /// `activeDeadlineSeconds` of Pods that run once and say nothing of it.
    pub active_deadline_seconds: Option<u32>,
    /// Images by what containers call them, each with what they are called instead.
    pub images: Vec<(Box<str>, Box<str>)>,
}

/// Place of a Pod's spec in an object.
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
    /// Place in Kubernetes' own resources; `None` for those that have no Pods.
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
    /// True where Gatepost itself, or a process that is attached to it, acts. Otherwise somebody does who updates the
    /// stored object.
    pub fn acts_in_flight(&self) -> bool {
        self.built_in.is_some() || self.attach.is_some()
    }

    /// Does it leave everything outside of `metadata` as it is?
    pub fn leaves_spec(&self) -> bool {
        self.metadata_only || self.built_in.as_ref().is_some_and(|built_in| built_in.pods.is_none())
    }
}

impl BuiltIn {
    /// Does a template in it meet this?
    pub fn any(&self, meets: &dyn Fn(&Variable) -> bool) -> bool {
        let texts = self.labels.iter().chain(&self.annotations);
        texts.flat_map(|(_, template)| template.variables()).any(meets)
            || self.pods.as_ref().is_some_and(|pods| pods.shapes().any(|shape| shape.any(meets)))
    }

    /// Are the labels of the request's namespace looked at?
    pub fn reads_namespace(&self) -> bool {
        self.any(&|variable| matches!(variable, Variable::NamespaceLabel(_)))
    }
}

impl PodAdditions {
    fn shapes(&self) -> impl Iterator<Item = &Shape> {
        let Self { env, volumes, volume_mounts, containers, init_containers, .. } = self;
        [env, volumes, volume_mounts, containers, init_containers].into_iter().flatten().map(|(_, shape)| shape)
    }
}
