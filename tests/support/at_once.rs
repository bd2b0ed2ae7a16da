//! Cases that take time rather than work, played all at once.

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::installed;
use crate::installed::Installed;

/// Plays all cases, each under its name.
///
/// # Errors
/// With the first that failed, once all are over.
///
/// # Panics
/// As soon as one does.
pub async fn at_once<F>(cases: impl IntoIterator<Item = (String, F)>) -> Result<()>
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
pub async fn on_each_envoy<F>(case: fn(Installed) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let named = |binary: Installed| (binary.to_string(), case(binary));
    at_once(installed::all()?.into_iter().map(named)).await
}
