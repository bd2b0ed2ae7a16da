//! What a drain cut, in the notes of Events and in JSON.

use drainer::Cut;
use serde::{Serialize, Serializer};
use serde_json::json;

/// Reads what a [`Cut`] is displayed as, such as `2 requests and 1 upgrade`; `None` for anything else.
pub(super) fn read(list: &str) -> Option<Cut> {
    let mut cut = Cut::default();
    for part in list.split(" and ").flat_map(|part| part.split(", ")) {
        let (count, noun) = part.split_once(' ')?;
        let field = match noun.trim_end_matches('s') {
            "request" => &mut cut.requests,
            "upgrade" => &mut cut.upgrades,
            "TCP connection" => &mut cut.tcp,
            "connection" => &mut cut.connections,
            _ => return None,
        };
        *field = count.parse().ok()?;
    }
    (cut != Cut::default()).then_some(cut)
}

/// Serializes a cut as an object with all of its numbers.
pub(super) fn serialize<S: Serializer>(
    cut: &Option<Cut>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let object = cut.map(
        |Cut {
             requests,
             upgrades,
             tcp,
             connections,
         }| {
            json!({
                "requests": requests, "upgrades": upgrades, "tcp": tcp, "connections": connections,
            })
        },
    );
    object.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let cut = |requests, upgrades, tcp, connections| {
            Some(Cut {
                requests,
                upgrades,
                tcp,
                connections,
            })
        };
        for (list, want) in [
            ("1 request", cut(1, 0, 0, 0)),
            ("2 requests and 1 upgrade", cut(2, 1, 0, 0)),
            (
                "2 requests, 3 upgrades and 1 TCP connection",
                cut(2, 3, 1, 0),
            ),
            ("4 connections", cut(0, 0, 0, 4)),
            ("0 requests", None),
            ("2 requests and more", None),
            ("-1 request", None),
            ("", None),
        ] {
            assert_eq!(read(list), want, "{list}");
            if let Some(cut) = want {
                assert_eq!(cut.to_string(), list);
            }
        }
    }
}
