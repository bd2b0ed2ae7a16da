//! Numbers and booleans of a manifest.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IntoDeserializer, Visitor};

use super::text::unexpected_str;

/// A number or a boolean, read without repeating a text that stands in its place.
struct NumberOrBool<T>(T);

/// Reads a number or a boolean that may be missing.
pub(in crate::admission) fn number_or_bool<'de, D, T>(
    deserializer: D,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let plain: Option<NumberOrBool<T>> = Option::deserialize(deserializer)?;
    Ok(plain.map(|NumberOrBool(value)| value))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NumberOrBool<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrBoolVisitor(PhantomData))
    }
}

struct NumberOrBoolVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NumberOrBoolVisitor<T> {
    type Value = NumberOrBool<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a boolean")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<NumberOrBool<T>, E> {
        T::deserialize(value.into_deserializer()).map(NumberOrBool)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<NumberOrBool<T>, E> {
        T::deserialize(value.into_deserializer()).map(NumberOrBool)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<NumberOrBool<T>, E> {
        T::deserialize(value.into_deserializer()).map(NumberOrBool)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<NumberOrBool<T>, E> {
        T::deserialize(value.into_deserializer()).map(NumberOrBool)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NumberOrBool<T>, E> {
        Err(unexpected_str(text, &self))
    }
}
