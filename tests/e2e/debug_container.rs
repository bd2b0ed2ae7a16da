//! Ephemeral debug containers with `pod-tools`, whose subcommands replace a shell: the images have none.

use std::io::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;
use crate::termination_message::DRAINER_CONTAINER;

/// Runs `pod-tools` in a debug container of a pod, as the drainer's user, and waits for its exit.
/// The container has the name of the subcommand, so each subcommand can run once per pod.
///
/// # Errors
/// If it does not start, or fails: with its logs.
pub(crate) async fn exec_in_pod(namespace: &Namespace, pod: &str, args: &[&str]) -> Result<()> {
    let container = args.first().copied().unwrap_or_default();
    let partial = drainer_profile(namespace, pod).await?;
    let custom = format!("--custom={}", partial.path().display());
    let image = format!("--image={}", images::POD_TOOLS_IMAGE);
    let container_name = format!("--container={container}");
    let debug = ["debug", pod, &image, &container_name, &custom];
    let flags = "--image-pull-policy=IfNotPresent --profile=restricted --quiet -- /pod-tools";
    let flags: Vec<_> = flags.split(' ').collect();
    namespace
        .kubectl(&[&debug[..], &flags, args].concat())
        .await?;
    let has_terminated = || async {
        let status = namespace.container_status(pod, container).await;
        Ok(status.is_ok_and(|status| status["state"]["terminated"].is_object()))
    };
    eventually("the debug container has terminated", has_terminated).await?;
    let status = namespace.container_status(pod, container).await?;
    let code = &status["state"]["terminated"]["exitCode"];
    if *code != 0 {
        let logs = ["logs", pod, "--container", container];
        let logs = namespace.kubectl(&logs).await?;
        bail!("`pod-tools {}` exited with {code}: {logs}", args.join(" "));
    }
    Ok(())
}

/// Writes a partial container spec with the user of a pod's drainer, since only that user may signal its process.
async fn drainer_profile(namespace: &Namespace, pod: &str) -> Result<NamedTempFile> {
    let object = namespace.json(&["get", "pod", pod]).await?;
    let lists = ["initContainers", "containers"].map(|list| &object["spec"][list]);
    let mut containers = lists.into_iter().filter_map(Value::as_array).flatten();
    let drainer = containers
        .find(|container| container["name"] == DRAINER_CONTAINER)
        .context("the pod has no drainer")?;
    let context = &drainer["securityContext"];
    let (user, group) = (&context["runAsUser"], &context["runAsGroup"]);
    let partial = json!({ "securityContext": { "runAsUser": user, "runAsGroup": group } });
    let mut file = NamedTempFile::with_suffix(".json")?;
    file.write_all(partial.to_string().as_bytes())?;
    Ok(file)
}
