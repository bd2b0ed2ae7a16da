//! Serde helpers for manifests: strict objects, nullable numbers, and errors that do not repeat long input.
//!
//! What serde derives for a struct also reads an array, as the struct's fields in their order. [`ObjectOnly`]
//! rejects that, since a patch that adds a key to such an array would not apply.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

/// Maximum length of a string that an error repeats, in bytes.
const MAX_QUOTED_LEN: usize = 64;

/// Returns the error for a string in place of another type.
pub(super) fn unexpected_str<E: Error>(text: &str, expected: &dyn Expected) -> E {
    match text.len() {
        ..=MAX_QUOTED_LEN => E::invalid_type(Unexpected::Str(text), expected),
        _ => E::invalid_type(Unexpected::Other("a long string"), expected),
    }
}

/// Deserializes `null` like a missing field.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Deserializes every type from a JSON object only.
pub(crate) struct ObjectOnly<D>(pub D);

/// Implements `Deserialize`, from an object only, by what serde derives with `remote = "Self"`.
macro_rules! from_objects {
    ($($name:ident $(<$life:lifetime $(, $other:ident)?>)?),* $(,)?) => {$(
        impl<'de $(: $life, $life $(, $other: serde::Deserialize<'de>)?)?> serde::Deserialize<'de>
            for $name $(<$life $(, $other)?>)?
        {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::pod::ObjectOnly(deserializer))
            }
        }
    )*};
}

pub(crate) use from_objects;

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        // `deserialize_map` of serde_json would reject a string with an error that repeats all of it.
        self.0.deserialize_any(MapOnlyVisitor(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Passes only maps to the visitor.
struct MapOnlyVisitor<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for MapOnlyVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(map)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        Err(unexpected_str(text, &self))
    }
}

/// Deserializes a number or a boolean that may be missing or `null`. Its errors do not repeat a string in its place.
pub(crate) fn number_or_bool<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(NumberOrBoolVisitor(PhantomData))
}

struct NumberOrBoolVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NumberOrBoolVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a boolean")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<T>, E> {
        T::deserialize(value.into_deserializer()).map(Some)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        Err(unexpected_str(text, &self))
    }
}
