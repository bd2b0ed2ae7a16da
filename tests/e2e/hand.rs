//! A hand in a pod: an ephemeral container with the load's program, which can do there what a shell
//! could, were there one.

use anyhow::{Result, bail};

use crate::eventually::eventually;
use crate::images;
use crate::namespace::Namespace;

/// Has the program do this in a pod. Each of its words is done once in a pod: a container is called
/// after it.
///
/// # Errors
/// When it does not start, or fails.
pub(crate) async fn lend(namespace: &Namespace, pod: &str, words: &[&str]) -> Result<()> {
    let container = words.first().copied().unwrap_or_default();
    let (image, name) = (
        format!("--image={}", images::LOAD),
        format!("--container={container}"),
    );
    let debug = [
        "debug",
        pod,
        &image,
        &name,
        "--image-pull-policy=IfNotPresent",
        "--profile=restricted",
        "--quiet",
        "--",
        "/load",
    ];
    namespace.kubectl(&[&debug[..], words].concat()).await?;
    let ended = || async {
        let status = namespace.container(pod, container).await;
        Ok(status.is_ok_and(|status| status["state"]["terminated"].is_object()))
    };
    eventually("the hand is done", ended).await?;
    let status = namespace.container(pod, container).await?;
    let code = &status["state"]["terminated"]["exitCode"];
    if *code != 0 {
        let logs = ["logs", pod, "--container", container];
        let said = namespace.kubectl(&logs).await?;
        bail!("{words:?} ended with {code}: {said}");
    }
    Ok(())
}
