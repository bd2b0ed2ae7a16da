//! Lists of a manifest, bounded in length.
//!
//! The bound is on what a document becomes in memory, not on its size alone: a `{}` of two bytes becomes a
//! container of some 400.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::deserialize::unexpected_str;

/// A list of at most [`MAX_ITEMS`] elements, and at most [`MAX_NESTED_ITEMS`] with those of the lists in it.
#[derive(Debug, Clone)]
pub(crate) struct Items<T>(Vec<T>);

/// An element of a list.
pub(crate) trait Item {
    /// Counts the element, those of its own lists included.
    fn count(&self) -> usize {
        1
    }
}

/// Maximum number of elements of a list. No pod comes near it: etcd stores no object above 1.5 MiB.
pub(super) const MAX_ITEMS: usize = 2_000;

/// Maximum number of elements of a list and the lists in it together: some 2 MiB in memory.
pub(super) const MAX_NESTED_ITEMS: usize = 10_000;

// === impl Items ===

impl<T: Item> Items<T> {
    /// Counts the elements of a list, those of the lists in it included; a missing list has none.
    pub(super) fn count(list: &Option<Self>) -> usize {
        list.iter().flat_map(|list| &list.0).map(T::count).sum()
    }
}

impl<T> Items<T> {
    /// Removes an element.
    pub(super) fn remove(&mut self, index: usize) {
        self.0.remove(index);
    }
}

impl<T> Deref for Items<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for Items<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
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
        let mut count = 0;
        while let Some(item) = list.next_element::<T>()? {
            count += item.count();
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom(format_args!(
                    "more than {MAX_ITEMS} elements"
                )));
            }
            if count > MAX_NESTED_ITEMS {
                let reason =
                    format_args!("more than {MAX_NESTED_ITEMS} elements in its lists together");
                return Err(A::Error::custom(reason));
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

    /// Returns the error of a pod with these containers; empty if it decodes.
    fn decode_error(containers: &serde_json::Value) -> String {
        let pod = json!({"spec": {"containers": containers}}).to_string();
        let error = PodView::decode(&pod).err();
        error.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn list_is_bounded() {
        assert_eq!(decode_error(&json!(vec![json!({}); MAX_ITEMS])), "");
        let error = decode_error(&json!(vec![json!({}); MAX_ITEMS + 1]));
        assert!(
            error.starts_with("spec.containers: more than 2000 elements"),
            "{error}"
        );
        let words = |count| json!([{"args": vec![""; count]}]);
        assert_eq!(decode_error(&words(MAX_ITEMS)), "");
        let error = decode_error(&words(MAX_ITEMS + 1));
        assert!(
            error.starts_with("spec.containers[0].args: more than 2000"),
            "{error}"
        );
    }

    #[test]
    fn nested_lists_are_counted_together() {
        let container = json!({"args": vec![""; 999]});
        assert_eq!(decode_error(&json!(vec![container.clone(); 10])), "");
        let error = decode_error(&json!(vec![container; 11]));
        let want = "spec.containers: more than 10000 elements in its lists together";
        assert!(error.starts_with(want), "{error}");
    }
}
