//! The keys of a `metadata` that matter to its check, read without its values.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::view::decode_or_default;
use crate::names::PREFIX;
use crate::pod::{Text, or_default};

/// What is checked in a `metadata`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MetadataKeys {
    #[serde(skip)]
    pub own: MapKeys,
    #[serde(deserialize_with = "or_default")]
    pub annotations: MapKeys,
    #[serde(deserialize_with = "or_default")]
    pub labels: MapKeys,
}

/// What is checked in one map: a `metadata` itself, its annotations or its labels.
#[derive(Default)]
pub(super) struct MapKeys {
    /// The keys under [`PREFIX`] without it, in their order, at most [`MAX_KEYS`].
    pub names: Vec<String>,
    /// How many there are.
    pub count: usize,
    /// Whether `inject` is among them and not `null`.
    pub requests_injection: bool,
}

/// Maximum number of keys of one map that are kept. More are an attack.
const MAX_KEYS: usize = 128;

// === impl MetadataKeys ===

impl MetadataKeys {
    /// Reads a `metadata`; nothing of one that is missing or cannot be decoded.
    pub(super) fn read(metadata: Option<&RawValue>) -> Self {
        Self {
            own: decode_or_default(metadata),
            ..decode_or_default(metadata)
        }
    }
}

// === impl MapKeys ===

impl<'de> Deserialize<'de> for MapKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapKeysVisitor;

        impl<'de> Visitor<'de> for MapKeysVisitor {
            type Value = MapKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MapKeys, A::Error> {
                let mut keys = MapKeys::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let Some(name) = key.strip_prefix(PREFIX) else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let value: &RawValue = map.next_value()?;
                    keys.requests_injection |= name == "inject" && value.get() != "null";
                    keys.count += 1;
                    if keys.names.len() < MAX_KEYS {
                        keys.names.push(name.to_owned());
                    }
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_map(MapKeysVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_of_a_map_are_bounded() {
        let keys = (0..200).map(|n| (format!("{PREFIX}{n}"), json!("")));
        let json = Value::Object(keys.collect()).to_string();
        let keys: MapKeys = serde_json::from_str(&json).unwrap();
        assert_eq!((keys.names.len(), keys.count), (MAX_KEYS, 200));
    }
}
