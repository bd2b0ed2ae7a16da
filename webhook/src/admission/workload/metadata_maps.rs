//! The maps of an object in which people write annotations, rightly or not, borrowed from its JSON.
//!
//! Whatever else is in the object is skipped unread, and of a map no more keys are kept than are looked at.

use std::fmt;

use json_patch::jsonptr::Pointer;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::admission::pod::{Text, from_objects};
use crate::admission::settings::keys;
use crate::admission::settings::keys::{INJECT, PREFIX, Suggestions};

/// Every `metadata` of an object, those of its templates included.
#[derive(Debug, Default)]
pub(crate) struct AnnotationLocations<'a> {
    /// The object's own.
    pub object: MetadataKeys<'a>,
    /// Of the Job that a CronJob makes.
    pub job: MetadataKeys<'a>,
    /// Of that Job's pods.
    pub job_pods: MetadataKeys<'a>,
    /// Of the object's pods, if it has a template.
    pub template: Option<MetadataKeys<'a>>,
}

/// The keys like ours in one `metadata`.
#[derive(Debug, Default)]
pub(crate) struct MetadataKeys<'a> {
    /// Directly in it.
    pub direct: MapKeys<'a>,
    /// In its annotations.
    pub annotations: MapKeys<'a>,
    /// In its labels.
    pub labels: MapKeys<'a>,
    /// How many keys there are, those included of a map that another one of its name replaces.
    total: usize,
}

/// The keys like ours in one map.
#[derive(Debug, Default)]
pub(crate) struct MapKeys<'a> {
    /// The keys, in the order of the text; at most [`MOST_KEPT`].
    pub candidates: Vec<Text<'a>>,
    /// [`INJECT`] is among all keys, and not `null`.
    pub requests_injection: bool,
    /// How many keys like ours there are, those included that are not kept.
    candidate_count: usize,
    /// How many keys there are, those included that were read of the same `metadata` before.
    total: usize,
}

/// More keys like ours are an attack rather than slips.
const MAX_CANDIDATES: usize = 128;

/// So many keys of a `metadata` are asked whether their prefix is like ours, which takes half a
/// microsecond. An object has at most four of them, but in each `annotations` any number of times.
const MAX_PREFIX_CHECKS: usize = 1_024;

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct ObjectView<'a> {
    #[serde(borrow, default)]
    metadata: MetadataKeys<'a>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    template: Option<TemplateMetadata<'a>>,
    #[serde(borrow)]
    job_template: Option<JobTemplate<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobTemplate<'a> {
    #[serde(borrow, default)]
    metadata: MetadataKeys<'a>,
    #[serde(borrow)]
    spec: Option<JobSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobSpec<'a> {
    #[serde(borrow)]
    template: Option<TemplateMetadata<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct TemplateMetadata<'a> {
    #[serde(borrow, default)]
    metadata: MetadataKeys<'a>,
}

from_objects! {
    ObjectView<'a>,
    Spec<'a>,
    JobTemplate<'a>,
    JobSpec<'a>,
    TemplateMetadata<'a>,
}

// === impl AnnotationLocations ===

impl<'a> AnnotationLocations<'a> {
    /// Each with its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static Pointer, &MetadataKeys<'a>)> {
        let fixed = [
            (Pointer::from_static("/metadata"), &self.object),
            (
                Pointer::from_static("/spec/jobTemplate/metadata"),
                &self.job,
            ),
            (
                Pointer::from_static("/spec/jobTemplate/spec/template/metadata"),
                &self.job_pods,
            ),
        ];
        let template = Pointer::from_static("/spec/template/metadata");
        fixed
            .into_iter()
            .chain(self.template.iter().map(move |maps| (template, maps)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AnnotationLocations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ObjectView { metadata, spec } =
            <ObjectView<'a> as Deserialize>::deserialize(deserializer)?;
        let (template, job_template) =
            spec.map_or((None, None), |spec| (spec.template, spec.job_template));
        let (job, job_spec) =
            job_template.map_or_else(Default::default, |job| (job.metadata, job.spec));
        let job_pods = job_spec.and_then(|spec| spec.template);
        Ok(Self {
            object: metadata,
            job,
            job_pods: job_pods.map_or_else(MetadataKeys::default, |template| template.metadata),
            template: template.map(|template| template.metadata),
        })
    }
}

// === impl MetadataKeys ===

impl<'de: 'a, 'a> Deserialize<'de> for MetadataKeys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MapOrEmpty(MetadataKeys::default()))
    }
}

