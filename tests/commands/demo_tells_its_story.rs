//! `gatepost demo` asserts its own story; here it runs to the end, and leaves nothing behind.

use std::{
    fs,
    process::{Command, Stdio},
};

#[test]
fn demo_of_initializers_succeeds_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gatepost"))
        .args(["demo", "--initializers"])
        .env("TMPDIR", folder.path())
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("everything went as described") && text.contains("failed_closed"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).expect("listing").count(), 0, "nothing is left behind");
}

#[test]
fn demo_succeeds_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("folder");
    let output = Command::new(env!("CARGO_BIN_EXE_gatepost"))
        .arg("demo")
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let complaint = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), &*complaint), (Some(0), ""), "{text}");
    let lines = [
        "  CREATE configmaps shop/postcodes                               512,000 bytes  ALLOWED",
        "    message  403 admission webhook \"no-privileged.example.com\" denied the request: container",
        "    message  500 Internal error occurred: failed calling webhook \"no-privileged.example.com\":",
        "    problem  hooks.yaml: externalAdmissionHooks[0].failurPolicy: is not a known key, so it would",
    ];
    for line in lines {
        assert!(text.lines().any(|text| text == line), "{line:?} is not in\n{text}");
    }
    let swapped = text.lines().find(|line| line.starts_with("    swapped  generation 1 -> ")).expect("swapped");
    assert!(swapped.ends_with(": slow-but-ignored is gone, no-load-balancer is Probing"), "{swapped}");
    assert!(!text.contains('\x1b'), "colour where nobody looks");
    assert!(text.trim_end().ends_with("everything went as described"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "something was left behind");
}
