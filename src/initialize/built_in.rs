//! Built-in initializers: additions to an object, as one JSON Patch.
//!
//! What the object has already stays as it is. So a second run changes nothing, and whoever writes an object by hand is
//! not overruled; only images by digest and the pull policy replace what is there.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json, value::RawValue};

use crate::model::{BuiltIn, Labels, PodAdditions, PodPlace, Shape, Template, Variable, template::Lookup};

/// Parts of a request that templates name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The request's namespace, or "".
    pub namespace: &'a str,
    /// The object's name, or "".
    pub name: &'a str,
    /// Whoever creates it, or "".
    pub user: &'a str,
    /// Labels of the namespace, where they are known.
    pub namespace_labels: Option<&'a Labels>,
}

/// The patch that makes these additions to an object, which is JSON; `None` where it has them all. One pass over the
/// object for each level down to the Pod's spec.
///
/// # Errors
/// The object is none that they can be added to; the text repeats nothing of it.
pub fn patch(additions: &BuiltIn, object: &[u8], facts: Facts<'_>) -> Result<Option<Bytes>, String> {
    let object: Object<'_> = serde_json::from_slice(object).map_err(|error| unread("the object", &error))?;
    let metadata = object.metadata.ok_or("the object has no metadata")?;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let lookup = |variable: &Variable| match variable {
        Variable::Namespace => some(facts.namespace),
        Variable::Name => some(facts.name),
        Variable::User => some(facts.user),
        Variable::NamespaceLabel(key) => facts.namespace_labels?.get(key).map(str::to_owned),
        Variable::Label(key) => metadata.labels.as_ref()?.get(&**key)?.clone(),
    };
    let mut patch = Patch { operations: Vec::new(), lookup: &lookup };
    patch.texts("/metadata/labels", &additions.labels, metadata.labels.as_ref());
    patch.texts("/metadata/annotations", &additions.annotations, metadata.annotations.as_ref());
    if let Some(pods) = &additions.pods {
        let (path, spec) = pod_spec(pods.place, object.spec.ok_or("the object has no spec")?)?;
        patch.pods(path, pods, &spec);
    }
    if patch.operations.is_empty() {
        return Ok(None);
    }
    serde_json::to_vec(&patch.operations).map(|patch| Some(patch.into())).map_err(|error| error.to_string())
}

fn unread(what: &str, error: &serde_json::Error) -> String {
    format!("{what} cannot be read at line {}, column {}", error.line(), error.column())
}

#[derive(Deserialize)]
struct Object<'a> {
    metadata: Option<Metadata>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

type Texts = BTreeMap<String, Option<String>>;

#[derive(Deserialize)]
struct Metadata {
    labels: Option<Texts>,
    annotations: Option<Texts>,
}

#[derive(Deserialize)]
struct Holder<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Workload<'a> {
    #[serde(borrow)]
    template: Option<Holder<'a>>,
}

#[derive(Deserialize)]
struct Schedule<'a> {
    #[serde(borrow, rename = "jobTemplate")]
    job_template: Option<Holder<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    volumes: Option<Vec<Named>>,
    restart_policy: Option<String>,
    active_deadline_seconds: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: Option<String>,
    image: Option<String>,
    env: Option<Vec<Named>>,
    volume_mounts: Option<Vec<Mount>>,
    resources: Option<Resources>,
    image_pull_policy: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    mount_path: Option<String>,
}

#[derive(Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, IgnoredAny>>,
    limits: Option<BTreeMap<String, IgnoredAny>>,
}

/// The Pod's spec, and the path to it.
fn pod_spec(place: PodPlace, spec: &RawValue) -> Result<(&'static str, PodSpec), String> {
    fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
        serde_json::from_str(raw.get()).map_err(|error| unread("the object's spec", &error))
    }
    const NONE: &str = "the object has no template of Pods";
    let template = |spec| -> Result<_, String> {
        let workload: Workload<'_> = read(spec)?;
        Ok(workload.template.and_then(|template| template.spec).ok_or(NONE)?)
    };
    Ok(match place {
        PodPlace::Pod => ("/spec", read(spec)?),
        PodPlace::Template => ("/spec/template/spec", read(template(spec)?)?),
        PodPlace::JobTemplate => {
            let schedule: Schedule<'_> = read(spec)?;
            let job = schedule.job_template.and_then(|job| job.spec).ok_or(NONE)?;
            ("/spec/jobTemplate/spec/template/spec", read(template(job)?)?)
        }
    })
}

/// A patch in the making.
struct Patch<'a> {
    operations: Vec<Value>,
    lookup: Lookup<'a>,
}

type Additions = [(Box<str>, Shape)];

