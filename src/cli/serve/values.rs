//! Values of `serve`'s flags, and how they are parsed.

use std::{num::NonZeroUsize, time::Duration};

use clap::ValueEnum;

use crate::{
    cli::duration,
    kube::KubeAccess,
    runtime::{Settings, settings::AuditLog},
};

/// Resolution of hooks that are named by a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ResolveArg {
    Dns,
    Endpoints,
}

/// Treatment of documents that cannot be served, at the start.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum OnInvalidArg {
    Refuse,
    Skip,
}

/// Calling mode of mutating hooks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum DispatchArg {
    Speculative,
    Serial,
}

/// Reasons of a rejection.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ReasonsArg {
    First,
    All,
}

/// A deadline.
pub(super) fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a deadline of zero refuses everything; write a duration like 30s".to_owned()),
        duration => Ok(duration),
    }
}

/// Number of workers. Each is a thread with a connection to each hook: more than any machine has cores for take memory and
/// files, and no load.
pub(super) fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let most = Settings::MOST_WORKERS.max(Settings::cores());
    text.parse().ok().filter(|workers| *workers <= most).ok_or_else(|| {
        format!("a number from 1 to {most}; one for each core that Gatepost may use is enough, and the default")
    })
}

/// Place of the audit log.
pub(super) fn audit_log(text: &str) -> Result<AuditLog, std::convert::Infallible> {
    Ok(match text {
        "none" => AuditLog::None,
        "-" => AuditLog::Stdout,
        path => AuditLog::File(path.into()),
    })
}

/// Name of a replica.
pub(super) fn replica(text: &str) -> Result<String, &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    match text.bytes().all(plain) && (1..=253).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err("letters, digits, '.', '-' and '_', at most 253 of them"),
    }
}

/// Access to a cluster.
pub(super) fn cluster(text: &str) -> Result<KubeAccess, std::convert::Infallible> {
    Ok(match text {
        "in-cluster" => KubeAccess::InCluster,
        path => KubeAccess::Kubeconfig { path: Some(path.into()), context: None },
    })
}
