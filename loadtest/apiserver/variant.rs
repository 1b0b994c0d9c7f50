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
    /// (e) as (b), with Gatepost behind a Service of the cluster
    JsonService,
    /// (f) as (c), with Gatepost behind a Service of the cluster
    GrpcService,
    /// (g) as (b), with mutating hooks asked one by one (`serve --dispatch serial`)
    JsonSerial,
    /// (h) as (b), by the build of `--against`
    JsonAgainst,
    /// (i) as (c), by the build of `--against`
    GrpcAgainst,
    /// No hooks at all, at the apiserver of `--plugin`
    PluginNone,
    /// (j) as (b), by the admission plugin in the apiserver of `--plugin` instead of a webhook
    Plugin,
    /// (k) as (c), by that plugin, with hooks that take objects in protobuf
    PluginProtobuf,
}

impl Variant {
    /// All of them, in the order of the tables.
    pub(super) const ALL: [Self; 13] = [
        Self::None,
        Self::Direct,
        Self::Json,
        Self::Grpc,
        Self::GrpcPlain,
        Self::JsonService,
        Self::GrpcService,
        Self::JsonSerial,
        Self::JsonAgainst,
        Self::GrpcAgainst,
        Self::PluginNone,
        Self::Plugin,
        Self::PluginProtobuf,
    ];

    /// As it is written in files.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Direct => "direct",
            Self::Json => "json",
            Self::Grpc => "grpc",
            Self::GrpcPlain => "grpc-plain",
            Self::JsonService => "json-service",
            Self::GrpcService => "grpc-service",
            Self::JsonSerial => "json-serial",
            Self::JsonAgainst => "json-against",
            Self::GrpcAgainst => "grpc-against",
            Self::PluginNone => "plugin-none",
            Self::Plugin => "plugin",
            Self::PluginProtobuf => "plugin-protobuf",
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
            Self::JsonService => "(e) as (b), by a Service",
            Self::GrpcService => "(f) as (c), by a Service",
            Self::JsonSerial => "(g) as (b), one by one",
            Self::JsonAgainst => "(h) as (b), other build",
            Self::GrpcAgainst => "(i) as (c), other build",
            Self::PluginNone => "no hooks, with the plugin",
            Self::Plugin => "(j) as (b), by the plugin",
            Self::PluginProtobuf => "(k) as (c), by the plugin, in protobuf",
        }
    }

    /// Protocol of its hooks, as the hook program calls it.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Self::None
            | Self::Direct
            | Self::Json
            | Self::JsonService
            | Self::JsonSerial
            | Self::JsonAgainst
            | Self::PluginNone
            | Self::Plugin => "json",
            Self::Grpc | Self::GrpcPlain | Self::GrpcService | Self::GrpcAgainst | Self::PluginProtobuf => "grpc",
        }
    }

    /// True when its hooks speak TLS.
    pub(super) fn has_tls(self) -> bool {
        self != Self::GrpcPlain
    }

    /// True when a sidecar stands between.
    pub(super) fn has_sidecar(self) -> bool {
        !matches!(self, Self::None | Self::Direct)
    }

    /// True when the apiserver reaches the sidecar through a Service, as where Gatepost runs in the cluster.
    pub(super) fn has_service(self) -> bool {
        matches!(self, Self::JsonService | Self::GrpcService)
    }

    /// True when the apiserver asks by its plugin, in which case it is another one.
    pub(super) fn has_plugin(self) -> bool {
        matches!(self, Self::PluginNone | Self::Plugin | Self::PluginProtobuf)
    }

    /// True when nothing is asked.
    pub(super) fn is_none(self) -> bool {
        matches!(self, Self::None | Self::PluginNone)
    }

    /// The way without hooks at the same apiserver: what hooks add is measured against it.
    pub(super) fn without_hooks(self) -> Self {
        if self.has_plugin() { Self::PluginNone } else { Self::None }
    }

    /// True when its hooks take objects in protobuf.
    pub(super) fn takes_protobuf(self) -> bool {
        self == Self::PluginProtobuf
    }

    /// True when no hook is asked ahead of its turn.
    pub(super) fn is_serial(self) -> bool {
        self == Self::JsonSerial
    }

    /// True when the sidecar is the build of `--against`.
    pub(super) fn is_against(self) -> bool {
        matches!(self, Self::JsonAgainst | Self::GrpcAgainst)
    }
}
