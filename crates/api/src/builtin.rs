//! Built-in resources: resources that Kubernetes itself has served since 1.16, in which versions, and those that are
//! one thing under two groups.
//!
//! The table errs by listing too much: a version that some apiserver of the reader's has not, or no longer, costs a
//! refusal where rules are odd; one that is missing would let a request pass unseen. An apiserver's own discovery goes
//! before it ([`super::Served`]). Source: the API reference and
//! https://kubernetes.io/docs/reference/using-api/deprecation-guide/, up to 1.37.

/// One resource of Kubernetes itself.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// API group.
    pub group: &'static str,
    /// Resource, plural and lower case.
    pub resource: &'static str,
    /// True where its objects are in namespaces.
    pub namespaced: bool,
    /// The versions in which it is or was served.
    pub versions: &'static [&'static str],
}

/// The resource of that name, where Kubernetes has one. Allocates nothing.
pub fn builtin(group: &str, resource: &str) -> Option<&'static Builtin> {
    let at = BUILTIN.binary_search_by(|entry| entry.group.cmp(group).then_with(|| entry.resource.cmp(resource)));
    BUILTIN.get(at.ok()?)
}

/// The resource that kubectl takes this short name for.
pub fn of_short_name(short: &str) -> Option<&'static str> {
    SHORT_NAMES.iter().find(|(known, _)| *known == short).map(|(_, resource)| *resource)
}

/// Short names as kubectl takes them, each with its resource.
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

/// The resources of that name, one for each group that has it.
pub fn named(resource: &str) -> impl Iterator<Item = &'static Builtin> {
    BUILTIN.iter().filter(move |entry| *entry.resource == *resource)
}

/// Group that no apiserver serves since 1.22.
pub const UNSERVED_GROUP: &str = "extensions";

/// Is this a group of Kubernetes' own?
pub fn is_group(group: &str) -> bool {
    BUILTIN.iter().any(|entry| *entry.group == *group)
}

/// Resources that an apiserver stores as one, whichever of the groups they are asked for in: what is equivalent to them
/// under `matchPolicy: Equivalent`. Source: `pkg/kubeapiserver/default_storage_factory_builder.go`,
/// AddCohabitatingResources and SpecialDefaultResourcePrefixes.
pub const SHARED: [(&str, [&str; 2]); 7] = [
    ("daemonsets", ["apps", "extensions"]),
    ("deployments", ["apps", "extensions"]),
    ("events", ["", "events.k8s.io"]),
    ("ingresses", ["networking.k8s.io", "extensions"]),
    ("networkpolicies", ["networking.k8s.io", "extensions"]),
    ("podsecuritypolicies", ["policy", "extensions"]),
    ("replicasets", ["apps", "extensions"]),
];

/// The other group in which the same objects are served. Allocates nothing.
pub fn other_group(group: &str, resource: &str) -> Option<&'static str> {
    let (_, groups) = SHARED.iter().find(|(shared, _)| *shared == resource)?;
    match groups.iter().position(|shared| *shared == group)? {
        0 => Some(groups[1]),
        _ => Some(groups[0]),
    }
}

const fn in_namespaces(group: &'static str, resource: &'static str, versions: &'static [&'static str]) -> Builtin {
    Builtin { group, resource, namespaced: true, versions }
}

const fn in_none(group: &'static str, resource: &'static str, versions: &'static [&'static str]) -> Builtin {
    Builtin { group, resource, namespaced: false, versions }
}

const V1: &[&str] = &["v1"];
const V1_BETA: &[&str] = &["v1", "v1beta1"];
const V1_ALPHA: &[&str] = &["v1", "v1beta1", "v1alpha1"];
const APPS: &[&str] = &["v1", "v1beta1", "v1beta2"];
const FLOW: &[&str] = &["v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha1"];
const DRA: &[&str] = &["v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"];

