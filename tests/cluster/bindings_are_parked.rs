//! Policies of the cluster are read where a binding is parked or announced. A binding is parked once every replica
//! evaluates the policy, given back, and named again by its owner.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use crate::a_replica_that_starts_gives_back::adopting;
use crate::cluster::{BINDINGS, CONFIGURATIONS, Cluster, LEASES, POLICIES, Say, VALIDATING, configuration};
use gatepost::source::{ReadError, Source};
use gatepost_adopt::{
    AdoptionReads, AdoptionView, Announcement, Claims, Decision, FINALIZER, LEADER_LEASE, Leadership, PARKED_SUFFIX,
    Plan, Turn, WriteOutcome, leader_lease, lease_name, replica_lease, write,
};
use gatepost_kube_support::{KubeClient, micro_time};
use serde_json::{Value, json};
use tempfile::TempDir;

const POLICY: &str = "validatingadmissionpolicies/p";
const PARAMS: &str = "{\"name\":\"n\",\"namespace\":\"policies\",\"parameterNotFoundAction\":\"Deny\"}";

/// A replica that reads this cluster, and the leadership of the replica that writes.
struct Replica {
    cluster: Cluster,
    source: Source,
    reads: AdoptionReads,
    client: KubeClient,
    leadership: Leadership,
    /// Second of the next turn.
    second: u64,
    /// Folder of the kubeconfig.
    folder: TempDir,
}

/// The annotation of a binding of that policy that is parked.
fn kept_for(policy: &str) -> String {
    format!("{{\"paramRef\":{PARAMS},\"policyName\":\"{policy}\"}}")
}

/// A policy with a binding, and a registration that covers it.
async fn started(named: &str) -> Replica {
    let cluster = Cluster::start().await;
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
    let registered = json!({"name": "gatepost.validate.gatepost.dev", "sideEffects": "None", "rules": [rule],
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/validate"}});
    cluster.has(
        VALIDATING,
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "gatepost", "uid": "u", "finalizers": [FINALIZER]}, "webhooks": [registered]}),
    );
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}, "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]});
    cluster.has(POLICIES, json!({"metadata": {"name": "p", "uid": "pu"}, "spec": spec}));
    let spec = json!({"policyName": named, "validationActions": ["Deny"]});
    let annotations = json!({"gatepost.dev/parked-param-ref": kept_for("p")});
    let is_parked = named.ends_with(PARKED_SUFFIX);
    let annotations = if is_parked { annotations } else { json!({}) };
    let metadata = json!({"name": "b", "uid": "bu", "annotations": annotations});
    let mut binding = json!({"metadata": metadata, "spec": spec});
    if !is_parked {
        binding["spec"]["paramRef"] = serde_json::from_str(PARAMS).unwrap();
    }
    cluster.has(BINDINGS, binding);
    cluster.has(CONFIGURATIONS, configuration("a", "a.example.com"));
    cluster.knows(LEASES);
    let folder = tempfile::tempdir().unwrap();
    let (source, reads) = adopting(&cluster, folder.path()).await;
    let client = KubeClient::open(&reads.access).await.unwrap();
    let leadership = Leadership::default();
    Replica { cluster, source, reads, client, leadership, second: 0, folder }
}

impl Replica {
    /// Names of the documents of one read.
    async fn read(&mut self) -> Vec<String> {
        let contents = self.source.read().await.unwrap();
        contents.files.iter().map(|file| file.name.clone()).collect()
    }

    /// One turn of the leader a second later, after a read. `replicas` are their holders, and whether each claims it.
    async fn turn(&mut self, replicas: &[(&str, bool)]) -> Plan {
        let (plan, view) = self.plan(replicas).await;
        for write_of in plan.writes(&view.seen) {
            assert_eq!(write(&self.client, &write_of).await.unwrap(), WriteOutcome::Done);
            write_of.taken.iter().for_each(|key| self.leadership.leader.on_taken(key, view.now));
        }
        plan
    }

