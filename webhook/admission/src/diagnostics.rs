//! The diagnostics of a pod: every reason why it is skipped or denied, and every warning, each with a stable
//! code.

use std::fmt;

use super::excerpt::excerpt;

/// What a code means for the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The pod is admitted without a drainer.
    Skip,
    /// The pod is denied, or skipped where the installation only warns.
    Denial,
    /// The decision about the pod does not depend on it.
    Warning,
    /// The same, and something was assumed, or an annotation has no effect.
    Assumption,
    /// The pod is admitted without a drainer because the webhook failed.
    Fault,
}

/// One occurrence of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: Code,
    /// The annotations that it is about, by their names without the prefix.
    pub keys: Vec<String>,
    /// The names and values that it is about, and what would be right.
    pub detail: String,
}

/// What was found about one pod, in the order in which it was found.
#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    /// Why the pod gets no drainer.
    pub failures: Vec<Diagnostic>,
    /// What its author should know besides.
    pub warnings: Vec<Diagnostic>,
}

/// Maximum length of a detail, in bytes: twice that of the longest value that a message repeats.
const MAX_DETAIL_LEN: usize = 2048;

/// The table of codes: variant, number, effect, sentence, remedy, and the settings whose default, in place of an
/// invalid value, may be the cause.
macro_rules! codes {
    ($($variant:ident = $number:literal, $effect:ident, $sentence:literal, $remedy:literal
        $(, due to $($setting:literal),+)?;)*) => {
        /// A stable code: `DRN` and its number. Numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $sentence] $variant = $number,)*
        }

        impl Code {
            /// All codes, ordered by number.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// What the code means for the pod.
            pub fn effect(self) -> Effect {
                match self { $(Self::$variant => Effect::$effect,)* }
            }

            /// The meaning of the code, in a sentence.
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }

            /// What to do about it, in the imperative.
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }

            /// The settings whose default, in place of an invalid value, may be the cause.
            pub(super) fn settings(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($($setting),+)?],)* }
            }
        }
    };
}

