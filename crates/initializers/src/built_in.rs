//! Built-in initializers: additions to an object, as one JSON Patch.
//!
//! Fields that the object already has are kept. So a second run changes nothing, and values that a user wrote are not
//! overwritten. Only images by digest and the pull policy replace the user's values.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use gatepost_api::{
    JsonTemplate, Labels, ObjectAdditions, PodAdditions, PodPlace, Template, Variable, template::Lookup,
};
use gatepost_json::pointer;
use gatepost_json_patch::MAX_OPERATIONS;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// Maximum length of a patch, in bytes. A longer patch would make the object too large, as it only adds.
const MAX_PATCH_BYTES: usize = 4 << 20;
/// Number of bytes of an object that take as long to read as one operation takes to write.
const BYTES_PER_OPERATION: usize = 64;

/// Values of a request for the variables of templates.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateFacts<'a> {
    /// Namespace of the request, or "".
    pub namespace: &'a str,
    /// Name of the object, or "".
    pub name: &'a str,
    /// User who creates the object, or "".
    pub user: &'a str,
    /// Labels of the namespace, if known.
    pub namespace_labels: Option<&'a Labels>,
}

/// Returns the patch that makes these additions to an object in JSON; `None` if the object has all of them. Reads the
/// object once for each level down to the Pod's spec.
///
/// # Errors
/// Message if they cannot be added to this object. It does not quote the object.
pub fn patch(additions: &ObjectAdditions, object: &[u8], facts: TemplateFacts<'_>) -> Result<Option<Bytes>, String> {
    let object: Object<'_> = serde_json::from_slice(object).map_err(|error| read_error("the object", &error))?;
    let metadata = object.metadata.ok_or("the object has no metadata")?;
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let lookup = |variable: &Variable| match variable {
        Variable::Namespace => some(facts.namespace),
        Variable::Name => some(facts.name),
        Variable::User => some(facts.user),
        Variable::NamespaceLabel(key) => facts.namespace_labels?.get(key).map(str::to_owned),
        Variable::Label(key) => metadata.labels.as_ref()?.get(&**key)?.clone(),
    };
    let mut patch = Patch { text: Vec::new(), operations: 0, lookup: &lookup };
    patch.texts("/metadata/labels", &additions.labels, metadata.labels.as_ref())?;
    patch.texts("/metadata/annotations", &additions.annotations, metadata.annotations.as_ref())?;
    if let Some(pods) = &additions.pods {
        let (path, spec) = pod_spec(pods.place, object.spec.ok_or("the object has no spec")?)?;
        patch.pods(path, pods, &spec)?;
    }
    Ok(patch.finish())
}

/// Returns an upper bound of the work of writing the patch, as the number of bytes that could be read meanwhile. It
/// grows with the number of containers that the object may have.
pub fn work<'a>(additions: &ObjectAdditions, object: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(pods) = &additions.pods else { return 0 };
    let containers: usize = object.map(|part| part.iter().filter(|byte| **byte == b'{').count()).sum();
    let each = pods.env.len() + pods.volume_mounts.len() + pods.requests.len() + pods.limits.len() + 2;
    BYTES_PER_OPERATION * containers.saturating_mul(each).min(MAX_OPERATIONS)
}

fn read_error(what: &str, error: &serde_json::Error) -> String {
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
    containers: Option<Containers>,
    init_containers: Option<Containers>,
    volumes: Option<Vec<NamedEntry>>,
    restart_policy: Option<String>,
    active_deadline_seconds: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: Option<String>,
    image: Option<String>,
    env: Option<Vec<NamedEntry>>,
    volume_mounts: Option<Vec<Mount>>,
    resources: Option<Resources>,
    image_pull_policy: Option<String>,
}

/// Containers, at most as many as a patch can change: a container in memory takes many times its bytes.
struct Containers(Vec<Container>);

