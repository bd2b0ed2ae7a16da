//! Texts of a manifest, borrowed from its bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Expected, MapAccess, Unexpected, Visitor};
use serde_json::value::RawValue;

use super::list::{Item, MAX_ITEMS};

use crate::admission::settings::keys;

/// A text of at most [`LONGEST_TEXT`], borrowed where it holds no escapes.
///
/// A plain `Option<Cow<str>>` would always be copied: serde borrows into a bare `Cow` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admission) struct Text<'a>(Cow<'a, str>);

/// A number or a text, such as a port or an amount.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(in crate::admission) struct Scalar<'a>(#[serde(borrow)] &'a RawValue);

/// The entries of a map of texts that decide, at most [`MOST`]; that there is a map decides too.
#[derive(Debug, Default)]
pub(in crate::admission) struct Entries<'a> {
    relevant: Vec<(Text<'a>, Text<'a>)>,
    size: usize,
}

/// In bytes: what all annotations of a pod may have. A word of a command line may have 128 KiB.
const MAX_TEXT_LEN: usize = 256 << 10;

/// In bytes. A message repeats no more of a text that stands where something else belongs.
const MAX_QUOTED_LEN: usize = 64;

/// The error for a text that stands where something else belongs.
pub(super) fn unexpected_str<E: Error>(text: &str, expected: &dyn Expected) -> E {
    match text.len() {
        ..=MAX_QUOTED_LEN => E::invalid_type(Unexpected::Str(text), expected),
        _ => E::invalid_type(Unexpected::Other("a long string"), expected),
    }
}

/// Reads a text of at most so many bytes, which may be missing.
pub(super) fn bounded_text<'de, D, const LONGEST: usize>(
    deserializer: D,
) -> Result<Option<Text<'de>>, D::Error>
where
    D: Deserializer<'de>,
{
    let text: Option<Text<'de>> = Option::deserialize(deserializer)?;
    if let Some(text) = &text {
        check_len(text, LONGEST)?;
    }
    Ok(text)
}

fn check_len<E: Error>(text: &str, longest: usize) -> Result<(), E> {
    match text.len() {
        long if long > longest => {
            let why = format_args!("a string of {long} bytes: at most {longest}");
            Err(E::custom(why))
        }
        _ => Ok(()),
    }
}

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Item for Text<'_> {}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                check_len(text, MAX_TEXT_LEN).map(|()| Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                check_len(text, MAX_TEXT_LEN).map(|()| Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

// === impl Scalar ===

impl<'a> Scalar<'a> {
    /// The text, or the number's digits.
    pub(in crate::admission) fn text(self) -> Cow<'a, str> {
        let raw = self.0.get();
        match serde_json::from_str(raw) {
            Ok(Text(text)) => text,
            Err(_) => Cow::Borrowed(raw),
        }
    }
}

// === impl Entries ===

impl Entries<'_> {
    pub(in crate::admission) fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    pub(in crate::admission) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.relevant.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The bytes of all keys and values, those that do not decide included.
    pub(in crate::admission) fn size(&self) -> usize {
        self.size
    }
}

/// In bytes: the length of a text; of anything else, none.
fn decoded_len(raw: &RawValue) -> usize {
    let raw = raw.get();
    let Some(text) = raw.strip_prefix('"') else {
        return 0;
    };
    match text.contains('\\') {
        // As much as it is without its escapes.
        true => serde_json::from_str(raw).map_or(raw.len(), |text: Cow<'_, str>| text.len()),
        false => text.len() - 1,
    }
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
                    if !keys::is_relevant_key(&key) {
                        entries.size += key.len() + decoded_len(map.next_value()?);
                        continue;
                    }
                    if entries.relevant.len() == MAX_ITEMS {
                        let why = format_args!("more than {MAX_ITEMS} entries that decide");
                        return Err(A::Error::custom(why));
                    }
                    // `null` is the empty string, as in Go.
                    let value: Option<Text<'de>> = map.next_value()?;
                    let value = value.unwrap_or(Text(Cow::Borrowed("")));
                    entries.size += key.len() + value.len();
                    entries.relevant.push((key, value));
                }
                Ok(entries)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Err(unexpected_str(text, &self))
            }
        }

        deserializer.deserialize_any(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_borrowed(text: &Text<'_>) -> bool {
        matches!(text.0, Cow::Borrowed(_))
    }

    #[test]
    fn a_text_is_borrowed_unless_it_holds_escapes() {
        // In an Option and in a list too, where a bare Cow would not be.
        let json = r#"["plain é", "with \"quotes\"", null]"#;
        let texts: Vec<Option<Text<'_>>> = serde_json::from_str(json).unwrap();
        let [Some(plain), Some(quoted), None] = &texts[..] else {
            panic!("{texts:?}")
        };
        assert_eq!((&**plain, is_borrowed(plain)), ("plain é", true));
        assert_eq!((&**quoted, is_borrowed(quoted)), ("with \"quotes\"", false));
    }

    #[test]
    fn of_a_map_only_what_decides_is_kept() {
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
    fn a_scalar_is_read_as_text_or_number() {
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