impl Patch<'_> {
    fn add(&mut self, path: String, value: Value) {
        self.operations.push(json!({"op": "add", "path": path, "value": value}));
    }

    /// Labels or annotations that are not there.
    fn texts(&mut self, path: &str, additions: &[(Box<str>, Template)], present: Option<&Texts>) {
        let is_new = |key: &str| present.is_none_or(|present| !present.contains_key(key));
        let new = additions.iter().filter(|(key, _)| is_new(key));
        let new: Vec<_> = new.filter_map(|(key, text)| Some((key, text.fill(self.lookup)?))).collect();
        match present {
            _ if new.is_empty() => {}
            None => {
                let all: Map<_, _> = new.into_iter().map(|(key, text)| (key.to_string(), text.into())).collect();
                self.add(path.to_owned(), all.into());
            }
            Some(_) => new.into_iter().for_each(|(key, text)| self.add(below(path, key), text.into())),
        }
    }

    fn pods(&mut self, path: &str, additions: &PodAdditions, spec: &PodSpec) {
        for (list, containers) in [("initContainers", &spec.init_containers), ("containers", &spec.containers)] {
            for (at, container) in containers.iter().flatten().enumerate() {
                // Those that it adds itself are as they are written.
                if container.name.as_deref().is_some_and(|name| additions.adds_container(name)) {
                    continue;
                }
                self.container(&format!("{path}/{list}/{at}"), additions, container);
            }
        }
        let names = |containers: &Option<Vec<Container>>| {
            containers.as_ref().map(|list| list.iter().filter_map(|one| one.name.clone()).collect::<Vec<_>>())
        };
        let volumes = spec.volumes.as_ref().map(|list| list.iter().filter_map(|one| one.name.clone()).collect());
        self.list(format!("{path}/volumes"), &additions.volumes, volumes);
        self.list(format!("{path}/initContainers"), &additions.init_containers, names(&spec.init_containers));
        self.list(format!("{path}/containers"), &additions.containers, names(&spec.containers));
        let once = matches!(spec.restart_policy.as_deref(), Some("Never" | "OnFailure"));
        if let Some(seconds) = additions.active_deadline_seconds
            && once
            && spec.active_deadline_seconds.is_none()
        {
            self.add(format!("{path}/activeDeadlineSeconds"), seconds.into());
        }
    }

    fn container(&mut self, path: &str, additions: &PodAdditions, container: &Container) {
        let env = container.env.as_ref().map(|list| list.iter().filter_map(|one| one.name.clone()).collect());
        self.list(format!("{path}/env"), &additions.env, env);
        let mounts = container.volume_mounts.as_ref();
        let mounts = mounts.map(|list| list.iter().filter_map(|one| one.mount_path.clone()).collect());
        self.list(format!("{path}/volumeMounts"), &additions.volume_mounts, mounts);
        self.resources(&format!("{path}/resources"), additions, container.resources.as_ref());
        if let Some(policy) = &additions.image_pull_policy
            && container.image_pull_policy.as_deref() != Some(policy)
        {
            self.add(format!("{path}/imagePullPolicy"), (**policy).into());
        }
        let image = container.image.as_deref().unwrap_or_default();
        if let Some((_, digest)) = additions.images.iter().find(|(name, _)| **name == *image) {
            self.add(format!("{path}/image"), (**digest).into());
        }
    }

    /// Entries that a list does not have by their name.
    fn list(&mut self, path: String, additions: &Additions, present: Option<Vec<String>>) {
        let is_new = |name: &str| present.as_ref().is_none_or(|names| !names.iter().any(|other| *other == *name));
        let new = additions.iter().filter(|(name, _)| is_new(name));
        let new: Vec<_> = new.filter_map(|(_, shape)| shape.fill(self.lookup)).collect();
        match present {
            _ if new.is_empty() => {}
            None => self.add(path, new.into()),
            Some(_) => new.into_iter().for_each(|value| self.add(format!("{path}/-"), value)),
        }
    }

    /// Requests and limits of resources of which the container says nothing: a default beside what it says of one might
    /// contradict it.
    fn resources(&mut self, path: &str, additions: &PodAdditions, present: Option<&Resources>) {
        let requests = present.and_then(|present| present.requests.as_ref());
        let limits = present.and_then(|present| present.limits.as_ref());
        let said = |key: &str| [requests, limits].into_iter().flatten().any(|map| map.contains_key(key));
        let new = |additions: &[(Box<str>, Box<str>)]| -> Map<String, Value> {
            let new = additions.iter().filter(|(key, _)| !said(key));
            new.map(|(key, quantity)| (key.to_string(), (**quantity).into())).collect()
        };
        let parts = [("requests", new(&additions.requests), requests), ("limits", new(&additions.limits), limits)];
        if present.is_none() {
            let parts = parts.into_iter().filter(|(_, new, _)| !new.is_empty());
            let all: Map<_, _> = parts.map(|(key, new, _)| (key.to_owned(), new.into())).collect();
            if !all.is_empty() {
                self.add(path.to_owned(), all.into());
            }
            return;
        }
        for (key, new, present) in parts.into_iter().filter(|(_, new, _)| !new.is_empty()) {
            match present {
                None => self.add(format!("{path}/{key}"), new.into()),
                Some(_) => {
                    let path = format!("{path}/{key}");
                    new.into_iter().for_each(|(name, quantity)| self.add(below(&path, &name), quantity));
                }
            }
        }
    }
}

/// The path of a member.
fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests;
