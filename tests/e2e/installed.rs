//! How the pods of a scenario get their drainers.

use anyhow::{Result, ensure};
use serde_json::Value;
use webhook::admission::Defaults;
use webhook::commands::inject::inject;

use crate::images;

/// The workload as it is in a cluster where envoy-drainer is installed.
///
/// # Errors
/// When its pod asks for a drainer and gets none, with the reason.
pub(crate) fn installed(workload: &Value) -> Result<Value> {
    let defaults = Defaults::new(images::DRAINER, "envoy-drainer");
    let injected = inject(workload.to_string().as_bytes(), &defaults);
    ensure!(
        injected.asked == injected.injected,
        "not injected: {:?}",
        injected.remarks
    );
    Ok(serde_json::from_slice(&injected.bytes)?)
}
