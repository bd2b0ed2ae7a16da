//! Cases that take time rather than work, played all at once.

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::envoy_versions;
use crate::envoy_versions::EnvoyBinary;

/// Plays all cases, each under its name.
///
/// # Errors
/// With the first that failed, once all are over.
///
/// # Panics
/// As soon as one does.
pub async fn run_in_parallel<F>(cases: impl IntoIterator<Item = (String, F)>) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut playing = JoinSet::new();
    for (name, case) in cases {
        playing.spawn(async move { case.await.context(name) });
    }
    playing.join_all().await.into_iter().collect()
}

/// Plays one case on each Envoy.
///
/// # Errors
/// As [`at_once`], and when an Envoy is not installed.
///
/// # Panics
/// As [`at_once`].
pub async fn for_each_envoy<F>(case: fn(EnvoyBinary) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let named = |binary: EnvoyBinary| (binary.to_string(), case(binary));
    run_in_parallel(envoy_versions::all()?.into_iter().map(named)).await
}
