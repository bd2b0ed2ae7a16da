//! Deletions with a shorter grace period than that of the pods.

use anyhow::{Result, ensure};

use crate::cluster_fixture::ClusterFixture;
use crate::echo;
use crate::edge::{EnvoyDeployment, deployment};
use crate::traffic::Traffic;

/// `kubectl delete --grace-period=8` fails no request of up to 5 s.
pub(crate) async fn within_8_s_lose_no_request_of_5_s(fixture: &ClusterFixture<'_>) -> Result<()> {
    let namespace = fixture.namespace().await?;
    let upstream = echo::start(&namespace).await?;
    let edge = EnvoyDeployment::deploy(&namespace, &deployment(2, upstream)?).await?;
    let flags = "--slow 8 --slow-takes 5s --connection-each 20 --limit 15s";
    let traffic = Traffic::start(&namespace, "load", edge.address, flags).await?;
    for pod in edge.pods().await? {
        let delete = ["delete", "pod", &pod, "--grace-period=8"];
        namespace.kubectl(&delete).await?;
        edge.wait_until_stable().await?;
    }
    let report = traffic.stop().await?;
    fixture.report_load(&report);
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}
