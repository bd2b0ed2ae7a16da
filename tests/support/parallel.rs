//! Runs test cases in parallel, which mostly wait.

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::envoy_versions;
use crate::envoy_versions::EnvoyBinary;

/// Runs all named cases.
///
/// # Errors
/// With the first failure, once all cases have finished.
///
/// # Panics
/// As soon as a case does.
pub async fn run_in_parallel<F>(cases: impl IntoIterator<Item = (String, F)>) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (name, case) in cases {
        tasks.spawn(async move { case.await.context(name) });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Runs a case with each version of Envoy.
///
/// # Errors
/// As [`run_in_parallel`], and when an Envoy is not installed.
///
/// # Panics
/// As [`run_in_parallel`].
pub async fn for_each_envoy<F>(case: fn(EnvoyBinary) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let named = |binary: EnvoyBinary| (binary.to_string(), case(binary));
    run_in_parallel(envoy_versions::all()?.into_iter().map(named)).await
}
