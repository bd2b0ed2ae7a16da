//! Every setting of a pod, as an annotation would write it, and who set it.

use serde::{Serialize, Serializer};

use crate::admission::{self, SettingRow, SettingSource};

/// The settings, in the order of the documentation.
#[derive(Debug)]
pub struct SettingsModel(pub(super) Vec<(&'static str, SettingValue)>);

/// A setting's value and its source.
#[derive(Debug, Serialize)]
pub struct SettingValue {
    /// As an annotation writes it.
    pub value: String,
    /// `default`, `job-default`, `next-free` or `annotation`.
    pub source: &'static str,
    #[serde(skip)]
    pub(super) setting_source: SettingSource,
}

// === impl SettingsModel ===

impl From<&admission::Settings> for SettingsModel {
    fn from(settings: &admission::Settings) -> Self {
        let shown = settings.rows().into_iter();
        let named = shown.map(
            |SettingRow {
                 name,
                 value,
                 source,
             }| {
                let written = match source {
                    SettingSource::Default => "default",
                    SettingSource::JobDefault => "job-default",
                    SettingSource::NextFree => "next-free",
                    SettingSource::Annotation => "annotation",
                };
                let value = SettingValue {
                    value,
                    source: written,
                    setting_source: source,
                };
                (name, value)
            },
        );
        Self(named.collect())
    }
}

impl Serialize for SettingsModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
