//! What Pod Security `restricted` asks for, so that every scenario could run where it is enforced.

use serde_json::{Value, json};

/// Of a pod.
pub(crate) fn pod() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": { "type": "RuntimeDefault" },
    })
}

/// Of a container; and a read-only root.
pub(crate) fn container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}
