//! A finding, and the rules that it may violate.

use std::fmt;

use serde::Serialize;
use strum::EnumMessage;

use crate::object_name::ObjectName;

/// A finding about a container of a pod or a pod template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    pub code: LintCode,
    pub severity: LintSeverity,
    /// The file, or `stdin`, or the object of the cluster.
    pub source: String,
    /// The line of the pod or pod template in the file; `null` for an object of the cluster.
    pub line: Option<usize>,
    pub object: ObjectName,
    pub container: String,
    pub message: String,
    pub remedy: String,
    /// The annotations that replace the hook, each as `name: value` without the prefix.
    pub annotations: Vec<String>,
}

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LintSeverity {
    /// Requests may be lost, or a limit of the cluster reached.
    Warning,
    /// The hook fails, or loses requests.
    Error,
}

/// The rules, with what each finds. Their codes are stable, and docs/lint.md describes them.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    strum::EnumMessage,
    strum::VariantArray,
)]
#[serde(into = "String")]
pub enum LintCode {
    /// Envoy's admin interface is called with GET, which it rejects.
    WrongMethod,
    /// The hook needs a shell or a program that the image does not have.
    NoShell,
    /// The hook sleeps for all of the grace period.
    SleepExceedsGrace,
    /// The hook closes Envoy's listeners immediately.
    ImmediateDrain,
    /// Envoy's listeners close while the hook still waits.
    ListenersClose,
    /// The hook sleeps, and nothing asks clients to leave.
    SleepOnly,
    /// The hook is called at the node's address.
    HostNetworkHook,
    /// The grace period is longer than node drains wait.
    LongGrace,
    /// The hook waits for a count that never becomes zero.
    EndlessLoop,
}

// === impl LintCode ===

impl LintCode {
    /// What the rule finds, in a sentence: that of its documentation.
    pub fn title(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// How severe its findings are.
    pub fn severity(self) -> LintSeverity {
        match self {
            Self::WrongMethod
            | Self::NoShell
            | Self::SleepExceedsGrace
            | Self::ImmediateDrain
            | Self::EndlessLoop => LintSeverity::Error,
            Self::ListenersClose | Self::SleepOnly | Self::HostNetworkHook | Self::LongGrace => {
                LintSeverity::Warning
            }
        }
    }
}

impl From<LintCode> for String {
    fn from(code: LintCode) -> Self {
        code.to_string()
    }
}

impl fmt::Display for LintCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The discriminants start at 0.
        write!(f, "LNT{:03}", *self as usize + 1)
    }
}
