//! The shutdown manager of Envoy Gateway, as `internal/infrastructure/kubernetes/proxy/resource.go` of its versions
//! runs it. Envoy's probes call a listener of Envoy's own, port 19003.
//! <https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/infrastructure/kubernetes/proxy/resource.go>

use super::shape::{CommandLine, FlagMeaning, ManagerProduct, Shape, VersionRange};

pub(super) const SHAPE: Shape = Shape {
    product: ManagerProduct::EnvoyGateway,
    versions: VersionRange {
        first: (1, 4),
        last: (1, 9),
    },
    images: &["gateway", "gateway-dev", "envoy-gateway"],
    serve: CommandLine {
        programs: &["envoy-gateway"],
        words: &["envoy", "shutdown-manager"],
        flags: &[("--ready-timeout", FlagMeaning::Nothing)],
    },
    // https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy.go
    shutdown: CommandLine {
        programs: &["envoy-gateway"],
        words: &["envoy", "shutdown"],
        flags: &[
            ("--drain-timeout", FlagMeaning::Setting("drain-timeout")),
            (
                "--min-drain-duration",
                FlagMeaning::Setting("min-drain-duration"),
            ),
            (
                "--exit-at-connections",
                FlagMeaning::Setting("exit-at-connections"),
            ),
            // Since 1.9.
            (
                "--health-check-failure-delay",
                FlagMeaning::Setting("health-failure-delay"),
            ),
        ],
    },
    path: "/shutdown/ready",
    port: 19002,
    // It does not count the connections of its metrics and its readiness probes.
    // https://github.com/envoyproxy/gateway/blob/v1.9.0/internal/cmd/envoy/shutdown_manager.go
    settings: &[
        ("admin-address", "127.0.0.1:19000"),
        ("ignore-listeners", "19001,19003"),
    ],
    drains_until_killed: false,
};
