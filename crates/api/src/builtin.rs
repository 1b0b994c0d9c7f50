//! Built-in resources: the resources that Kubernetes itself has served since 1.16, their versions, and those that are
//! served in two groups.
//!
//! The table lists too much rather than too little. A listed version that the apiserver does not serve only fails calls
//! of hooks whose rules name no other version; a missing version would let a request skip a hook unnoticed. The
//! apiserver's own discovery takes precedence ([`super::Served`]). Source: the API reference and
//! https://kubernetes.io/docs/reference/using-api/deprecation-guide/, up to 1.37.

/// A built-in resource of Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct BuiltinResource {
    /// API group.
    pub group: &'static str,
    /// Resource, plural and lower case.
    pub resource: &'static str,
    /// True if its objects are in namespaces.
    pub namespaced: bool,
    /// Versions in which it is or was served.
    pub versions: &'static [&'static str],
}

/// Returns the built-in resource of that name; `None` if there is none. Does not allocate.
pub fn builtin(group: &str, resource: &str) -> Option<&'static BuiltinResource> {
    let at = BUILTIN.binary_search_by(|entry| entry.group.cmp(group).then_with(|| entry.resource.cmp(resource)));
    BUILTIN.get(at.ok()?)
}

/// Returns the resource that kubectl knows by this short name.
pub fn of_short_name(short: &str) -> Option<&'static str> {
    SHORT_NAMES.iter().find(|(known, _)| *known == short).map(|(_, resource)| *resource)
}

