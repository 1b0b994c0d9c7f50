use prost::Message;

use super::*;
use crate::{answer, http_answer};
use gatepost_api::{HookType, HttpForm, StatusCause, StatusMetadata};

fn verdict() -> Verdict {
    Verdict {
        refusal: Some(StatusInfo {
            code: 403,
            status: "Failure".into(),
            reason: "Forbidden".into(),
            message: "no \"really\"".into(),
            metadata: Some(Box::new(StatusMetadata {
                resource_version: "5".into(),
                continue_token: "c".into(),
                remaining_item_count: Some(0),
                ..StatusMetadata::default()
            })),
            has_details: true,
            details_name: "web".into(),
            details_group: "apps".into(),
            details_kind: "Deployment".into(),
            details_uid: "7".into(),
            causes: vec![StatusCause { reason: "R".into(), message: "m".into(), field: "f".into() }],
            retry_after_seconds: 1,
        }),
        patch: None,
        warnings: vec!["careful".into()],
        audit_annotations: vec![("quota.example.com/team".into(), "a".into())],
    }
}

/// Our own answers can be read by the decoder of hooks' answers: a sidecar is itself a hook.
#[test]
fn a_verdict_is_an_answer() {
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        let encoded = [
            (HttpForm::Json(version), json(version, "u", &verdict())),
            (HttpForm::Protobuf(version), envelope(version, "u", &verdict())),
        ];
        for (form, body) in encoded {
            let answer = http_answer::decode(HookType::Validating, form, "u", 200, body).unwrap();
            assert_eq!(answer.denial.map(|denial| *denial.0), verdict().refusal);
            assert_eq!(answer.warnings, ["careful"]);
            assert_eq!(answer.audit_annotations, [("quota.example.com_team".into(), "a".into())]);
        }
        let yes = {
            let body = json(version, "u", &Verdict::default());
            http_answer::decode(HookType::Validating, HttpForm::Json(version), "u", 200, body)
        };
        assert_eq!(yes, Ok(Default::default()));
    }
    let grpc = answer::decode(HookType::Validating, "u", encode("u", &verdict()).slice(FRAME_HEAD..)).unwrap();
    assert_eq!(grpc.audit_annotations, [("quota.example.com/team".into(), "a".into())], "slashes stay in gRPC");
}

#[test]
fn json_has_the_fields_of_an_admission_review() {
    let body: Value = serde_json::from_slice(&json(ReviewVersion::V1, "u", &verdict())).unwrap();
    let wanted = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": "u", "allowed": false, "warnings": ["careful"],
            "auditAnnotations": {"quota.example.com_team": "a"},
            "status": {
                "status": "Failure", "reason": "Forbidden", "message": "no \"really\"", "code": 403,
                "details": {"name": "web", "group": "apps", "kind": "Deployment", "uid": "7", "retryAfterSeconds": 1,
                    "causes": [{"reason": "R", "message": "m", "field": "f"}]},
                "metadata": {"resourceVersion": "5", "continue": "c", "remainingItemCount": 0},
            }
        }
    });
    assert_eq!(body, wanted);
    let refusal = Some(StatusInfo { has_details: true, ..StatusInfo::default() });
    let empty: Value =
        serde_json::from_slice(&json(ReviewVersion::V1, "u", &Verdict { refusal, ..Verdict::default() })).unwrap();
    assert_eq!(empty["response"]["status"], json!({"code": 0, "details": {}}), "what a hook gave empty");
    let bare: Value = serde_json::from_slice(&json(ReviewVersion::V1beta1, "u", &Verdict::default())).unwrap();
    let wanted = json!({
        "apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview",
        "response": {"uid": "u", "allowed": true},
    });
    assert_eq!(bare, wanted);
    let enveloped = envelope(ReviewVersion::V1, "u", &Verdict::default());
    let raw = &enveloped[4 + 2 + 0x26 + 2..enveloped.len() - 4];
    assert!(AdmissionReview::decode(raw).unwrap().response.unwrap().allowed());
}
