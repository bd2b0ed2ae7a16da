//! Hostile requests and crowds against the webhook as it ships: what they may take of it.

mod crowds;
mod documents;
mod requests;

use tokio::sync::Mutex;

/// Held by the test that measures: two at a time would measure each other.
static MEASUREMENT_LOCK: Mutex<()> = Mutex::const_new(());
