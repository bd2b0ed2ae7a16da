//! What the drainer needs and the pod has given away.

use std::num::NonZeroU16;

use drainer::AdminAddress;

use super::codes::{Code, Notice};
use super::container::NAME;
use super::view::PodView;

/// Refuses a port that a container of the pod declares, or Envoy's admin has.
pub(super) fn port(pod: &PodView<'_>, port: NonZeroU16, admin: &AdminAddress) -> Option<Notice> {
    let declared = pod
        .staying()
        .find(|(_, container)| container.declares_tcp(port.get()));
    let owner = match (declared, admin) {
        (Some((_, container)), _) => format!("container `{}`", container.name()),
        (None, AdminAddress::Tcp(address)) if address.port() == port.get() => {
            "Envoy's admin".to_owned()
        }
        (None, _) => return None,
    };
    Some(Code::PortTaken.about(format!("the drainer's port {port} belongs to {owner}")))
}

/// Refuses a volume of the drainer's name. A container of its name is a drainer.
pub(super) fn volume(pod: &PodView<'_>) -> Option<Notice> {
    let mut volumes = pod.spec.volumes.iter().flatten();
    volumes
        .any(|volume| volume.name.as_deref() == Some(NAME))
        .then(|| Code::NameTaken.about(format!("the pod has a volume `{NAME}` of its own")))
}
