//! The layout of both crates: no import cycle between files, `admission` pure, `manifest` without Kubernetes, and
//! no two public types with the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Token, UseTree, Visibility};

/// Crates and modules that `admission` may not use: it takes bytes and returns bytes, without I/O or clocks.
const IMPURE: [&str; 15] = [
    "tokio",
    "kube",
    "hyper",
    "axum",
    "rustls",
    "rcgen",
    "prometheus_client",
    "std::env",
    "std::fs",
    "std::process",
    "std::thread",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Type names that may be declared more than once: each command's arguments and each module's metrics, which are
/// always written with their module, and private mirrors of Envoy's own formats.
const SHARED_NAMES: [&str; 6] = [
    "Args",
    "Server",
    "Metrics",
    "Address",
    "SocketAddress",
    "Pipe",
];

/// The module path of a file: `admission::plan`; empty for `lib.rs`.
type ModulePath = Vec<String>;

/// The modules of one crate, by path.
struct Crate(BTreeMap<ModulePath, Module>);

/// What a file defines, re-exports and mentions, without its unit tests.
#[derive(Default)]
struct Module {
    items: BTreeSet<String>,
    types: BTreeSet<String>,
    reexports: Vec<Import>,
    imports: Vec<Import>,
    paths: Vec<Vec<String>>,
}

/// A `use` of one name, or of all (`*`).
struct Import {
    name: String,
    path: Vec<String>,
}

#[test]
fn files_have_no_import_cycle() {
    for name in ["drainer", "webhook"] {
        let krate = Crate::read(name);
        let edges: BTreeMap<_, _> = krate
            .0
            .keys()
            .map(|of| (of, krate.dependencies(of)))
            .collect();
        let mut cycles = BTreeMap::new();
        for start in edges.keys() {
            if let Some(cycle) = cycle_through(start, &edges) {
                let steps: Vec<_> = cycle
                    .windows(2)
                    .map(|pair| {
                        let names = &edges[pair[0]][pair[1]];
                        format!(
                            "{} uses {names:?} of {}",
                            pair[0].join("::"),
                            pair[1].join("::")
                        )
                    })
                    .collect();
                let files: BTreeSet<_> = cycle.into_iter().collect();
                cycles.insert(files, steps.join(", "));
            }
        }
        let cycles: Vec<_> = cycles.into_values().collect();
        assert!(cycles.is_empty(), "import cycles in {name}: {cycles:#?}");
    }
}

#[test]
fn admission_is_pure() {
    let webhook = Crate::read("webhook");
    for (module, path) in webhook.paths_under("admission") {
        let text = path.join("::");
        let used = |what: &&str| text == **what || text.starts_with(&format!("{what}::"));
        assert!(!IMPURE.iter().any(used), "{module} uses {text}");
        assert!(
            path[0] != "tracing" || path.get(1).is_some_and(|name| name == "Level"),
            "{module} uses {text}"
        );
        assert!(
            path[0] != "crate" || path.get(1).is_some_and(|name| name == "admission"),
            "{module} uses {text}"
        );
    }
}

#[test]
fn manifest_does_not_use_kubernetes() {
    let webhook = Crate::read("webhook");
    for (module, path) in webhook.paths_under("manifest") {
        let text = path.join("::");
        assert!(
            !["kube", "k8s_openapi", "drainer"].contains(&&*path[0]),
            "{module} uses {text}"
        );
        assert!(
            path[0] != "crate" || path.get(1).is_some_and(|name| name == "manifest"),
            "{module} uses {text}"
        );
    }
}

#[test]
fn public_types_have_distinct_names() {
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in ["drainer", "webhook"] {
        for (path, module) in Crate::read(name).0 {
            for item in module
                .types
                .into_iter()
                .filter(|item| !SHARED_NAMES.contains(&&**item))
            {
                declared
                    .entry(item)
                    .or_default()
                    .push(format!("{name}::{}", path.join("::")));
            }
        }
    }
    declared.retain(|_, modules| modules.len() > 1);
    assert!(declared.is_empty(), "{declared:#?}");
}

/// Returns the shortest import cycle through a file, if there is one.
fn cycle_through<'a>(
    start: &'a ModulePath,
    edges: &'a BTreeMap<&ModulePath, BTreeMap<ModulePath, BTreeSet<String>>>,
) -> Option<Vec<&'a ModulePath>> {
    let mut queue = vec![vec![start]];
    let mut visited = BTreeSet::new();
    while !queue.is_empty() {
        let mut extended = Vec::new();
        for path in queue {
            for next in edges
                .get(path[path.len() - 1])
                .into_iter()
                .flat_map(BTreeMap::keys)
            {
                let path = [&path[..], &[next]].concat();
                if next == start {
                    return Some(path);
                }
                if visited.insert(next) {
                    extended.push(path);
                }
            }
        }
        queue = extended;
    }
    None
}

// === impl Crate ===

impl Crate {
    fn read(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(name)
            .join("src");
        let mut this = Self(BTreeMap::new());
        this.read_file(&root, &root.join("lib.rs"), Vec::new());
        assert!(this.0.len() > 10, "{name}: {} modules", this.0.len());
        this
    }

