//! `gatepost check --connect`: each hook is asked once as `serve` would ask it, and the step that fails is shown with
//! what to do.
#![allow(clippy::expect_used, reason = "a test stops where its own setup is wrong")]

use crate::support::{
    gate::{document, hook},
    http_hook::{H2, HTTP1, HttpHook, HttpScript},
    scripted_hook::{Script, ScriptedHook},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use tokio::process::Command;

async fn check(hooks: &[String]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("gatepost.yaml"), document(hooks)).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatepost"));
    command.args(["check", "--connect", "--hazards", "off"]).arg(folder.path()).env_remove("GATEPOST_LOG");
    let output = command.output().await.expect("runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

/// The line of a hook, and the one below it.
fn of(message: &str, name: &str) -> String {
    let mut lines = message.lines().skip_while(|line| !line.starts_with("  ok") && !line.starts_with("  FAILED"));
    let line = lines.by_ref().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {message}"));
    format!("{line}\n{}", lines.next().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_connect_reports_hooks_that_would_enter_rotation() {
    let grpc = ScriptedHook::start(Script::Allow).await;
    let tls = HttpHook::tls(HttpScript::Allow, &[H2, HTTP1]).await;
    let plain = HttpHook::plain(HttpScript::Allow).await;
    let (code, message) = check(&[
        hook("grpc.example.com", &grpc.url(), ""),
        hook("plain.example.com", &plain.url(), "sideEffects: None"),
        hook("undeclared.example.com", &plain.url(), ""),
        with_authority("tls.example.com", &tls),
    ])
    .await;
    assert_eq!(code, Some(0), "{message}");
    assert!(of(&message, "grpc.example.com").contains("answered"), "{message}");
    assert!(of(&message, "plain.example.com").contains("answered POST /"), "{message}");
    assert!(of(&message, "undeclared.example.com").contains("connected, and sent nothing"), "{message}");
    assert!(message.contains("4 of 4 hooks would enter rotation"), "{message}");
    // One review for the one that declares that it does no harm.
    assert_eq!((plain.seen().len(), tls.seen().len()), (1, 1));
}

/// The authority that has signed its certificate.
fn authority(hook: &HttpHook) -> Vec<u8> {
    hook.endpoint().tls.and_then(|tls| tls.ca_pem).expect("over TLS").to_vec()
}

/// A hook over TLS with its own authority.
fn with_authority(name: &str, hook: &HttpHook) -> String {
    let bundle = STANDARD.encode(authority(hook));
    format!(
        "- name: {name}\n  clientConfig: {{url: \"{}\", caBundle: {bundle}, serverName: localhost}}\n  sideEffects: None\n  rules: []\n",
        hook.url()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_connect_reports_the_failed_step_and_its_fix() {
    let tls = HttpHook::tls(HttpScript::Allow, &[H2]).await;
    let absent = HttpHook::plain(HttpScript::Status(404, None)).await;
    let other = HttpHook::tls(HttpScript::Allow, &[H2]).await;
    let mistrusted = with_authority("mistrusted.example.com", &other)
        .replace(&STANDARD.encode(authority(&other)), &STANDARD.encode(authority(&tls)));
    let (code, message) = check(&[
        with_authority("good.example.com", &tls),
        mistrusted,
        hook("absent.example.com", &absent.url(), "sideEffects: None"),
        hook("nobody.example.com", "grpc://127.0.0.1:1", ""),
        hook("unknown.example.com", "grpcs://unknown.invalid:443", ""),
        "- name: service.example.com\n  clientConfig: {service: {namespace: n, name: s}}\n  rules: []\n".to_owned(),
    ])
    .await;
    assert_eq!(code, Some(1), "{message}");
    for (name, step, fix) in [
        ("mistrusted.example.com", "(step: TLS)", "caBundle or caFile holds the authority"),
        ("absent.example.com", "(step: review)", "dry-run review gatepost-probe"),
        ("nobody.example.com", "(step: connect)", "see that the hook is running"),
        ("unknown.example.com", "(step: resolve)", "correct the host in clientConfig"),
        ("service.example.com", "(step: resolve)", "Service's cluster IP"),
    ] {
        let line = of(&message, name);
        assert!(line.starts_with("  FAILED") && line.contains(step) && line.contains(fix), "{name}: {line}\n{message}");
    }
    assert!(message.contains("1 of 6 hooks would enter rotation"), "{message}");
}
