//! Canned: the dry-run review that a probe sends.

use bytes::Bytes;

use crate::{
    model::{CallFailure, HttpForm, Rope},
    wire::{
        encodings::Encodings,
        inbound,
        outbound::framed,
        pb::k8s::io::{
            api::{
                admission::v1::{AdmissionRequest, AdmissionReview},
                authentication::v1::UserInfo,
            },
            apimachinery::pkg::runtime::RawExtension,
        },
        request,
    },
};

/// UID by which a hook can recognise the review of a probe.
pub(super) const UID: &str = "gatepost-probe";

/// As one gRPC message, frame head included.
pub(super) fn message() -> Bytes {
    framed(&review())
}

/// As a hook over HTTP wants it, by the same hand as every review that comes from an apiserver.
///
/// # Errors
/// None that can happen: the review is ours.
pub(super) fn written(form: HttpForm) -> Result<Rope, CallFailure> {
    let review = inbound::view(Rope::new([message()])).map_err(|error| CallFailure::Unwritable(error.to_string()))?;
    Encodings::of(&review).get(form.into())
}

/// A dry-run CREATE of a ConfigMap that no policy should mind; what a hook says to it does not matter.
fn review() -> AdmissionReview {
    let object =
        br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gatepost-probe","namespace":"default"}}"#;
    let options = br#"{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions","dryRun":["All"]}"#;
    let text = |text: &str| Some(text.to_owned());
    let create = request::create(UID, "ConfigMap", "configmaps", Bytes::from_static(object));
    AdmissionReview {
        request: Some(AdmissionRequest {
            name: text("gatepost-probe"),
            namespace: text("default"),
            user_info: Some(UserInfo { username: text("system:gatepost:probe"), ..Default::default() }),
            dry_run: Some(true),
            options: Some(RawExtension { raw: Some(Bytes::from_static(options)) }),
            request_kind: create.kind.clone(),
            request_resource: create.resource.clone(),
            ..create
        }),
        response: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{Operation, Review, ReviewVersion},
        wire::{envelope, json_view},
    };

    fn viewed(form: HttpForm) -> Review {
        let written = written(form).expect("written");
        match form {
            HttpForm::Protobuf(_) => envelope::view(written).expect("an envelope"),
            _ => json_view::view(written.copy_of(0..written.len())).expect("a review"),
        }
    }

    #[test]
    fn it_is_a_dry_run_in_every_form() {
        for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
            for form in [HttpForm::Json(version), HttpForm::Protobuf(version)] {
                let review = viewed(form);
                assert_eq!(
                    (&*review.uid, review.operation, review.dry_run),
                    (UID, Operation::Create, true),
                    "{form:?}"
                );
                assert_eq!((&*review.kind.kind, &*review.namespace), ("ConfigMap", "default"), "{form:?}");
                assert_eq!(&*review.username, "system:gatepost:probe", "{form:?}");
            }
        }
    }

    #[test]
    fn the_seeds_contract_has_neither_uid_nor_options_but_the_user() {
        let written = written(HttpForm::Legacy).expect("written");
        let review: Value = serde_json::from_slice(&written.copy_of(0..written.len())).expect("JSON");
        let spec = &review["spec"];
        assert_eq!((&spec["dryRun"], &spec["userInfo"]["name"]), (&json!(true), &json!("system:gatepost:probe")));
        assert_eq!((&spec["name"], &spec["operation"]), (&json!(UID), &json!("Create")));
    }
}
