//! Metrics in Prometheus' text format, read through the API server.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use anyhow::{Context, Result};

use crate::kubectl::kubectl;

/// The response of one endpoint.
#[derive(Debug)]
pub(crate) struct Metrics(String);

// === impl Metrics ===

impl Metrics {
    /// Reads them from a path of the API.
    ///
    /// # Errors
    /// If the API server or what is behind the path does not respond.
    pub(crate) async fn read(path: &str) -> Result<Self> {
        Ok(Self(kubectl(&["get", "--raw", path]).await?))
    }

    /// Returns the values of the samples whose lines contain all of `words`.
    ///
    /// # Errors
    /// If one is not a number.
    pub(crate) fn values(&self, words: &[&str]) -> Result<Vec<f64>> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        let values = samples.map(|line| {
            // A timestamp may follow the value.
            let (_, rest) = line.rsplit_once('}').or(line.split_once(' '))?;
            rest.split_whitespace().next()?.parse().ok()
        });
        let values: Option<_> = values.collect();
        values.with_context(|| format!("not a number in a sample with {words:?}"))
    }

    /// Returns the sum of these values.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub(crate) fn sum(&self, words: &[&str]) -> Result<f64> {
        Ok(self.values(words)?.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_labels_or_timestamps_or_neither() {
        let text =
            "# HELP up up 1\nup 1\nbytes{pod=\"a b\"} 2e+06 1795690846102\nbytes{pod=\"c\"} 3.5";
        let metrics = Metrics(text.to_owned());
        assert_eq!(metrics.values(&["up"]).unwrap(), [1.0]);
        assert_eq!(metrics.values(&["bytes", "pod=\"a b\""]).unwrap(), [2e6]);
        assert_eq!(metrics.sum(&["bytes"]).unwrap(), 2_000_003.5);
        assert_eq!(metrics.values(&["none"]).unwrap(), [0.0; 0]);
    }
}
