//! Slices: from the EndpointSlices of Services to the addresses behind each port. Source: `k8s.io/api/discovery/v1`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::Value;

use crate::hooks::Ports;
use gatepost_api::Labels;

/// Maximum number of addresses stored of one slice; an apiserver accepts no more.
const MAX_ADDRESSES: usize = 1000;
/// Maximum number of slices stored: a Pod can be found without the addresses of further slices.
const MAX_SLICES: usize = 2000;

/// Service that a hook names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Service {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl Service {
    /// Returns the Service that a host names: `NAME.NAMESPACE.svc`.
    pub(super) fn of_host(host: &str) -> Option<Self> {
        let (name, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
        // Both names become part of a query.
        let label = |text: &str| {
            (1..=63).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        (label(name) && label(namespace)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }

    fn host(&self) -> Box<str> {
        format!("{}.{}.svc", self.name, self.namespace).into()
    }

    /// Returns the path of the Services of its namespace.
    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/services", self.namespace)
    }
}

/// Part of an EndpointSlice that is needed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct EndpointSlice {
    pub(super) metadata: SliceMetadata,
    ports: Option<Vec<SlicePort>>,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SliceMetadata {
    namespace: Box<str>,
    name: Box<str>,
    labels: Option<Labels>,
}

#[derive(Clone, Debug, Deserialize)]
struct SlicePort {
    #[serde(default)]
    name: Option<Box<str>>,
    port: Option<u16>,
    protocol: Option<Box<str>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Endpoint {
    addresses: Option<Vec<Box<str>>>,
    conditions: Option<EndpointConditions>,
}

#[derive(Clone, Debug, Deserialize)]
struct EndpointConditions {
    ready: Option<bool>,
}

impl SliceMetadata {
    /// Returns the namespace and the name.
    pub(super) fn key(&self) -> (Box<str>, Box<str>) {
        (self.namespace.clone(), self.name.clone())
    }
}

/// One EndpointSlice.
#[derive(Debug)]
struct Slice {
    service: Service,
    /// Name and number of each port.
    ports: Vec<(Box<str>, u16)>,
    ready: Vec<IpAddr>,
}

/// EndpointSlices of the watched Services, and the ports of the Services.
#[derive(Debug, Default)]
pub(super) struct Slices {
    wanted: BTreeSet<Service>,
    /// EndpointSlices by namespace and name.
    slices: BTreeMap<(Box<str>, Box<str>), Slice>,
    ports: BTreeMap<Service, ServicePorts>,
}

/// Number and name of each port of a Service.
#[derive(Debug)]
struct ServicePorts {
    ports: Vec<(u16, Box<str>)>,
    /// Time at which they were read.
    read: Instant,
    /// True if its slices have changed since.
    outdated: bool,
}

impl Slices {
    /// Creates the state for these Services; slices of others are ignored.
    pub(super) fn of(wanted: BTreeSet<Service>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Returns the watched Services.
    pub(super) fn wanted(&self) -> &BTreeSet<Service> {
        &self.wanted
    }

    /// Adds or replaces a slice.
    pub(super) fn set(&mut self, object: &EndpointSlice) {
        let key = object.metadata.key();
        let Some(slice) = slice(object, &self.wanted) else {
            self.slices.remove(&key);
            return;
        };
        if let Some(known) = self.ports.get_mut(&slice.service) {
            known.outdated = true;
        }
        if self.slices.len() < MAX_SLICES || self.slices.contains_key(&key) {
            self.slices.insert(key, slice);
        }
    }

    /// Returns the Service whose ports are to be reread: the one read longest ago, at least `ports_every` ago, whose
    /// slices have changed since, or which has a slice with ready endpoints but none of its ports.
    pub(super) fn due(&self, ports_every: Duration) -> Option<Service> {
        let outdated = self.ports.iter().filter(|(_, known)| known.outdated);
        let unfit = self.slices.values().filter_map(|slice| {
            let (service, known) = self.ports.get_key_value(&slice.service)?;
            let fits = slice.ports.iter().any(|(name, _)| known.ports.iter().any(|(_, of)| of == name));
            // Without any port the name is resolved by DNS.
            (!fits && !slice.ready.is_empty() && !known.ports.is_empty()).then_some((service, known))
        });
        let due = outdated.chain(unfit).filter(|(_, known)| known.read.elapsed() >= ports_every);
        due.min_by_key(|(_, known)| known.read).map(|(service, _)| service.clone())
    }

    /// Removes a slice.
    pub(super) fn remove(&mut self, key: (Box<str>, Box<str>)) {
        self.slices.remove(&key);
    }

    /// Sets the ports of a Service from its object; `None` if there is no such Service.
    pub(super) fn set_ports(&mut self, service: &Service, object: Option<&Value>) {
        let ports = object.and_then(|object| object["spec"]["ports"].as_array());
        let port = |port: &Value| {
            let name = port["name"].as_str().unwrap_or_default();
            Some((u16::try_from(port["port"].as_u64()?).ok()?, Box::from(name)))
        };
        // An external name is outside the cluster: the dialler must resolve it.
        let external = object.is_some_and(|object| object["spec"]["type"] == "ExternalName");
        let ports = ports
            .into_iter()
            .flatten()
            .filter(|port| !external && is_tcp(port["protocol"].as_str()))
            .filter_map(port)
            .collect();
        self.ports.insert(service.clone(), ServicePorts { ports, read: Instant::now(), outdated: false });
    }

    /// Returns the addresses behind each port of each Service.
    pub(super) fn addresses(&self) -> HashMap<Box<str>, Ports> {
        let known = self.ports.iter().map(|(service, known)| {
            let slices: Vec<_> = self.slices.values().filter(|slice| slice.service == *service).collect();
            let ports = known.ports.iter().map(|(number, name)| (*number, behind(&slices, name)));
            (service.host(), ports.collect())
        });
        known.collect()
    }
}

/// Returns the ready endpoints behind the port with that name.
fn behind(slices: &[&Slice], name: &str) -> Arc<[SocketAddr]> {
    let mut addresses = BTreeSet::new();
    for slice in slices {
        let Some((_, port)) = slice.ports.iter().find(|(of, _)| **of == *name) else { continue };
        addresses.extend(slice.ready.iter().map(|address| SocketAddr::new(*address, *port)));
    }
    addresses.into_iter().collect()
}

/// Returns true for a TCP port, as hooks need. A number may be several ports with different protocols.
fn is_tcp(protocol: Option<&str>) -> bool {
    protocol.is_none_or(|protocol| protocol == "TCP")
}

/// Converts a slice; `None` if it belongs to no wanted Service.
fn slice(object: &EndpointSlice, wanted: &BTreeSet<Service>) -> Option<Slice> {
    let EndpointSlice { metadata, ports, endpoints } = object;
    let name = metadata.labels.as_ref()?.get(super::LABEL)?;
    let service = Service { namespace: metadata.namespace.clone(), name: name.into() };
    if !wanted.contains(&service) {
        return None;
    }
    let port = |port: &SlicePort| Some((port.name.clone().unwrap_or_default(), port.port?));
    // An endpoint without conditions counts as ready.
    let is_ready =
        |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false);
    // Only the first address of an endpoint counts: all addresses of an endpoint are equivalent.
    let address = |endpoint: &Endpoint| endpoint.addresses.as_ref()?.first()?.parse().ok();
    let endpoints = endpoints.iter().flatten();
    let ready = endpoints.filter(is_ready).filter_map(address).take(MAX_ADDRESSES);
    let ports = ports.iter().flatten().filter(|port| is_tcp(port.protocol.as_deref())).filter_map(port).collect();
    Some(Slice { service, ports, ready: ready.collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hook() -> Service {
        Service::of_host("hook.policy.svc").unwrap()
    }

    fn slice(name: &str, namespace: &str, service: &str, ports: Value, endpoints: &[(&str, Value)]) -> EndpointSlice {
        let endpoint =
            |(address, ready): &(&str, Value)| json!({"addresses": [address], "conditions": {"ready": ready}});
        let slice = json!({"metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
            "ports": ports, "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()});
        serde_json::from_value(slice).unwrap()
    }

    fn slices_of(wanted: impl Into<BTreeSet<Service>>, all: &[EndpointSlice]) -> Slices {
        let mut slices = Slices::of(wanted.into());
        all.iter().for_each(|slice| slices.set(slice));
        slices
    }

    fn behind(slices: &Slices, port: u16) -> Option<Vec<String>> {
        let all = slices.addresses();
        let found = all.get("hook.policy.svc")?.get(&port)?;
        Some(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_host_is_a_service_or_none() {
        assert_eq!(hook(), Service { namespace: "policy".into(), name: "hook".into() });
        for host in
            ["hook.policy", "policy.svc", "a.b.c.svc", ".policy.svc", "hook..svc", "a,b.c.svc", "svc", "10.0.0.1"]
        {
            assert_eq!(Service::of_host(host), None, "{host}");
        }
    }

    #[test]
    fn ready_endpoints_stand_behind_the_port_of_their_name() {
        let ports = json!([{"name": "https", "port": 8443}, {"name": "metrics", "port": 9090}]);
        let all = [
            slice(
                "one",
                "policy",
                "hook",
                ports.clone(),
                &[
                    ("10.0.0.2", json!(true)),
                    ("10.0.0.1", Value::Null),
                    ("10.0.0.3", json!(false)),
                    ("no address", json!(true)),
                ],
            ),
            slice("two", "policy", "hook", json!([{"name": "https", "port": 9443}]), &[("2001:db8::1", json!(true))]),
            slice("three", "policy", "other", ports.clone(), &[("10.0.0.4", json!(true))]),
            slice("one", "elsewhere", "hook", ports.clone(), &[("10.0.0.5", json!(true))]),
        ];
        let mut slices = slices_of([hook()], &all);
        assert_eq!(behind(&slices, 443), None, "the Service's ports are not known");
        let service = json!({"spec": {"ports": [{"name": "https", "port": 443}, {"name": "unused", "port": 80}]}});
        slices.set_ports(&hook(), Some(&service));
        let found = behind(&slices, 443).unwrap();
        assert_eq!(found, ["10.0.0.1:8443", "10.0.0.2:8443", "[2001:db8::1]:9443"]);
        assert_eq!((behind(&slices, 80), behind(&slices, 9090)), (Some(vec![]), None));

        slices.set(&slice("one", "policy", "hook", ports, &[("10.0.0.9", json!(true))]));
        slices.remove(all[1].metadata.key());
        assert_eq!(behind(&slices, 443), Some(vec!["10.0.0.9:8443".to_owned()]));
        // A slice may be given to another Service.
        let moved = slice("one", "policy", "other", json!([]), &[]);
        slices.set(&moved);
        assert_eq!(behind(&slices, 443), Some(vec![]));
    }

    #[test]
    fn ports_without_names_are_one_port() {
        let one = slice("one", "policy", "hook", json!([{"port": 8443}]), &[("10.0.0.1", json!(true))]);
        let mut slices = slices_of([hook()], std::slice::from_ref(&one));
        slices.set_ports(&hook(), Some(&json!({"spec": {"ports": [{"port": 443}]}})));
        assert_eq!(behind(&slices, 443), Some(vec!["10.0.0.1:8443".to_owned()]));
        slices.set_ports(&hook(), Some(&json!({"spec": {"type": "ExternalName", "ports": [{"port": 443}]}})));
        assert_eq!(behind(&slices, 443), None);
        slices.set_ports(&hook(), None);
        assert_eq!(behind(&slices, 443), None);
    }

    #[test]
    fn ports_are_reread_if_slices_change_or_mismatch() {
        let named = |name: &str| json!([{"name": name, "port": 8443}]);
        let of = |name: &str, ready: bool| slice("one", "policy", "hook", named(name), &[("10.0.0.1", json!(ready))]);
        let service = |name: &str| json!({"spec": {"ports": [{"name": name, "port": 443}]}});
        let mut slices = slices_of([hook()], &[of("https", true)]);
        slices.set_ports(&hook(), Some(&service("https")));
        assert_eq!(slices.due(Duration::ZERO), None);

        slices.set(&of("https", true));
        assert_eq!(slices.due(Duration::MAX), None, "they were read a moment ago");
        assert_eq!(slices.due(Duration::ZERO), Some(hook()), "that is not forgotten");
        slices.set_ports(&hook(), Some(&service("https")));
        assert_eq!(slices.due(Duration::ZERO), None);

        // The Service is renamed after its slice, which says nothing of it any more.
        slices.set(&of("webhook", true));
        slices.set_ports(&hook(), Some(&service("https")));
        assert_eq!((behind(&slices, 443), slices.due(Duration::ZERO)), (Some(vec![]), Some(hook())));
        slices.set_ports(&hook(), Some(&service("webhook")));
        assert_eq!((behind(&slices, 443).unwrap().len(), slices.due(Duration::ZERO)), (1, None));

        slices.set(&of("other", false));
        slices.set_ports(&hook(), Some(&service("webhook")));
        assert_eq!(slices.due(Duration::ZERO), None, "there is no endpoint to be found");
        slices.set(&of("other", true));
        slices.set_ports(&hook(), None);
        assert_eq!(slices.due(Duration::ZERO), None, "its name is looked up");
    }

    #[test]
    fn the_service_that_was_read_first_is_read_again_first() {
        let other = Service::of_host("other.policy.svc").unwrap();
        let mut slices = slices_of([hook(), other.clone()], &[]);
        for service in [&other, &hook()] {
            slices.set_ports(service, Some(&json!({"spec": {"ports": [{"port": 443}]}})));
            slices.set(&slice(&service.name, "policy", &service.name, json!([]), &[]));
        }
        assert_eq!(slices.due(Duration::ZERO), Some(other));
    }

    #[test]
    fn ports_of_other_protocols_are_none() {
        let both = json!([{"name": "h3", "port": 8444, "protocol": "UDP"}, {"name": "https", "port": 8443, "protocol": "TCP"}]);
        let mut slices = slices_of([hook()], &[slice("one", "policy", "hook", both, &[("10.0.0.1", json!(true))])]);
        let of = |port: u16, protocol: &str, name: &str| json!({"name": name, "port": port, "protocol": protocol});
        let [tcp, udp] = [of(443, "TCP", "https"), of(443, "UDP", "h3")];
        for ports in [json!([tcp, udp, of(53, "UDP", "dns")]), json!([udp, tcp])] {
            slices.set_ports(&hook(), Some(&json!({"spec": {"ports": ports}})));
            assert_eq!(behind(&slices, 443), Some(vec!["10.0.0.1:8443".to_owned()]));
            assert_eq!(behind(&slices, 53), None);
        }
        // A port of the same name that only another protocol has.
        slices.set_ports(&hook(), Some(&json!({"spec": {"ports": [of(443, "TCP", "h3")]}})));
        assert_eq!(behind(&slices, 443), Some(vec![]));
    }
}
