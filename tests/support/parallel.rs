//! Runs test cases in parallel, which mostly wait.

use std::fmt::Debug;

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

/// Runs a test with each case of a table.
///
/// # Errors
/// As [`run_in_parallel`].
///
/// # Panics
/// As [`run_in_parallel`].
pub async fn for_each_case<T, F>(
    table: impl IntoIterator<Item = T>,
    test: impl Fn(T) -> F,
) -> Result<()>
where
    T: Debug,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let named = |case| (format!("{case:?}"), test(case));
    run_in_parallel(table.into_iter().map(named)).await
}

/// Runs a test with each version of Envoy.
///
/// # Errors
/// As [`run_in_parallel`], and when an Envoy is not installed.
///
/// # Panics
/// As [`run_in_parallel`].
pub async fn for_each_envoy<F>(test: fn(EnvoyBinary) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    for_each_case(envoy_versions::all()?, test).await
}

/// Makes tests of these functions of an [`EnvoyBinary`], which run with each version. The compiler warns of one that is
/// not listed: it is dead code.
#[macro_export]
macro_rules! for_each_envoy {
    ($($test:ident),+ $(,)?) => {
        mod for_each_envoy {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    $crate::parallel::for_each_envoy(super::$test).await
                }
            )+
        }
    };
}
