//! Policies: CPU time of a review that policies decide, from its JSON to the verdict.
//!
//! Each cell is a set of policies and a review. Without arguments, every cell is measured once, and with it how much
//! of the time reading the review takes. `loadtest/policies/run` measures the same beside kube-apiserver's own code:
//!
//! - `write FOLDER` writes the cells as files, so that both sides read the same.
//! - `serve FOLDER CELL` answers lines `WAY COUNT` of the standard input: it decides so many reviews, and prints the
//!   CPU time of the process in nanoseconds.
//! - `memory POLICIES` compiles so many policies with 300 bindings each, and prints what that takes.
//!
//! CPU time is that of all threads: some policies are evaluated beside the worker's thread.
#![allow(clippy::expect_used, reason = "a bench stops where its own setup is wrong")]

#[path = "common/allocator.rs"]
mod allocator;

use std::{
    cell::Cell as StdCell,
    fmt::Write as _,
    fs,
    hint::black_box,
    io::{self, BufRead, Write as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use gatepost::{
    live::{Current, Discovery, Generation},
    review::{AdmissionDeps, Caller, decide},
    telemetry::Metrics,
};
use gatepost_api::{Deadline, Labels, Phase, Review, Served, Verdict};
use gatepost_base::clock::{Moment, suspended_time};
use gatepost_cel::{AccessDecisions, Allowance, Condition, ConditionsDecision, Input, JsonDocument, Request, User};
use gatepost_config::{Snapshot, SourceFile};
use gatepost_wire::json_view;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Long enough on a busy machine: nothing waits.
const LONG: Duration = Duration::from_secs(3600);

/// Bindings of each policy in `memory`.
const BINDINGS: usize = 300;

/// CPU time that the measurement of a cell takes without arguments.
const SAMPLE: Duration = Duration::from_millis(300);

/// A validation of a Pod for each control of the Pod Security Standards, as policies of their own: ten of Baseline, six
/// of Restricted. `ALL` stands for the containers of all kinds.
const POD_SECURITY: [(&str, &str); 16] = [
    ("host-namespaces", "['hostNetwork', 'hostPID', 'hostIPC'].all(field, !object.spec[?field].orValue(false))"),
    ("privileged", "ALL.all(c, !c.?securityContext.?privileged.orValue(false))"),
    (
        "capabilities-baseline",
        "ALL.all(c, c.?securityContext.?capabilities.?add.orValue([]).all(name, name in ['AUDIT_WRITE', 'CHOWN', \
         'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'MKNOD', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', \
         'SETUID', 'SYS_CHROOT']))",
    ),
    ("host-path", "object.spec.?volumes.orValue([]).all(volume, !has(volume.hostPath))"),
    ("host-ports", "ALL.all(c, c.?ports.orValue([]).all(port, port.?hostPort.orValue(0) == 0))"),
    (
        "app-armor",
        "object.metadata.?annotations.orValue({}).all(key, !key.startsWith('container.apparmor.security.beta.') || \
         object.metadata.annotations[key] in ['runtime/default', ''] || \
         object.metadata.annotations[key].startsWith('localhost/'))",
    ),
    (
        "se-linux",
        "([object.spec.?securityContext.orValue({})] + ALL.map(c, c.?securityContext.orValue({}))).all(context, \
         context.?seLinuxOptions.?type.orValue('') in ['', 'container_t', 'container_init_t', 'container_kvm_t', \
         'container_engine_t'] && context.?seLinuxOptions.?user.orValue('') == '' && \
         context.?seLinuxOptions.?role.orValue('') == '')",
    ),
    ("proc-mount", "ALL.all(c, c.?securityContext.?procMount.orValue('Default') == 'Default')"),
    (
        "seccomp-baseline",
        "object.spec.?securityContext.?seccompProfile.?type.orValue('') != 'Unconfined' && \
         ALL.all(c, c.?securityContext.?seccompProfile.?type.orValue('') != 'Unconfined')",
    ),
    (
        "sysctls",
        "object.spec.?securityContext.?sysctls.orValue([]).all(sysctl, sysctl.name in ['kernel.shm_rmid_forced', \
         'net.ipv4.ip_local_port_range', 'net.ipv4.tcp_syncookies', 'net.ipv4.ping_group_range'])",
    ),
    (
        "volume-types",
        "object.spec.?volumes.orValue([]).all(volume, has(volume.configMap) || has(volume.csi) || \
         has(volume.downwardAPI) || has(volume.emptyDir) || has(volume.ephemeral) || \
         has(volume.persistentVolumeClaim) || has(volume.projected) || has(volume.secret))",
    ),
    ("privilege-escalation", "ALL.all(c, c.?securityContext.?allowPrivilegeEscalation.orValue(true) == false)"),
    (
        "run-as-non-root",
        "ALL.all(c, c.?securityContext.?runAsNonRoot.orValue(\
         object.spec.?securityContext.?runAsNonRoot.orValue(false)))",
    ),
    (
        "run-as-user",
        "object.spec.?securityContext.?runAsUser.orValue(1) != 0 && \
         ALL.all(c, c.?securityContext.?runAsUser.orValue(1) != 0)",
    ),
    (
        "seccomp-restricted",
        "ALL.all(c, c.?securityContext.?seccompProfile.?type.orValue(\
         object.spec.?securityContext.?seccompProfile.?type.orValue('')) in ['RuntimeDefault', 'Localhost'])",
    ),
    (
        "capabilities-restricted",
        "ALL.all(c, 'ALL' in c.?securityContext.?capabilities.?drop.orValue([]) && \
         c.?securityContext.?capabilities.?add.orValue([]).all(name, name == 'NET_BIND_SERVICE'))",
    ),
];

/// The containers of a Pod of all kinds.
const ALL_CONTAINERS: &str = "(object.spec.?initContainers.orValue([]) + object.spec.containers + \
                              object.spec.?ephemeralContainers.orValue([]))";

/// The validations of each of the many policies. `N` is the policy's number.
const OF_MANY: [&str; 2] =
    ["object.metadata.?labels['team'].orValue('') != 'team-N'", "object.spec.containers.size() <= 10 + N"];

/// Expressions that are evaluated alone.
const COMPARISONS: [(&str, &str); 3] = [
    ("comparison", "object.metadata.name != ''"),
    ("comparison-late", "object.spec.terminationGracePeriodSeconds <= 60"),
    ("comparison-request", "request.operation == 'CREATE'"),
];

/// A match condition that is false of the review.
const EXCLUDING: &str = "!('developers' in request.userInfo.groups)";

/// Policies, a review that they allow, and one that they reject, unless they allow everything.
struct Cell {
    policies: Vec<Value>,
    review: String,
    rejected: Option<String>,
}

/// Names of the cells.
fn names() -> impl Iterator<Item = &'static str> {
    let decided = ["unmatched", "pod-security-4k", "pod-security-50k", "many-all-match", "many-4-match", "excluded"];
    decided.into_iter().chain(COMPARISONS.map(|(name, _)| name))
}

fn cell(name: &str) -> Cell {
    let small = pod(4 << 10, false);
    match name {
        "unmatched" => {
            let policies = policy("unmatched", "secrets", &["false".to_owned()], json!([]));
            Cell { policies, review: review(&small), rejected: None }
        }
        "pod-security-4k" => pod_security(4 << 10),
        "pod-security-50k" => pod_security(50 << 10),
        "many-all-match" => many(|_| "pods"),
        // Every 256th is about pods, the others about other resources.
        "many-4-match" => many(|number| match number {
            _ if number % 256 == 5 => "pods",
            _ => ["configmaps", "secrets", "services", "endpoints", "serviceaccounts"][number % 5],
        }),
        "excluded" => {
            let condition = json!([{"name": "condition", "expression": EXCLUDING}]);
            Cell {
                policies: policy("excluded", "pods", &["object.spec.containers.size() > 100".to_owned()], condition),
                review: review(&small),
                rejected: Some(review(&small).replace(r#""developers","#, "")),
            }
        }
        // As a policy too, so that both sides show that they evaluate the expression.
        other => {
            let (_, expression) = COMPARISONS.into_iter().find(|(name, _)| *name == other).expect("a cell's name");
            let policies = policy(other, "pods", &[expression.to_owned()], json!([]));
            Cell { policies, review: review(&small), rejected: None }
        }
    }
}

fn pod_security(size: usize) -> Cell {
    let one = |(name, text): (&str, &str)| {
        policy(name, "pods", &[text.replace("ALL.", &format!("{ALL_CONTAINERS}."))], json!([]))
    };
    Cell {
        policies: POD_SECURITY.into_iter().flat_map(one).collect(),
        review: review(&pod(size, false)),
        rejected: Some(review(&pod(size, true))),
    }
}

/// 1,024 policies with two validations and a binding each.
fn many(resource: impl Fn(usize) -> &'static str) -> Cell {
    let one = |number: usize| {
        let validations = OF_MANY.map(|text| text.replace('N', &number.to_string()));
        policy(&format!("policy-{number}"), resource(number), &validations, json!([]))
    };
    let pod = pod(4 << 10, false);
    Cell {
        policies: (0..1024).flat_map(one).collect(),
        review: review(&pod),
        rejected: Some(review(&pod.replace(r#""team":"shop""#, r#""team":"team-5""#))),
    }
}

/// Returns a policy and its binding.
fn policy(name: &str, resource: &str, validations: &[String], conditions: Value) -> Vec<Value> {
    let validations: Vec<_> = validations.iter().map(|text| json!({"expression": text})).collect();
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": conditions, "validations": validations,
        },
    });
    vec![policy, binding(name, name)]
}

fn binding(name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

/// Returns a Pod of about so many bytes that all controls allow, or that the first one does not.
///
/// It has an init container and two containers with probes, resources, mounts and environment. A larger Pod has more
/// environment variables, and nothing else.
fn pod(size: usize, on_host: bool) -> String {
    let context = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
    });
    let container = |name: &str, environment: &[Value]| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.4.2"), "args": ["--verbosity=2"],
            "env": environment, "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "securityContext": context, "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [
                {"name": "configuration", "mountPath": "/etc/shop", "readOnly": true},
                {"name": "scratch", "mountPath": "/tmp"},
            ],
            "readinessProbe": {
                "httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10,
                "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
            },
        })
    };
    let with = |variables: usize| {
        let value = "a value of some length, as they are";
        let variable = |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": value});
        let environment: Vec<_> = (0..variables).map(variable).collect();
        let (first, second) = environment.split_at(variables / 2);
        let mut init = container("init", &[]);
        init.as_object_mut().map(|init| init.remove("readinessProbe"));
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "shop-6c9f8d7b5-x2x7k", "namespace": "shop", "creationTimestamp": null,
                "labels": {"app": "shop", "team": "shop", "pod-template-hash": "6c9f8d7b5"},
                "annotations": {"example.com/revision": "17", "prometheus.io/scrape": "true"},
            },
            "spec": {
                "initContainers": [init], "containers": [container("web", first), container("proxy", second)],
                "volumes": [
                    {"name": "configuration", "configMap": {"name": "shop", "defaultMode": 420}},
                    {"name": "scratch", "emptyDir": {}},
                ],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "serviceAccountName": "shop", "schedulerName": "default-scheduler",
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            },
            "status": {},
        });
        if on_host {
            pod["spec"]["hostNetwork"] = true.into();
        }
        pod.to_string()
    };
    let (base, ten) = (with(0).len(), with(10).len());
    with(size.saturating_sub(base) * 10 / (ten - base))
}

