//! The keys of a `metadata` that matter to its check, read without its values.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::names::PREFIX;
use crate::pod::Text;

/// What is checked in a `metadata`.
#[derive(Default)]
pub(super) struct MetadataKeys {
    pub(super) own: MapKeys,
    pub(super) annotations: MapKeys,
    pub(super) labels: MapKeys,
}

/// What is checked in one map: a `metadata` itself, its annotations or its labels.
#[derive(Default)]
pub(super) struct MapKeys {
    /// The keys under [`PREFIX`] without it, in their order, at most [`MAX_KEYS`].
    pub(super) names: Vec<String>,
    /// How many there are.
    pub(super) count: usize,
    /// Whether `inject` is among them and not `null`.
    pub(super) requests_injection: bool,
}

/// What is read from a map entry by entry, so that a key that occurs twice is no error.
trait FromEntries: Default {
    /// Reads the value of `key`.
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error>;
}

struct EntriesVisitor<T>(PhantomData<T>);

/// Maximum number of keys of one map that are kept. More are an attack.
const MAX_KEYS: usize = 128;

// === impl MapKeys ===

impl FromEntries for MapKeys {
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let Some(name) = key.strip_prefix(PREFIX) else {
            return map.next_value::<IgnoredAny>().map(drop);
        };
        let value: &RawValue = map.next_value()?;
        self.requests_injection |= name == "inject" && value.get() != "null";
        self.count += 1;
        if self.names.len() < MAX_KEYS {
            self.names.push(name.to_owned());
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for MapKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

// === impl MetadataKeys ===

impl FromEntries for MetadataKeys {
    fn read_value<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "annotations" => self.annotations = map.next_value::<Option<_>>()?.unwrap_or_default(),
            "labels" => self.labels = map.next_value::<Option<_>>()?.unwrap_or_default(),
            key => self.own.read_value(key, map)?,
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for MetadataKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

// === impl EntriesVisitor ===

impl<'de, T: FromEntries> Visitor<'de> for EntriesVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut read = T::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            read.read_value(&key, &mut map)?;
        }
        Ok(read)
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
