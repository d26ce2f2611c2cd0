//! Finds circular dependencies between the files of a crate.
//!
//! A file depends on the file that defines an item which it names in a path or an import.
//! Re-exports are followed to the definition. Three things do not count: declarations of modules,
//! re-exports, and code under `#[cfg(test)]`. A module and the files of its folder count as one
//! file.

mod calls;
mod graph;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

pub(crate) use self::calls::CallCircle;
use self::calls::Impl;
use self::graph::Graph;

/// Names from the root of a crate, `[]` for the root itself.
type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    file: PathBuf,
    children: BTreeSet<String>,
    /// Names that it defines.
    items: BTreeSet<String>,
    /// By the name that they have here.
    imports: BTreeMap<String, Import>,
    globs: Vec<Vec<String>>,
    /// Paths that its code names, each with its line.
    mentions: Vec<(Vec<String>, usize)>,
    impls: Vec<Impl>,
}

struct Import {
    path: Vec<String>,
    line: usize,
    /// A re-export, which is an edge only if this module also uses the item.
    is_passed_on: bool,
}

/// Each edge with the name and the line of the first mention.
type Edges = Graph<(String, usize)>;

/// A crate's modules.
#[derive(Default)]
pub(crate) struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// One finding for each circle of imports in a crate of the repository at `root`.
pub(crate) fn findings(root: &Path, modules: &Crate) -> Vec<String> {
    let edges = modules.edges();
    let name = |file: &Path| file.strip_prefix(root).unwrap_or(file).display().to_string();
    graph::circles(&edges).iter().map(|circle| describe(circle, &edges, name)).collect()
}

/// The circles of calls between the files of a type.
pub(crate) fn of_calls(root: &Path, modules: &Crate) -> Vec<CallCircle> {
    calls::find(root, modules)
}

/// The shortest path around the circle, and all its files.
fn describe(circle: &BTreeSet<PathBuf>, edges: &Edges, name: impl Fn(&Path) -> String) -> String {
    let way = graph::shortest_way(circle, edges);
    let steps = way.iter().zip(way.iter().skip(1));
    let steps: Vec<String> = steps
        .map(|(from, to)| {
            let (what, line) = &edges[from][to];
            format!("{}:{line} uses {what} of {}", name(from), name(to))
        })
        .collect();
    let at = way.first().map(|file| name(file)).unwrap_or_default();
    let all: Vec<String> = circle.iter().map(|file| name(file)).collect();
    let count = circle.len();
    format!("{at}:1: a circle of {count} files: {}; all: {}", steps.join(", "), all.join(" "))
}

