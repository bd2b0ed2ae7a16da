//! The shutdown manager of Contour, as its example manifests, its provisioner and its Helm chart run it. Envoy's
//! readiness probe calls a listener of Envoy's own, port 8002.
//! <https://github.com/projectcontour/contour/blob/v1.33.6/examples/contour/03-envoy.yaml>
//! <https://github.com/projectcontour/contour/blob/v1.33.6/internal/provisioner/objects/dataplane/dataplane.go>
//! <https://github.com/projectcontour/helm-charts/blob/main/charts/contour/templates/envoy/daemonset.yaml>

use super::shape::{CommandLine, FlagMeaning, ManagerProduct, Shape, VersionRange};

/// In Contour's own manifests, and in its Helm chart.
const PROGRAMS: &[&str] = &["/bin/contour", "contour"];

pub(super) const SHAPE: Shape = Shape {
    product: ManagerProduct::Contour,
    versions: VersionRange {
        first: (1, 24),
        last: (1, 33),
    },
    images: &["contour"],
    // https://github.com/projectcontour/contour/blob/v1.33.6/cmd/contour/shutdownmanager.go
    serve: CommandLine {
        programs: PROGRAMS,
        words: &["envoy", "shutdown-manager"],
        flags: &[
            ("--serve-port", FlagMeaning::Port),
            ("--ready-file", FlagMeaning::Nothing),
        ],
    },
    shutdown: CommandLine {
        programs: PROGRAMS,
        words: &["envoy", "shutdown"],
        flags: &[
            ("--drain-delay", FlagMeaning::Setting("drain-delay")),
            ("--check-delay", FlagMeaning::Setting("min-drain-duration")),
            (
                "--min-open-connections",
                FlagMeaning::Setting("exit-at-connections"),
            ),
            ("--admin-address", FlagMeaning::AdminSocket),
            ("--admin-port", FlagMeaning::Nothing),
            ("--check-interval", FlagMeaning::Nothing),
            ("--ready-file", FlagMeaning::Nothing),
        ],
    },
    path: "/shutdown",
    port: 8090,
    // It does not count the connections of the listeners with the stat prefix `stats` or `envoy-admin`.
    // https://github.com/projectcontour/contour/blob/v1.33.6/internal/envoy/v3/stats.go
    settings: &[
        ("admin-address", "unix:/admin/admin.sock"),
        (
            "ignore-listeners",
            "envoy-admin,health,health-om-enforced,stats,stats-health",
        ),
    ],
    drains_until_killed: true,
};