    /// The plan of one turn, and the read that it follows from. The time of the view is that of the turn.
    async fn plan(&mut self, replicas: &[(&str, bool)]) -> (Plan, AdoptionView) {
        self.read().await;
        let view = std::sync::Arc::clone(&self.reads.views.borrow_and_update());
        let now = Duration::from_secs(self.second);
        self.second += 1;
        self.leadership.observe(now, &view.leases);
        let turn = Turn {
            now,
            leases: &view.leases,
            seen: &view.seen,
            registrations: &view.registrations,
            receivers: &[],
            unsupported: None,
            held_leader_lease: self.second > 1,
        };
        let plan = self.leadership.plan(turn);
        self.leadership.leader.on_announced(now, now);
        self.says(&plan.announcement, replicas);
        (plan, AdoptionView { now, seen: view.seen.clone(), ..AdoptionView::default() })
    }

    /// The leader's lease with this announcement, and a lease of each replica, which claims all of it or nothing.
    fn says(&self, announcement: &Announcement, replicas: &[(&str, bool)]) {
        let renewed = self.second.to_string();
        let mut lease = leader_lease("1", "r/1", &renewed, announcement, &[], &Default::default());
        lease["metadata"]["name"] = LEADER_LEASE.into();
        self.cluster.has(LEASES, lease);
        for (holder, claims) in replicas {
            let ids = if *claims { announcement.ids.clone() } else { Default::default() };
            let mut lease = replica_lease(holder, &renewed, Some(&Claims { epoch: announcement.epoch, ids }));
            lease["metadata"]["name"] = lease_name(holder).into();
            self.cluster.has(LEASES, lease);
        }
    }

    fn policy_name(&self) -> String {
        self.cluster.stored(BINDINGS, "b").unwrap()["spec"]["policyName"].as_str().unwrap().to_owned()
    }

    /// The binding's params, and those that its annotation keeps.
    fn params(&self) -> [String; 2] {
        let binding = self.cluster.stored(BINDINGS, "b").unwrap();
        let kept = binding["metadata"]["annotations"]["gatepost.dev/parked-param-ref"].as_str().unwrap_or_default();
        [binding["spec"]["paramRef"].to_string(), kept.to_owned()]
    }

    /// Its owner applies what it has always applied.
    fn named_again(&self) {
        let mut binding = self.cluster.stored(BINDINGS, "b").unwrap();
        binding["spec"]["policyName"] = "p".into();
        binding["spec"]["paramRef"] = serde_json::from_str(PARAMS).unwrap();
        binding["metadata"]["resourceVersion"] = Value::Null;
        self.cluster.has(BINDINGS, binding);
    }
}

#[tokio::test]
async fn binding_is_parked_once_every_replica_evaluates_it() {
    let mut replica = started("p").await;
    let (both, one) = ([("r/1", true), ("q/1", true)], [("r/1", true), ("q/1", false)]);
    replica.turn(&one).await;
    assert!(replica.read().await.contains(&POLICY.to_owned()), "it is announced, so both decide");
    let plan = replica.turn(&one).await;
    assert_eq!((&plan.decisions[0].1, &*replica.policy_name()), (&Decision::Announce, "p"), "q does not evaluate it");
    replica.turn(&both).await;
    let plan = replica.turn(&both).await;
    assert_eq!((&plan.decisions[0].1, &*replica.policy_name()), (&Decision::Take, "p.parked.gatepost.dev"));
    assert_eq!(replica.params(), ["null".to_owned(), kept_for("p")]);
    assert_eq!(replica.turn(&both).await.decisions[0].1, Decision::Keep);
    assert!(replica.read().await.contains(&POLICY.to_owned()), "by the name that its owner has written");

    // A replica that does not evaluate it is waited for no longer than six seconds.
    let mut given_back = None;
    for turn in 0..10 {
        let plan = replica.turn(&one).await;
        if matches!(plan.decisions[0].1, Decision::GiveBack(_)) {
            given_back.get_or_insert(turn);
        }
    }
    assert_eq!(given_back, Some(7));
    assert_eq!((&*replica.policy_name(), replica.params()), ("p", [PARAMS.to_owned(), String::new()]));
    assert!(replica.read().await.contains(&POLICY.to_owned()), "until every apiserver has heard of it");
}