codes! {
    AlreadyInjected = 1, Skip,
        "The pod has a drainer already.",
        "nothing to do";
    SystemNamespace = 2, Skip,
        "Pods in `kube-system` are never changed.",
        "run this Envoy in another namespace";
    ReleaseNamespace = 3, Skip,
        "Pods in the namespace of envoy-drainer itself are never changed.",
        "run this Envoy in another namespace";
    WindowsPod = 4, Skip,
        "The pod runs on Windows. There is no drainer for Windows.",
        "remove the annotation `inject`";
    MirrorPod = 5, Skip,
        "The pod is the mirror of a static pod. Only the kubelet of its node can change it.",
        "run `envoy-drainer inject` on the static pod's manifest";
    EnvoyGatewayPod = 6, Skip,
        "The pod belongs to Envoy Gateway, whose own shutdown manager drains it.",
        "set `shutdown` in the EnvoyProxy resource. To use this drainer, annotate `envoy-drainer.dev/adopt: \"true\"`, or see docs/drop-in.md",
        due to "adopt";
    ContourPod = 7, Skip,
        "The pod belongs to Contour, whose own shutdown manager drains it.",
        "set the flags of Contour's `shutdown-manager`. To use this drainer, annotate `envoy-drainer.dev/adopt: \"true\"`, or see docs/drop-in.md",
        due to "adopt";
    ExistingHook = 8, Skip,
        "Envoy's container has a preStop hook already.",
        "remove that hook, or annotate `envoy-drainer.dev/existing-hook: replace`";
    NoEnvoy = 9, Skip,
        "No container of the pod was recognized as Envoy.",
        "annotate `envoy-container` with the name of Envoy's container; for another server, see `server-container` in \
         docs/any-server.md; or remove `inject`",
        due to "envoy-container";
    PlainSidecarInJob = 10, Skip,
        "The installation injects drainers as plain containers. One would keep a Job, or another pod that runs to \
         completion, from completing.",
        "annotate `envoy-drainer.dev/native-sidecar: \"true\"` if the nodes support native sidecars";
    StatusWithoutDrainer = 11, Skip,
        "The annotation `status` records a drainer, but the pod has none.",
        "remove the annotation `status`; only the webhook may set it";
    NoSuchContainer = 12, Skip,
        "The annotation `envoy-container` names a container that the pod does not have yet.",
        "correct the name, unless a later webhook adds that container: the API server then calls this webhook again";
    UnknownKind = 13, Skip,
        "Offline only: it is not known how objects of this kind create their pods, or no cluster has the kind.",
        "use the API version that the message names, if it names another, or leave it to the webhook, which gets the pods";
    UnknownShutdownManager = 14, Skip,
        "The pod's shutdown manager differs from those that `adopt` knows.",
        "undo the difference, or keep the manager; a newer Envoy Gateway or Contour may need a newer envoy-drainer";
    NamespaceNotSelected = 15, Skip,
        "API servers do not call the webhook for pods of this namespace. Reported by `explain` for objects of a \
         cluster.",
        "opt the namespace in, install envoy-drainer, or use another namespace, as the message says";
    IstioPod = 16, Skip,
        "The pod's only Envoy is Istio's, which Istio's agent drains.",
        "set Istio's `terminationDrainDuration`, or annotate `envoy-drainer.dev/envoy-container: istio-proxy` to use this drainer as \
         well; see docs/vendors.md";

    BadValue = 20, Denial,
        "An annotation has an invalid value.",
        "correct the value as the message says";
    SeveralEnvoys = 21, Denial,
        "More than one container may be Envoy.",
        "annotate `envoy-container` with one of their names",
        due to "envoy-container";
    InitContainerEnds = 22, Denial,
        "The annotation `envoy-container` names an init container that exits before the pod's containers start.",
        "name a container, or an init container with `restartPolicy: Always`";
    SocketNotMounted = 23, Denial,
        "The admin's Unix socket is not in a volume that the drainer can mount.",
        "mount an emptyDir in Envoy's container at the socket's directory, without `subPathExpr`; a socket in `/` or in a \
         directory of the system needs one of its own first",
        due to "envoy-container", "admin-address";
    PortTaken = 24, Denial,
        "The annotated port is in use by a container of the pod or by Envoy's admin.",
        "annotate `port` with a free port, or remove the annotation to have one chosen",
        due to "port", "admin-address";
    NameTaken = 25, Denial,
        "The pod already uses a container name, volume name or mount path that the drainer needs.",
        "rename the conflicting container, volume or mount path";
    NotAPod = 26, Denial,
        "The object that requests a drainer is not a valid pod: the API server would reject it.",
        "set or correct the field that the message names";
    DrainFlagsNotAdded = 27, Denial,
        "The flags for the annotation `drain-strategy` cannot be added to Envoy's arguments.",
        "if the container starts Envoy without an agent, set `command: [envoy]` and list Envoy's arguments in `args`; \
         else, or if they have the flag already, set it where Envoy is started, and remove the annotation",
        due to "envoy-container";
    NoExtraHook = 28, Denial,
        "The annotation `extra-lifecycle-hooks` names a container that cannot wait for the drain, or selects too many \
         containers.",
        "name at most 64 containers, or init containers with `restartPolicy: Always`, other than Envoy's",
        due to "envoy-container";
    EnvoyIsOnlyContainer = 29, Denial,
        "Envoy is the pod's only container, so it cannot become a native sidecar.",
        "remove the annotation `envoy-native-sidecar`",
        due to "envoy-container";
    PlainSidecarOfNativeEnvoy = 30, Denial,
        "The drainer would be a plain container, and would stop before an Envoy that is a native sidecar.",
        "annotate `envoy-drainer.dev/native-sidecar: \"true\"`, or remove the annotation `envoy-native-sidecar`",
        due to "native-sidecar";
    EnvoyRestartPolicy = 31, Denial,
        "Envoy's container has a `restartPolicy` or `restartPolicyRules` that a native sidecar cannot have.",
        "remove its `restartPolicy` and `restartPolicyRules`, or the annotation `envoy-native-sidecar`",
        due to "envoy-container";
    AdminNotAdded = 32, Denial,
        "The flags for the annotation `add-admin` cannot be added to Envoy's arguments.",
        "add `admin` to Envoy's configuration, and remove the annotation";
    ServerNotDrained = 33, Denial,
        "The annotation `server-container` is for a pod with its own network that runs no Envoy, does not complete, and has a \
         port that is not ignored.",
        "remove the annotation; beside an Envoy, name the server in `extra-lifecycle-hooks` in its place",
        due to "server-container";

    UnknownKey = 50, Assumption,
        "An annotation under the prefix is unknown and has no effect.",
        "correct its name or remove it";
    DefaultUsed = 52, Assumption,
        "An annotation has an invalid value; its default is used.",
        "correct the value as the message says";
    LongGracePeriod = 53, Warning,
        "The pod may take longer to terminate than the cluster autoscaler waits (600 s by default).",
        "shorten `drain-timeout`, `drain-delay`, `wait-for-replacement` or, with extra hooks, the pod's own grace \
         period; or raise that limit";
    AdminNotNamed = 54, Denial,
        "The pod uses the node's network, where the drainer does not search for Envoy's admin interface, and nothing in \
         the pod names its address.",
        "add `admin` to Envoy's configuration if it has none; annotate `admin-address`, or declare a container port \
         called `admin`",
        due to "envoy-container", "admin-address";
    SocketUserUnknown = 55, Warning,
        "Envoy's user is unknown or root, so the drainer may not be permitted to use the admin's socket.",
        "set `runAsUser` for Envoy; or set `mode: 0666` on the admin's pipe, and ignore this",
        due to "envoy-container", "admin-address";
    ResourcesIgnored = 56, Warning,
        "The pod has pod-level resources (`spec.resources`), so the drainer's are left out.",
        "remove the annotations of the drainer's resources";
    EnvoyGuessed = 57, Assumption,
        "A container was taken for Envoy on weak evidence.",
        "annotate `envoy-container` with the name of Envoy's container; for another server, see `server-container` in \
         docs/any-server.md; or remove `inject`",
        due to "envoy-container";
    OtherPort = 58, Warning,
        "The drainer's default port is in use in the pod. The next free port is used.",
        "annotate `port` to choose another";
    Misplaced = 59, Assumption,
        "An annotation is not on the pod template, so pods will not have it.",
        "move it to the annotations of the pod template";
    SettingsWithoutInject = 60, Assumption,
        "A pod has settings for a drainer but does not request one.",
        "annotate `envoy-drainer.dev/inject: \"true\"`, or remove the settings, unless the namespace has the label `injection: all`";

    StatusLeftOut = 61, Warning,
        "The pod's annotations leave no room for `status` within Kubernetes' limit of 256 KiB. It is left out.",
        "shorten the other annotations if you rely on `status`";
    ShortDrainTime = 62, Warning,
        "Envoy's own drain time is shorter than 1.5 times `drain-timeout`, so Envoy 1.41 and later may close connections \
         earlier.",
        "raise `--drain-time-s`, or shorten `drain-timeout`",
        due to "envoy-container", "drain-timeout";
    DrainTimeOfUpdates = 63, Warning,
        "Envoy's drain time also applies to listeners that xDS updates or removes.",
        "set `--drain-time-s` in Envoy's arguments if long requests must outlive such updates",
        due to "envoy-container", "drain-timeout";
    OwnHookKept = 65, Warning,
        "A container that `extra-lifecycle-hooks` selects has its own preStop hook, which it keeps.",
        "remove that hook, or name only the other containers",
        due to "envoy-container";
    EnvoyStartsFirst = 66, Warning,
        "Envoy becomes a native sidecar, so the pod's containers start only when Envoy has started.",
        "make sure that Envoy's startup probe and postStart hook need none of them, and ignore this",
        due to "envoy-container";
    NamedPortOfNativeEnvoy = 67, Warning,
        "Envoy becomes a native sidecar. Services of Kubernetes before 1.33 do not find its ports by name. \
         NetworkPolicies with a named port, and metrics by container, may change too.",
        "remove the port's name; or use the port's number there, and ignore this",
        due to "envoy-container";
    ManagerValueUnused = 68, Warning,
        "A value of the adopted shutdown manager cannot be a default of the drainer's settings.",
        "annotate the setting, or change the manager's value";
    FullReplacementWait = 69, Warning,
        "A replacement may start only after the pod has terminated. Then `wait-for-replacement` times out.",
        "shorten or remove `wait-for-replacement`, or let the workload start replacements earlier";
    NoReplacementWait = 70, Warning,
        "The annotation `wait-for-replacement` has no effect while the installation's drainer API is off. For a file, \
         that is unknown.",
        "upgrade the release with `drainerAPI.enabled=true`, or remove the annotation; for a file, \
         `explain deploy/NAME` tells whether the drainer API is on";
    PlainEnvoyInJob = 71, Warning,
        "Envoy is a plain container of a pod that runs to completion, such as a Job's. That completes only if Envoy exits \
         by itself.",
        "annotate `envoy-drainer.dev/envoy-native-sidecar: \"true\"`, unless the pod's work stops Envoy (`POST /quitquitquit`)";
    OtherProxy = 72, Warning,
        "Another proxy of the pod stops when the pod is deleted, though requests may still pass through it.",
        "name it in the annotation `extra-lifecycle-hooks`, and remove its own preStop hook if it has one; or make it a \
         native sidecar";
    OtherCandidate = 73, Assumption,
        "Another container may be Envoy. The one with stronger evidence was taken.",
        "annotate `envoy-container` with the name of Envoy's container";
    AdminContradiction = 74, Assumption,
        "Parts of the pod contradict each other about the address of Envoy's admin interface.",
        "annotate `admin-address`, in place of `add-admin` if that is there; or, if `add-admin` is right, remove what \
         shows the other address";
    VendorEnvoy = 75, Warning,
        "Envoy is started by a vendor's agent.",
        "see this vendor in docs/vendors.md";
    NoAdmin = 76, Assumption,
        "Envoy's configuration has no admin interface, so nothing can be drained. Reported offline, and by `explain` \
         for objects of a cluster.",
        "add `admin` to the configuration; or annotate `envoy-drainer.dev/add-admin: \"true\"`, if the pod has its own network and starts \
         Envoy itself, with arguments";
    SettingWithoutEffect = 77, Assumption,
        "A setting has no effect together with the others.",
        "correct the value as the message says, or remove the annotation";
    OldEnvoy = 78, Warning,
        "Envoy is older than 1.31, the oldest supported version.",
        "upgrade Envoy";
    SharedHostPort = 79, Warning,
        "The pod uses the node's network, where the drainer's port must be free. Of two such pods on a node, one \
         stays pending. Schedulers before Kubernetes 1.34 may start both, and one is not drained.",
        "annotate another `port` for each workload on the network of the same nodes";

    PodNotRead = 80, Fault,
        "The webhook could not read the pod, or the pod exceeds one of its limits.",
        "reduce what the message names, or else report it with the pod's manifest";
    InternalError = 81, Fault,
        "The webhook failed because of a bug.",
        "report it with the webhook's log";

    HookForLater = 82, Assumption,
        "A container that `extra-lifecycle-hooks` names is not in the pod yet.",
        "correct the name, unless another webhook adds that container: it then gets its hook";
    HookRedirected = 83, Assumption,
        "A service mesh, or an init container, may redirect the kubelet's call of Envoy's preStop hook to a proxy.",
        "annotate `port`, and exclude it from the redirection of inbound traffic as the message says; see docs/vendors.md";
    LoadBalancerInFront = 84, Warning,
        "A Service of type LoadBalancer selects the pod. Its load balancer learns only some time later that the pod \
         terminates. Reported by `check`, and by `explain` and `inject` for Services of the cluster or the files.",
        "annotate `drain-delay` with the time that your balancer needs; see docs/load-balancers.md";
    SocketNotReachable = 85, Assumption,
        "Envoy's admin interface is on a Unix socket that the drainer cannot reach, so nothing can be drained.",
        "mount an emptyDir in Envoy's container at the socket's directory, which must be its own; or give the admin a TCP \
         address on 127.0.0.1";
    SolePod = 86, Warning,
        "The only replica is replaced after it has terminated, and the drain takes it out of service at its start.",
        "annotate `envoy-drainer.dev/health-failure-delay: end`, or set the chart values `drainerAPI.enabled` and `drainerAPI.reports`; see docs/single-replica.md";
    AdminNotRead = 87, Assumption,
        "The admin address in Envoy's configuration cannot be read, so the drainer searches for it. Reported offline, and \
         by `explain` for objects of a cluster.",
        "annotate `admin-address`",
        due to "envoy-container", "admin-address";
    AboveMaximum = 88, Assumption,
        "A value of the pod, or one that follows from its grace period or its shutdown manager, is above the \
         installation's maximum, which is used instead.",
        "annotate a value up to the maximum, or have the maximum raised";
    Repaired = 89, Warning,
        "What was added to the pod with its drainer was changed afterwards, as by another webhook. The webhook restores it.",
        "exclude pods with the label `envoy-drainer.dev/injected` from what changes them";
    NotRemoved = 90, Skip,
        "`inject --remove` only: it is not recorded what the pod was like without its drainer.",
        "take the manifest from its source";
    StartedByShell = 91, Warning,
        "A shell starts Envoy as its child, to which shells do not pass SIGTERM: each pod takes all of its grace period.",
        "start Envoy with `exec` in the shell's script";
    HealthCheckOfAll = 92, Assumption,
        "Envoy's health check filter takes each request for a health check, so that all fail from the start of a drain on.",
        "give the filter `headers`, such as `:path`";
}

