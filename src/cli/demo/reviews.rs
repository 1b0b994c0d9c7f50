//! Reviews that are sent: those of `examples/reviews/`, and a big one made here.

use bytes::Bytes;

use crate::wire::{
    pb::k8s::io::api::admission::v1::{AdmissionRequest, AdmissionReview},
    review_json::from_file,
};

/// The big ConfigMap's size in bytes.
const BIG: usize = 500 << 10;

/// The reviews of the first act, and of those that follow.
pub(super) struct Reviews {
    pub(super) pod: AdmissionReview,
    pub(super) pod_latest: AdmissionReview,
    pub(super) pod_privileged: AdmissionReview,
    pub(super) pod_delete: AdmissionReview,
    pub(super) deployment: AdmissionReview,
    pub(super) service: AdmissionReview,
    pub(super) custom: AdmissionReview,
    pub(super) config_map: AdmissionReview,
    pub(super) big_config_map: AdmissionReview,
}

macro_rules! example {
    ($name:literal) => {
        from_file($name, &Bytes::from_static(include_bytes!(concat!("../../../examples/reviews/", $name))))
            .map_err(|error| format!(concat!("examples/reviews/", $name, ": {}"), error))
    };
}

impl Reviews {
    /// Reads all of them.
    pub(super) fn read() -> Result<Self, String> {
        let config_map = example!("configmap-create.json")?;
        Ok(Self {
            pod: example!("pod-create.json")?,
            pod_latest: example!("pod-create-latest.json")?,
            pod_privileged: example!("pod-create-privileged.json")?,
            pod_delete: example!("pod-delete.json")?,
            deployment: example!("deployment-update.json")?,
            service: example!("service-create.json")?,
            custom: example!("crd-object.yaml")?,
            big_config_map: big(&config_map),
            config_map,
        })
    }
}

/// The same ConfigMap with 500 KiB of data.
fn big(config_map: &AdmissionReview) -> AdmissionReview {
    let mut review = config_map.clone();
    let head =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"postcodes","namespace":"shop"},"data":{"all":""#;
    let tail = r#""}}"#;
    let mut object = String::with_capacity(BIG);
    object.push_str(head);
    let numbers = (10_000..).flat_map(|number: u32| format!("{number} ").into_bytes());
    object.extend(numbers.take(BIG - head.len() - tail.len()).map(char::from));
    object.push_str(tail);
    if let Some(request) = &mut review.request {
        request.name = Some("postcodes".to_owned());
        request.object.get_or_insert_default().raw = Some(object.into());
    }
    review
}

/// `CREATE pods shop/basket-debug`
pub(super) fn title(request: &AdmissionRequest) -> String {
    let resource = request.resource.as_ref();
    let mut title = format!("{} {}", request.operation(), resource.map_or("", |resource| resource.resource()));
    if let Some(group) = resource.map(|resource| resource.group()).filter(|group| !group.is_empty()) {
        title.push_str(&format!(".{group}"));
    }
    match (request.namespace(), request.name()) {
        ("", name) => title.push_str(&format!(" {name}")),
        (namespace, "") => title.push_str(&format!(" in {namespace}")),
        (namespace, name) => title.push_str(&format!(" {namespace}/{name}")),
    }
    title
}

/// Bytes of the object and the old object.
pub(super) fn object_bytes(request: &AdmissionRequest) -> usize {
    let raws = [&request.object, &request.old_object].into_iter().flatten().filter_map(|object| object.raw.as_ref());
    raws.map(Bytes::len).sum()
}
