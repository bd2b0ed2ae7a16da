//! What `make fuzz` calls of the parsers and servers of this crate.

use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime;

use crate::envoy::hidden_stats::HiddenStats;
use crate::envoy::listeners::{self, CountingRules, EnvoyListeners};
use crate::envoy::prefix_owners::PrefixOwners;
use crate::envoy::snapshot::Snapshot;
use crate::envoy::stats::Stats;
use crate::server::connection::{response, serve};

/// Counts what is open by statistics as Envoy responds with them: not nothing where a counted listener has connections.
pub fn statistics(body: &[u8]) {
    let Ok(stats) = Stats::read(body) else {
        return;
    };
    let (known, owners) = (EnvoyListeners::default(), PrefixOwners::default());
    let listeners = stats.listeners(&known);
    let hidden = HiddenStats::find(&stats, &known, &owners);
    let mut counted = listeners.iter().filter(|(name, _)| !known.excludes(name));
    let is_open = counted.any(|(_, counts)| counts.active > 0);
    for hidden in [None, Some(&hidden)] {
        let snapshot = Snapshot::count(&stats, &listeners, &known, &owners, hidden);
        assert!(!is_open || snapshot.open.connections.is_none_or(|n| n > 0));
    }
}

/// Reads the listeners of a `/config_dump`, and asks of each whether it is counted.
pub fn config_dump(body: &[u8]) {
    let Ok(listeners) = listeners::read(body) else {
        return;
    };
    let known = EnvoyListeners::new(listeners, CountingRules::default());
    for name in known.counted_names() {
        assert!(!known.excludes(name), "{name}");
    }
    let _ = known.are_all_excluded();
}

/// Sends bytes to the port of the hooks.
pub fn hook_connection(bytes: &[u8]) {
    connection(bytes, async |server| {
        serve(server, pending::<()>(), async |_| response("200 OK", "")).await;
    });
}

/// Sends bytes to a server on a connection of its own, and closes that. What the server responds, if anything, is HTTP.
///
/// # Panics
/// If it is not, or without a runtime.
pub fn connection(bytes: &[u8], serve: impl AsyncFnOnce(DuplexStream)) {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of this thread").block_on(async {
        let (mut client, server) = duplex(64 << 10);
        let call = async {
            // The server may close the connection before it has read all of it.
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let mut response = Vec::new();
            let _ = client.read_to_end(&mut response).await;
            response
        };
        let ((), response) = tokio::join!(serve(server), call);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1."));
    });
}
