//! Checks and compiles `builtIn` of an initializer: additions to objects that lack them.

use crate::{
    check::names,
    document::{
        node::{Node, Value, given},
        problem::quoted,
    },
};
use gatepost_api::{JsonTemplate, ObjectAdditions, PodAdditions, PodPlace, Template, template::VARIABLES};

pub(crate) const KEYS: [&str; 11] = [
    "labels",
    "annotations",
    "env",
    "volumes",
    "volumeMounts",
    "containers",
    "initContainers",
    "resources",
    "imagePullPolicy",
    "activeDeadlineSeconds",
    "images",
];
/// Keys of `resources`.
pub(crate) const RESOURCE_KEYS: [&str; 2] = ["requests", "limits"];

pub(crate) const PULL_POLICIES: [(&str, &str); 3] =
    [("Always", "Always"), ("IfNotPresent", "IfNotPresent"), ("Never", "Never")];

/// Consequence of a value that apiservers reject.
const REFUSED: &str = "so the object would be refused";

/// Maximum nesting depth of an addition: more than that of any Pod.
const MAX_ADDITION_DEPTH: usize = 16;

/// Checks the additions to objects of that resource and reports problems.
pub(super) fn check(at: &Node<'_>, group: &str, resource: &str) -> Option<ObjectAdditions> {
    if !at.is_map_of(&KEYS) {
        return None;
    }
    let before = at.problems();
    if !KEYS.iter().any(|key| at.key(key).present()) {
        at.problem(
            "adds nothing",
            "so objects would wait for nothing",
            "say what is added: labels, annotations, env, volumes and so on",
        );
    }
    let labels = templates(&at.key("labels"));
    let all_are_templates = at.problems() == before;
    for ((_, entry), (_, template)) in at.key("labels").entries().zip(&labels).filter(|_| all_are_templates) {
        let text = template.fill(&|_| None).unwrap_or_default();
        if !names::is_label_value(&text) {
            entry.problem(format!("{} is not a label value", quoted(&text)), REFUSED, names::VALUE);
        }
    }
    let annotations = templates(&at.key("annotations"));
    let for_pods: Vec<&str> = KEYS[2..].iter().copied().filter(|key| at.key(key).present()).collect();
    let pods = match (for_pods.first(), PodPlace::of(group, resource)) {
        (None, _) => None,
        (Some(_), Some(place)) => Some(pods(at, place)),
        (Some(first), None) if !resource.is_empty() => {
            let shown = quoted(resource);
            at.key(first).problem(
                "is added to Pods",
                format!("and objects of {shown} have none that are known"),
                "add only labels and annotations there, or name pods or one of Kubernetes' own workloads",
            );
            None
        }
        (Some(_), None) => None,
    };
    (at.problems() == before).then_some(ObjectAdditions { labels, annotations, pods })
}

fn pods(at: &Node<'_>, place: PodPlace) -> PodAdditions {
    let resources = at.key("resources");
    if resources.present() {
        resources.is_map_of(&RESOURCE_KEYS);
    }
    let policy = given(at.key("imagePullPolicy")).and_then(|at| at.choice(&PULL_POLICIES));
    let seconds = given(at.key("activeDeadlineSeconds"))
        .and_then(|at| at.integer(1..=i128::from(i32::MAX), "which no apiserver accepts"));
    PodAdditions {
        place,
        env: shapes(&at.key("env"), &ENV),
        volumes: shapes(&at.key("volumes"), &VOLUME),
        volume_mounts: shapes(&at.key("volumeMounts"), &VOLUME_MOUNT),
        containers: shapes(&at.key("containers"), &CONTAINER),
        init_containers: shapes(&at.key("initContainers"), &CONTAINER),
        requests: quantities(&resources.key("requests")),
        limits: quantities(&resources.key("limits")),
        image_pull_policy: policy.map(Into::into),
        active_deadline_seconds: seconds.and_then(|seconds| seconds.try_into().ok()),
        images: images(&at.key("images")),
    }
}

/// Reads a map whose values are templates.
fn templates(at: &Node<'_>) -> Vec<(Box<str>, Template)> {
    let mut templates = Vec::new();
    if at.present() && !matches!(at.value, Value::Map(_)) {
        at.wrong_type("a map");
    }
    for (key, entry) in at.entries() {
        if !names::is_qualified_name(key) {
            entry.problem(format!("{} is not a key", quoted(key)), REFUSED, names::KEY);
        }
        let Some(text) = entry.text() else { continue };
        match Template::parse(text) {
            Ok(template) => templates.push((key.into(), template)),
            Err(why) => entry.problem(why.0, "so what to write would not be known", format!("known are {VARIABLES}")),
        }
    }
    templates
}

/// Kind of an addition to a Pod.
struct Addition {
    /// Key that identifies an item of the object's list.
    key: &'static str,
    /// Returns true if an apiserver accepts the text as the value of `key`.
    is_valid: fn(&str) -> bool,
    fix: &'static str,
    /// Another key that an apiserver requires.
    needs: Option<&'static str>,
}

