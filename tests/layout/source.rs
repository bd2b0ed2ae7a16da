//! The source files of a crate, as far as the layout is read of them: their modules, what they import and name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::slice;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The segments of a path, such as `crate`, `plan`, `admin`, `read`.
pub(crate) type ItemPath = Vec<String>;

/// The files of a crate by the paths of their modules, that of the crate's root being empty.
pub(crate) type Modules = BTreeMap<ItemPath, Module>;

/// What is read of a file.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The `use` declarations, by the names that they declare.
    pub(crate) imports: BTreeMap<String, Import>,
    /// The paths in the code beside those, without the code of tests.
    pub(crate) paths: BTreeSet<ItemPath>,
    /// The identifiers in the code without that of tests.
    pub(crate) identifiers: BTreeSet<String>,
    /// The identifiers in the code of tests.
    pub(crate) test_identifiers: BTreeSet<String>,
    /// The modules that it declares, and whether they are for tests.
    children: Vec<(String, bool)>,
}

/// A name that a `use` declaration declares.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) path: ItemPath,
    /// Whether other modules may use the name: the file itself need not.
    pub(crate) is_public: bool,
}

/// Reads the files of a crate, beginning with that of its root.
pub(crate) fn read_modules(root: &Path) -> Result<Modules> {
    let folder = root.parent().context("the root is a file")?;
    let mut modules = Modules::new();
    let mut files = vec![(ItemPath::new(), root.to_owned(), false)];
    while let Some((path, file, is_test)) = files.pop() {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let tokens = text.parse::<TokenStream>();
        let tokens = tokens.map_err(|error| anyhow!("{}: {error}", file.display()))?;
        let mut module = Module::default();
        module.read(tokens, is_test);
        for (name, is_test) in &module.children {
            let child = [&*path, slice::from_ref(name)].concat();
            let file = folder.join(child.join("/")).with_extension("rs");
            files.push((child, file, *is_test));
        }
        modules.insert(path, module);
    }
    Ok(modules)
}

// === impl Module ===

impl Module {
    fn read(&mut self, tokens: TokenStream, is_test: bool) {
        let tokens = Vec::from_iter(tokens);
        let mut rest = &*tokens;
        while !rest.is_empty() {
            rest = self.read_next(rest, is_test);
        }
    }

    /// Reads what the tokens begin with, and returns the others.
    fn read_next<'t>(&mut self, tokens: &'t [TokenTree], is_test: bool) -> &'t [TokenTree] {
        match tokens {
            [
                TokenTree::Punct(hash),
                TokenTree::Group(attribute),
                rest @ ..,
            ] if hash.as_char() == '#' && is_of_tests(&attribute.stream().to_string()) => {
                let (item, rest) = split_item(rest);
                self.read(item.iter().cloned().collect(), true);
                rest
            }
            [
                TokenTree::Ident(keyword),
                TokenTree::Ident(name),
                TokenTree::Punct(end),
                rest @ ..,
            ] if keyword == "mod" && end.as_char() == ';' => {
                self.children.push((name.to_string(), is_test));
                rest
            }
            [TokenTree::Ident(keyword), rest @ ..] if keyword == "use" => {
                self.read_use(rest, false, is_test)
            }
            [
                TokenTree::Ident(public),
                TokenTree::Ident(keyword),
                rest @ ..,
            ] if public == "pub" && keyword == "use" => self.read_use(rest, true, is_test),
            [
                TokenTree::Ident(public),
                TokenTree::Group(_),
                TokenTree::Ident(keyword),
                rest @ ..,
            ] if public == "pub" && keyword == "use" => self.read_use(rest, true, is_test),
            [TokenTree::Ident(_), ..] => {
                let (path, rest) = split_path(tokens);
                self.add_identifiers(&path, is_test);
                if !is_test {
                    self.paths.insert(path);
                }
                rest
            }
            [TokenTree::Group(group), rest @ ..] => {
                self.read(group.stream(), is_test);
                rest
            }
            [_, rest @ ..] => rest,
            [] => &[],
        }
    }

    fn read_use<'t>(
        &mut self,
        tokens: &'t [TokenTree],
        is_public: bool,
        is_test: bool,
    ) -> &'t [TokenTree] {
        let end = tokens.iter().position(|token| is_punct(token, ';'));
        let (tree, rest) = tokens.split_at(end.unwrap_or(tokens.len()));
        for (name, path) in used_names(&Vec::new(), tree) {
            self.add_identifiers(&path, is_test);
            if !is_test {
                self.imports.insert(name, Import { path, is_public });
            }
        }
        rest
    }

    fn add_identifiers(&mut self, path: &[String], is_test: bool) {
        let identifiers = if is_test {
            &mut self.test_identifiers
        } else {
            &mut self.identifiers
        };
        identifiers.extend(path.iter().cloned());
    }
}

/// Whether an attribute is that of an item that exists in tests only.
fn is_of_tests(attribute: &str) -> bool {
    let is_condition = attribute.starts_with("cfg") && !attribute.contains("not");
    let is_test_function = attribute == "test" || attribute.starts_with("tokio :: test");
    is_test_function
        || is_condition && (attribute.contains("test") || attribute.contains("fuzzing"))
}

/// Splits the tokens after the item that they begin with.
fn split_item(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    let is_use = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "use");
    let is_use = tokens.iter().take(3).any(is_use);
    let end = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => !is_use && group.delimiter() == Delimiter::Brace,
        token => is_punct(token, ';'),
    });
    tokens.split_at(end.map_or(tokens.len(), |end| end + 1))
}

/// Splits the tokens after the path that they begin with.
fn split_path(tokens: &[TokenTree]) -> (ItemPath, &[TokenTree]) {
    let mut path = ItemPath::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(name), after @ ..] = rest {
        path.push(name.to_string());
        rest = after;
        match after {
            [one, other, after @ ..] if is_punct(one, ':') && is_punct(other, ':') => rest = after,
            _ => break,
        }
    }
    (path, rest)
}

/// The names that the tree of a `use` declaration declares, with their paths.
fn used_names(prefix: &ItemPath, tree: &[TokenTree]) -> Vec<(String, ItemPath)> {
    let mut names = Vec::new();
    for branch in tree.split(|token| is_punct(token, ',')) {
        let (path, rest) = split_path(branch);
        let path = [&**prefix, &path].concat();
        match rest {
            [TokenTree::Group(branches)] => {
                names.extend(used_names(&path, &Vec::from_iter(branches.stream())));
            }
            // `as`, and the other name.
            [TokenTree::Ident(_), TokenTree::Ident(name)] => names.push((name.to_string(), path)),
            // All names of a module.
            [_] => names.push((path.join("::"), path)),
            _ => {
                let path = path.strip_suffix(&["self".to_owned()]).unwrap_or(&path);
                names.extend(path.last().map(|name| (name.clone(), path.to_owned())));
            }
        }
    }
    names
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}
