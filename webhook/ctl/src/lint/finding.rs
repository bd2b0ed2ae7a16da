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
    /// The line of the hook in the file; `null` for an object of the cluster.
    pub line: Option<usize>,
    pub object: ObjectName,
    pub container: String,
    pub message: String,
    pub remedy: &'static str,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::EnumMessage, strum::VariantArray)]
#[serde(into = "String")]
pub enum LintCode {
    /// Envoy's admin interface is called with another method than POST, which it rejects.
    #[strum(message = "send POST: by `curl -X POST`, `wget --post-data ''`, or bash's /dev/tcp")]
    WrongMethod,
    /// The hook needs a shell or a program that the image does not have.
    #[strum(
        message = "use what the image has, such as bash's /dev/tcp; without a shell, a hook can only sleep"
    )]
    NoShell,
    /// The hook sleeps for all of the grace period.
    #[strum(message = "raise terminationGracePeriodSeconds to 15 s more than the hook sleeps")]
    SleepExceedsGrace,
    /// The hook closes Envoy's listeners immediately.
    #[strum(
        message = "call '/drain_listeners?graceful&skip_exit', in quotes, and sleep behind the call"
    )]
    ImmediateDrain,
    /// Envoy's listeners close while the hook still waits.
    #[strum(message = "add `&skip_exit`, in quotes")]
    ListenersClose,
    /// The hook sleeps, and nothing asks clients to leave.
    #[strum(message = "fail Envoy's health and drain its listeners before SIGTERM")]
    SleepOnly,
    /// The hook is called at the node's address.
    #[strum(message = "set the hook's `host: 127.0.0.1`, and a port that is unique on the node")]
    HostNetworkHook,
    /// The grace period is longer than node drains wait.
    #[strum(message = "shorten streams by max_stream_duration, or let the autoscaler wait longer")]
    LongGrace,
    /// The hook waits for a count that never becomes zero.
    #[strum(
        message = "count listener.ADDRESS_PORT.downstream_cx_active of the listeners of clients alone"
    )]
    EndlessLoop,
    /// The hook returns as soon as the drain has begun.
    #[strum(message = "sleep behind the call, as long as slow requests take, and at least 10 s")]
    NoWait,
    /// The hook does not wait long enough for a drain.
    #[strum(message = "sleep for longer; /healthcheck/fail asks all clients to leave at once")]
    ShortWait,
    /// The hook has words that no shell reads as they are meant.
    #[strum(message = "write the script as one word behind `bash -c`; quote URLs, but not `>`")]
    UnreadWords,
    /// The hook calls another server than Envoy's admin interface.
    #[strum(message = "call Envoy's admin interface, at 127.0.0.1 and its port")]
    OtherServer,
}

// === impl LintCode ===

impl LintCode {
    /// What the rule finds, in a sentence: that of its documentation.
    pub fn title(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// How to change a hook that violates it.
    pub fn remedy(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }

    /// How severe its findings are.
    pub fn severity(self) -> LintSeverity {
        use LintCode::{HostNetworkHook, ListenersClose, LongGrace, ShortWait, SleepOnly};
        match self {
            ListenersClose | SleepOnly | HostNetworkHook | LongGrace | ShortWait => {
                LintSeverity::Warning
            }
            _ => LintSeverity::Error,
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