impl<'a> EntryReader<'a> for MetadataKeys<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error> {
        let keys = match &*key {
            "annotations" => &mut self.annotations,
            "labels" => &mut self.labels,
            _ => {
                self.direct.total = self.total;
                self.direct.read_entry(key, map)?;
                self.total = self.direct.total;
                return Ok(());
            }
        };
        *keys = map.next_value_seed(MapOrEmpty(MapKeys::with_total(self.total)))?;
        self.total = keys.total;
        Ok(())
    }
}

// === impl MapKeys ===

impl MapKeys<'_> {
    /// No keys, after so many others of the same `metadata`.
    fn with_total(all: usize) -> Self {
        Self {
            total: all,
            ..Self::default()
        }
    }

    /// Whether the keys are compared with those that are known.
    pub(crate) fn suggestions(&self) -> Suggestions {
        Suggestions::for_key_count(self.candidate_count)
    }
}

impl<'a> EntryReader<'a> for MapKeys<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error> {
        let value: &RawValue = map.next_value()?;
        self.requests_injection |= *key == *INJECT && value.get() != "null";
        self.total += 1;
        let prefix = || key.split_once('/').map_or(&*key, |(prefix, _)| prefix);
        let resembles = || self.total <= MAX_PREFIX_CHECKS && keys::resembles_prefix(prefix());
        if key.starts_with(PREFIX) || resembles() {
            self.candidate_count += 1;
            if self.candidates.len() < MAX_CANDIDATES {
                self.candidates.push(key);
            }
        }
        Ok(())
    }
}

/// What is read entry by entry.
trait EntryReader<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a map; whatever else there is, is as good as an empty one.
struct MapOrEmpty<M>(M);

impl<'de, M: EntryReader<'de>> DeserializeSeed<'de> for MapOrEmpty<M> {
    type Value = M;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<M, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, M: EntryReader<'de>> Visitor<'de> for MapOrEmpty<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<M, A::Error> {
        while let Some(key) = map.next_key()? {
            self.0.read_entry(key, &mut map)?;
        }
        Ok(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<M, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<M, E> {
        Ok(self.0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<M, E> {
        Ok(self.0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<M, E> {
        Ok(self.0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<M, E> {
        Ok(self.0)
    }

    fn visit_str<E>(self, _: &str) -> Result<M, E> {
        Ok(self.0)
    }

    fn visit_unit<E>(self) -> Result<M, E> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many keys like ours are found in the annotations that count, after so many others, in as many
    /// maps.
    fn count_candidates(maps: usize, keys: usize) -> usize {
        let others: String = (0..keys).map(|n| format!(r#""{n}":"","#)).collect();
        let other = format!(r#""annotations":{{{others}"x":""}},"labels":{{}},"#).repeat(maps);
        let last = r#""annotations":{"envoydrainer.io/port":""}"#;
        let json = format!(r#"{{"metadata":{{{other}{last}}}}}"#);
        let places: AnnotationLocations<'_> = serde_json::from_str(&json).unwrap();
        places.object.annotations.candidates.len()
    }

    #[test]
    fn a_map_again_and_again_is_searched_no_more_than_one() {
        assert_eq!(count_candidates(0, 0), 1);
        assert_eq!(count_candidates(1, MAX_PREFIX_CHECKS - 2), 1);
        assert_eq!(count_candidates(1, MAX_PREFIX_CHECKS - 1), 0);
        assert_eq!(count_candidates(2, MAX_PREFIX_CHECKS / 2 - 1), 0);
    }
}
