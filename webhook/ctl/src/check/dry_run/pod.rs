//! The pods of a dry run, which differ in their resource requests.

use std::fmt;

use admission::Defaults;
use admission::settings::keys::{INJECT, PREFIX};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

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

/// A pod that requests a drainer is tried with these, until one is admitted. One that requests none is also tried with
/// [`DryRunRequests::Unset`].
pub const TRIED_REQUESTS: [DryRunRequests; 3] = [
    DryRunRequests::Minimal,
    DryRunRequests::Guaranteed,
    DryRunRequests::LikeDrainer,
];

/// A pod that complies with common policies for pods.
pub fn sample_pod(inject: bool, requests: DryRunRequests, defaults: &Defaults) -> Pod {
    // The drainers' own image: a policy for images that rejects it rejects drainers too.
    let image = match &*defaults.image {
        "" => "envoy",
        image => image,
    };
    // The pod has no volume for a Unix socket, which may be the installation's default.
    let address = format!("{PREFIX}admin-address");
    let annotations = inject.then(|| json!({INJECT: "true", address: "127.0.0.1:9901"}));
    let pod = json!({
        "metadata": {"generateName": "envoy-drainer-check-", "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "envoy",
                "image": image,
                "resources": requests.resources(defaults),
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": true,
                    // OpenShift assigns one.
                    "runAsUser": (!defaults.openshift).then_some(65532),
                },
            }],
        },
    });
    serde_json::from_value(pod).expect("all fields are a pod's")
}

// === impl DryRunRequests ===

impl DryRunRequests {
    fn resources(self, defaults: &Defaults) -> Option<Value> {
        let amounts = &defaults.settings.resources;
        let [requests, limits] = match self {
            // Quotas may require limits, and LimitRanges may bound their ratio to the requests.
            Self::Minimal => [amount(&"1m", &"1Mi"), amount(&"1m", &"1025Ki")],
            Self::Guaranteed => [amount(&"1m", &"1Mi"), amount(&"1m", &"1Mi")],
            Self::LikeDrainer => [
                amount(&amounts.cpu_request, &amounts.memory_request),
                amount(&amounts.cpu_limit, &amounts.memory_limit),
            ],
            Self::Unset => return None,
        };
        Some(json!({"requests": requests, "limits": limits}))
    }
}

fn amount(cpu: &dyn fmt::Display, memory: &dyn fmt::Display) -> Value {
    json!({"cpu": cpu.to_string(), "memory": memory.to_string()})
}

#[cfg(test)]
mod tests {
    use drainer::DrainSettings;

    use super::*;
    use admission::{
        Decision, NativeSidecar, PodContext, PodSettings, PodView, Settings, decide, token,
    };

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
                settings: Settings::try_new(PodSettings {
                    drain: DrainSettings {
                        admin_address: "unix:/run/envoy/admin.sock".parse().unwrap(),
                        ..DrainSettings::default()
                    },
                    ..PodSettings::default()
                })
                .unwrap(),
                ..product()
            },
            Defaults {
                settings: Settings::try_new(PodSettings {
                    native_sidecar: NativeSidecar::False,
                    ..PodSettings::default()
                })
                .unwrap(),
                ..product()
            },
            Defaults {
                openshift: true,
                ..product()
            },
        ];
        let tried = TRIED_REQUESTS.into_iter().chain([DryRunRequests::Unset]);
        let tried: Vec<_> = tried.collect();
        for (defaults, &requests) in all
            .iter()
            .flat_map(|all| tried.iter().map(move |r| (all, r)))
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
            openshift: true,
            ..Defaults::new("drainer:1", "infra")
        };
        let pod = sample_pod(true, DryRunRequests::Unset, &defaults);
        let container = &pod.spec.unwrap().containers[0];
        assert_eq!(container.resources, None);
        let security_context = container.security_context.as_ref().unwrap();
        assert_eq!(security_context.run_as_user, None);
    }
}
