//! The values of a manifest: strings, borrowed from its bytes and bounded in length.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::decode::bounded_list;
use crate::names;

/// A string of at most [`MAX_TEXT_LEN`], borrowed unless it contains escapes.
///
/// An `Option<Cow<str>>` would always be copied: serde borrows only into a bare `Cow`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text<'a>(Cow<'a, str>);

/// A number or a string, such as a port or a quantity.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(crate) struct Scalar<'a>(#[serde(borrow)] &'a RawValue);

/// The entries of a map of strings that are relevant, at most [`MAX_ENTRIES`]. That the map exists is relevant too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entries<'a> {
    relevant: Vec<(Text<'a>, Text<'a>)>,
    /// Size of all keys and values in bytes, those that are not relevant included.
    pub size: usize,
}

struct ObjectVisitor<T>(PhantomData<T>);

/// Maximum number of relevant entries of a map.
const MAX_ENTRIES: usize = 2_000;

/// Maximum length of a string, in bytes: that of all annotations of a pod. A command-line argument may have 128 KiB.
const MAX_TEXT_LEN: usize = 256 << 10;

/// Deserializes a string of at most `MAX` bytes that may be missing or `null`.
pub(super) fn bounded_text<'de, D, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Text<'de>>, D::Error>
where
    D: Deserializer<'de>,
{
    let text: Option<Text<'de>> = Option::deserialize(deserializer)?;
    if let Some(text) = &text {
        check_len(text, MAX)?;
    }
    Ok(text)
}

/// Deserializes a list of strings that may be missing or `null`. A `null` in it is the empty string, as in Go.
pub(super) fn bounded_texts<'de, D>(deserializer: D) -> Result<Option<Vec<Text<'de>>>, D::Error>
where
    D: Deserializer<'de>,
{
    let list: Option<Vec<Option<Text<'de>>>> = bounded_list(deserializer)?;
    let or_empty = |list: Vec<Option<Text<'de>>>| list.into_iter().map(Option::unwrap_or_default);
    Ok(list.map(|list| or_empty(list).collect()))
}

/// Deserializes an object that may be missing or `null`. A struct would also decode from a list of its fields' values, in
/// which a patch can set no key.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ObjectVisitor(PhantomData))
}

fn check_len<E: Error>(text: &str, max: usize) -> Result<(), E> {
    let len = text.len();
    if len > max {
        let reason = format_args!("a string of {len} bytes: the limit is {max}");
        return Err(E::custom(reason));
    }
    Ok(())
}

// === impl ObjectVisitor ===

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Default for Text<'_> {
    fn default() -> Self {
        Self(Cow::Borrowed(""))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Unbounded<'a>(#[serde(borrow)] Cow<'a, str>);

        let Unbounded(text) = Unbounded::deserialize(deserializer)?;
        check_len(&text, MAX_TEXT_LEN)?;
        Ok(Self(text))
    }
}

// === impl Scalar ===

impl<'a> Scalar<'a> {
    /// The string, or the number's digits.
    pub(crate) fn text(self) -> Cow<'a, str> {
        let raw = self.0.get();
        // To find out by an error that it is no string would cost more than all other uses of ports.
        let text = raw.starts_with('"').then(|| serde_json::from_str(raw).ok());
        text.flatten().map_or(Cow::Borrowed(raw), |Text(text)| text)
    }
}

// === impl Entries ===

impl Entries<'_> {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.iter().find(|(name, _)| *name == key)?;
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.relevant.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// Length of a string in bytes; 0 for anything else.
fn decoded_len(raw: &RawValue) -> usize {
    let raw = raw.get();
    let Some(text) = raw.strip_prefix('"') else {
        return 0;
    };
    if !text.contains('\\') {
        return text.len() - 1;
    }
    serde_json::from_str(raw).map_or(raw.len(), |text: Cow<'_, str>| text.len())
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Entries::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    if !names::is_relevant_key(&key) {
                        entries.size += key.len() + decoded_len(map.next_value()?);
                        continue;
                    }
                    if entries.relevant.len() == MAX_ENTRIES {
                        let reason = format_args!("more than {MAX_ENTRIES} relevant entries");
                        return Err(A::Error::custom(reason));
                    }
                    // `null` means the empty string, as in Go.
                    let value: Option<Text<'de>> = map.next_value()?;
                    let value = value.unwrap_or_default();
                    entries.size += key.len() + value.len();
                    entries.relevant.push((key, value));
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_borrowed(text: &Text<'_>) -> bool {
        matches!(text.0, Cow::Borrowed(_))
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        // Also in an Option and in a list, where a bare Cow would not be.
        let json = r#"["plain é", "with \"quotes\"", null]"#;
        let texts: Vec<Option<Text<'_>>> = serde_json::from_str(json).unwrap();
        let [Some(plain), Some(quoted), None] = &texts[..] else {
            panic!("{texts:?}")
        };
        assert_eq!((&**plain, is_borrowed(plain)), ("plain é", true));
        assert_eq!((&**quoted, is_borrowed(quoted)), ("with \"quotes\"", false));
    }

    #[test]
    fn only_relevant_entries_are_kept() {
        let json =
            r#"{"other": 7, "envoy-drainer.dev/port": null, "envoy-drainer.dev/inject": "true"}"#;
        let entries: Entries<'_> = serde_json::from_str(json).unwrap();
        assert!(
            entries
                .relevant
                .iter()
                .all(|(key, value)| is_borrowed(key) && is_borrowed(value))
        );
        let kept: Vec<_> = entries.iter().collect();
        assert_eq!(
            kept,
            [
                ("envoy-drainer.dev/port", ""),
                ("envoy-drainer.dev/inject", "true")
            ]
        );
        assert_eq!(entries.get("other"), None);
    }

    #[test]
    fn scalar_is_a_string_or_a_number() {
        for (json, text) in [
            ("8080", "8080"),
            (r#""http""#, "http"),
            (r#""\u0031m""#, "1m"),
            ("1e400", "1e400"),
        ] {
            let scalar: Scalar<'_> = serde_json::from_str(json).unwrap();
            assert_eq!(scalar.text(), text);
        }
    }
}
