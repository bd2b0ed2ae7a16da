//! The layout of each crate: no import circle between its modules. Which crate may use which is in their Cargo.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

const CRATES: [&str; 8] = [
    "drainer",
    "webhook",
    "webhook/admission",
    "webhook/ctl",
    "webhook/drill",
    "webhook/load",
    "webhook/manifest",
    "webhook/pki",
];

/// The modules that each module of a crate imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_have_no_import_circle() -> Result<()> {
    for name in CRATES {
        let mut imports = read_imports(name)?;
        assert!(imports.len() > 3, "{name}: {imports:?}");
        loop {
            let modules: BTreeSet<_> = imports.keys().cloned().collect();
            // What imports nothing that is left is in no circle.
            imports.retain(|_, used| used.iter().any(|module| modules.contains(module)));
            if imports.len() == modules.len() {
                break;
            }
        }
        assert!(imports.is_empty(), "import circles in {name}: {imports:#?}");
    }
    Ok(())
}

fn read_imports(name: &str) -> Result<Imports> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
        .join("src");
    let mut imports = Imports::new();
    for file in source_files(&src)? {
        let path = file.strip_prefix(&src)?;
        let module = path.iter().next().unwrap_or_default().to_string_lossy();
        let module = module.trim_end_matches(".rs").to_owned();
        // The same from a file in as many folders.
        let to_root = "super::".repeat(path.iter().count());
        let text = fs::read_to_string(&file)?.replace(&to_root, "crate::");
        let code = text
            .split("\n#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let paths = lines.flat_map(|line| line.split("crate::").skip(1));
        // One name, or several in braces.
        let names = paths.flat_map(|path| match path.strip_prefix('{') {
            Some(names) => names.split(", ").collect(),
            None => vec![path],
        });
        let used = names.map(|name| {
            let end = name.find(|c: char| c != '_' && !c.is_alphanumeric());
            name[..end.unwrap_or(name.len())].to_owned()
        });
        let of_module = imports.entry(module.clone()).or_default();
        of_module.extend(used.filter(|used| *used != module));
    }
    imports.remove("lib");
    imports.remove("main");
    Ok(imports)
}

/// The files of a directory but for those of tests.
fn source_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(source_files(&path)?);
        } else if !path.ends_with("tests.rs") && !path.ends_with("testing.rs") {
            files.push(path);
        }
    }
    Ok(files)
}
