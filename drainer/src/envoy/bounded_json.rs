//! Deserializers for Envoy's JSON that bound the memory of every value, whatever a response holds.
//!
//! A bound on the size of the body is not enough: three bytes of JSON (`{},`) may become a hundred
//! times as much memory, and serde's own errors quote a wrong value in full.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

/// Maximum length in bytes, longer than any name, address or path in a real configuration.
const MAX_TEXT_LEN: usize = 512;

/// Deserializes a string of at most [`MAX_TEXT_LEN`] bytes.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(TextVisitor)
}

/// Deserializes a variant of an enum by its name.
pub(crate) fn variant<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(text(from)?.into_deserializer())
}

/// Deserializes an unsigned integer.
pub(crate) fn number<'de, D, N>(from: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64>,
{
    let number = from.deserialize_any(NumberVisitor)?;
    N::try_from(number).map_err(|_| Error::custom(format!("{number} is too large")))
}

/// Deserializes an object.
pub(crate) fn object<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    JsonObject::deserialize(from).map(|JsonObject(object)| object)
}

/// Deserializes an object that is optional in its parent.
pub(crate) fn some_object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    object(from).map(Some)
}

/// Deserializes an array of at most `MAX_LEN` objects.
pub(crate) fn list<'de, D, T, const MAX_LEN: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(ListVisitor::<T, MAX_LEN>(PhantomData))
}

/// Parses a response body, which is an object.
pub(crate) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map(|JsonObject(object)| object)
}

struct TextVisitor;

struct NumberVisitor;

struct JsonObject<T>(T);

struct ObjectVisitor<T>(PhantomData<T>);

struct ListVisitor<T, const MAX_LEN: usize>(PhantomData<T>);

/// Reports a wrong type without quoting the string, which may be long.
fn unexpected_text<T, E: Error>(expected: &dyn serde::de::Expected) -> Result<T, E> {
    Err(E::custom(format_args!("a string instead of {expected}")))
}

// === impl TextVisitor ===

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        if text.len() > MAX_TEXT_LEN {
            return Err(E::custom(format_args!(
                "a string of more than {MAX_TEXT_LEN} bytes"
            )));
        }
        Ok(text.to_owned())
    }
}

// === impl NumberVisitor ===

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer from 0 to 2^64 - 1")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<u64, E> {
        unexpected_text(&self)
    }
}

// === impl JsonObject ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ObjectVisitor(PhantomData)).map(Self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<T, E> {
        unexpected_text(&self)
    }
}

// === impl ListVisitor ===

impl<'de, T: Deserialize<'de>, const MAX_LEN: usize> Visitor<'de> for ListVisitor<T, MAX_LEN> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(JsonObject(element)) = elements.next_element()? {
            if list.len() == MAX_LEN {
                return Err(Error::custom(format_args!(
                    "an array of more than {MAX_LEN}"
                )));
            }
            list.push(element);
        }
        Ok(list)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Vec<T>, E> {
        unexpected_text(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Values {
        #[serde(deserialize_with = "text")]
        text: String,
        #[serde(deserialize_with = "number")]
        port: u16,
        #[serde(deserialize_with = "number")]
        count: Option<u64>,
        #[serde(deserialize_with = "some_object")]
        one: Option<Box<Self>>,
        #[serde(deserialize_with = "list::<_, _, 2>")]
        two: Vec<Self>,
    }

    fn values(json: &str) -> Result<Values, String> {
        read(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_within_their_bounds_are_read() {
        let json = r#"{"text": "\u0061", "port": 80, "count": 18446744073709551615,
            "one": {"x": 1}, "two": [{}, {}]}"#;
        let want = Values {
            text: "a".into(),
            port: 80,
            count: Some(u64::MAX),
            one: Some(Box::default()),
            two: vec![Values::default(), Values::default()],
        };
        assert_eq!(values(json), Ok(want));
        assert_eq!(values("{}"), Ok(Values::default()));
    }

    #[test]
    fn errors_do_not_quote_long_values() {
        let long = "\u{ad}".repeat(1 << 20);
        let table = [
            format!(r#""{long}""#),
            format!(r#"{{"text": "{long}"}}"#),
            format!(r#"{{"port": "{long}"}}"#),
            format!(r#"{{"one": "{long}"}}"#),
            format!(r#"{{"two": "{long}"}}"#),
            format!(r#"{{"two": ["{long}"]}}"#),
            r#"{"port": 65536}"#.into(),
            r#"{"port": -1}"#.into(),
            r#"{"count": 18446744073709551616}"#.into(),
            r#"{"count": 1.0}"#.into(),
            r#"{"count": 1e400}"#.into(),
            r#"{"count": null}"#.into(),
            r#"{"two": [{}, {}, {}]}"#.into(),
        ];
        for json in table {
            let error = values(&json).unwrap_err();
            assert!(error.len() < 200, "{error:.200}");
        }
    }
}