// === impl Code ===

impl Code {
    /// Creates an occurrence of this code; a long detail is truncated.
    pub fn diagnostic(self, detail: impl Into<String>) -> Diagnostic {
        let mut detail = detail.into();
        if detail.len() > MAX_DETAIL_LEN {
            detail = excerpt(&detail, MAX_DETAIL_LEN);
        }
        Diagnostic {
            code: self,
            keys: Vec::new(),
            detail,
        }
    }

    /// The same about the annotation of this name without the prefix.
    pub fn about(self, name: impl Into<String>, detail: impl Into<String>) -> Diagnostic {
        self.diagnostic(detail).for_annotations([name])
    }

    /// Returns true if the pod's author gets a warning with it.
    pub(super) fn is_user_visible(self) -> bool {
        self != Self::AlreadyInjected
    }

    /// Returns true if the annotation `status` of a skipped pod records it: not where the pod may not be
    /// changed, nor where it has a status of another kind.
    pub(super) fn is_recorded_in_status(self) -> bool {
        !matches!(
            self,
            Self::AlreadyInjected
                | Self::StatusWithoutDrainer
                | Self::SystemNamespace
                | Self::ReleaseNamespace
                | Self::WindowsPod
                | Self::MirrorPod
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DRN{:03}", *self as u8)
    }
}

// === impl Diagnostics ===

impl Diagnostics {
    pub(super) fn warn(&mut self, warning: Diagnostic) {
        self.warnings.push(warning);
    }

