//! The form of the drainer's container: native sidecar or plain container.

use serde::{Deserialize, Serialize};
use strum::Display;

use super::diagnostics::{Code, Diagnostic};
use super::pod::ContainerList;
use super::settings::NativeSidecar;
use super::settings::defaults::Defaults;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
pub enum SidecarMode {
    /// An init container with `restartPolicy: Always`, which the kubelet stops after the pod's containers.
    /// <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/>
    #[strum(to_string = "native sidecar")]
    Native,
    /// One of the pod's containers.
    #[strum(to_string = "plain container")]
    Plain,
}

// === impl SidecarMode ===

impl SidecarMode {
    /// Returns the mode that the annotation requests, or else the installation's. In a Job, the settings
    /// have rejected a plain container that the annotation requests.
    ///
    /// # Errors
    /// If the installation's mode is a plain container, which would keep the Job from completing.
    pub(super) fn try_new(
        requested: NativeSidecar,
        in_job: bool,
        defaults: &Defaults,
    ) -> Result<Self, Diagnostic> {
        match (requested, defaults.settings.native_sidecar) {
            (NativeSidecar::True, _) | (NativeSidecar::Auto, NativeSidecar::True) => {
                Ok(Self::Native)
            }
            (NativeSidecar::Auto, _) if in_job => Err(Code::PlainSidecarInJob.diagnostic(
                "drainers are plain containers here, and the Job would never complete",
            )),
            _ => Ok(Self::Plain),
        }
    }

    /// Returns the list in which the drainer's container is.
    pub fn container_list(self) -> ContainerList {
        match self {
            Self::Native => ContainerList::InitContainers,
            Self::Plain => ContainerList::Containers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{PodSettings, Settings};

    #[test]
    fn annotation_wins_over_the_installation() {
        let table = [
            (NativeSidecar::True, true, true, Ok(SidecarMode::Native)),
            (NativeSidecar::True, false, true, Ok(SidecarMode::Native)),
            (NativeSidecar::False, true, false, Ok(SidecarMode::Plain)),
            (NativeSidecar::Auto, true, true, Ok(SidecarMode::Native)),
            (NativeSidecar::Auto, true, false, Ok(SidecarMode::Native)),
            (NativeSidecar::Auto, false, false, Ok(SidecarMode::Plain)),
            (
                NativeSidecar::Auto,
                false,
                true,
                Err(Code::PlainSidecarInJob),
            ),
        ];
        for (requested, native_sidecar, in_job, want) in table {
            let settings = PodSettings {
                native_sidecar: match native_sidecar {
                    true => NativeSidecar::True,
                    false => NativeSidecar::False,
                },
                ..PodSettings::default()
            };
            let defaults = Defaults {
                settings: Settings::try_new(settings).unwrap(),
                ..Defaults::new("", "")
            };
            let mode = SidecarMode::try_new(requested, in_job, &defaults);
            assert_eq!(
                mode.map_err(|diagnostic| diagnostic.code),
                want,
                "{requested:?} {native_sidecar} {in_job}"
            );
        }
    }
}
