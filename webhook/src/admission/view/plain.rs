//! Numbers and booleans of a manifest.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};

use super::text::text_instead;

/// A number or a boolean, read without repeating a text that stands in its place.
struct Plain<T>(T);

/// Reads a number or a boolean that may be missing.
pub(in crate::admission) fn plain<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let plain: Option<Plain<T>> = Option::deserialize(deserializer)?;
    Ok(plain.map(|Plain(value)| value))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Plain<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor(PhantomData))
    }
}

struct PlainVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for PlainVisitor<T> {
    type Value = Plain<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a boolean")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Plain<T>, E> {
        T::deserialize(value.into_deserializer()).map(Plain)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Plain<T>, E> {
        T::deserialize(value.into_deserializer()).map(Plain)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Plain<T>, E> {
        T::deserialize(value.into_deserializer()).map(Plain)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Plain<T>, E> {
        T::deserialize(value.into_deserializer()).map(Plain)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Plain<T>, E> {
        Err(text_instead(text, &self))
    }
}
