//! A finding, and the rules that it may violate.

use std::fmt;

use serde::Serialize;

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

/// The rules. Their codes are stable, and docs/lint.md describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::VariantArray)]
#[serde(into = "String")]
pub enum LintCode {
    /// A call of Envoy's admin interface by GET, which needs POST.
    WrongMethod,
    /// A hook that needs a shell or a program in an image that has none.
    NoShell,
    /// A sleep as long as the grace period, or longer.
    SleepExceedsGrace,
    /// `/drain_listeners` without `graceful`.
    ImmediateDrain,
    /// `/drain_listeners?graceful` without `skip_exit`, and a wait as long as the drain time.
    ListenersClose,
    /// A sleep, and nothing that drains.
    SleepOnly,
    /// A hook by HTTP in the host network.
    HostNetworkHook,
    /// A grace period that node drains do not wait for.
    LongGrace,
    /// A loop until no connection is left, of which the admin interface has one.
    EndlessLoop,
}

// === impl LintCode ===

impl LintCode {
    /// The code, such as `LNT001`.
    pub fn name(self) -> String {
        // The discriminants start at 0.
        format!("LNT{:03}", self as usize + 1)
    }

    /// What the rule finds, in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::WrongMethod => "Envoy's admin interface is called with GET, which it rejects.",
            Self::NoShell => "The hook needs a shell or a program that the image does not have.",
            Self::SleepExceedsGrace => "The hook sleeps for all of the grace period.",
            Self::ImmediateDrain => "The hook closes Envoy's listeners immediately.",
            Self::ListenersClose => "Envoy's listeners close while the hook still waits.",
            Self::SleepOnly => "The hook sleeps, and nothing asks clients to leave.",
            Self::HostNetworkHook => "The hook is called at the node's address.",
            Self::LongGrace => "The grace period is longer than node drains wait.",
            Self::EndlessLoop => "The hook waits for a count that never becomes zero.",
        }
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
        code.name()
    }
}

impl fmt::Display for LintCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
