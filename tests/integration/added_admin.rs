//! The admin interface that the annotation `add-admin` adds to an Envoy without one.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::admin::Admin;
use tests::envoy_versions;
use tests::http::Client;
use tests::process::Process;
use tests::review::{ReviewBuilder, defaults};
use tests::timing::TIMEOUT;
use tests::until::wait_until;
use tokio::process::Command;

#[tokio::test]
async fn added_admin_interface_answers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("envoy.yaml");
    fs::write(&file, "static_resources: {listeners: []}")?;
    let pod = json!({
        "metadata": {"annotations": {
            "envoy-drainer.dev/inject": "true",
            "envoy-drainer.dev/add-admin": "true",
        }},
        "spec": {"containers": [{"name": "envoy", "command": ["envoy"], "args": ["-c", file]}]},
    });
    let pod = ReviewBuilder::for_pod(&pod).admit(&defaults()).pod;
    let args = pod["spec"]["containers"][0]["args"].as_array();
    let args = args.context("no args")?.iter().filter_map(Value::as_str);
    let admin = Admin::new(Client::new("unix:@envoy-admin".parse()?));
    // One after the other, since the socket has one name.
    for binary in envoy_versions::all()? {
        let mut command = Command::new(&binary.path);
        command.arg("--disable-hot-restart").args(args.clone());
        let log = directory.path().join("log");
        let _envoy = Process::start(&binary.to_string(), command, &log)?;
        wait_until("the added admin interface answers", TIMEOUT, || async {
            let info = admin.server_info().await;
            Ok(info.is_ok_and(|info| info["command_line_options"].is_object()))
        })
        .await?;
    }
    Ok(())
}
