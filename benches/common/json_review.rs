//! A review in JSON of a given size, as a kube-apiserver sends it.

use std::fmt::Write;

use bytes::Bytes;

/// The uid of every review here.
pub(crate) const UID: &str = "3f0a4f4c-0f10-4d62-9b1e-2f7b0c4b8e11";

/// A Deployment with so many containers that it has about the size: short keys and values, numbers, nesting.
pub(crate) fn deployment(size: usize) -> String {
    let mut object = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"big","namespace":"shop","labels":{"app":"big"}},"spec":{"replicas":3,"template":{"spec":{"containers":["#.to_owned();
    for n in 0.. {
        let comma = if n == 0 { "" } else { "," };
        write!(
            object,
            r#"{comma}{{"name":"c{n}","image":"registry.example.com/team/app:{n}","args":["--port={n}","--v=2"],"ports":[{{"containerPort":{n},"protocol":"TCP"}}],"env":[{{"name":"A","value":"b"}},{{"name":"POD","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}}],"resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"100m"}}}},"tty":false}}"#
        )
        .expect("written to memory");
        if object.len() >= size {
            break;
        }
    }
    object + "]}}}}"
}

/// A CREATE of that object.
pub(crate) fn review(object: &str) -> Bytes {
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","kind":{{"group":"","version":"v1","kind":"ConfigMap"}},"resource":{{"group":"","version":"v1","resource":"configmaps"}},"requestKind":{{"group":"","version":"v1","kind":"ConfigMap"}},"requestResource":{{"group":"","version":"v1","resource":"configmaps"}},"name":"big","namespace":"shop","operation":"CREATE","userInfo":{{"username":"ann","groups":["system:masters","system:authenticated"]}},"object":{object},"oldObject":null,"dryRun":false,"options":{{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}}}}"#
    )
    .into()
}
