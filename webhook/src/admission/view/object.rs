//! Objects are read from objects alone.
//!
//! What serde derives for a struct also reads a list, as the struct's fields in their order. A patch that
//! adds a key to what was such a list would not apply.

use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Reads whatever is asked of it as a map.
pub(super) struct Object<D>(pub D);

/// Implements `Deserialize` by what serde derived with `remote = "Self"`, from an object alone.
macro_rules! from_objects {
    ($($name:ident $(<$life:lifetime>)?),* $(,)?) => {$(
        impl<'de $(: $life, $life)?> serde::Deserialize<'de> for $name $(<$life>)? {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::deserialize($crate::admission::view::object::Object(deserializer))
            }
        }
    )*};
}

pub(super) use from_objects;

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Object<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