impl Crate {
    /// Reads the crate whose first file is `root_file`.
    pub(crate) fn read_from(root_file: &Path) -> anyhow::Result<Self> {
        let folder = root_file.parent().context("a file has no folder")?;
        let mut modules = Self::default();
        modules.read(root_file, folder, Vec::new())?;
        Ok(modules)
    }
    /// Reads `file`, which is module `at`. Its children are in `folder` unless they have a `path`.
    fn read(&mut self, file: &Path, folder: &Path, at: ModulePath) -> anyhow::Result<()> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        self.add(&parsed.items, file, folder, at)
    }

    fn add(
        &mut self,
        items: &[syn::Item],
        file: &Path,
        folder: &Path,
        at: ModulePath,
    ) -> anyhow::Result<()> {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        let items = items.iter().filter(|item| !is_test(attributes(item)));
        for item in items {
            let syn::Item::Mod(child) = item else {
                module.items.extend(defined_name(item));
                Reader(&mut module).visit_item(item);
                continue;
            };
            let name = child.ident.to_string();
            let path: ModulePath = at.iter().cloned().chain([name.clone()]).collect();
            let inner = folder.join(&name);
            module.children.insert(name.clone());
            match (&child.content, own_path(&child.attrs)) {
                (Some((_, items)), _) => self.add(items, file, &inner, path)?,
                (None, Some(own)) => {
                    let of = file.parent().unwrap_or(folder).join(own);
                    self.read(&of, of.parent().unwrap_or(folder), path)?;
                }
                (None, None) => {
                    let beside = folder.join(format!("{name}.rs"));
                    let within = inner.join("mod.rs");
                    let of = if beside.is_file() { beside } else { within };
                    self.read(&of, &inner, path)?;
                }
            }
        }
        // Two modules may have one path, under different `cfg`. They count as one.
        let known = self.modules.entry(at).or_default();
        known.file = module.file;
        known.children.extend(module.children);
        known.items.extend(module.items);
        known.imports.extend(module.imports);
        known.globs.extend(module.globs);
        known.mentions.extend(module.mentions);
        known.impls.extend(module.impls);
        Ok(())
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (at, module) in &self.modules {
            let is_used = |name: &str| {
                module.mentions.iter().any(|(path, _)| path.first().is_some_and(|it| it == name))
            };
            let imports = module
                .imports
                .iter()
                .filter(|(name, import)| !import.is_passed_on || is_used(name))
                .map(|(_, import)| (&import.path, import.line));
            // A single name is an import, or comes from a glob import.
            let paths = module.mentions.iter();
            let paths = paths.filter(|(path, _)| path.len() > 1 || !module.globs.is_empty());
            for (path, line) in imports.chain(paths.map(|(path, line)| (path, *line))) {
                let Some(to) = self.definition(at, path, Depth(0)) else { continue };
                let is_one_module = to.starts_with(at) || at.starts_with(&to);
                let to = self.modules[&to].file.clone();
                if !is_one_module && to != module.file {
                    let what = path.last().cloned().unwrap_or_default();
                    let from = edges.entry(module.file.clone()).or_default();
                    from.entry(to).or_insert((what, line));
                }
            }
        }
        edges
    }

    /// The module that `path` names in module `at`, if it is one of this crate.
    fn module(&self, at: &ModulePath, path: &[String], depth: Depth) -> Option<ModulePath> {
        let depth = depth.deeper()?;
        let mut now = at.clone();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => now.clear(),
                "self" => {}
                "super" => drop(now.pop()?),
                _ => {
                    let module = self.modules.get(&now)?;
                    if module.children.contains(name) {
                        now.push(name.clone());
                        continue;
                    }
                    let import = module.imports.get(name)?;
                    let path: Vec<String> =
                        import.path.iter().chain(&path[index + 1..]).cloned().collect();
                    return self.module(&now, &path, depth);
                }
            }
        }
        Some(now)
    }

    /// The module that defines what `path` names in module `at`; none if it is of another crate.
    fn definition(&self, at: &ModulePath, path: &[String], depth: Depth) -> Option<ModulePath> {
        let depth = depth.deeper()?;
        let (mut now, mut rest) = (at.clone(), path);
        let mut is_anchored = false;
        while let Some((first, left)) = rest.split_first() {
            match first.as_str() {
                "crate" => now.clear(),
                "self" => {}
                "super" => drop(now.pop()?),
                _ => break,
            }
            (rest, is_anchored) = (left, true);
        }
        loop {
            let module = self.modules.get(&now)?;
            let Some((first, left)) = rest.split_first() else { return Some(now) };
            if module.children.contains(first) {
                now.push(first.clone());
                (rest, is_anchored) = (left, true);
                continue;
            }
            if let Some(import) = module.imports.get(first)
                && import.path != path
            {
                let path: Vec<String> = import.path.iter().chain(left).cloned().collect();
                return self.definition(&now, &path, depth);
            }
            if module.items.contains(first) {
                return Some(now);
            }
            let through = module.globs.iter().find_map(|glob| {
                let to = self.module(&now, glob, depth)?;
                let named = std::slice::from_ref(first);
                self.definition(&to, named, depth)
            });
            // Items that a macro defines are unknown here.
            return through.or_else(|| is_anchored.then_some(now));
        }
    }
}

/// Limits how many imports are followed, since imports may form a loop.
#[derive(Clone, Copy)]
struct Depth(u32);

impl Depth {
    fn deeper(self) -> Option<Self> {
        (self.0 < 32).then_some(Self(self.0 + 1))
    }
}

