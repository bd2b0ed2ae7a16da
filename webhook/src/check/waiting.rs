//! What kubelets say of a container that does not run.
//! <https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go>

/// What every container goes through.
const STARTING_REASONS: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// What is said of an image that a node does not have.
const IMAGE_PULL_REASONS: [&str; 4] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
];

/// What is said of a container that has run, and ended.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Returns true if the container has yet to be started.
pub(super) fn is_starting(reason: &str) -> bool {
    STARTING_REASONS.contains(&reason)
}

/// Returns true if the node has no image.
pub(super) fn is_image_pull_error(reason: &str) -> bool {
    IMAGE_PULL_REASONS.contains(&reason)
}

/// Returns true if the container has run, so that its log may tell why it ended.
pub(super) fn is_crash_loop(reason: &str) -> bool {
    reason == CRASH_LOOP
}