/// In the order of group and resource, byte by byte.
static BUILTIN: [Builtin; 80] = [
    in_namespaces("", "bindings", V1),
    in_none("", "componentstatuses", V1),
    in_namespaces("", "configmaps", V1),
    in_namespaces("", "endpoints", V1),
    in_namespaces("", "events", V1),
    in_namespaces("", "limitranges", V1),
    in_none("", "namespaces", V1),
    in_none("", "nodes", V1),
    in_namespaces("", "persistentvolumeclaims", V1),
    in_none("", "persistentvolumes", V1),
    in_namespaces("", "pods", V1),
    in_namespaces("", "podtemplates", V1),
    in_namespaces("", "replicationcontrollers", V1),
    in_namespaces("", "resourcequotas", V1),
    in_namespaces("", "secrets", V1),
    in_namespaces("", "serviceaccounts", V1),
    in_namespaces("", "services", V1),
    in_none("admissionregistration.k8s.io", "mutatingadmissionpolicies", V1_ALPHA),
    in_none("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", V1_ALPHA),
    in_none("admissionregistration.k8s.io", "mutatingwebhookconfigurations", V1_BETA),
    in_none("admissionregistration.k8s.io", "validatingadmissionpolicies", V1_ALPHA),
    in_none("admissionregistration.k8s.io", "validatingadmissionpolicybindings", V1_ALPHA),
    in_none("admissionregistration.k8s.io", "validatingwebhookconfigurations", V1_BETA),
    in_none("apiextensions.k8s.io", "customresourcedefinitions", V1_BETA),
    in_none("apiregistration.k8s.io", "apiservices", V1_BETA),
    in_namespaces("apps", "controllerrevisions", APPS),
    in_namespaces("apps", "daemonsets", APPS),
    in_namespaces("apps", "deployments", APPS),
    in_namespaces("apps", "replicasets", APPS),
    in_namespaces("apps", "statefulsets", APPS),
    in_none("authentication.k8s.io", "selfsubjectreviews", V1_ALPHA),
    in_none("authentication.k8s.io", "tokenreviews", V1_BETA),
    in_namespaces("authorization.k8s.io", "localsubjectaccessreviews", V1_BETA),
    in_none("authorization.k8s.io", "selfsubjectaccessreviews", V1_BETA),
    in_none("authorization.k8s.io", "selfsubjectrulesreviews", V1_BETA),
    in_none("authorization.k8s.io", "subjectaccessreviews", V1_BETA),
    in_namespaces("autoscaling", "horizontalpodautoscalers", &["v1", "v2", "v2beta2", "v2beta1"]),
    in_namespaces("batch", "cronjobs", &["v1", "v1beta1", "v2alpha1"]),
    in_namespaces("batch", "jobs", V1),
    in_none("certificates.k8s.io", "certificatesigningrequests", V1_BETA),
    in_none("certificates.k8s.io", "clustertrustbundles", V1_ALPHA),
    in_namespaces("certificates.k8s.io", "podcertificaterequests", V1_ALPHA),
    in_namespaces("coordination.k8s.io", "leasecandidates", &["v1", "v1beta1", "v1alpha2", "v1alpha1"]),
    in_namespaces("coordination.k8s.io", "leases", V1_BETA),
    in_namespaces("discovery.k8s.io", "endpointslices", V1_ALPHA),
    in_namespaces("events.k8s.io", "events", V1_BETA),
    in_namespaces("extensions", "daemonsets", &["v1beta1"]),
    in_namespaces("extensions", "deployments", &["v1beta1"]),
    in_namespaces("extensions", "ingresses", &["v1beta1"]),
    in_namespaces("extensions", "networkpolicies", &["v1beta1"]),
    in_none("extensions", "podsecuritypolicies", &["v1beta1"]),
    in_namespaces("extensions", "replicasets", &["v1beta1"]),
    in_none("flowcontrol.apiserver.k8s.io", "flowschemas", FLOW),
    in_none("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", FLOW),
    in_none("internal.apiserver.k8s.io", "storageversions", &["v1alpha1"]),
    in_none("networking.k8s.io", "ingressclasses", V1_BETA),
    in_namespaces("networking.k8s.io", "ingresses", V1_BETA),
    in_none("networking.k8s.io", "ipaddresses", V1_ALPHA),
    in_namespaces("networking.k8s.io", "networkpolicies", V1),
    in_none("networking.k8s.io", "servicecidrs", V1_ALPHA),
    in_none("node.k8s.io", "runtimeclasses", V1_ALPHA),
    in_namespaces("policy", "poddisruptionbudgets", V1_BETA),
    in_none("policy", "podsecuritypolicies", &["v1beta1"]),
    in_none("rbac.authorization.k8s.io", "clusterrolebindings", V1_ALPHA),
    in_none("rbac.authorization.k8s.io", "clusterroles", V1_ALPHA),
    in_namespaces("rbac.authorization.k8s.io", "rolebindings", V1_ALPHA),
    in_namespaces("rbac.authorization.k8s.io", "roles", V1_ALPHA),
    in_none("resource.k8s.io", "deviceclasses", DRA),
    in_none("resource.k8s.io", "devicetaintrules", DRA),
    in_namespaces("resource.k8s.io", "resourceclaims", DRA),
    in_namespaces("resource.k8s.io", "resourceclaimtemplates", DRA),
    in_none("resource.k8s.io", "resourceslices", DRA),
    in_none("scheduling.k8s.io", "priorityclasses", V1_ALPHA),
    in_none("storage.k8s.io", "csidrivers", V1_BETA),
    in_none("storage.k8s.io", "csinodes", V1_BETA),
    in_namespaces("storage.k8s.io", "csistoragecapacities", V1_ALPHA),
    in_none("storage.k8s.io", "storageclasses", V1_BETA),
    in_none("storage.k8s.io", "volumeattachments", V1_ALPHA),
    in_none("storage.k8s.io", "volumeattributesclasses", V1_ALPHA),
    in_none("storagemigration.k8s.io", "storageversionmigrations", V1_ALPHA),
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
    fn what_is_stored_as_one_is_built_in_under_both_groups() {
        for (resource, groups) in SHARED {
            assert!(groups.iter().all(|group| builtin(group, resource).is_some()), "{resource}");
            assert_eq!(other_group(groups[0], resource), Some(groups[1]));
            assert_eq!(other_group(groups[1], resource), Some(groups[0]));
        }
        assert_eq!(other_group("apps", "events"), None);
        assert_eq!(other_group("apps", "statefulsets"), None);
    }
}