#[tokio::test]
async fn repeatedly_restored_binding_is_left() {
    let mut replica = started("p").await;
    let both = [("r/1", true), ("q/1", true)];
    let mut taken = 0;
    for _ in 0..30 {
        let plan = replica.turn(&both).await;
        if replica.policy_name() != "p" {
            taken += 1;
            replica.named_again();
        }
        if let Decision::Leave(reason) = &plan.decisions[0].1 {
            assert_eq!(reason.word(), "fought", "{reason}");
            break;
        }
    }
    assert_eq!((taken, replica.leadership.leader.drops), (4, 4), "three times within a minute, and no more");
    assert_eq!(replica.policy_name(), "p");
}

#[tokio::test]
async fn starting_replica_gives_back_unevaluable_bindings() {
    let mut replica = started("p.parked.gatepost.dev").await;
    let mut policy = replica.cluster.stored(POLICIES, "p").unwrap();
    policy["spec"]["validations"][0]["expression"] = "1 +".into();
    replica.cluster.has(POLICIES, policy);
    let error = replica.source.read().await.unwrap_err();
    assert!(matches!(&error, ReadError::GivesBack { webhooks, .. } if webhooks == "validating-policy/p/b"), "{error}");
    assert_eq!((&*replica.policy_name(), replica.params()), ("p", [PARAMS.to_owned(), String::new()]));
    assert_eq!(replica.reads.given_back.try_recv().unwrap().reason.word(), "unservable");
}

/// kube-apiserver would evaluate it with outdated params if it were given back later.
#[tokio::test]
async fn binding_with_built_in_params_is_evaluated_until_given_back() {
    let mut replica = started("p.parked.gatepost.dev").await;
    assert_eq!(replica.turn(&[("r/1", true)]).await.decisions[0].1, Decision::Keep);
    let mut policy = replica.cluster.stored(POLICIES, "p").unwrap();
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    replica.cluster.has(POLICIES, policy);
    let plan = replica.turn(&[("r/1", true)]).await;
    let Decision::GiveBack(reason) = &plan.decisions[0].1 else { panic!("{:?}", plan.decisions) };
    assert_eq!(reason.word(), "unservable");
    assert_eq!((&*replica.policy_name(), replica.params()), ("p", [PARAMS.to_owned(), String::new()]));
    assert!(replica.read().await.contains(&POLICY.to_owned()), "until every apiserver has heard of it");
    for _ in 0..20 {
        replica.turn(&[("r/1", true)]).await;
    }
    assert_eq!(replica.policy_name(), "p", "it is left");
}

/// Without the policy, only one may write params who may read everything.
#[tokio::test]
async fn binding_of_deleted_policy_gets_params_with_a_new_policy() {
    let mut replica = started("p.parked.gatepost.dev").await;
    let both = [("r/1", true), ("q/1", true)];
    assert_eq!(replica.turn(&both).await.decisions[0].1, Decision::Keep);
    let policy = replica.cluster.stored(POLICIES, "p").unwrap();
    replica.cluster.forgets(POLICIES);
    replica.cluster.knows(POLICIES);
    for _ in 0..3 {
        let plan = replica.turn(&both).await;
        let Decision::Leave(reason) = &plan.decisions[0].1 else { panic!("{:?}", plan.decisions) };
        assert!(reason.to_string().contains("it stays parked until there is one"), "{reason}");
        assert_eq!((&*replica.policy_name(), replica.params()[1].clone()), ("p.parked.gatepost.dev", kept_for("p")));
        assert!(!replica.read().await.contains(&POLICY.to_owned()), "a deleted policy decides nothing");
    }
    replica.cluster.has(POLICIES, policy);
    assert_eq!(replica.turn(&both).await.decisions[0].1, Decision::Keep);
    assert!(replica.read().await.contains(&POLICY.to_owned()));
    assert_eq!(replica.leadership.leader.drops, 0);
}