// source: k8s.io/kubernetes/pkg/apis/core/validation ValidateEnv, IsRelaxedEnvVarName.
const ENV: Addition = Addition {
    key: "name",
    is_valid: |name| !name.is_empty() && name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'='),
    fix: "write printable ASCII characters without =",
    needs: None,
};
const VOLUME: Addition = Addition { key: "name", is_valid: names::is_dns_label, fix: names::LABEL, needs: None };
const VOLUME_MOUNT: Addition = Addition {
    key: "mountPath",
    is_valid: |path| !path.is_empty() && !path.contains(':'),
    fix: "write a path without a colon",
    needs: Some("name"),
};
const CONTAINER: Addition =
    Addition { key: "name", is_valid: names::is_dns_label, fix: names::LABEL, needs: Some("image") };

/// Reads a list of maps, each identified by the text of its `key`.
fn shapes(at: &Node<'_>, Addition { key, is_valid, fix, needs }: &Addition) -> Vec<(Box<str>, JsonTemplate)> {
    let mut shapes = Vec::<(Box<str>, JsonTemplate)>::new();
    if !at.present() || !at.is_list() {
        return shapes;
    }
    for item in at.items() {
        if !matches!(item.value, Value::Map(_)) {
            item.wrong_type("a map");
            continue;
        }
        let place = item.key(key);
        let Some(name) = place
            .required("so it could not be seen whether an object has it already", "each is known by it")
            .then(|| place.text())
            .flatten()
        else {
            continue;
        };
        if name.contains("${") {
            place.problem(
                "is a template",
                "and objects that have it already are recognised by this text",
                "write a plain text",
            );
        } else if !is_valid(name) {
            place.problem(format!("{} is not a {key} of such", quoted(name)), REFUSED, *fix);
        }
        if let Some(needed) = needs {
            item.key(needed).required(REFUSED, "every such addition has one");
        }
        if shapes.iter().any(|(other, _)| **other == *name) {
            place.problem(
                format!("{} is listed twice", quoted(name)),
                "and an object can have it only once",
                "keep one of them",
            );
        }
        if item.value.depth() > MAX_ADDITION_DEPTH {
            item.problem("is nested too deep", "which no Pod is", "write it as a Pod has it");
            continue;
        }
        match JsonTemplate::of(&item.value.to_json()) {
            Ok(shape) => shapes.push((name.into(), shape)),
            Err(why) => item.problem(why.0, "so what to write would not be known", format!("known are {VARIABLES}")),
        }
    }
    shapes
}

/// Reads a map of resource names to quantities.
fn quantities(at: &Node<'_>) -> Vec<(Box<str>, Box<str>)> {
    let mut quantities = Vec::new();
    if at.present() && !matches!(at.value, Value::Map(_)) {
        at.wrong_type("a map");
    }
    for (key, entry) in at.entries() {
        let text = match entry.value {
            Value::Integer(number) => number.to_string(),
            _ => match entry.text() {
                Some(text) => text.to_owned(),
                None => continue,
            },
        };
        if !is_resource(key) {
            entry.problem(
                format!("{} is not the name of a resource", quoted(key)),
                REFUSED,
                "write cpu, memory or the like",
            );
        } else if !is_quantity(&text) {
            entry.problem(
                format!("{} is not a quantity", quoted(&text)),
                REFUSED,
                "write one such as 100m, 1.5 or 64Mi",
            );
        } else {
            quantities.push((key.into(), text.into()));
        }
    }
    quantities
}

/// Returns true if this is a resource of Kubernetes, or a qualified name with a domain.
// source: k8s.io/kubernetes/pkg/apis/core/validation validateContainerResourceName.
fn is_resource(name: &str) -> bool {
    let own = ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    names::is_qualified_name(name) && (own || name.contains('/'))
}

/// Returns true if this is a non-negative number, with or without a suffix.
// source: k8s.io/apimachinery/pkg/api/resource ParseQuantity.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|power| {
        let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
        !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    number.bytes().any(|byte| byte.is_ascii_digit())
        && number.matches('.').count() <= 1
        && (SUFFIXES.contains(&suffix) || exponent)
}

/// Reads a map of images to the images that replace them.
fn images(at: &Node<'_>) -> Vec<(Box<str>, Box<str>)> {
    let mut images = Vec::new();
    if at.present() && !matches!(at.value, Value::Map(_)) {
        at.wrong_type("a map");
    }
    for (key, entry) in at.entries() {
        let Some(text) = entry.text() else { continue };
        let digest = text.split_once("@sha256:").map(|(name, digest)| (name, digest.as_bytes()));
        let good = |(name, digest): (&str, &[u8])| {
            let hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
            !name.is_empty() && !name.contains(char::is_whitespace) && digest.len() == 64 && digest.iter().all(hex)
        };
        if !digest.is_some_and(good) {
            entry.problem(
                format!("{} has no digest", quoted(text)),
                "so another image could be put behind that name",
                "write the image with its digest: registry/name@sha256: and 64 hexadecimal digits",
            );
        }
        if key.is_empty() {
            entry.problem(
                "is the image of no name",
                "so no container would have it",
                "write the image as containers name it",
            );
        }
        images.push((key.into(), text.into()));
    }
    images
}
