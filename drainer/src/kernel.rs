//! What the kernel knows of the sockets of this network namespace, without any right: by netlink, or else by the files in
//! `/proc/net`.

mod netlink;
mod proc_net;
pub(crate) mod sockets;
pub(crate) mod witness;
