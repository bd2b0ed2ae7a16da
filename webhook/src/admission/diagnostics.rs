//! Every reason why a pod is skipped or refused, and every warning, each with a stable code.

use std::fmt;
use std::fmt::Write as _;

use super::excerpt::truncate;

/// What a code means for the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The pod is admitted without a drainer.
    Skip,
    /// The pod is refused: it asks for what it cannot have.
    Refusal,
    /// Whatever becomes of the pod, its author should know something.
    Warning,
    /// The pod is admitted without a drainer, and that is the webhook's own fault.
    Fault,
}

/// One occurrence of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What it is.
    pub code: Code,
    /// The annotations that it is about, by their names under our prefix.
    pub keys: Vec<String>,
    /// What it is about: names, values, and what would be right.
    pub detail: String,
}

/// In bytes: twice the longest value that a message repeats.
const MAX_DETAIL_LEN: usize = 2048;

macro_rules! codes {
    ($($variant:ident = $number:literal, $effect:ident, $sentence:literal, $remedy:literal;)*) => {
        /// A stable code: `DRN` and its number. Numbers are never used again for something else.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $sentence] $variant = $number,)*
        }

        impl Code {
            /// All codes, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code in one word.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// What the code means for the pod.
            #[must_use]
            pub fn effect(self) -> Effect {
                match self { $(Self::$variant => Effect::$effect,)* }
            }

            /// The code in a sentence.
            #[must_use]
            pub fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence,)* }
            }

            /// What to do about it, in the imperative.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }
        }
    };
}

codes! {
    AlreadyInjected = 1, Skip,
        "The pod has a drainer already.",
        "nothing is to be done";
    SystemNamespace = 2, Skip,
        "Pods in `kube-system` are never changed.",
        "run this Envoy in a namespace of its own";
    ReleaseNamespace = 3, Skip,
        "Pods in the namespace of envoy-drainer itself are never changed.",
        "run this Envoy in another namespace";
    WindowsPod = 4, Skip,
        "The pod runs on Windows, for which there is no drainer.",
        "remove the annotation `inject`";
    MirrorPod = 5, Skip,
        "The pod mirrors a static pod, which only its node's kubelet can change.",
        "run `envoy-drainer inject` on the static pod's manifest";
    EnvoyGatewayPod = 6, Skip,
        "The pod is Envoy Gateway's, which has a drainer of its own.",
        "set `shutdown` in the EnvoyProxy resource instead";
    ContourPod = 7, Skip,
        "The pod is Contour's, which has a drainer of its own.",
        "set the flags of Contour's `shutdown-manager` instead";
    ExistingHook = 8, Skip,
        "Envoy's container has a preStop hook already.",
        "remove that hook, or annotate `existing-hook: replace`";
    NoEnvoy = 9, Skip,
        "No container of the pod is known to be an Envoy.",
        "annotate `envoy-container` with the name of Envoy's container";
    PlainSidecarInJob = 10, Skip,
        "This cluster's drainers are plain containers, and one would keep a Job from completing.",
        "annotate `native-sidecar: \"true\"` if the nodes know native sidecars";
    StatusAlone = 11, Skip,
        "The annotation `status` says that the pod has a drainer, but it has none.",
        "remove the annotation `status`, which is ours alone to write";
    NoSuchContainer = 12, Skip,
        "The annotation `envoy-container` names no container of the pod so far.",
        "correct the name, unless a later webhook adds that container: the pod is then looked at again";
    UnknownKind = 13, Skip,
        "Only offline: how objects of this kind make their pods is not known.",
        "leave it to the webhook, which sees the pods themselves";

    BadValue = 20, Refusal,
        "An annotation has a value that it cannot have.",
        "write what the message says would be right";
    SeveralEnvoys = 21, Refusal,
        "More than one container may be the Envoy.",
        "annotate `envoy-container` with one of their names";
    ContainerEnds = 22, Refusal,
        "The annotation `envoy-container` names an init container that ends before the others start.",
        "name a container, or an init container with `restartPolicy: Always`";
    SocketNotMounted = 23, Refusal,
        "The admin's Unix socket is not in a volume that the drainer could mount too.",
        "mount an emptyDir in Envoy's container at the socket's directory, without `subPathExpr`";
    PortTaken = 24, Refusal,
        "The annotated port is taken, by a container of the pod or by Envoy's admin.",
        "annotate `port` with a free one, or leave it away to have one found";
    NameTaken = 25, Refusal,
        "A name or a path that the drainer needs is taken in the pod.",
        "rename what has it";
    NotAPod = 26, Refusal,
        "What asks for a drainer is not a pod, and the API server refuses it.",
        "give the field what Kubernetes wants there";

    UnknownKey = 50, Warning,
        "An annotation under the prefix is unknown and has no effect.",
        "correct its name or remove it";
    NotSupportedYet = 51, Warning,
        "An annotation is not supported by this version and has no effect.",
        "remove it, or wait for a version that supports it";
    DefaultUsed = 52, Warning,
        "An annotation has a value that it cannot have; its default is used.",
        "write what the message says would be right";
    LongGrace = 53, Warning,
        "The pod may take longer to end than the cluster autoscaler waits (600 s by default).",
        "shorten `drain-timeout` or `drain-delay`, or raise the autoscaler's limit";
    AdminNotRead = 54, Warning,
        "The admin address in `--config-yaml` cannot be read; the default address is used.",
        "annotate `admin-address`";
    SocketUserUnknown = 55, Warning,
        "Envoy's user is unknown or root, so the drainer may not be allowed to use the admin's socket.",
        "set `runAsUser` for Envoy, or `mode: 0666` on the admin's pipe";
    ResourcesIgnored = 56, Warning,
        "The pod has resources of its own (`spec.resources`), so the drainer's are left out.",
        "remove the annotations for the drainer's resources";
    EnvoyGuessed = 57, Warning,
        "Nothing but that it is alone says that the container is an Envoy.",
        "annotate `envoy-container` with its name if it is one, or else remove `inject`";
    OtherPort = 58, Warning,
        "The drainer's default port is taken in the pod; the next free one is used.",
        "annotate `port` if it should be another";
    Misplaced = 59, Warning,
        "An annotation stands where no pod gets it from (told of workloads, and offline).",
        "move it to the annotations of the pod template";
    SettingsAlone = 60, Warning,
        "A pod has settings for a drainer, and asks for none (told of workloads, and offline).",
        "annotate `inject: \"true\"`, or remove the settings";

    StatusLeftOut = 61, Warning,
        "The pod's annotations have no room for `status` within Kubernetes' limit of 256 KiB; it is left out.",
        "make the other annotations smaller if you read `status`";

    PodNotRead = 80, Fault,
        "The webhook could not read the pod, or the pod has more of something than pods have.",
        "make what the message names smaller, or else report it with the pod's manifest";
    InternalError = 81, Fault,
        "The webhook failed.",
        "report it with the webhook's log";
}

