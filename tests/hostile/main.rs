//! Attacks on the webhook's release build with hostile requests and floods of connections, and the resources they
//! may use.

mod documents;
mod floods;
mod requests;

use tokio::sync::Mutex;

/// Held by each test while it measures: tests in parallel would distort each other's figures.
static MEASUREMENT_LOCK: Mutex<()> = Mutex::const_new(());
