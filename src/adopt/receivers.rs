//! Receivers: where the reviews arrive that our registrations have apiservers send, and whether a replica that takes
//! part is there. A Gatepost without `--adopt` has no lease, and calls nothing that is taken over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::Lease;

/// Time for which an endpoint may have no replica that takes part: a Pod that starts has its lease before it is ready,
/// and one that ends keeps it until it answers nothing any more.
const ENDPOINT_PATIENCE: Duration = Duration::from_secs(6);
/// Time for which there may be fewer replicas than apiservers: one that is started anew has no lease in between, and
/// nothing receives reviews there. Longer than [`IDENTITY_ENDED`]: where a machine is stopped, its replica goes first.
const APISERVER_PATIENCE: Duration = Duration::from_secs(40);
/// Time without a renewal of its identity lease after which an apiserver counts as dead; it renews it every ten seconds.
const IDENTITY_ENDED: Duration = Duration::from_secs(30);
/// Receivers that a reason names.
const NAMED: usize = 3;

/// Way by which a registration leads to us.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Through a Service: to any of its endpoints.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// By a loopback address: to a replica beside each apiserver.
    Loopback,
    /// By another address, and nobody knows who listens there.
    Elsewhere,
}

impl Way {
    /// Reads the `clientConfig` of an entry.
    pub fn of(client_config: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let service = &client_config["service"];
        if let (Some(namespace), Some(name)) = (text(&service["namespace"]), text(&service["name"])) {
            return Self::Service { namespace, name };
        }
        let url = client_config["url"].as_str().unwrap_or_default();
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let is_loopback = ["localhost", "127.", "[::1]"].iter().any(|host| authority.starts_with(host));
        if is_loopback { Self::Loopback } else { Self::Elsewhere }
    }
}

/// Receivers by one way, as they were read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// Endpoints of this Service that may be called, each with the name of its Pod where it has one.
    Endpoints {
        /// `NAMESPACE/NAME`.
        service: String,
        /// Names of Pods.
        pods: Vec<Option<String>>,
    },
    /// This many apiservers, each of which calls the replica beside it; none where they have no identity leases.
    Apiservers(usize),
    /// They cannot be read, for this reason.
    Unreadable(String),
}

impl Receivers {
    /// Receivers at which no replica takes part, for people, and the time for which that may be so. `live` are the names of
    /// the replicas that are alive, `known` those of all that have a lease.
    fn missing(&self, live: &BTreeSet<&str>, known: &BTreeSet<&str>) -> Option<(String, Duration)> {
        match self {
            Self::Endpoints { service, pods } => {
                let named: BTreeSet<_> = pods.iter().flatten().map(String::as_str).collect();
                let unknown: Vec<_> = named.iter().copied().filter(|pod| !known.contains(pod)).collect();
                if !unknown.is_empty() {
                    let more = if unknown.len() > NAMED { " and more" } else { "" };
                    let names = unknown.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
                    return Some((
                        format!("{names}{more} behind the Service {service} has no lease of --adopt"),
                        ENDPOINT_PATIENCE,
                    ));
                }
                let nameless = pods.iter().filter(|pod| pod.is_none()).count();
                let others = live.iter().filter(|name| !named.contains(*name)).count();
                (nameless > others).then(|| {
                    let what = format!(
                        "endpoints of the Service {service} without a Pod: {nameless}; other live replicas with --adopt: \
                         {others}"
                    );
                    (what, APISERVER_PATIENCE)
                })
            }
            Self::Apiservers(count) => {
                let replicas = live.len();
                (*count > replicas).then(|| {
                    let what = format!("live apiservers: {count}; live replicas with --adopt beside them: {replicas}");
                    (what, APISERVER_PATIENCE)
                })
            }
            Self::Unreadable(why) => Some((why.clone(), APISERVER_PATIENCE)),
        }
    }
}

/// The first time since which receivers have been missing.
#[derive(Debug, Default)]
pub(super) struct Missing(Option<Duration>);

impl Missing {
    /// Reason to take nothing at `now`, and whether that has been so for too long for webhooks that are taken. `live` says
    /// which leases are those of live replicas.
    pub(super) fn step(
        &mut self,
        now: Duration,
        receivers: &[Receivers],
        leases: &[Lease],
        live: impl Fn(&Lease) -> bool,
    ) -> Option<(String, bool)> {
        let replicas = || leases.iter().filter(|lease| !lease.is_leader());
        let known: BTreeSet<_> = replicas().map(Lease::replica).collect();
        let live: BTreeSet<_> = replicas().filter(|lease| live(lease)).map(Lease::replica).collect();
        let missing = receivers.iter().find_map(|receivers| receivers.missing(&live, &known));
        let Some((what, patience)) = missing else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        Some((what, now.saturating_sub(since) >= patience))
    }
}

/// Identity leases of apiservers: the last renewal of each, and when that was first read. Our clock alone counts.
#[derive(Debug, Default)]
pub struct ApiserverIdentities(BTreeMap<String, (String, Duration)>);

