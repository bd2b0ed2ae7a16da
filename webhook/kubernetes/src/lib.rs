//! Clients of the API server of a cluster: what the server and the command line share.

mod change_notifier;
mod cluster_reader;
mod config;
mod read_error;
mod requests;
mod watch;

pub use change_notifier::ChangeNotifier;
pub use cluster_reader::{
    ClusterReader, DEADLINE, DryRunResult, Object, ObjectSelector, with_deadline,
};
pub use config::{connect, load_config, now};
pub use read_error::{ReadError, api_call};
pub use requests::{get, patch};
pub use watch::Change;
