//! Pieces of Envoy's JSON answers that stay small, whatever an admin interface puts into them.
//!
//! The bound on an answer's bytes alone would not do: three bytes of JSON (`{},`) may become a
//! hundred times as much memory, and serde's own errors quote a wrong value in full.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

/// Longer than any name, address or path that Envoy is usefully given, in bytes.
const MAX_TEXT_LEN: usize = 512;

/// Reads a text of at most [`LONGEST_TEXT`] bytes.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(TextVisitor)
}

/// Reads one of an enum's names.
pub(crate) fn variant<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(text(from)?.into_deserializer())
}

/// Reads a whole number that is not negative.
pub(crate) fn number<'de, D, N>(from: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<u64>,
{
    let number = from.deserialize_any(NumberVisitor)?;
    N::try_from(number).map_err(|_| Error::custom(format!("{number} is too large")))
}

/// Reads an object.
pub(crate) fn object<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    JsonObject::deserialize(from).map(|JsonObject(object)| object)
}

/// Reads an object that may be absent, but is there.
pub(crate) fn some_object<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    object(from).map(Some)
}

/// Reads a list of at most `MOST` objects.
pub(crate) fn list<'de, D, T, const MAX_LEN: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(ListVisitor::<T, MAX_LEN>(PhantomData))
}

/// Reads an answer, which is an object.
pub(crate) fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(body).map(|JsonObject(answer)| answer)
}

struct TextVisitor;

struct NumberVisitor;

struct JsonObject<T>(T);

struct ObjectVisitor<T>(PhantomData<T>);

struct ListVisitor<T, const MAX_LEN: usize>(PhantomData<T>);

/// Says what was wrong without the text that was, which may be long.
fn unexpected_text<T, E: Error>(expected: &dyn serde::de::Expected) -> Result<T, E> {
    Err(E::custom(format_args!("a text in the place of {expected}")))
}

// === impl TextVisitor ===

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        if text.len() > MAX_TEXT_LEN {
            return Err(E::custom(format_args!(
                "a text of more than {MAX_TEXT_LEN} bytes"
            )));
        }
        Ok(text.to_owned())
    }
}

// === impl NumberVisitor ===

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 2^64 - 1")
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
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(JsonObject(element)) = elements.next_element()? {
            if list.len() == MAX_LEN {
                return Err(Error::custom(format_args!("a list of more than {MAX_LEN}")));
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
    struct Pieces {
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

    fn pieces(json: &str) -> Result<Pieces, String> {
        read(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn pieces_within_their_bounds_are_read() {
        let json = r#"{"text": "\u0061", "port": 80, "count": 18446744073709551615,
            "one": {"x": 1}, "two": [{}, {}]}"#;
        let want = Pieces {
            text: "a".into(),
            port: 80,
            count: Some(u64::MAX),
            one: Some(Box::default()),
            two: vec![Pieces::default(), Pieces::default()],
        };
        assert_eq!(pieces(json), Ok(want));
        assert_eq!(pieces("{}"), Ok(Pieces::default()));
    }

    #[test]
    fn errors_are_short() {
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
            let error = pieces(&json).unwrap_err();
            assert!(error.len() < 200, "{error:.200}");
        }
    }
}