fn defined_name(item: &syn::Item) -> Option<String> {
    use syn::Item as I;
    let name = match item {
        I::Const(it) => &it.ident,
        I::Enum(it) => &it.ident,
        I::Fn(it) => &it.sig.ident,
        I::Macro(it) => it.ident.as_ref()?,
        I::Static(it) => &it.ident,
        I::Struct(it) => &it.ident,
        I::Trait(it) => &it.ident,
        I::Type(it) => &it.ident,
        I::Union(it) => &it.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item as I;
    match item {
        I::Const(it) => &it.attrs,
        I::Enum(it) => &it.attrs,
        I::ExternCrate(it) => &it.attrs,
        I::Fn(it) => &it.attrs,
        I::ForeignMod(it) => &it.attrs,
        I::Impl(it) => &it.attrs,
        I::Macro(it) => &it.attrs,
        I::Mod(it) => &it.attrs,
        I::Static(it) => &it.attrs,
        I::Struct(it) => &it.attrs,
        I::Trait(it) => &it.attrs,
        I::Type(it) => &it.attrs,
        I::Union(it) => &it.attrs,
        I::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Whether these attributes restrict an item to tests.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test"))
    })
}

fn own_path(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else {
            return None;
        };
        pair.path.is_ident("path").then(|| text.value())
    })
}

/// Notes what an item names.
struct Reader<'a>(&'a mut Module);

impl Reader<'_> {
    fn import(&mut self, tree: &syn::UseTree, mut path: Vec<String>, is_passed_on: bool) {
        match tree {
            syn::UseTree::Path(it) => {
                path.push(it.ident.to_string());
                self.import(&it.tree, path, is_passed_on);
            }
            syn::UseTree::Group(it) => {
                it.items.iter().for_each(|tree| self.import(tree, path.clone(), is_passed_on));
            }
            syn::UseTree::Glob(_) => self.0.globs.push(path),
            syn::UseTree::Name(it) => self.name(&it.ident, &it.ident, path, is_passed_on),
            syn::UseTree::Rename(it) => self.name(&it.ident, &it.rename, path, is_passed_on),
        }
    }

    fn name(&mut self, of: &syn::Ident, here: &syn::Ident, mut path: Vec<String>, pass: bool) {
        let line = of.span().start().line;
        let mut here = here.to_string();
        if of == "self" {
            here = path.last().cloned().unwrap_or_default();
        } else {
            path.push(of.to_string());
        }
        // `as _` imports no name, and may occur several times.
        let here = if here == "_" { format!("_ {}", path.join("::")) } else { here };
        self.0.imports.insert(here, Import { path, line, is_passed_on: pass });
    }

    /// Paths in the arguments of a macro, which may not parse as Rust.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens.into_iter().map(Some).chain([None]) {
            match &token {
                Some(TokenTree::Punct(punct)) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                Some(TokenTree::Ident(ident)) if colons == 2 && !run.is_empty() => {
                    run.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                _ => {}
            }
            if !run.is_empty() {
                self.0.mentions.push((std::mem::take(&mut run), line));
            }
            colons = 0;
            match token {
                Some(TokenTree::Ident(ident)) => {
                    line = ident.span().start().line;
                    run.push(ident.to_string());
                }
                Some(TokenTree::Group(group)) => self.tokens(group.stream()),
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_passed_on = !matches!(item.vis, syn::Visibility::Inherited);
        let path = if item.leading_colon.is_some() { vec!["::".into()] } else { Vec::new() };
        self.import(&item.tree, path, is_passed_on);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.0.impls.extend(Impl::of(item, &self.0.file));
        visit::visit_item_impl(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let line = first.ident.span().start().line;
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.0.mentions.push((names.collect(), line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.visit_path(&it.path);
        self.tokens(it.tokens.clone());
    }

    /// A path in `pub(in path)` is not a use.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if !is_test(&it.attrs) {
            visit::visit_item_fn(self, it);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_test(&it.attrs) {
            visit::visit_impl_item_fn(self, it);
        }
    }
}