#[tokio::test]
async fn starting_replica_keeps_binding_of_deleted_policy_parked() {
    let mut replica = started("p.parked.gatepost.dev").await;
    replica.cluster.forgets(POLICIES);
    replica.cluster.knows(POLICIES);
    replica.read().await;
    assert_eq!(replica.policy_name(), "p.parked.gatepost.dev");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_gives_back_bindings_of_deleted_policies() {
    let mut replica = started("p.parked.gatepost.dev").await;
    replica.cluster.forgets(POLICIES);
    replica.cluster.knows(POLICIES);
    replica.turn(&[("r/1", true)]).await;
    for name in [LEADER_LEASE.to_owned(), lease_name("r/1")] {
        let mut lease = replica.cluster.stored(LEASES, &name).unwrap();
        lease["spec"]["renewTime"] = micro_time().into();
        replica.cluster.has(LEASES, lease);
    }
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(["release", "--all", "--kubeconfig"]).arg(replica.folder.path().join("kubeconfig"));
    let output = command.args(["--timeout", "4s"]).output().await.unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stderr.starts_with("no policy in the cluster: giving back 1 binding\n"), "{stderr}");
    assert_eq!((&*replica.policy_name(), replica.params()), ("p", [PARAMS.to_owned(), String::new()]));
}

/// The write that gives back meets another change, so the binding is given back by force.
#[tokio::test]
async fn binding_without_annotation_gets_its_params_back() {
    for changes in [false, true] {
        let mut replica = started("p.parked.gatepost.dev").await;
        assert_eq!(replica.turn(&[("r/1", true)]).await.decisions[0].1, Decision::Keep);
        let lose = |replica: &Replica| {
            let mut binding = replica.cluster.stored(BINDINGS, "b").unwrap();
            binding["metadata"]["annotations"] = json!({});
            binding["metadata"]["resourceVersion"] = Value::Null;
            replica.cluster.has(BINDINGS, binding);
        };
        lose(&replica);
        let (plan, view) = replica.plan(&[("r/1", true)]).await;
        if changes {
            lose(&replica);
        }
        let outcome = write(&replica.client, &plan.writes(&view.seen)[0]).await.unwrap();
        assert_eq!(outcome, if changes { WriteOutcome::Outdated } else { WriteOutcome::Done });
        assert_eq!((&*replica.policy_name(), replica.params()), ("p", [PARAMS.to_owned(), String::new()]));
    }
}

#[tokio::test]
async fn unlistable_policies_keep_parked_bindings() {
    let mut replica = started("p.parked.gatepost.dev").await;
    assert!(replica.read().await.contains(&POLICY.to_owned()));
    let view = std::sync::Arc::clone(&replica.reads.views.borrow_and_update());
    let ids = view.seen.iter().map(|seen| seen.standing.id.clone()).collect();
    replica.says(&Announcement { epoch: 1, ids, ..Announcement::default() }, &[]);
    replica.cluster.says(POLICIES, Say::Status(403));
    let error = replica.source.read().await.unwrap_err();
    assert!(matches!(error, ReadError::Kube(_)), "what is parked would be decided by nobody: {error}");

    let mut replica = started("p").await;
    replica.cluster.says(POLICIES, Say::Status(403));
    let contents = replica.source.read().await.unwrap();
    assert_eq!(contents.files.len(), 1, "as with the roles of a former version");
    let note = contents.notes.iter().map(ToString::to_string).find(|note| note.contains("so no policy is taken over"));
    assert!(note.is_some(), "{:?}", contents.notes);
    // An apiserver that does not know policies has none.
    replica.cluster.serves_normally();
    replica.cluster.forgets(POLICIES);
    replica.cluster.forgets(BINDINGS);
    assert_eq!(replica.read().await.len(), 1);
}