/// Short names that kubectl accepts, each with its resource.
const SHORT_NAMES: [(&str, &str); 27] = [
    ("cj", "cronjobs"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions"),
    ("crds", "customresourcedefinitions"),
    ("csr", "certificatesigningrequests"),
    ("deploy", "deployments"),
    ("ds", "daemonsets"),
    ("ep", "endpoints"),
    ("ev", "events"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
    ("limits", "limitranges"),
    ("netpol", "networkpolicies"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pc", "priorityclasses"),
    ("pdb", "poddisruptionbudgets"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("quota", "resourcequotas"),
    ("rc", "replicationcontrollers"),
    ("rs", "replicasets"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses"),
    ("sts", "statefulsets"),
    ("svc", "services"),
];

/// Returns the built-in resources of that name, one for each group that has it.
pub fn named(resource: &str) -> impl Iterator<Item = &'static BuiltinResource> {
    BUILTIN.iter().filter(move |entry| *entry.resource == *resource)
}

/// Group that no apiserver has served since 1.22.
pub const UNSERVED_GROUP: &str = "extensions";

/// Returns true if Kubernetes has built-in resources in this group.
pub fn is_group(group: &str) -> bool {
    BUILTIN.iter().any(|entry| *entry.group == *group)
}

/// Resources that an apiserver stores once and serves in two groups. The two are equivalent under `matchPolicy:
/// Equivalent`. Source: `pkg/kubeapiserver/default_storage_factory_builder.go`, AddCohabitatingResources and
/// SpecialDefaultResourcePrefixes.
pub const SHARED: [(&str, [&str; 2]); 7] = [
    ("daemonsets", ["apps", "extensions"]),
    ("deployments", ["apps", "extensions"]),
    ("events", ["", "events.k8s.io"]),
    ("ingresses", ["networking.k8s.io", "extensions"]),
    ("networkpolicies", ["networking.k8s.io", "extensions"]),
    ("podsecuritypolicies", ["policy", "extensions"]),
    ("replicasets", ["apps", "extensions"]),
];

/// Returns the other group in which the same objects are served; `None` if there is none. Does not allocate.
pub fn other_group(group: &str, resource: &str) -> Option<&'static str> {
    let (_, groups) = SHARED.iter().find(|(shared, _)| *shared == resource)?;
    match groups.iter().position(|shared| *shared == group)? {
        0 => Some(groups[1]),
        _ => Some(groups[0]),
    }
}

const fn namespaced(group: &'static str, resource: &'static str, versions: &'static [&'static str]) -> BuiltinResource {
    BuiltinResource { group, resource, namespaced: true, versions }
}

const fn cluster_scoped(
    group: &'static str,
    resource: &'static str,
    versions: &'static [&'static str],
) -> BuiltinResource {
    BuiltinResource { group, resource, namespaced: false, versions }
}

const V1: &[&str] = &["v1"];
const V1_BETA: &[&str] = &["v1", "v1beta1"];
const V1_ALPHA: &[&str] = &["v1", "v1beta1", "v1alpha1"];
const APPS: &[&str] = &["v1", "v1beta1", "v1beta2"];
const FLOW: &[&str] = &["v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha1"];
const DRA: &[&str] = &["v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"];

/// Sorted by group and resource, byte by byte.
static BUILTIN: [BuiltinResource; 80] = [
    namespaced("", "bindings", V1),
    cluster_scoped("", "componentstatuses", V1),
    namespaced("", "configmaps", V1),
    namespaced("", "endpoints", V1),
    namespaced("", "events", V1),
    namespaced("", "limitranges", V1),
    cluster_scoped("", "namespaces", V1),
    cluster_scoped("", "nodes", V1),
    namespaced("", "persistentvolumeclaims", V1),
    cluster_scoped("", "persistentvolumes", V1),
    namespaced("", "pods", V1),
    namespaced("", "podtemplates", V1),
    namespaced("", "replicationcontrollers", V1),
    namespaced("", "resourcequotas", V1),
    namespaced("", "secrets", V1),
    namespaced("", "serviceaccounts", V1),
    namespaced("", "services", V1),
    cluster_scoped("admissionregistration.k8s.io", "mutatingadmissionpolicies", V1_ALPHA),
    cluster_scoped("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", V1_ALPHA),
    cluster_scoped("admissionregistration.k8s.io", "mutatingwebhookconfigurations", V1_BETA),
    cluster_scoped("admissionregistration.k8s.io", "validatingadmissionpolicies", V1_ALPHA),
    cluster_scoped("admissionregistration.k8s.io", "validatingadmissionpolicybindings", V1_ALPHA),
    cluster_scoped("admissionregistration.k8s.io", "validatingwebhookconfigurations", V1_BETA),
    cluster_scoped("apiextensions.k8s.io", "customresourcedefinitions", V1_BETA),
    cluster_scoped("apiregistration.k8s.io", "apiservices", V1_BETA),
    namespaced("apps", "controllerrevisions", APPS),
    namespaced("apps", "daemonsets", APPS),
    namespaced("apps", "deployments", APPS),
    namespaced("apps", "replicasets", APPS),
    namespaced("apps", "statefulsets", APPS),
    cluster_scoped("authentication.k8s.io", "selfsubjectreviews", V1_ALPHA),
    cluster_scoped("authentication.k8s.io", "tokenreviews", V1_BETA),
    namespaced("authorization.k8s.io", "localsubjectaccessreviews", V1_BETA),
    cluster_scoped("authorization.k8s.io", "selfsubjectaccessreviews", V1_BETA),
    cluster_scoped("authorization.k8s.io", "selfsubjectrulesreviews", V1_BETA),
    cluster_scoped("authorization.k8s.io", "subjectaccessreviews", V1_BETA),
    namespaced("autoscaling", "horizontalpodautoscalers", &["v1", "v2", "v2beta2", "v2beta1"]),
    namespaced("batch", "cronjobs", &["v1", "v1beta1", "v2alpha1"]),
    namespaced("batch", "jobs", V1),
    cluster_scoped("certificates.k8s.io", "certificatesigningrequests", V1_BETA),
    cluster_scoped("certificates.k8s.io", "clustertrustbundles", V1_ALPHA),
    namespaced("certificates.k8s.io", "podcertificaterequests", V1_ALPHA),
    namespaced("coordination.k8s.io", "leasecandidates", &["v1", "v1beta1", "v1alpha2", "v1alpha1"]),
    namespaced("coordination.k8s.io", "leases", V1_BETA),
    namespaced("discovery.k8s.io", "endpointslices", V1_ALPHA),
    namespaced("events.k8s.io", "events", V1_BETA),
    namespaced("extensions", "daemonsets", &["v1beta1"]),
    namespaced("extensions", "deployments", &["v1beta1"]),
    namespaced("extensions", "ingresses", &["v1beta1"]),
    namespaced("extensions", "networkpolicies", &["v1beta1"]),
    cluster_scoped("extensions", "podsecuritypolicies", &["v1beta1"]),
    namespaced("extensions", "replicasets", &["v1beta1"]),
    cluster_scoped("flowcontrol.apiserver.k8s.io", "flowschemas", FLOW),
    cluster_scoped("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", FLOW),
    cluster_scoped("internal.apiserver.k8s.io", "storageversions", &["v1alpha1"]),
    cluster_scoped("networking.k8s.io", "ingressclasses", V1_BETA),
    namespaced("networking.k8s.io", "ingresses", V1_BETA),
    cluster_scoped("networking.k8s.io", "ipaddresses", V1_ALPHA),
    namespaced("networking.k8s.io", "networkpolicies", V1),
    cluster_scoped("networking.k8s.io", "servicecidrs", V1_ALPHA),
    cluster_scoped("node.k8s.io", "runtimeclasses", V1_ALPHA),
    namespaced("policy", "poddisruptionbudgets", V1_BETA),
    cluster_scoped("policy", "podsecuritypolicies", &["v1beta1"]),
    cluster_scoped("rbac.authorization.k8s.io", "clusterrolebindings", V1_ALPHA),
    cluster_scoped("rbac.authorization.k8s.io", "clusterroles", V1_ALPHA),
    namespaced("rbac.authorization.k8s.io", "rolebindings", V1_ALPHA),
    namespaced("rbac.authorization.k8s.io", "roles", V1_ALPHA),
    cluster_scoped("resource.k8s.io", "deviceclasses", DRA),
    cluster_scoped("resource.k8s.io", "devicetaintrules", DRA),
    namespaced("resource.k8s.io", "resourceclaims", DRA),
    namespaced("resource.k8s.io", "resourceclaimtemplates", DRA),
    cluster_scoped("resource.k8s.io", "resourceslices", DRA),
    cluster_scoped("scheduling.k8s.io", "priorityclasses", V1_ALPHA),
    cluster_scoped("storage.k8s.io", "csidrivers", V1_BETA),
    cluster_scoped("storage.k8s.io", "csinodes", V1_BETA),
    namespaced("storage.k8s.io", "csistoragecapacities", V1_ALPHA),
    cluster_scoped("storage.k8s.io", "storageclasses", V1_BETA),
    cluster_scoped("storage.k8s.io", "volumeattachments", V1_ALPHA),
    cluster_scoped("storage.k8s.io", "volumeattributesclasses", V1_ALPHA),
    cluster_scoped("storagemigration.k8s.io", "storageversionmigrations", V1_ALPHA),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_resource_is_found() {
        for entry in &BUILTIN {
            let found = builtin(entry.group, entry.resource).expect("it is there");
            assert_eq!((found.group, found.resource), (entry.group, entry.resource), "the table is not in order");
        }
        for (group, resource) in [("", ""), ("", "widgets"), ("zzz", "pods"), ("apps", "pods"), ("example.com", "pods")]
        {
            assert!(builtin(group, resource).is_none(), "{group} {resource}");
        }
    }

    #[test]
    fn shared_resources_are_in_both_groups() {
        for (resource, groups) in SHARED {
            assert!(groups.iter().all(|group| builtin(group, resource).is_some()), "{resource}");
            assert_eq!(other_group(groups[0], resource), Some(groups[1]));
            assert_eq!(other_group(groups[1], resource), Some(groups[0]));
        }
        assert_eq!(other_group("apps", "events"), None);
        assert_eq!(other_group("apps", "statefulsets"), None);
    }
}
