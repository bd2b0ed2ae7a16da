//! Security contexts that Pod Security `restricted` requires.

use serde_json::{Value, json};

/// Returns the security context of a pod.
pub(crate) fn pod() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// Returns the security context of a container, with a read-only root file system.
pub(crate) fn container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}
