//! `envoy-drainer check` finds the objects that the chart renders, and reports nothing wrong with them.

use admission::{Decision, Defaults, PodContext, PodView, decide, token};
use ctl::check::certificates::CertificateMode;
use ctl::check::dry_run;
use ctl::check::{Severity, installation, webhook_configuration};
use ctl::cli::installation::{ServeArgs, serve_container};
use k8s_openapi::api::apps::v1::Deployment;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tests::helm::{find_helm, object, objects};

use crate::sets;

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Returns true if the sample pod of the dry run gets a drainer.
fn is_dry_run_injected(defaults: &Defaults) -> bool {
    let pod = dry_run::sample_pod(defaults);
    let json = serde_json::to_string(&pod).unwrap();
    let context = PodContext::new(Some("shop"), token(&[]));
    let decision = decide(&PodView::decode(&json).unwrap(), &context, defaults);
    matches!(decision, Decision::Inject { .. })
}

#[test]
fn check_finds_the_rendered_installation() {
    let Some(helm) = find_helm() else { return };
    for set in sets::all(&helm) {
        let objects = objects(&set.rendered);
        let configurations = vec![read(object(&objects, "MutatingWebhookConfiguration", ""))];
        let found = installation::find(configurations, None).unwrap();
        for result in webhook_configuration::section(&found).results {
            assert_eq!(result.severity, Severity::Ok, "{}: {result:?}", set.name);
        }
        for kind in [
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ] {
            if objects.iter().any(|object| object["kind"] == kind) {
                let policy = object(&objects, kind, "-required");
                assert_eq!(
                    policy["metadata"]["name"],
                    found.unseen_pods_policy_name(),
                    "{}",
                    set.name
                );
                let policy = object(&objects, kind, "-cabundle");
                assert_eq!(policy["metadata"]["name"], found.ca_bundle_policy_name());
            }
        }
        let service = object(&objects, "Service", "");
        assert_eq!(service["metadata"]["name"], found.service);

        let deployment = object(&objects, "Deployment", "");
        let template = &deployment["spec"]["template"];
        let deployment: Deployment = read(deployment);
        let serving = serve_container(&deployment).unwrap();
        let ServeArgs {
            defaults,
            certificate_mode,
        } = ServeArgs::read(serving, &found.namespace).unwrap();
        assert_eq!(defaults.release_namespace, found.namespace, "{}", set.name);
        assert!(defaults.image.contains("/drainer"), "{}", defaults.image);
        assert!(is_dry_run_injected(&defaults), "{}", set.name);
        let has_secret = serving.args.iter().flatten();
        let has_secret = has_secret
            .clone()
            .any(|arg| arg.starts_with("--tls-secret="));
        assert_eq!(
            matches!(certificate_mode, CertificateMode::Secret(_)),
            has_secret
        );

        let port = &template["spec"]["containers"][0]["ports"][0];
        let target = &service["spec"]["ports"][0]["targetPort"];
        assert_eq!(*target, port["name"], "{}", set.name);
    }
}
