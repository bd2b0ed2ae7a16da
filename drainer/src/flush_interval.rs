//! How often Envoy copies its own counts into `server.*`: `stats_flush_interval`.

use std::time::Duration;

use serde::Deserialize;

use crate::answer;
use crate::duration;

/// The time after which `server.*` shows what was true when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlushInterval(pub Duration);

/// `/config_dump?mask=bootstrap.stats_flush_interval`
#[derive(Deserialize)]
struct ConfigDump {
    #[serde(default, deserialize_with = "answer::list::<_, _, 16>")]
    configs: Vec<ConfigEntry>,
}

#[derive(Deserialize)]
struct ConfigEntry {
    #[serde(default, deserialize_with = "answer::object")]
    bootstrap: Bootstrap,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Bootstrap {
    #[serde(deserialize_with = "answer::text")]
    stats_flush_interval: String,
}

// === impl FlushInterval ===

impl FlushInterval {
    /// Reads an answer of `/config_dump` that holds the bootstrap.
    ///
    /// # Errors
    /// If it is not one.
    pub(crate) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let dump: ConfigDump = answer::read(body)?;
        let bootstrap = dump.configs.first().map(|entry| &entry.bootstrap);
        let interval = bootstrap.and_then(|b| duration::parse(&b.stats_flush_interval).ok());
        Ok(interval.map(Self).unwrap_or_default())
    }
}

impl Default for FlushInterval {
    /// Envoy's default.
    fn default() -> Self {
        Self(Duration::from_secs(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_read_or_envoys_default() {
        let table = [
            (
                r#"{"configs":[{"bootstrap":{"stats_flush_interval":"2.500s"}}]}"#,
                Some(2500),
            ),
            (r#"{"configs":[{"bootstrap":{}}]}"#, Some(5000)),
            (r#"{"configs":[]}"#, Some(5000)),
            ("{}", Some(5000)),
            ("OK", None),
            (
                r#"{"configs":[{"bootstrap":{"stats_flush_interval":2}}]}"#,
                None,
            ),
        ];
        for (body, want) in table {
            let read = FlushInterval::read(body.as_bytes()).ok();
            let want = want.map(|ms| FlushInterval(Duration::from_millis(ms)));
            assert_eq!(read, want, "{body}");
        }
    }
}
