//! Which files of a crate import from which.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use crate::source::{ItemPath, Module, Modules};

/// The number of declarations through which a name is followed to the file that defines it.
const MAX_DECLARATIONS: usize = 8;

/// Returns the files in import circles, each with those of its circles that it imports from.
pub(crate) fn import_circles(modules: &Modules) -> BTreeMap<ItemPath, BTreeSet<ItemPath>> {
    let imports = modules.iter().map(|(path, module)| {
        let mut files = imported_files(path, module, modules);
        files.remove(path);
        (path.clone(), files)
    });
    let mut imports: BTreeMap<_, _> = imports.collect();
    let mut reached = imports.clone();
    loop {
        let before = reached.clone();
        for files in reached.values_mut() {
            let further = files.iter().filter_map(|file| before.get(file)).flatten();
            *files = files.union(&further.cloned().collect()).cloned().collect();
        }
        if reached == before {
            break;
        }
    }
    for (path, files) in &mut imports {
        files.retain(|file| reached[file].contains(path));
    }
    imports.retain(|_, files| !files.is_empty());
    imports
}

/// Returns the files that define what a file names: in its code, or in a declaration that is for this file alone, since
/// that may be a trait whose methods it calls.
fn imported_files(path: &[String], module: &Module, modules: &Modules) -> BTreeSet<ItemPath> {
    let declared = module.imports.values().filter(|import| !import.is_public);
    let paths = declared.map(|import| &import.path).chain(&module.paths);
    let files = paths.filter_map(|named| defining_file(named, path, modules, 0));
    files.collect()
}

/// Returns the file that defines what a path in the file of `module` names; `None` if that is a module, or in another
/// crate.
fn defining_file(
    path: &[String],
    module: &[String],
    modules: &Modules,
    declarations: usize,
) -> Option<ItemPath> {
    if declarations > MAX_DECLARATIONS {
        return None;
    }
    let (mut file, mut rest) = match path {
        [first, rest @ ..] if first == "crate" => (Vec::new(), rest),
        [first, rest @ ..] if first == "self" => (module.to_vec(), rest),
        [first, rest @ ..] if first == "super" => (module.split_last()?.1.to_vec(), rest),
        _ => (module.to_vec(), path),
    };
    while let [name, after @ ..] = rest {
        let child = [&*file, slice::from_ref(name)].concat();
        let import = modules.get(&file)?.imports.get(name);
        if name == "super" {
            file.pop();
        } else if modules.contains_key(&child) {
            file = child;
        } else if let Some(import) = import
            && import.path != slice::from_ref(name)
        {
            let path = [&import.path, after].concat();
            return defining_file(&path, &file, modules, declarations + 1);
        } else {
            // A path that begins with it is of the same file, or of another crate.
            let is_first = rest.len() == path.len();
            return (!is_first).then_some(file);
        }
        rest = after;
    }
    None
}
