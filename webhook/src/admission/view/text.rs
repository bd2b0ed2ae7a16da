//! Texts of a manifest, borrowed from its bytes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::admission::annotations;

/// A text, borrowed where it holds no escapes.
///
/// A plain `Option<Cow<str>>` would always be copied: serde borrows into a bare `Cow` alone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(in crate::admission) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A number or a text, such as a port or an amount.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(in crate::admission) struct Scalar<'a>(#[serde(borrow)] &'a RawValue);

/// The entries of a map of texts that decide; that there is a map decides too.
#[derive(Debug, Default)]
pub(in crate::admission) struct Entries<'a>(Vec<(Text<'a>, Text<'a>)>);

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
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
        self.0.iter().map(|(key, value)| (&**key, &**value))
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
                let mut entries = Vec::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    if annotations::decides(&key) {
                        // `null` is the empty string, as in Go.
                        let value: Option<Text<'de>> = map.next_value()?;
                        entries.push((key, value.unwrap_or(Text(Cow::Borrowed("")))));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Entries(entries))
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
                .0
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
