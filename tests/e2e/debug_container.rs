//! A hand in a pod: an ephemeral container with the load's program, which can do there what a shell
//! could, were there one.

use std::io::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::edge::DRAINER_CONTAINER;
use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// Has the program do this in a pod, as the drainer's user. Each of its words is done once in a pod: a
/// container is called after it.
///
/// # Errors
/// When it does not start, or fails.
pub(crate) async fn exec_in_pod(namespace: &Namespace, pod: &str, words: &[&str]) -> Result<()> {
    let container = words.first().copied().unwrap_or_default();
    let (image, name) = (
        format!("--image={}", images::LOAD_IMAGE),
        format!("--container={container}"),
    );
    let partial = drainer_profile(namespace, pod).await?;
    let custom = format!("--custom={}", partial.path().display());
    let debug = [
        "debug",
        pod,
        &image,
        &name,
        "--image-pull-policy=IfNotPresent",
        "--profile=restricted",
        &custom,
        "--quiet",
        "--",
        "/load",
    ];
    namespace.kubectl(&[&debug[..], words].concat()).await?;
    let ended = || async {
        let status = namespace.container_status(pod, container).await;
        Ok(status.is_ok_and(|status| status["state"]["terminated"].is_object()))
    };
    eventually("the hand is done", ended).await?;
    let status = namespace.container_status(pod, container).await?;
    let code = &status["state"]["terminated"]["exitCode"];
    if *code != 0 {
        let logs = ["logs", pod, "--container", container];
        let said = namespace.kubectl(&logs).await?;
        bail!("{words:?} ended with {code}: {said}");
    }
    Ok(())
}

/// A partial container that runs as the drainer of a pod does: only its own user may end it.
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
