//! Two Envoys scaled to one and back, with a request every 50 ms.

use anyhow::{Result, ensure};

use crate::echo;
use crate::edge::{Edge, deployment};
use crate::namespace::in_namespace;
use crate::table::Table;
use crate::traffic::Traffic;

const TIMES: usize = 10;

/// No request fails.
///
/// # Errors
/// When one does.
pub(crate) async fn down_and_up_loses_nothing(table: &mut Table) -> Result<()> {
    let report = in_namespace("scale", async |namespace| {
        let upstream = echo::start(namespace).await?;
        let edge = Edge::deploy(namespace, &deployment(2, upstream)?).await?;
        let traffic =
            Traffic::start(namespace, "load", edge.address, "--connection-each 20").await?;
        for _ in 0..TIMES {
            edge.scale(1).await?;
            edge.scale(2).await?;
        }
        let report = traffic.stop().await?;
        table.load(&report);
        table.drains(&namespace.last_words.heard()?);
        Ok(report)
    })
    .await?;
    ensure!(report.failed() == 0, "requests failed:\n{report}");
    Ok(())
}
