//! The small pods that are tried: one after the other differs in what it requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, Pod, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::Defaults;
use crate::admission::settings::keys::{INJECT, PREFIX};

/// What a trial pod requests beside what its drainer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunRequests {
    /// Next to nothing, and its limits are more: what quotas refuse is then the drainer, which requests
    /// no more than in most pods.
    Minimal,
    /// Next to nothing, and its limits are the same, as some limits want it. Its drainer requests as
    /// much as its own limits, and so do those of pods that such limits let pass.
    Guaranteed,
    /// As much as a drainer: what limits refuse is then true for the drainer as well.
    LikeDrainer,
    /// Nothing: limits have their defaults filled in.
    Unset,
}

/// A pod that asks is tried with these, until one is not refused.
pub const INJECT_REQUESTED: [DryRunRequests; 3] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
];

/// A pod that does not ask is tried with these, until one is not refused.
pub const INJECT_NOT_REQUESTED: [DryRunRequests; 4] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
    DryRunRequests::Unset,
];

/// A pod that does what every policy for pods wants.
#[must_use]
pub fn sample_pod(inject: bool, requests: DryRunRequests, defaults: &Defaults) -> Pod {
    // The drainers' own image: policies for images let it pass, or pods with drainers are refused too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    let annotations = inject.then(|| {
        // It has no volume with a Unix socket, where the installation's default may be.
        let admin = (
            format!("{PREFIX}admin-address"),
            "127.0.0.1:9901".to_owned(),
        );
        BTreeMap::from([(INJECT.to_owned(), "true".to_owned()), admin])
    });
    Pod {
        metadata: ObjectMeta {
            generate_name: Some("envoy-drainer-check-".to_owned()),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            containers: vec![Container {
                name: "envoy".to_owned(),
                image: Some(image.to_owned()),
                resources: requests.resources(defaults),
                security_context: Some(SecurityContext {
                    allow_privilege_escalation: Some(false),
                    capabilities: Some(Capabilities {
                        drop: Some(vec!["ALL".to_owned()]),
                        add: None,
                    }),
                    read_only_root_filesystem: Some(true),
                    // OpenShift chooses one.
                    run_as_user: (!defaults.open_shift).then_some(65532),
                    ..SecurityContext::default()
                }),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        status: None,
    }
}

// === impl DryRunRequests ===

impl DryRunRequests {
    fn resources(self, defaults: &Defaults) -> Option<ResourceRequirements> {
        let amounts = &*defaults.resources;
        let list = |cpu: &dyn ToString, memory: &dyn ToString| {
            BTreeMap::from([
                ("cpu".to_owned(), Quantity(cpu.to_string())),
                ("memory".to_owned(), Quantity(memory.to_string())),
            ])
        };
        let (requests, limits) = match self {
            // Quotas may want limits, and limits want them to be at most so many times the requests.
            Self::Minimal => (list(&"1m", &"1Mi"), list(&"1m", &"1025Ki")),
            Self::Guaranteed => (list(&"1m", &"1Mi"), list(&"1m", &"1Mi")),
            Self::LikeDrainer => (
                list(&amounts.cpu_request, &amounts.memory_request),
                list(&amounts.cpu_limit, &amounts.memory_limit),
            ),
            Self::Unset => return None,
        };
        Some(ResourceRequirements {
            requests: Some(requests),
            limits: Some(limits),
            claims: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Decision, PodContext, PodView, decide, token};

    fn decision(pod: &Pod, defaults: &Defaults) -> Decision {
        let json = serde_json::to_string(pod).unwrap();
        let facts = PodContext {
            namespace: Some("shop"),
            in_job: false,
            token: token(&[]),
        };
        decide(&PodView::decode(&json).unwrap(), &facts, defaults)
    }

    #[test]
    fn a_pod_that_asks_is_injected_without_a_warning_and_one_that_does_not_is_not() {
        let product = || Defaults::new("drainer:1", "infra");
        let all = [
            product(),
            Defaults {
                admin_address: "unix:/run/envoy/admin.sock".parse().unwrap(),
                ..product()
            },
            Defaults {
                native_sidecar: false,
                ..product()
            },
            Defaults {
                open_shift: true,
                ..product()
            },
        ];
        for (defaults, requests) in all
            .iter()
            .flat_map(|all| INJECT_NOT_REQUESTED.map(|r| (all, r)))
        {
            let asks = decision(&sample_pod(true, requests, defaults), defaults);
            let Decision::Inject { warnings, .. } = asks else {
                panic!("{asks:?}");
            };
            assert_eq!(warnings, []);
            let verdict = decision(&sample_pod(false, requests, defaults), defaults);
            assert!(matches!(verdict, Decision::NotRequested));
        }
    }

    #[test]
    fn a_drainer_requests_no_more_than_in_most_pods_but_for_a_guaranteed_one() {
        let defaults = Defaults::new("drainer:1", "infra");
        for (requests, cpu) in [
            (DryRunRequests::Minimal, "25m"),
            (DryRunRequests::Guaranteed, "100m"),
            (DryRunRequests::LikeDrainer, "25m"),
        ] {
            let verdict = decision(&sample_pod(true, requests, &defaults), &defaults);
            let Decision::Inject { plan, .. } = verdict else {
                panic!("{verdict:?}");
            };
            let requested = plan.container.resources.unwrap().requests.unwrap();
            assert_eq!(requested["cpu"].0, cpu, "{requests:?}");
        }
    }

    #[test]
    fn a_pod_that_requests_nothing_has_no_user_where_openshift_chooses_one() {
        let defaults = Defaults {
            open_shift: true,
            ..Defaults::new("drainer:1", "infra")
        };
        let pod = sample_pod(true, DryRunRequests::Unset, &defaults);
        let container = &pod.spec.unwrap().containers[0];
        assert_eq!(container.resources, None);
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.run_as_user, None);
    }
}
