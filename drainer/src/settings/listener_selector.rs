//! Listeners in a setting: by name or by port.

use std::num::NonZeroU16;
use std::str::FromStr;

use strum::Display;

use super::value::{InvalidValue, parse_port};

/// The name or the port of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum ListenerSelector {
    /// The port to which it is bound.
    #[strum(to_string = "{0}")]
    Port(NonZeroU16),
    /// Its `name` or its `stat_prefix`.
    #[strum(to_string = "{0}")]
    Name(String),
}

// === impl ListenerSelector ===

impl FromStr for ListenerSelector {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        // Envoy accepts any text as a name, but these are likely mistakes. A listener with such a name can be
        // selected by its port.
        let parts = text.split(|c: char| c == ';' || c.is_whitespace());
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let is_number = text.bytes().all(|b| b.is_ascii_digit());
        let expected = match parts[..] {
            _ if text.is_empty() || text.contains(',') => "expected a name or a port".to_owned(),
            [part] if part == text && is_number => return parse_port(text).map(Self::Port),
            [part] if part == text => return Ok(Self::Name(text.to_owned())),
            _ => format!("separate names and ports by commas: {}", parts.join(",")),
        };
        Err(InvalidValue::new("listener", text, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::value::parse_list;

    #[test]
    fn only_commas_separate_listeners() {
        let table = [
            ("", Some("")),
            ("8080, probes ,0.0.0.0_80", Some("8080,probes,0.0.0.0_80")),
            (
                "public_listener:[::1]:20000",
                Some("public_listener:[::1]:20000"),
            ),
            (
                "default/eg/http,xdstp://a/b?c=d&e=f",
                Some("default/eg/http,xdstp://a/b?c=d&e=f"),
            ),
            ("8080;9090", None),
            ("8080; 9090;", None),
            ("8080 9090", None),
            ("8080\n9090", None),
        ];
        for (text, want) in table {
            let parsed = parse_list(text).map(|all: Vec<ListenerSelector>| {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                all.join(",")
            });
            match want {
                Some(want) => assert_eq!(parsed.as_deref(), Ok(want)),
                None => {
                    let error = parsed.unwrap_err().to_string();
                    assert!(error.ends_with("by commas: 8080,9090"), "{error}");
                }
            }
        }
    }
}