impl ApiserverIdentities {
    /// Number of apiservers that are alive by a read at `now` of these leases, by name and renewal.
    pub fn alive(&mut self, now: Duration, leases: &[(String, String)]) -> usize {
        self.0.retain(|name, _| leases.iter().any(|(known, _)| known == name));
        let mut alive = 0;
        for (name, renewed) in leases {
            let known = self.0.entry(name.clone()).or_insert_with(|| (renewed.clone(), now));
            if known.0 != *renewed {
                *known = (renewed.clone(), now);
            }
            alive += usize::from(now.saturating_sub(known.1) < IDENTITY_ENDED);
        }
        alive
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adopt::replica_lease;

    fn leases(names: &[&str]) -> Vec<Lease> {
        let lease = |name: &&str| Lease::of(&replica_lease(&format!("{name}/1"), "t", None)).unwrap();
        names.iter().map(lease).collect()
    }

    /// Steps of one second with these receivers and replicas, of which those named `dead…` are not alive.
    fn step(missing: &mut Missing, second: u64, receivers: &Receivers, names: &[&str]) -> Option<bool> {
        let live = |lease: &Lease| !lease.replica().starts_with("dead");
        let step = missing.step(Duration::from_secs(second), std::slice::from_ref(receivers), &leases(names), live);
        step.map(|(what, overdue)| {
            assert!(!what.is_empty());
            overdue
        })
    }

    #[test]
    fn ways_are_told_by_where_they_lead() {
        let service = json!({"service": {"namespace": "gatepost", "name": "g", "path": "/validate"}});
        assert_eq!(Way::of(&service), Way::Service { namespace: "gatepost".to_owned(), name: "g".to_owned() });
        for (url, way) in [
            ("https://127.0.0.1:9440/validate", Way::Loopback),
            ("https://localhost:9440/validate", Way::Loopback),
            ("https://[::1]:9440/validate", Way::Loopback),
            ("https://gatepost.example.com/validate", Way::Elsewhere),
        ] {
            assert_eq!(Way::of(&json!({ "url": url })), way, "{url}");
        }
    }

    #[test]
    fn a_pod_without_a_lease_behind_the_service_keeps_everything_from_being_taken() {
        let pods = |names: &[&str]| Receivers::Endpoints {
            service: "gatepost/gatepost".to_owned(),
            pods: names.iter().map(|name| Some((*name).to_owned())).collect(),
        };
        let mut missing = Missing::default();
        assert_eq!(step(&mut missing, 0, &pods(&["new"]), &["new"]), None);
        assert_eq!(
            step(&mut missing, 1, &pods(&["new", "old-1", "old-2"]), &["new"]),
            Some(false),
            "a change of flags"
        );
        assert_eq!(step(&mut missing, 6, &pods(&["new", "old-1"]), &["new"]), Some(false));
        assert_eq!(step(&mut missing, 7, &pods(&["new", "old-1"]), &["new"]), Some(true), "for too long");
        assert_eq!(step(&mut missing, 8, &pods(&["new"]), &["new"]), None);
        // An ordinary rollout: each new Pod has a lease before it is ready, and an old one for as long as it answers.
        assert_eq!(step(&mut missing, 9, &pods(&["a", "b"]), &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 10, &pods(&["a", "b", "c"]), &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 11, &pods(&["a", "b", "c"]), &["b", "c"]), Some(false), "its lease went first");
        assert_eq!(step(&mut missing, 13, &pods(&["b", "c"]), &["b", "c"]), None);
        assert_eq!(step(&mut missing, 14, &pods(&["b", "dead"]), &["b", "dead"]), None, "a machine that is lost");
    }

    #[test]
    fn endpoints_without_a_pod_are_counted() {
        let nameless = |count| Receivers::Endpoints { service: "g/g".to_owned(), pods: vec![None; count] };
        let mut missing = Missing::default();
        assert_eq!(step(&mut missing, 0, &nameless(2), &["a", "b"]), None);
        assert_eq!(step(&mut missing, 1, &nameless(3), &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &nameless(3), &["a", "b", "dead"]), Some(true));
    }

    #[test]
    fn each_apiserver_has_a_replica_beside_it() {
        let (mut missing, three) = (Missing::default(), Receivers::Apiservers(3));
        assert_eq!(step(&mut missing, 0, &three, &["a"]), Some(false), "the others have no --adopt yet");
        assert_eq!(step(&mut missing, 1, &three, &["a", "b", "c"]), None);
        // A restart: its lease is gone for as long as it takes.
        assert_eq!(step(&mut missing, 2, &three, &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &three, &["a", "b"]), Some(false));
        assert_eq!(step(&mut missing, 41, &three, &["a", "b", "c"]), None);
        assert_eq!(step(&mut missing, 50, &three, &["a", "b", "b", "dead"]), Some(false), "one name is one replica");
        assert_eq!(step(&mut missing, 90, &three, &["a", "b", "dead"]), Some(true));
        assert_eq!(step(&mut missing, 91, &Receivers::Apiservers(0), &[]), None, "nothing is known");
        assert_eq!(step(&mut missing, 92, &Receivers::Unreadable("a right".to_owned()), &["a"]), Some(false));
    }

    #[test]
    fn apiservers_that_do_not_renew_their_identity_are_dead() {
        let mut identities = ApiserverIdentities::default();
        let mut alive = |second, leases: &[(&str, &str)]| {
            let leases: Vec<_> = leases.iter().map(|(name, at)| ((*name).to_owned(), (*at).to_owned())).collect();
            identities.alive(Duration::from_secs(second), &leases)
        };
        assert_eq!(alive(0, &[("a", "1"), ("b", "1")]), 2);
        assert_eq!(alive(29, &[("a", "2"), ("b", "1")]), 2);
        assert_eq!(alive(30, &[("a", "2"), ("b", "1")]), 1);
        assert_eq!(alive(31, &[("a", "2"), ("b", "2")]), 2, "it is back");
        assert_eq!(alive(32, &[]), 0);
    }
}
