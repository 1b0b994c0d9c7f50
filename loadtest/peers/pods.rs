//! Pods: one that keeps all ten policies, in any size, and ten of which each breaks one.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::size::Size;

/// Path of the writes. Admission happens, nothing is stored.
pub(super) const PATH: &str = "/api/v1/namespaces/default/pods?dryRun=All";

/// Bytes of the JSON of an environment variable, with its comma.
const VARIABLE: usize = 62;

/// The policies by name, with the place of the Pod that breaks each, and what stands there then; null removes it.
const VIOLATIONS: [(&str, &str, &str); 10] = [
    ("allowed-registries", "/spec/containers/1/image", r#""docker.io/shop/proxy:1.4.2""#),
    ("drop-all-capabilities", "/spec/containers/1/securityContext/capabilities/drop", r#"["NET_RAW"]"#),
    ("no-host-namespaces", "/spec/hostPID", "true"),
    ("no-host-path", "/spec/volumes/1", r#"{"name":"scratch","hostPath":{"path":"/var/tmp"}}"#),
    ("no-latest-tag", "/spec/containers/1/image", r#""registry.example.com/shop/proxy:latest""#),
    ("no-privileged", "/spec/containers/1/securityContext/privileged", "true"),
    ("read-only-root", "/spec/containers/1/securityContext/readOnlyRootFilesystem", "false"),
    ("required-labels", "/metadata/labels/team", "null"),
    ("requests-and-limits", "/spec/containers/1/resources/limits", "null"),
    ("run-as-non-root", "/spec/containers/1/securityContext/runAsNonRoot", "false"),
];

/// A Pod that keeps all policies, and whose JSON is `size` bytes.
pub(super) fn good(size: Size) -> Bytes {
    let rest = size.0.saturating_sub(pod(0, 0).to_string().len());
    pod(rest / VARIABLE, rest % VARIABLE).to_string().into()
}

/// Each policy with a Pod that breaks it and no other.
pub(super) fn bad() -> impl Iterator<Item = (&'static str, Bytes)> {
    VIOLATIONS.into_iter().map(|(policy, path, value)| (policy, broken(path, value)))
}

/// Sets or removes the value at `path`.
fn broken(path: &str, value: &str) -> Bytes {
    let mut pod = pod(0, 0);
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    if let Some((parent, key)) = path.rsplit_once('/') {
        match pod.pointer_mut(parent) {
            Some(Value::Object(parent)) if value.is_null() => drop(parent.remove(key)),
            Some(Value::Object(parent)) => drop(parent.insert(key.to_owned(), value)),
            Some(Value::Array(parent)) => {
                let place = key.parse().ok().and_then(|index: usize| parent.get_mut(index));
                place.into_iter().for_each(|place| *place = value.clone());
            }
            _ => {}
        }
    }
    pod.to_string().into()
}

/// An init container and two containers with probes, resources and mounts. What makes it larger is environment
/// variables, the last of them `padding` bytes longer.
fn pod(variables: usize, padding: usize) -> Value {
    let container = |name: &str, environment: &[Value]| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.4.2"), "args": ["--verbosity=2"],
            "env": environment, "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "securityContext": {
                "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
            },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [
                {"name": "configuration", "mountPath": "/etc/shop", "readOnly": true},
                {"name": "scratch", "mountPath": "/tmp"},
            ],
        })
    };
    let variable =
        |number: usize| json!({"name": format!("VARIABLE_{number:04}"), "value": "a value of usual length, x"});
    let environment: Vec<_> = (0..variables).map(variable).collect();
    let (first, second) = environment.split_at(variables / 2);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "shop-6c9f8d7b5-x2x7k", "namespace": "default",
            "labels": {"app.kubernetes.io/name": "shop", "team": "shop", "pod-template-hash": "6c9f8d7b5"},
            "annotations": {"example.com/revision": "17", "example.com/padding": "x".repeat(padding)},
        },
        "spec": {
            "initContainers": [container("init", &[])],
            "containers": [container("web", first), container("proxy", second)],
            "volumes": [
                {"name": "configuration", "configMap": {"name": "shop", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {}},
            ],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_pod_has_its_size_within_an_environment_variable() {
        for size in [Size(4 << 10), Size(50 << 10)] {
            let length = good(size).len();
            assert!(length.abs_diff(size.0) <= 2, "{size}: {length}");
        }
    }

    #[test]
    fn each_bad_pod_differs_from_the_good_one() {
        let good = pod(0, 0).to_string();
        for (policy, bad) in bad() {
            assert_ne!(good.as_bytes(), bad, "{policy}");
        }
    }
}
