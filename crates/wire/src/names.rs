//! Names of gRPC services, methods and metadata, as in `proto/` and grpc.health.v1. The front serves these methods, and
//! hooks are called with them.

/// Service that decides reviews.
pub const ADMISSION: &str = "gatepost.v1.Admission";
/// Path of `Admission/Review`: the mutating and validating phases in one call.
pub const REVIEW: &str = "/gatepost.v1.Admission/Review";
/// Path of `Admission/Mutate`: the mutating phase.
pub const MUTATE: &str = "/gatepost.v1.Admission/Mutate";
/// Path of `Admission/Validate`: the validating phase.
pub const VALIDATE: &str = "/gatepost.v1.Admission/Validate";
/// Service that initializers attach to.
pub const INITIALIZERS: &str = "gatepost.v1.Initializers";
/// Service for apiservers that store unfinished objects.
pub const INITIALIZATION: &str = "gatepost.v1.Initialization";
/// Service that decides reviews with objects in protobuf.
pub const PROTOBUF_ADMISSION: &str = "gatepost.v1.ProtobufAdmission";
/// Service for plugins that follow the rule index.
pub const RULE_INDEX: &str = "gatepost.v1.RuleIndex";

/// Service for health checks.
pub const HEALTH: &str = "grpc.health.v1.Health";
/// Path of `Health/Check`: one health check.
pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// Path of `Health/Watch`: a stream of health states until the client cancels it.
pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Key of the request metadata with the namespace's labels. It is forwarded to hooks, so that sidecars can be chained.
pub const NAMESPACE_LABELS: &str = "gatepost-namespace-labels-bin";
/// Key of the request metadata with the versions in which the caller can send the request.
pub const VERSIONS: &str = "gatepost-versions";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::gatepost::v1::{
        admission_server, initialization_server, initializers_server, protobuf_admission_server, rule_index_server,
    };

    #[test]
    fn services_are_named_as_in_the_definitions() {
        assert_eq!(ADMISSION, admission_server::SERVICE_NAME);
        assert_eq!(INITIALIZERS, initializers_server::SERVICE_NAME);
        assert_eq!(INITIALIZATION, initialization_server::SERVICE_NAME);
        assert_eq!(PROTOBUF_ADMISSION, protobuf_admission_server::SERVICE_NAME);
        assert_eq!(RULE_INDEX, rule_index_server::SERVICE_NAME);
        let paths = [REVIEW, MUTATE, VALIDATE].map(|path| path[1..].rsplit_once('/'));
        assert_eq!(paths, ["Review", "Mutate", "Validate"].map(|method| Some((ADMISSION, method))));
        let paths = [HEALTH_CHECK, HEALTH_WATCH].map(|path| path[1..].rsplit_once('/'));
        assert_eq!(paths, ["Check", "Watch"].map(|method| Some((HEALTH, method))));
    }
}
