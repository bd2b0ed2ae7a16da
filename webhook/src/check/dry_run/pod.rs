//! The pods of a dry run, which differ in their resource requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, Pod, PodSecurityContext, PodSpec, ResourceRequirements,
    SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::admission::Defaults;
use crate::admission::settings::keys::{INJECT, PREFIX};

/// The resource requests of a dry run's pod, beside those of its drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunRequests {
    /// Next to nothing, with higher limits: a quota that rejects the pod then rejects the drainer, which
    /// requests no more than in most pods.
    Minimal,
    /// Next to nothing, with equal limits, as some LimitRanges require. Its drainer requests as much as
    /// its own limits, and so do drainers in other pods that such LimitRanges admit.
    Guaranteed,
    /// As much as a drainer: a LimitRange that rejects the pod then rejects a drainer as well.
    LikeDrainer,
    /// Nothing: a LimitRange fills in its defaults.
    Unset,
}

/// A pod that requests a drainer is tried with these, until one is admitted.
pub const INJECT_REQUESTED: [DryRunRequests; 3] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
];

/// A pod that requests none is tried with these, until one is admitted.
pub const INJECT_NOT_REQUESTED: [DryRunRequests; 4] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
    DryRunRequests::Unset,
];

/// A pod that complies with common policies for pods.
pub fn sample_pod(inject: bool, requests: DryRunRequests, defaults: &Defaults) -> Pod {
    // The drainers' own image: a policy for images that rejects it rejects drainers too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    let annotations = inject.then(|| {
        // The pod has no volume for a Unix socket, which may be the installation's default.
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
                    // OpenShift assigns one.
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
            // Quotas may require limits, and LimitRanges may bound their ratio to the requests.
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
        let context = PodContext {
            namespace: Some("shop"),
            in_job: false,
            token: token(&[]),
        };
        decide(&PodView::decode(&json).unwrap(), &context, defaults)
    }

    #[test]
    fn sample_pod_is_injected_without_warnings_if_requested() {
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
            let requested = decision(&sample_pod(true, requests, defaults), defaults);
            let Decision::Inject { warnings, .. } = requested else {
                panic!("{requested:?}");
            };
            assert_eq!(warnings, []);
            let not_requested = decision(&sample_pod(false, requests, defaults), defaults);
            assert!(matches!(not_requested, Decision::NotRequested));
        }
    }

    #[test]
    fn drainer_requests_limits_only_in_guaranteed_pods() {
        let defaults = Defaults::new("drainer:1", "infra");
        for (requests, cpu) in [
            (DryRunRequests::Minimal, "25m"),
            (DryRunRequests::Guaranteed, "100m"),
            (DryRunRequests::LikeDrainer, "25m"),
        ] {
            let decision = decision(&sample_pod(true, requests, &defaults), &defaults);
            let Decision::Inject { plan, .. } = decision else {
                panic!("{decision:?}");
            };
            let requested = plan.container.resources.unwrap().requests.unwrap();
            assert_eq!(requested["cpu"].0, cpu, "{requests:?}");
        }
    }

    #[test]
    fn sample_pod_has_no_user_on_openshift() {
        let defaults = Defaults {
            open_shift: true,
            ..Defaults::new("drainer:1", "infra")
        };
        let pod = sample_pod(true, DryRunRequests::Unset, &defaults);
        let container = &pod.spec.unwrap().containers[0];
        assert_eq!(container.resources, None);
        let security_context = container.security_context.as_ref().unwrap();
        assert_eq!(security_context.run_as_user, None);
    }
}