/// Returns the review of a CREATE of that Pod, as kube-apiserver sends it.
fn review(pod: &str) -> String {
    const UID: &str = "b1e8e4b6-4f4d-4c58-9a34-1d1c5f0a6f5e";
    let kind = r#"{"group":"","version":"v1","kind":"Pod"}"#;
    let resource = r#"{"group":"","version":"v1","resource":"pods"}"#;
    let user = r#"{"username":"alice","groups":["developers","system:authenticated"]}"#;
    let options = r#"{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}"#;
    let request = [
        format!(r#""uid":"{UID}","kind":{kind},"resource":{resource}"#),
        format!(r#""requestKind":{kind},"requestResource":{resource}"#),
        format!(r#""name":"shop-6c9f8d7b5-x2x7k","namespace":"shop","operation":"CREATE","userInfo":{user}"#),
        format!(r#""object":{pod},"oldObject":null,"dryRun":false,"options":{options}"#),
    ];
    format!(r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{{}}}}}"#, request.join(","))
}

/// Returns the documents as one file.
fn documents(policies: &[Value]) -> String {
    policies.iter().fold(String::new(), |mut text, document| {
        let _ = write!(text, "{document}\n---\n");
        text
    })
}

fn compiled(documents: &str) -> Snapshot {
    let file = SourceFile { name: "policies.yaml".into(), bytes: documents.to_owned().into() };
    let loaded = gatepost_config::load(&[file], &|_| Err(io::ErrorKind::NotFound.into()));
    loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>()).expect("good policies")
}

/// Gatepost with a cell's policies in force.
struct Sidecar {
    deps: AdmissionDeps,
    runtime: Runtime,
}

impl Sidecar {
    fn start(documents: &str) -> Self {
        let snapshot = compiled(documents);
        let metrics = Arc::new(Metrics::new(1));
        let current = Arc::new(Current::new(Instant::now()));
        current.publish(Arc::new(Generation::of(
            Arc::new(snapshot.with_namespaces([("shop".into(), Labels::default())])),
            &metrics,
        )));
        current.freshness().stamp_awake(Instant::now() + LONG);
        let mut served = Served::default();
        for resource in ["pods", "configmaps", "secrets", "services", "endpoints", "serviceaccounts"] {
            served.add("", "v1", resource);
        }
        let discovery = Discovery::default();
        discovery.set(served, Moment::now(suspended_time));
        let deps = AdmissionDeps { discovery: Some(Arc::new(discovery)), ..AdmissionDeps::new(current, metrics) };
        Self { deps, runtime: Builder::new_current_thread().enable_all().build().expect("a runtime") }
    }

    async fn decided(&self, review: &Review) -> Verdict {
        let caller = Caller::new(Phase::Review, Deadline::after(Instant::now(), LONG));
        decide(&self.deps, review, &caller).await
    }

    /// Returns the message of the rejection of this review; `None` if it is allowed.
    fn rejection(&self, review: &str) -> Option<String> {
        let review = json_view::view(review.to_owned().into()).expect("a review");
        self.runtime.block_on(self.decided(&review)).refusal.map(|refusal| refusal.message)
    }
}

/// What is measured of a cell.
enum Way {
    /// The bytes of the review are read, and it is decided.
    Bytes,
    /// The bytes of the review are read.
    Read,
    /// The review is decided, which was read before.
    Decide,
    /// The expression of the cell alone is evaluated, on the object's bytes.
    Expression,
}

/// A cell that is ready to be measured.
struct Measured {
    sidecar: Sidecar,
    body: Bytes,
    conditions: Vec<Condition>,
}

impl Measured {
    fn start(name: &str, documents: &str, review: String, rejected: Option<&str>) -> Self {
        let sidecar = Sidecar::start(documents);
        assert_eq!(sidecar.rejection(&review), None, "the review of {name} is rejected");
        if let Some(rejected) = rejected {
            assert!(sidecar.rejection(rejected).is_some(), "the other review of {name} is not rejected");
        }
        let alone = COMPARISONS.into_iter().chain([("excluded", EXCLUDING)]).filter(|(cell, _)| *cell == name);
        let conditions = alone.map(|(_, text)| Condition::compile("condition", text).expect("an expression"));
        Self { conditions: conditions.collect(), sidecar, body: review.into() }
    }

    /// Returns the CPU time of so many repetitions.
    fn cpu_time(&self, way: &Way, count: u64) -> Duration {
        let review = json_view::view(self.body.clone()).expect("a review");
        let object = self.object(&review);
        let began = process_time();
        match way {
            Way::Bytes => self.sidecar.runtime.block_on(async {
                for _ in 0..count {
                    let review = json_view::view(self.body.clone()).expect("a review");
                    assert!(black_box(self.sidecar.decided(&review).await).allowed());
                }
            }),
            Way::Read => (0..count).for_each(|_| drop(black_box(json_view::view(self.body.clone())))),
            Way::Decide => self.sidecar.runtime.block_on(async {
                for _ in 0..count {
                    assert!(black_box(self.sidecar.decided(&review).await).allowed());
                }
            }),
            Way::Expression => (0..count).for_each(|_| self.evaluate(&review, &object)),
        }
        process_time().saturating_sub(began)
    }

    fn object(&self, review: &Review) -> Bytes {
        self.body.slice(review.object.clone().expect("an object"))
    }

    /// Evaluates the conditions on an object whose bytes were looked through before, as those of a review are.
    fn evaluate(&self, review: &Review, object: &[u8]) {
        let mut request = Request::new(|| {
            let groups = vec!["developers".to_owned(), "system:authenticated".to_owned()];
            Ok(User { groups, ..User::default() })
        });
        request.resource = ["", "v1", "pods"];
        (request.name, request.namespace) = (&review.name, &review.namespace);
        (request.operation, request.username) = ("CREATE", "alice");
        let object = match &review.object_ends {
            Some(ends) => JsonDocument::recorded(object.into(), ends.clone()),
            None => JsonDocument::checked(object.into()),
        };
        let input = Input {
            request,
            object: Some(object),
            old_object: None,
            namespace: None,
            decisions: AccessDecisions::default(),
        };
        let steps = StdCell::new(u64::MAX);
        let decision = gatepost_cel::decide(&self.conditions, &input, &Allowance { steps: &steps, over: &|| false });
        assert!(matches!(black_box(decision), ConditionsDecision::Matches | ConditionsDecision::Excluded(_)));
    }
}

/// Returns the CPU time that this process has used.
fn process_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("CPU time is not negative")
}

