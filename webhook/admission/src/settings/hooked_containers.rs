//! `extra-lifecycle-hooks`: the containers besides Envoy's that wait for the drain before they get SIGTERM.

use std::collections::BTreeSet;

use drainer::{InvalidValue, SettingValue};

use crate::names::is_dns_label;

/// `extra-lifecycle-hooks`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HookedContainers {
    #[default]
    None,
    /// Every container that can have a hook.
    All,
    /// The containers with these names, from 1 to 64.
    Named(BTreeSet<String>),
}

/// Maximum number of containers of a pod that wait for its drain. The drainer takes more than a hundred connections at
/// once for a flood.
pub(crate) const MAX_HOOKED_CONTAINERS: usize = 64;

impl SettingValue for HookedContainers {
    fn set(&mut self, text: &str) -> Result<(), InvalidValue> {
        if text.trim() == "*" {
            *self = Self::All;
            return Ok(());
        }
        let names: BTreeSet<_> = text.split(',').map(str::trim).collect();
        if let Some(name) = names.iter().find(|name| !is_dns_label(name)) {
            let expected = "expected names of containers such as app,worker, or * for all";
            return Err(InvalidValue::new("name", name, expected));
        }
        if names.len() > MAX_HOOKED_CONTAINERS {
            let expected = format!("expected at most {MAX_HOOKED_CONTAINERS} names, or * for all");
            return Err(InvalidValue::new("list", text, expected));
        }
        *self = Self::Named(names.into_iter().map(str::to_owned).collect());
        Ok(())
    }

    fn format(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::All => "*".to_owned(),
            Self::Named(names) => Vec::from_iter(names.iter().map(String::as_str)).join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        let long = "a".repeat(63);
        let many: Vec<_> = (0..=64).map(|n| format!("c{n}")).collect();
        let table = [
            ("*", Ok("*")),
            (" * ", Ok("*")),
            ("app", Ok("app")),
            ("worker, app ,app", Ok("app,worker")),
            ("istio-proxy,0", Ok("0,istio-proxy")),
            (&long, Ok(&*long)),
            ("", Err("invalid name ``: expected names")),
            ("app,", Err("invalid name ``: expected names")),
            ("app,*", Err("invalid name `*`: expected names")),
            (
                "app worker",
                Err("invalid name `app worker`: expected names"),
            ),
            ("App", Err("invalid name `App`: expected names")),
            ("-a", Err("invalid name `-a`: expected names")),
            ("a-", Err("invalid name `a-`: expected names")),
            ("a/../b", Err("invalid name `a/../b`: expected names")),
            (&format!("{long}a"), Err("invalid name `aaa")),
            (&many.join(","), Err("invalid list `c0,c1,")),
        ];
        for (text, want) in table {
            let mut containers = HookedContainers::None;
            let got = containers.set(text).map(|()| containers.format());
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{text}"),
                (Err(error), Err(want)) => {
                    assert!(error.to_string().starts_with(want), "{text}: {error}");
                    assert_eq!(containers, HookedContainers::None, "{text}");
                }
                (got, want) => panic!("{text}: {got:?}, {want:?}"),
            }
        }
        let mut most = HookedContainers::None;
        assert_eq!(most.set(&many[..64].join(",")), Ok(()));
    }
}
