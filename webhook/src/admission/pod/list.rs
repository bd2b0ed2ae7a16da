//! Lists of a manifest, none longer than a pod's may be.
//!
//! A `{}` of two bytes becomes a container of some 400: what is bounded is what a document becomes, not
//! its size alone.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::text::unexpected_str;

/// A list of at most [`MOST`] elements, and with those of the lists in it, at most [`MOST_IN_ALL`].
#[derive(Debug)]
pub(in crate::admission) struct Items<T>(Vec<T>);

/// An element of a list.
pub(in crate::admission) trait Item {
    /// How many elements it is, those of its own lists included.
    fn count(&self) -> usize {
        1
    }
}

/// The most elements of a list. etcd takes no object above 1.5 MiB, and no pod has nearly as many.
pub(super) const MAX_ITEMS: usize = 2_000;

/// The most elements of a list and the lists in it together: some 2 MiB as they are kept.
pub(super) const MAX_NESTED_ITEMS: usize = 10_000;

// === impl Items ===

impl<T: Item> Items<T> {
    /// How many elements a list has that may be missing, those of the lists in it included.
    pub(super) fn count(list: &Option<Self>) -> usize {
        list.iter().flat_map(|list| &list.0).map(T::count).sum()
    }
}

impl<T> Deref for Items<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'i, T> IntoIterator for &'i Items<T> {
    type Item = &'i T;
    type IntoIter = std::slice::Iter<'i, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Item + Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemsVisitor(PhantomData))
    }
}

struct ItemsVisitor<T>(PhantomData<T>);

impl<'de, T: Item + Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<T>, A::Error> {
        let mut items = Vec::new();
        let mut in_all = 0;
        while let Some(item) = list.next_element::<T>()? {
            in_all += item.count();
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom(format_args!(
                    "more than {MAX_ITEMS} elements"
                )));
            }
            if in_all > MAX_NESTED_ITEMS {
                let why =
                    format_args!("more than {MAX_NESTED_ITEMS} elements in its lists together");
                return Err(A::Error::custom(why));
            }
            items.push(item);
        }
        Ok(Items(items))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Items<T>, E> {
        Err(unexpected_str(text, &self))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::PodView;
    use super::*;

    /// Why a pod with these containers cannot be read; nothing if it can.
    fn decode_error(containers: &serde_json::Value) -> String {
        let pod = json!({"spec": {"containers": containers}}).to_string();
        let refused = PodView::decode(&pod).err();
        refused.map_or_else(String::new, |unread| unread.to_string())
    }

    #[test]
    fn a_list_may_have_so_many_elements_and_no_more() {
        assert_eq!(decode_error(&json!(vec![json!({}); MAX_ITEMS])), "");
        let why = decode_error(&json!(vec![json!({}); MAX_ITEMS + 1]));
        assert!(
            why.starts_with("spec.containers: more than 2000 elements"),
            "{why}"
        );
        let words = |count| json!([{"args": vec![""; count]}]);
        assert_eq!(decode_error(&words(MAX_ITEMS)), "");
        let why = decode_error(&words(MAX_ITEMS + 1));
        assert!(
            why.starts_with("spec.containers[0].args: more than 2000"),
            "{why}"
        );
    }

    #[test]
    fn lists_in_a_list_are_counted_together() {
        let container = json!({"args": vec![""; 999]});
        assert_eq!(decode_error(&json!(vec![container.clone(); 10])), "");
        let why = decode_error(&json!(vec![container; 11]));
        let want = "spec.containers: more than 10000 elements in its lists together";
        assert!(why.starts_with(want), "{why}");
    }
}