fn way(name: &str) -> Way {
    match name {
        "bytes" => Way::Bytes,
        "read" => Way::Read,
        "decide" => Way::Decide,
        "expression" => Way::Expression,
        other => panic!("{other} is none of bytes, read, decide, expression"),
    }
}

fn write(folder: &Path) -> io::Result<()> {
    for name in names() {
        let Cell { policies, review, rejected } = cell(name);
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("policies.yaml"), documents(&policies))?;
        fs::write(folder.join("review.json"), review)?;
        if let Some(rejected) = rejected {
            fs::write(folder.join("rejected.json"), rejected)?;
        }
        let expression = COMPARISONS.into_iter().chain([("excluded", EXCLUDING)]).find(|(cell, _)| *cell == name);
        if let Some((_, expression)) = expression {
            fs::write(folder.join("expression.cel"), expression)?;
        }
    }
    Ok(())
}

fn serve(folder: &Path, name: &str) -> io::Result<()> {
    let folder = folder.join(name);
    let rejected = fs::read_to_string(folder.join("rejected.json")).ok();
    let (documents, review) =
        (fs::read_to_string(folder.join("policies.yaml"))?, fs::read_to_string(folder.join("review.json"))?);
    let measured = Measured::start(name, &documents, review, rejected.as_deref());
    println!("ready");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (name, count) = line.split_once(' ').expect("a way and a count");
        println!("{}", measured.cpu_time(&way(name), count.parse().expect("a count")).as_nanos());
        io::stdout().flush()?;
    }
    Ok(())
}

