//! `gatepost break-glass` writes into etcd; whoever may not write there opens nothing.

use std::{
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use gatepost::runtime::Running;

use crate::{
    cases::Case,
    etcd::{Cluster, wait},
    setting::{PREFIX, configuration, place, sidecar, until_hook, write},
    users,
};

pub(crate) const CASES: &[Case] = &[
    ("break_glass_is_opened_and_ended_in_every_replica", in_every_replica),
    ("a_user_who_may_only_read_opens_nothing", a_user_who_may_only_read),
];

fn gatepost(cluster: &Cluster, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(["break-glass", "--source", "etcd", "--etcd-endpoint", &cluster.url(0)]).args(more);
    let Output { status, stdout, stderr } = command.output().expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

const OPEN: [&str; 5] = ["--for", "15m", "--reason", "told so", "--everything"];

fn is_open(running: &Running) -> bool {
    !running.current.break_glass().open(Instant::now()).is_empty()
}

fn in_every_replica(program: &Path) {
    let cluster = Cluster::start(program, 1);
    cluster.put(&format!("{PREFIX}a"), &configuration("one.example.com"));
    let replicas = [sidecar(place(cluster.urls())), sidecar(place(cluster.urls()))];
    replicas.iter().for_each(|replica| until_hook(replica, "one.example.com"));
    // Not even a configuration that is rejected stands in the way.
    cluster.put(&format!("{PREFIX}b"), "kind: Nonsense");

    let (code, stdout, stderr) = gatepost(&cluster, &OPEN);
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains(&format!("{PREFIX}break-glass/break-glass.yaml of etcd at ")), "{stdout}");
    for replica in &replicas {
        wait("an open replica", || is_open(replica).then_some(()));
    }
    let (code, _, stderr) = gatepost(&cluster, &["--end"]);
    assert_eq!((code, &*stderr), (Some(0), ""));
    for replica in &replicas {
        wait("a closed replica", || (!is_open(replica)).then_some(()));
    }
    let (code, _, stderr) = gatepost(&cluster, &["--end"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("nothing by that name is open"), "{stderr}");
}

fn a_user_who_may_only_read(program: &Path) {
    let cluster = Cluster::start(program, 1);
    users::ask_who(&cluster, users::by_password());
    let folder = tempfile::tempdir().unwrap();
    let password = write(folder.path(), "password", "hunter2\n").display().to_string();
    let login = ["--etcd-user", "gatepost", "--etcd-password-file", &password];
    for wanted in [&OPEN[..], &["--end"]] {
        let (code, stdout, stderr) = gatepost(&cluster, &[wanted, &login].concat());
        assert_eq!((code, &*stdout), (Some(1), ""));
        assert!(stderr.contains("denies the user \"gatepost\" this") && !stderr.contains("hunter2"), "{stderr}");
        println!("  {}", stderr.trim_end());
    }
    let (code, _, stderr) = gatepost(&cluster, &OPEN);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("wants a user"), "{stderr}");
}
