//! docs/json.md has the members of each JSON, with the types that real values of the programs have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Value};
use tests::golden;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");

/// What commands have printed, as other tests compare it: `tests/golden/COMMAND/NAME.json`.
const OUTPUTS: &str = "check/rejected drains/list explain/adopted explain/running explain/shop explain/sidecar lint/hooks";

/// Members whose content has other names: data, or another JSON.
const OPAQUE: &str = "byListener failures replacedHook settings summary";

/// The types of members, by their paths. A member that is always `null` has none.
type Members = BTreeMap<String, BTreeSet<String>>;

#[test]
fn page_has_every_member_and_no_other() {
    let page = fs::read_to_string(PAGE).unwrap();
    let mut found = Members::new();
    for file in OUTPUTS.split(' ') {
        let (command, _) = file.split_once('/').unwrap();
        let text = golden::read(&format!("{file}.json"));
        for value in Deserializer::from_str(&text).into_iter() {
            add(command, &value.unwrap(), &mut found);
        }
    }
    add_example::<drill::report::DrillReport>("drill", &page, &mut found);
    add_example::<drainer::Progress>("status", &page, &mut found);
    add_example::<drainer::DrainSummary>("message", &page, &mut found);
    add_example::<admission::RecordedInjection>("annotation", &page, &mut found);
    let mut wrong = Vec::new();
    for row in page.lines().filter_map(|it| it.strip_prefix("| `")) {
        let (place, members) = row.split_once("` | `").unwrap();
        for member in members.split("<br>`") {
            let (name, rest) = member.split_once("` ").unwrap();
            let types = found.remove(&format!("{place}.{name}"));
            let (listed, _) = rest.split_once(": ").unwrap();
            let is_right = types.is_some_and(|types| types.iter().all(|it| listed.contains(it)));
            wrong.extend((!is_right).then(|| format!("{place}.{member}")));
        }
    }
    assert!(wrong.is_empty() && found.is_empty(), "{wrong:?} {found:?}");
}

/// Adds the members of a value.
fn add(place: &str, value: &Value, found: &mut Members) {
    let items = value.as_array().into_iter().flatten();
    items.for_each(|it| add(&format!("{place}[]"), it, found));
    for (name, value) in value.as_object().into_iter().flatten() {
        let (place, variant) = (format!("{place}.{name}"), format!("{value:?}"));
        let of_value = variant.split([' ', '(']).next().filter(|it| *it != "Null");
        let types = found.entry(place.clone()).or_default();
        types.extend(of_value.map(str::to_lowercase));
        if !OPAQUE.split(' ').any(|it| it == name) {
            add(&place, value, found);
        }
    }
}

/// Adds the members of an example of the page, which is as the program writes it, and lacks none.
fn add_example<T: Debug + DeserializeOwned + Serialize>(
    name: &str,
    page: &str,
    found: &mut Members,
) {
    let (_, rest) = page.split_once(&format!("\n- `{name}`: `")).unwrap();
    let (text, _) = rest.split_once('`').unwrap();
    let value: T = serde_json::from_str(text).unwrap();
    let shown = format!("{value:?}");
    assert!(!shown.contains("None") && !shown.contains("[]"), "{shown}");
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    add(name, &serde_json::from_str(text).unwrap(), found);
}