/// Compiles so many policies with [`BINDINGS`] bindings each, and prints the CPU time, and the resident memory that it
/// leaves.
fn memory(policies: usize) -> io::Result<()> {
    let start = status("VmRSS")?;
    let mut text = String::new();
    for number in 0..policies {
        let name = format!("policy-{number}");
        let validations = OF_MANY.map(|text| text.replace('N', &number.to_string()));
        let mut all = policy(&name, "pods", &validations, json!([]));
        all.truncate(1);
        all.extend((0..BINDINGS).map(|binding_number| binding(&format!("{name}-{binding_number}"), &name)));
        text += &documents(&all);
    }
    let file = SourceFile { name: "policies.yaml".into(), bytes: text.into() };
    let began = process_time();
    let loaded = gatepost_config::load(&[file], &|_| Err(io::ErrorKind::NotFound.into())).expect("good policies");
    let took = process_time().saturating_sub(began);
    assert_eq!(loaded.policies().iter().map(|policy| policy.bindings.len()).sum::<usize>(), policies * BINDINGS);
    let figures = json!({
        "policies": policies, "bindings": policies * BINDINGS, "compile_cpu_ns": took.as_nanos() as u64,
        "rss_start": start, "rss_after": status("VmRSS")?, "rss_peak": status("VmHWM")?,
    });
    println!("{figures}");
    drop(loaded);
    Ok(())
}

/// Returns a figure of this process in bytes.
fn status(key: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a figure of memory");
    let kib: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().expect("a number");
    Ok(kib << 10)
}

fn main() -> io::Result<()> {
    // Cargo adds `--bench`.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["write", folder] => write(Path::new(folder)),
        ["serve", folder, name] => serve(Path::new(folder), name),
        ["memory", policies] => memory(policies.parse().expect("a number of policies")),
        _ => {
            for name in names() {
                let Cell { policies, review, rejected } = cell(name);
                let measured = Measured::start(name, &documents(&policies), review, rejected.as_deref());
                let micros = |way: &Way| {
                    let once = measured.cpu_time(way, 10) / 10;
                    let count = (SAMPLE.as_nanos() / once.as_nanos().max(1)).clamp(10, 1_000_000) as u64;
                    measured.cpu_time(way, count).as_nanos() as f64 / count as f64 / 1000.0
                };
                println!(
                    "{name}: {:.2} us a review, {:.2} of them to read it",
                    micros(&Way::Bytes),
                    micros(&Way::Read)
                );
            }
            Ok(())
        }
    }
}
