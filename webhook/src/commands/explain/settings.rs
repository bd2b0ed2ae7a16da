//! Every setting of a pod, as an annotation would write it, and who set it.

use serde::{Serialize, Serializer};

use crate::admission::{self, Shown, Source};

/// The settings, in the order of the documentation.
#[derive(Debug)]
pub struct Settings(pub(super) Vec<(&'static str, Value)>);

/// A setting's value and its source.
#[derive(Debug, Serialize)]
pub struct Value {
    /// As an annotation writes it.
    pub value: String,
    /// `default`, `job-default`, `next-free` or `annotation`.
    pub source: &'static str,
    #[serde(skip)]
    pub(super) from: Source,
}

// === impl Settings ===

impl From<&admission::Settings> for Settings {
    fn from(settings: &admission::Settings) -> Self {
        let shown = settings.shown().into_iter();
        let named = shown.map(
            |Shown {
                 name,
                 value,
                 source,
             }| {
                let written = match source {
                    Source::Default => "default",
                    Source::JobDefault => "job-default",
                    Source::NextFree => "next-free",
                    Source::Annotation => "annotation",
                };
                let value = Value {
                    value,
                    source: written,
                    from: source,
                };
                (name, value)
            },
        );
        Self(named.collect())
    }
}

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