    fn read_file(&mut self, root: &Path, file: &Path, path: ModulePath) {
        let text =
            fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let syntax =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut module = Module::default();
        module.visit_file(&syntax);
        for item in &syntax.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
                && !is_test(&child.attrs)
            {
                let path = [&path[..], &[child.ident.to_string()]].concat();
                let file = root.join(path.join("/")).with_extension("rs");
                self.read_file(root, &file, path);
            }
        }
        self.0.insert(path, module);
    }

    /// Returns the files that a file imports names from, and the names.
    fn dependencies(&self, of: &ModulePath) -> BTreeMap<ModulePath, BTreeSet<String>> {
        let module = &self.0[of];
        let imports = module.imports.iter().map(|import| &import.path);
        let mut found: BTreeMap<ModulePath, BTreeSet<String>> = BTreeMap::new();
        for path in imports.chain(&module.paths) {
            if let Some((file, name)) = self.definition(of, path, 0)
                && file != *of
            {
                found.entry(file).or_default().insert(name);
            }
        }
        found
    }

    /// Returns the file that defines the item that `path` refers to in the module `at`, and the item's name there.
    ///
    /// Gives up after 16 re-exports.
    fn definition(
        &self,
        at: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<(ModulePath, String)> {
        if depth > 16 {
            return None;
        }
        let mut at = at.clone();
        let mut rest = path;
        match &*rest.first()?.clone() {
            "crate" => (at, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let child = [&at[..], &[first.to_owned()]].concat();
                if !self.0.contains_key(&child) {
                    let alias = self.0[&at]
                        .imports
                        .iter()
                        .find(|import| import.name == first)?;
                    let path = [&alias.path[..], &rest[1..]].concat();
                    return match alias.path == rest {
                        true => None,
                        false => self.definition(&at, &path, depth + 1),
                    };
                }
            }
        }
        while let Some(name) = rest.first() {
            if name == "super" {
                at.pop()?;
                rest = &rest[1..];
                continue;
            }
            let child = [&at[..], std::slice::from_ref(name)].concat();
            let module = self.0.get(&at)?;
            if self.0.contains_key(&child) && !(rest.len() == 1 && module.items.contains(name)) {
                (at, rest) = (child, &rest[1..]);
            } else if module.items.contains(name) {
                return Some((at, name.clone()));
            } else {
                let source = module
                    .reexports
                    .iter()
                    .find(|import| import.name == *name)?;
                return self.definition(&at, &source.path, depth + 1);
            }
        }
        None
    }

    /// Returns every path that the files of a module and its children mention, each with its file.
    fn paths_under<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (String, &'a Vec<String>)> {
        let of_module = self
            .0
            .iter()
            .filter(move |(path, _)| path.first().is_some_and(|first| first == name));
        of_module.flat_map(|(path, module)| {
            let imports = module
                .imports
                .iter()
                .chain(&module.reexports)
                .map(|import| &import.path);
            imports
                .chain(&module.paths)
                .map(|used| (path.join("::"), used))
        })
    }
}

// === impl Module ===

impl Module {
    fn define(&mut self, name: &syn::Ident) {
        self.items.insert(name.to_string());
    }

    fn define_type(&mut self, name: &syn::Ident, vis: &Visibility) {
        self.define(name);
        if matches!(vis, Visibility::Public(_)) {
            self.types.insert(name.to_string());
        }
    }

    fn add_imports(&mut self, tree: &UseTree, path: &[String], is_public: bool) {
        let mut add = |name: String, path: Vec<String>| {
            let imports = if is_public {
                &mut self.reexports
            } else {
                &mut self.imports
            };
            imports.push(Import { name, path });
        };
        match tree {
            UseTree::Path(step) => {
                self.add_imports(
                    &step.tree,
                    &[path, &[step.ident.to_string()]].concat(),
                    is_public,
                );
            }
            UseTree::Name(name) if name.ident == "self" => {
                add(path.last().cloned().unwrap_or_default(), path.to_vec());
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                add(name.clone(), [path, &[name]].concat());
            }
            UseTree::Rename(rename) => {
                let path = [path, &[rename.ident.to_string()]].concat();
                add(rename.rename.to_string(), path);
            }
            UseTree::Glob(_) => {}
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_imports(tree, path, is_public);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(inline) if is_test(&inline.attrs) || inline.content.is_none() => return,
            Item::Fn(function) if is_test(&function.attrs) => return,
            Item::Impl(block) if is_test(&block.attrs) => return,
            Item::Use(import) if is_test(&import.attrs) => return,
            Item::Fn(function) => self.define(&function.sig.ident),
            Item::Const(constant) => self.define(&constant.ident),
            Item::Static(value) => self.define(&value.ident),
            Item::Struct(of) => self.define_type(&of.ident, &of.vis),
            Item::Enum(of) => self.define_type(&of.ident, &of.vis),
            Item::Trait(of) => self.define_type(&of.ident, &of.vis),
            Item::Type(of) => self.define_type(&of.ident, &of.vis),
            Item::Use(import) => {
                let is_public = !matches!(import.vis, Visibility::Inherited);
                self.add_imports(&import.tree, &[], is_public);
                return;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string());
            self.paths.push(segments.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let arguments = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated);
        for argument in arguments.iter().flatten() {
            self.visit_expr(argument);
        }
        visit::visit_macro(self, call);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|option| option.is_ident("test"))
    })
}
