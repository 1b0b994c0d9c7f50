//! Variant: the ways a write's hooks are reached.

use clap::ValueEnum;
use serde::Serialize;

/// A way to reach the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Variant {
    /// No hooks at all
    None,
    /// (a) the apiserver asks each JSON hook itself
    Direct,
    /// (b) the apiserver asks Gatepost, which asks the same JSON hooks
    Json,
    /// (c) the apiserver asks Gatepost, which asks gRPC hooks over TLS
    Grpc,
    /// (d) the same without TLS between Gatepost and the hooks
    GrpcPlain,
}

impl Variant {
    /// All of them, in the order of the tables.
    pub(super) const ALL: [Self; 5] = [Self::None, Self::Direct, Self::Json, Self::Grpc, Self::GrpcPlain];

    /// As it is written in files.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Direct => "direct",
            Self::Json => "json",
            Self::Grpc => "grpc",
            Self::GrpcPlain => "grpc-plain",
        }
    }

    /// As it is written for people.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::None => "no hooks",
            Self::Direct => "(a) direct",
            Self::Json => "(b) Gatepost, JSON hooks",
            Self::Grpc => "(c) Gatepost, gRPC hooks",
            Self::GrpcPlain => "(d) as (c), plaintext hooks",
        }
    }

    /// Protocol of its hooks, as the hook program calls it.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::None | Self::Direct | Self::Json => "json",
            Self::Grpc | Self::GrpcPlain => "grpc",
        }
    }

    /// True when its hooks speak TLS.
    pub(super) fn has_tls(self) -> bool {
        self != Self::GrpcPlain
    }

    /// True when a sidecar stands between.
    pub(super) fn has_sidecar(self) -> bool {
        matches!(self, Self::Json | Self::Grpc | Self::GrpcPlain)
    }
}
