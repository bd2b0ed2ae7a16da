//! The layout of each crate: no import circle between its files, and no dependency that its code does not use. Which
//! crate may use which is in their Cargo.toml.

mod imports;
mod source;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use imports::import_circles;
use source::read_modules;

/// The kinds of targets that are the product of a package.
const PRODUCT: [&str; 2] = ["bin", "lib"];

#[test]
fn files_have_no_import_circle() -> Result<()> {
    let (mut files, mut circles) = (0, Vec::new());
    for package in packages()? {
        for root in roots(&package, |_| true)? {
            let modules = read_modules(&root)?;
            files += modules.len();
            for (file, imported) in import_circles(&modules) {
                let imported = imported.iter().map(|file| file.join("::"));
                let imported = Vec::from_iter(imported).join(", ");
                circles.push(format!(
                    "{}: {} ► {imported}",
                    root.display(),
                    file.join("::")
                ));
            }
        }
    }
    assert!(circles.is_empty(), "in circles:\n{}", circles.join("\n"));
    assert!(files > 400, "only {files} files were read");
    Ok(())
}

#[test]
fn every_dependency_is_used() -> Result<()> {
    let mut unused = Vec::new();
    for package in packages()? {
        let (mut product, mut tests) = (BTreeSet::new(), BTreeSet::new());
        for root in roots(&package, |kind| PRODUCT.contains(&kind))? {
            for module in read_modules(&root)?.into_values() {
                product.extend(module.identifiers);
                tests.extend(module.test_identifiers);
            }
        }
        for root in roots(&package, |kind| !PRODUCT.contains(&kind))? {
            for module in read_modules(&root)?.into_values() {
                tests.extend(module.identifiers);
                tests.extend(module.test_identifiers);
            }
        }
        for dependency in list(&package["dependencies"]) {
            let name = dependency["name"].as_str().context("no name")?;
            let (users, kind) = match dependency["kind"].as_str() {
                Some(_) => (&tests, "in its tests"),
                None => (&product, "beside its tests"),
            };
            if !users.contains(&name.replace('-', "_")) {
                unused.push(format!("{} does not use {name} {kind}", package["name"]));
            }
        }
    }
    assert!(unused.is_empty(), "{}", unused.join("\n"));
    Ok(())
}

/// The packages of the workspace, as `cargo metadata` describes them.
fn packages() -> Result<Vec<Value>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--no-deps", "--format-version=1"])
        .output()?;
    ensure!(output.status.success(), "cargo metadata failed");
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(serde_json::from_value(metadata["packages"].take())?)
}

/// The files with the roots of a package's targets of some kinds.
fn roots(package: &Value, is_kind: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let targets = list(&package["targets"]);
    let targets = targets.filter(|it| {
        let mut kinds = list(&it["kind"]).filter_map(Value::as_str);
        kinds.any(&is_kind)
    });
    let roots = targets.map(|it| it["src_path"].as_str().map(PathBuf::from));
    roots.map(|path| path.context("no src_path")).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
