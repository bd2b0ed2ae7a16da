//! The settings of a pod in the JSON of `explain`: an object with a value and a source by name.

use serde::{Serialize, Serializer};

use crate::admission::SettingRow;

/// The settings, in the order of the documentation.
#[derive(Debug)]
pub struct SettingsModel(pub Vec<SettingRow>);

// === impl SettingsModel ===

impl Serialize for SettingsModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|row| (row.name, row)))
    }
}
