//! Receiving: reads of everything that receives reviews by our registrations: endpoints of a Service, or apiservers that
//! each call the replica beside them.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::{
    adopt::{ApiserverIdentities, Receivers, Route},
    kube::{KubeClient, KubeError},
};

/// Interval of the reads.
const EVERY: Duration = Duration::from_secs(3);
/// Timeout of one read: the leader's lease has to be renewed meanwhile.
const WITHIN: Duration = Duration::from_secs(1);
/// Time for which a former answer counts where there is no new one.
const HOLDS: Duration = Duration::from_secs(30);
/// Identity leases of apiservers (KEP-1965), on by default from 1.26 on.
const IDENTITIES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const OF_APISERVERS: &str = "apiserver.kubernetes.io/identity=kube-apiserver";

/// Receivers by each way, read every few seconds by the leader.
#[derive(Debug)]
pub struct Receiving {
    identities: ApiserverIdentities,
    opened: Instant,
    last: Option<Read>,
    /// Time of the last read that had an answer.
    answered: Instant,
}

#[derive(Debug)]
struct Read {
    at: Instant,
    ways: BTreeSet<Route>,
    found: Vec<Receivers>,
}

impl Default for Receiving {
    fn default() -> Self {
        let now = Instant::now();
        Self { identities: ApiserverIdentities::default(), opened: now, last: None, answered: now }
    }
}

impl Receiving {
    /// Receivers by these ways, a few seconds old at most; older only while there is no answer.
    pub async fn read(&mut self, client: &KubeClient, ways: BTreeSet<Route>) -> Vec<Receivers> {
        let former = self.last.take().filter(|read| read.ways == ways);
        let now = Instant::now();
        let read = match former {
            Some(read) if now.saturating_duration_since(read.at) < EVERY => read,
            former => {
                let found = match self.ask(client, &ways).await {
                    Ok(found) => {
                        self.answered = now;
                        found
                    }
                    Err(why) => {
                        let holds = now.saturating_duration_since(self.answered) < HOLDS;
                        let known = former.filter(|_| holds).map(|read| read.found);
                        known.unwrap_or_else(|| vec![Receivers::Unreadable(why)])
                    }
                };
                Read { at: now, ways, found }
            }
        };
        self.last.insert(read).found.clone()
    }

    async fn ask(&mut self, client: &KubeClient, ways: &BTreeSet<Route>) -> Result<Vec<Receivers>, String> {
        let asking = async {
            let mut found = Vec::new();
            for way in ways {
                found.extend(self.receivers(client, way).await?);
            }
            Ok::<_, KubeError>(found)
        };
        match timeout(WITHIN, asking).await {
            Ok(found) => found.map_err(|error| format!("{error}; {}", error.fix())),
            Err(_) => Err(format!("no answer from {}", client.server())),
        }
    }

    async fn receivers(&mut self, client: &KubeClient, way: &Route) -> Result<Option<Receivers>, KubeError> {
        Ok(match way {
            Route::OtherUrl => None,
            Route::Loopback => Some(match client.list_labelled(IDENTITIES, OF_APISERVERS).await {
                Ok(list) => {
                    let leases = list.items.iter().filter_map(identity).collect();
                    Receivers::Apiservers(self.identities.alive(self.opened.elapsed(), leases))
                }
                Err(KubeError::Refused { code: 401 | 403, .. }) => Receivers::Unreadable(
                    "the identity leases of apiservers cannot be read; grant the verb list on leases in the namespace \
                     kube-system (Role gatepost-adopt)"
                        .to_owned(),
                ),
                Err(error) => return Err(error),
            }),
            Route::Service { namespace, name } => {
                let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
                let selector = format!("kubernetes.io/service-name={name}");
                let service = format!("{namespace}/{name}");
                Some(match client.list_labelled(&path, &selector).await {
                    Ok(list) => Receivers::Endpoints { service, pods: list.items.iter().flat_map(pods).collect() },
                    Err(KubeError::Refused { code: 401 | 403, .. }) => Receivers::Unreadable(format!(
                        "the endpoints of the Service {service} cannot be read; grant the verb list on endpointslices \
                         in the namespace {namespace} (Role gatepost-adopt)"
                    )),
                    Err(error) => return Err(error),
                })
            }
        })
    }
}

/// Name and renewal of an identity lease; `None` where it has expired.
fn identity(lease: &Value) -> Option<(String, String)> {
    let (name, renewed) = (lease["metadata"]["name"].as_str()?, lease["spec"]["renewTime"].as_str()?);
    let lasts = Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64()?);
    let age = humantime::parse_rfc3339_weak(renewed).ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_none_or(|age| age < lasts).then(|| (name.to_owned(), renewed.to_owned()))
}

/// Endpoints of a slice that may be called, each with the name of its Pod. One that ends is called until proxies have
/// heard.
fn pods(slice: &Value) -> impl Iterator<Item = Option<String>> {
    let is = |endpoint: &Value, key: &str, unknown: bool| endpoint["conditions"][key].as_bool().unwrap_or(unknown);
    let called = move |endpoint: &&Value| {
        is(endpoint, "ready", true) || is(endpoint, "serving", false) && is(endpoint, "terminating", false)
    };
    let pod = |endpoint: &Value| {
        let of = &endpoint["targetRef"];
        of["name"].as_str().filter(|_| of["kind"] == "Pod").map(str::to_owned)
    };
    slice["endpoints"].as_array().into_iter().flatten().filter(called).map(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_that_may_be_called_are_those_that_are_ready_or_end() {
        let endpoint = |name: &str, ready: Value, serving: Value, terminating: Value| {
            json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": name},
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
        };
        let (yes, no, unknown) = (json!(true), json!(false), Value::Null);
        let slice = json!({"endpoints": [
            endpoint("ready", yes.clone(), yes.clone(), no.clone()),
            endpoint("starts", no.clone(), no.clone(), no.clone()),
            endpoint("ends", no.clone(), yes.clone(), yes.clone()),
            endpoint("has-ended", no.clone(), no, yes),
            endpoint("unsaid", unknown.clone(), unknown.clone(), unknown),
            {"addresses": ["10.0.0.1"]},
        ]});
        let names: Vec<_> = pods(&slice).map(Option::unwrap_or_default).collect();
        assert_eq!(names, ["ready", "ends", "unsaid", ""]);
    }

    #[test]
    fn an_identity_that_has_expired_does_not_count() {
        let lease = |renewed: &str| json!({"metadata": {"name": "apiserver-a"}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 3600}});
        assert_eq!(identity(&lease("2001-01-01T00:00:00.000000Z")), None);
        let later = "9999-01-01T00:00:00.000000Z";
        assert_eq!(identity(&lease(later)), Some(("apiserver-a".to_owned(), later.to_owned())));
    }
}