impl<'de> Deserialize<'de> for Containers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<Container>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_OPERATIONS} containers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Container>, A::Error> {
                let mut read = Vec::new();
                while let Some(container) = items.next_element()? {
                    if read.len() == MAX_OPERATIONS {
                        return Err(Error::invalid_length(read.len() + 1, &self));
                    }
                    read.push(container);
                }
                Ok(read)
            }
        }
        from.deserialize_seq(Reader).map(Self)
    }
}

#[derive(Deserialize)]
struct NamedEntry {
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

/// Returns the path to the Pod's spec, and the spec.
fn pod_spec(place: PodPlace, spec: &RawValue) -> Result<(&'static str, PodSpec), String> {
    fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
        serde_json::from_str(raw.get()).map_err(|error| read_error("the object's spec", &error))
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

/// Writer of a patch as text, because parsed operations would take many times as much memory.
struct Patch<'a> {
    text: Vec<u8>,
    operations: usize,
    lookup: Lookup<'a>,
}

#[derive(Serialize)]
struct Operation<'a> {
    op: &'static str,
    path: &'a str,
    value: &'a Value,
}

type Additions = [(Box<str>, JsonTemplate)];

impl Patch<'_> {
    fn add(&mut self, path: &str, value: &Value) -> Result<(), String> {
        if self.operations == MAX_OPERATIONS || self.text.len() > MAX_PATCH_BYTES {
            return Err(format!(
                "it would take more than {MAX_OPERATIONS} additions, or {} MiB of them",
                MAX_PATCH_BYTES >> 20
            ));
        }
        self.text.push(if self.operations == 0 { b'[' } else { b',' });
        self.operations += 1;
        let operation = Operation { op: "add", path, value };
        serde_json::to_writer(&mut self.text, &operation).map_err(|error| error.to_string())
    }

    /// Returns the text; `None` if nothing is added.
    fn finish(mut self) -> Option<Bytes> {
        self.text.push(b']');
        (self.operations > 0).then(|| self.text.into())
    }

    /// Adds labels or annotations that the object does not have.
    fn texts(&mut self, path: &str, additions: &[(Box<str>, Template)], present: Option<&Texts>) -> Result<(), String> {
        let is_new = |key: &str| present.is_none_or(|present| !present.contains_key(key));
        let new = additions.iter().filter(|(key, _)| is_new(key));
        let new: Vec<_> = new.filter_map(|(key, text)| Some((key, Value::from(text.fill(self.lookup)?)))).collect();
        match present {
            _ if new.is_empty() => Ok(()),
            None => {
                let all: Map<_, _> = new.into_iter().map(|(key, text)| (key.to_string(), text)).collect();
                self.add(path, &all.into())
            }
            Some(_) => new.into_iter().try_for_each(|(key, text)| self.add(&member_path(path, key), &text)),
        }
    }

    fn pods(&mut self, path: &str, additions: &PodAdditions, spec: &PodSpec) -> Result<(), String> {
        // Containers to add, each with its image after the template is filled.
        let shapes = additions.containers.iter().chain(&additions.init_containers);
        let image = |shape: &JsonTemplate| Some(shape.fill(self.lookup)?.get("image")?.as_str()?.to_owned());
        let added: Vec<_> = shapes.map(|(name, shape)| (&**name, image(shape))).collect();
        for (list, containers) in [("initContainers", &spec.init_containers), ("containers", &spec.containers)] {
            for (at, container) in containers.iter().flat_map(|list| &list.0).enumerate() {
                // Containers that an earlier run added are kept. One that shares only its name is the user's.
                let is_same = |(name, image): &(&str, Option<String>)| {
                    container.name.as_deref() == Some(*name) && container.image == *image
                };
                if !added.iter().any(is_same) {
                    self.container(&format!("{path}/{list}/{at}"), additions, container)?;
                }
            }
        }
        let names = |containers: &Option<Containers>| {
            Some(containers.as_ref()?.0.iter().filter_map(|one| one.name.clone()).collect())
        };
        let volumes = spec.volumes.as_ref().map(|list| list.iter().filter_map(|one| one.name.clone()).collect());
        self.list(&format!("{path}/volumes"), &additions.volumes, volumes)?;
        self.list(&format!("{path}/initContainers"), &additions.init_containers, names(&spec.init_containers))?;
        self.list(&format!("{path}/containers"), &additions.containers, names(&spec.containers))?;
        let once = matches!(spec.restart_policy.as_deref(), Some("Never" | "OnFailure"));
        if let Some(seconds) = additions.active_deadline_seconds
            && once
            && spec.active_deadline_seconds.is_none()
        {
            self.add(&format!("{path}/activeDeadlineSeconds"), &seconds.into())?;
        }
        Ok(())
    }

    fn container(&mut self, path: &str, additions: &PodAdditions, container: &Container) -> Result<(), String> {
        let env = container.env.as_ref().map(|list| list.iter().filter_map(|one| one.name.clone()).collect());
        self.list(&format!("{path}/env"), &additions.env, env)?;
        let mounts = container.volume_mounts.as_ref();
        let mounts = mounts.map(|list| list.iter().filter_map(|one| one.mount_path.clone()).collect());
        self.list(&format!("{path}/volumeMounts"), &additions.volume_mounts, mounts)?;
        self.resources(&format!("{path}/resources"), additions, container.resources.as_ref())?;
        if let Some(policy) = &additions.image_pull_policy
            && container.image_pull_policy.as_deref() != Some(policy)
        {
            self.add(&format!("{path}/imagePullPolicy"), &(**policy).into())?;
        }
        let image = container.image.as_deref().unwrap_or_default();
        if let Some((_, digest)) = additions.images.iter().find(|(name, _)| **name == *image) {
            self.add(&format!("{path}/image"), &(**digest).into())?;
        }
        Ok(())
    }

    /// Adds entries whose names a list does not have.
    fn list(&mut self, path: &str, additions: &Additions, present: Option<Vec<String>>) -> Result<(), String> {
        let is_new = |name: &str| present.as_ref().is_none_or(|names| !names.iter().any(|other| *other == *name));
        let new = additions.iter().filter(|(name, _)| is_new(name));
        let new: Vec<_> = new.filter_map(|(_, shape)| shape.fill(self.lookup)).collect();
        match present {
            _ if new.is_empty() => Ok(()),
            None => self.add(path, &new.into()),
            Some(_) => new.iter().try_for_each(|value| self.add(&format!("{path}/-"), value)),
        }
    }

    /// Adds requests and limits of resources for which the container sets neither: a default beside the other might
    /// contradict it.
    fn resources(&mut self, path: &str, additions: &PodAdditions, present: Option<&Resources>) -> Result<(), String> {
        let requests = present.and_then(|present| present.requests.as_ref());
        let limits = present.and_then(|present| present.limits.as_ref());
        let is_set = |key: &str| [requests, limits].into_iter().flatten().any(|map| map.contains_key(key));
        let new = |additions: &[(Box<str>, Box<str>)]| -> Map<String, Value> {
            let new = additions.iter().filter(|(key, _)| !is_set(key));
            new.map(|(key, quantity)| (key.to_string(), (**quantity).into())).collect()
        };
        let parts = [("requests", new(&additions.requests), requests), ("limits", new(&additions.limits), limits)];
        let parts = parts.into_iter().filter(|(_, new, _)| !new.is_empty());
        if present.is_none() {
            let all: Map<_, _> = parts.map(|(key, new, _)| (key.to_owned(), new.into())).collect();
            return if all.is_empty() { Ok(()) } else { self.add(path, &all.into()) };
        }
        for (key, new, present) in parts {
            let path = format!("{path}/{key}");
            match present {
                None => self.add(&path, &new.into())?,
                Some(_) => new.iter().try_for_each(|(name, quantity)| self.add(&member_path(&path, name), quantity))?,
            }
        }
        Ok(())
    }
}

/// Returns the JSON Pointer to a member.
pub(crate) fn member_path(path: &str, key: &str) -> String {
    format!("{path}/{}", pointer::escaped(key))
}

#[cfg(test)]
mod tests;
