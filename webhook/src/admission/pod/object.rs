//! Objects are read from objects alone.
//!
//! What serde derives for a struct also reads a list, as the struct's fields in their order. A patch that
//! adds a key to what was such a list would not apply.

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::text::unexpected_str;

/// Reads whatever is asked of it as a map.
pub(in crate::admission) struct ObjectOnly<D>(pub D);

/// Implements `Deserialize` by what serde derived with `remote = "Self"`, from an object alone.
macro_rules! from_objects {
    ($($name:ident $(<$life:lifetime $(, $other:ident)?>)?),* $(,)?) => {$(
        impl<'de $(: $life, $life $(, $other: serde::Deserialize<'de>)?)?> serde::Deserialize<'de>
            for $name $(<$life $(, $other)?>)?
        {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::admission::pod::ObjectOnly(deserializer))
            }
        }
    )*};
}

pub(in crate::admission) use from_objects;

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        // Asked for a map, serde_json would itself refuse a text, and repeat all of it.
        self.0.deserialize_any(MapOnlyVisitor(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A visitor that gets maps alone.
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