    /// Records a failure and goes on, so that the pod's author gets all of them at once.
    pub(super) fn fail<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|failure| self.failures.push(failure)).ok()
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    /// Sets the annotations that it is about, by their names without the prefix.
    #[must_use]
    pub fn for_annotations<K: Into<String>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        Self {
            keys: keys.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// What to do about it; `None` where the detail itself says what would be right.
    pub fn remedy(&self) -> Option<&'static str> {
        match self.code {
            Code::BadValue
            | Code::DefaultUsed
            | Code::UnknownKey
            | Code::Misplaced
            | Code::NamespaceNotSelected => None,
            code => Some(code.remedy()),
        }
    }
}

/// Formats the code and the detail; `{:#}` adds the remedy.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        match self.remedy() {
            Some(remedy) if f.alternate() => write!(f, "; {remedy}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_ordered_and_unique() {
        assert!(Code::ALL.is_sorted_by(|one, next| one.to_string() < next.to_string()));
        assert_eq!(Code::AlreadyInjected.to_string(), "DRN001");
    }

    #[test]
    fn code_has_a_sentence_and_an_imperative_remedy() {
        for code in Code::ALL {
            assert!(code.sentence().ends_with('.'), "{code}");
            assert!(
                code.remedy().starts_with(char::is_lowercase) && !code.remedy().ends_with('.'),
                "{code}"
            );
        }
    }

    #[test]
    fn diagnostic_formats_its_remedy_on_request() {
        let diagnostic = Code::ExistingHook.diagnostic("container `envoy` has a hook");
        assert_eq!(
            diagnostic.to_string(),
            "DRN008: container `envoy` has a hook"
        );
        assert_eq!(
            format!("{diagnostic:#}"),
            "DRN008: container `envoy` has a hook; remove that hook, or annotate `envoy-drainer.dev/existing-hook: replace`"
        );
    }

    #[test]
    fn failure_keeps_later_findings() {
        let mut diagnostics = Diagnostics::default();
        assert_eq!(diagnostics.fail(Ok(1)), Some(1));
        diagnostics.warn(Code::OtherPort.diagnostic("a"));
        assert_eq!(
            diagnostics.fail::<u8>(Err(Code::NoEnvoy.diagnostic("b"))),
            None
        );
        diagnostics.warn(Code::LongGracePeriod.diagnostic("c"));
        let codes = |diagnostics: &[Diagnostic]| -> Vec<_> {
            diagnostics
                .iter()
                .map(|diagnostic| diagnostic.code)
                .collect()
        };
        assert_eq!(codes(&diagnostics.failures), [Code::NoEnvoy]);
        assert_eq!(
            codes(&diagnostics.warnings),
            [Code::OtherPort, Code::LongGracePeriod]
        );
    }
}