/// Describes all codes as the page `docs/codes.md`.
#[must_use]
pub fn to_markdown() -> String {
    let mut page = String::from(
        "# Codes\n\n\
         <!-- Written by `UPDATE_GOLDEN=1 cargo test -p tests --test codes`; edit `webhook/src/admission/codes.rs`. -->\n\n\
         Every reason why a pod is skipped or refused has a code, and so has every warning.\n\
         Annotations are named without their prefix `envoy-drainer.dev/`.\n\n\
         Only `explain` and `check` report DRN002 to DRN005: in a cluster the API server does not ask about such pods.\n",
    );
    for (effect, title) in [
        (Effect::Skip, "Skipped: admitted without a drainer"),
        (
            Effect::Refusal,
            "Refused (with `onInvalid: warn`: a default is used, or the pod is skipped)",
        ),
        (Effect::Warning, "Warnings: whatever becomes of the pod"),
        (
            Effect::Fault,
            "Faults of the webhook: admitted without a drainer",
        ),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n| code | name | what it means | what to do |\n| --- | --- | --- | --- |\n"
        );
        for code in Code::ALL.iter().filter(|code| code.effect() == effect) {
            let _ = writeln!(
                page,
                "| {code} | {} | {} | {} |",
                code.name(),
                code.sentence(),
                code.remedy()
            );
        }
    }
    page
}

// === impl Code ===

impl Code {
    /// An occurrence of this code; a long detail is cut.
    #[must_use]
    pub fn diagnostic(self, detail: impl Into<String>) -> Diagnostic {
        let detail = detail.into();
        Diagnostic {
            code: self,
            keys: Vec::new(),
            detail: match detail.len() {
                ..=MAX_DETAIL_LEN => detail,
                _ => truncate(&detail, MAX_DETAIL_LEN),
            },
        }
    }

    /// True if a pod's author should know.
    pub(super) fn is_user_visible(self) -> bool {
        self != Self::AlreadyInjected
    }

    /// True if the pod is to tell this skip in its annotation `status`: not where nothing of a pod
    /// may be changed, nor where another status is right.
    pub(super) fn is_recorded_in_status(self) -> bool {
        !matches!(
            self,
            Self::AlreadyInjected
                | Self::StatusAlone
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

// === impl Diagnostic ===

impl Diagnostic {
    /// The same about these annotations.
    #[must_use]
    pub(crate) fn for_annotations<K: Into<String>>(
        self,
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        Self {
            keys: keys.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// What to do about it, unless the detail itself says what would be right.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self.code {
            Code::BadValue | Code::DefaultUsed | Code::UnknownKey | Code::Misplaced => None,
            code => Some(code.remedy()),
        }
    }
}

/// Shows code and detail; `{:#}` adds the remedy.
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
    fn codes_are_in_order_and_so_different() {
        assert!(Code::ALL.is_sorted_by(|one, next| one.to_string() < next.to_string()));
        assert_eq!(Code::AlreadyInjected.to_string(), "DRN001");
    }

    #[test]
    fn every_code_says_what_it_means_and_what_to_do() {
        for code in Code::ALL {
            assert!(code.sentence().ends_with('.'), "{code}");
            assert!(
                code.remedy().starts_with(char::is_lowercase) && !code.remedy().ends_with('.'),
                "{code}"
            );
            assert!(to_markdown().contains(&format!("| {code} | {} |", code.name())));
        }
    }

    #[test]
    fn a_notice_shows_its_remedy_when_asked() {
        let notice = Code::ExistingHook.diagnostic("container `envoy` has a hook");
        assert_eq!(notice.to_string(), "DRN008: container `envoy` has a hook");
        assert_eq!(
            format!("{notice:#}"),
            "DRN008: container `envoy` has a hook; remove that hook, or annotate `existing-hook: replace`"
        );
    }
}
