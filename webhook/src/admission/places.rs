//! The maps of an object in which people write annotations, rightly or not, borrowed from its JSON.
//!
//! Whatever else is in the object is skipped unread, and of a map no more keys are kept than are looked at.

use std::fmt;

use json_patch::jsonptr::Pointer;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::annotations::{self, INJECT, Likeness, PREFIX};
use super::view::{Text, from_objects};

/// Every `metadata` of an object, those of its templates included.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// The object's own.
    pub object: Maps<'a>,
    /// Of the Job that a CronJob makes.
    pub job: Maps<'a>,
    /// Of that Job's pods.
    pub job_pods: Maps<'a>,
    /// Of the object's pods, if it has a template.
    pub template: Option<Maps<'a>>,
}

/// The keys like ours in one `metadata`.
#[derive(Debug, Default)]
pub(super) struct Maps<'a> {
    /// Directly in it.
    pub own: Keys<'a>,
    /// In its annotations.
    pub annotations: Keys<'a>,
    /// In its labels.
    pub labels: Keys<'a>,
    /// How many keys there are, those included of a map that another one of its name replaces.
    all: usize,
}

/// The keys like ours in one map.
#[derive(Debug, Default)]
pub(super) struct Keys<'a> {
    /// The keys, in the order of the text; at most [`MOST_KEPT`].
    pub ours: Vec<Text<'a>>,
    /// [`INJECT`] is among all keys, and not `null`.
    pub asks: bool,
    /// How many keys like ours there are, those included that are not kept.
    like_ours: usize,
    /// How many keys there are, those included that were read of the same `metadata` before.
    all: usize,
}

/// More keys like ours are an attack rather than slips.
const MOST_KEPT: usize = 128;

/// So many keys of a `metadata` are asked whether their prefix is like ours, which takes half a
/// microsecond. An object has at most four of them, but in each `annotations` any number of times.
const MOST_ASKED: usize = 1_024;

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct Whole<'a> {
    #[serde(borrow, default)]
    metadata: Maps<'a>,
    #[serde(borrow)]
    spec: Option<Spec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    template: Option<Described<'a>>,
    #[serde(borrow)]
    job_template: Option<JobTemplate<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobTemplate<'a> {
    #[serde(borrow, default)]
    metadata: Maps<'a>,
    #[serde(borrow)]
    spec: Option<JobSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct JobSpec<'a> {
    #[serde(borrow)]
    template: Option<Described<'a>>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct Described<'a> {
    #[serde(borrow, default)]
    metadata: Maps<'a>,
}

from_objects! {
    Whole<'a>,
    Spec<'a>,
    JobTemplate<'a>,
    JobSpec<'a>,
    Described<'a>,
}

// === impl Places ===

impl<'a> Places<'a> {
    /// Each with its place.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Pointer, &Maps<'a>)> {
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

impl<'de: 'a, 'a> Deserialize<'de> for Places<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Whole { metadata, spec } = <Whole<'a> as Deserialize>::deserialize(deserializer)?;
        let (template, job_template) =
            spec.map_or((None, None), |spec| (spec.template, spec.job_template));
        let (job, job_spec) =
            job_template.map_or_else(Default::default, |job| (job.metadata, job.spec));
        let job_pods = job_spec.and_then(|spec| spec.template);
        Ok(Self {
            object: metadata,
            job,
            job_pods: job_pods.map_or_else(Maps::default, |template| template.metadata),
            template: template.map(|template| template.metadata),
        })
    }
}

// === impl Maps ===

impl<'de: 'a, 'a> Deserialize<'de> for Maps<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Whatever(Maps::default()))
    }
}

impl<'a> Map<'a> for Maps<'a> {
    fn entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error> {
        let keys = match &*key {
            "annotations" => &mut self.annotations,
            "labels" => &mut self.labels,
            _ => {
                self.own.all = self.all;
                self.own.entry(key, map)?;
                self.all = self.own.all;
                return Ok(());
            }
        };
        *keys = map.next_value_seed(Whatever(Keys::after(self.all)))?;
        self.all = keys.all;
        Ok(())
    }
}

// === impl Keys ===

impl Keys<'_> {
    /// No keys, after so many others of the same `metadata`.
    fn after(all: usize) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// Whether the keys are compared with those that are known.
    pub(super) fn likeness(&self) -> Likeness {
        Likeness::among(self.like_ours)
    }
}

impl<'a> Map<'a> for Keys<'a> {
    fn entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error> {
        let value: &RawValue = map.next_value()?;
        self.asks |= *key == *INJECT && value.get() != "null";
        self.all += 1;
        let prefix = || key.split_once('/').map_or(&*key, |(prefix, _)| prefix);
        let resembles = || self.all <= MOST_ASKED && annotations::resembles_ours(prefix());
        if key.starts_with(PREFIX) || resembles() {
            self.like_ours += 1;
            if self.ours.len() < MOST_KEPT {
                self.ours.push(key);
            }
        }
        Ok(())
    }
}

/// What is read entry by entry.
trait Map<'a> {
    fn entry<A: MapAccess<'a>>(&mut self, key: Text<'a>, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a map; whatever else there is, is as good as an empty one.
struct Whatever<M>(M);

impl<'de, M: Map<'de>> DeserializeSeed<'de> for Whatever<M> {
    type Value = M;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<M, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, M: Map<'de>> Visitor<'de> for Whatever<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<M, A::Error> {
        while let Some(key) = map.next_key()? {
            self.0.entry(key, &mut map)?;
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
    fn found(maps: usize, keys: usize) -> usize {
        let others: String = (0..keys).map(|n| format!(r#""{n}":"","#)).collect();
        let other = format!(r#""annotations":{{{others}"x":""}},"labels":{{}},"#).repeat(maps);
        let last = r#""annotations":{"envoydrainer.io/port":""}"#;
        let json = format!(r#"{{"metadata":{{{other}{last}}}}}"#);
        let places: Places<'_> = serde_json::from_str(&json).unwrap();
        places.object.annotations.ours.len()
    }

    #[test]
    fn a_map_again_and_again_is_searched_no_more_than_one() {
        assert_eq!(found(0, 0), 1);
        assert_eq!(found(1, MOST_ASKED - 2), 1);
        assert_eq!(found(1, MOST_ASKED - 1), 0);
        assert_eq!(found(2, MOST_ASKED / 2 - 1), 0);
    }
}
