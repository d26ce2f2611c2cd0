//! Finds circles of calls between the files of one type.
//!
//! The `impl` of a type may be in several files. If they call each other's methods in one direction
//! only, they are layers, and each can be read alone. If the calls form a circle, all the files
//! must be read at once.
//!
//! A call is `self.x(..)`, `Self::x(..)` or `Type::x(..)` inside an `impl` of the type, also in the
//! arguments of a macro. It is an edge from its file to each file that defines `x` for the type,
//! unless its own file defines `x`. Code under `#[cfg(test)]` does not count.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::graph::{self, Graph};
use super::{Crate, Depth, ModulePath, is_test};

/// One `impl` block.
pub(super) struct Impl {
    file: PathBuf,
    type_path: Vec<String>,
    methods: BTreeSet<String>,
    /// Names after `self.`, `Self::` and the name of the type.
    calls: BTreeSet<String>,
}

impl Impl {
    /// None if the block is not for a type that has a path.
    pub(super) fn of(item: &syn::ItemImpl, file: &Path) -> Option<Self> {
        let mut self_type = &*item.self_ty;
        while let syn::Type::Reference(it) = self_type {
            self_type = &it.elem;
        }
        let syn::Type::Path(syn::TypePath { path, qself: None }) = self_type else { return None };
        let type_path: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        let methods = item.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(it) if !is_test(&it.attrs) => Some(it.sig.ident.to_string()),
            _ => None,
        });
        let methods = methods.collect();
        let mut reader = CallReader { type_name: type_path.last()?, calls: BTreeSet::new() };
        item.items.iter().for_each(|item| reader.visit_impl_item(item));
        let calls = reader.calls;
        Some(Self { file: file.to_owned(), type_path, methods, calls })
    }
}

/// Files of one type that call each other in a circle.
pub(crate) struct CallCircle {
    pub(crate) type_name: String,
    files: BTreeSet<PathBuf>,
    /// Files that hold an `impl` of the type.
    files_of_type: usize,
    /// Names of the methods called, by file of the caller and of the method.
    calls: Graph<BTreeSet<String>>,
    root: PathBuf,
}

/// A summary in one line.
impl fmt::Display for CallCircle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { type_name, files, files_of_type, .. } = self;
        let count = files.len();
        write!(to, "`{type_name}`: {count} of its {files_of_type} files call each other")
    }
}

impl CallCircle {
    /// The repository's path of the first file.
    pub(crate) fn first_file(&self) -> String {
        self.files.first().map(|file| self.name(file)).unwrap_or_default()
    }

    /// A line for each two files: the caller, the file called and its methods.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(move |from| {
            let called = self.calls.get(from).into_iter().flatten();
            let called = called.filter(|(to, _)| self.files.contains(*to));
            called.map(move |(to, methods)| {
                let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
                format!("{} -> {}: {}", self.name(from), self.name(to), methods.join(" "))
            })
        })
    }

    fn name(&self, file: &Path) -> String {
        file.strip_prefix(&self.root).unwrap_or(file).display().to_string()
    }
}

/// The circles of calls of a crate in the repository at `root`.
pub(super) fn find(root: &Path, modules: &Crate) -> Vec<CallCircle> {
    let mut circles = Vec::new();
    for ((_, type_name), impls) in impls_by_type(modules) {
        let files: BTreeSet<&Path> = impls.iter().map(|it| it.file.as_path()).collect();
        let calls = calls_between_files(&impls);
        circles.extend(graph::circles(&calls).into_iter().map(|circle| CallCircle {
            type_name: type_name.clone(),
            files: circle,
            files_of_type: files.len(),
            calls: calls.clone(),
            root: root.to_owned(),
        }));
    }
    circles
}

/// By the module that defines the type, and its name.
fn impls_by_type(modules: &Crate) -> BTreeMap<(ModulePath, String), Vec<&Impl>> {
    let mut by_type: BTreeMap<_, Vec<&Impl>> = BTreeMap::new();
    for (at, module) in &modules.modules {
        for it in &module.impls {
            let Some(type_name) = it.type_path.last() else { continue };
            if let Some(home) = modules.definition(at, &it.type_path, Depth(0)) {
                by_type.entry((home, type_name.clone())).or_default().push(it);
            }
        }
    }
    by_type
}

fn calls_between_files(impls: &[&Impl]) -> Graph<BTreeSet<String>> {
    let mut defining: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    for it in impls {
        for method in &it.methods {
            defining.entry(method).or_default().insert(&it.file);
        }
    }
    let mut graph = Graph::<BTreeSet<String>>::new();
    for it in impls {
        for call in &it.calls {
            let Some(files) = defining.get(call.as_str()) else { continue };
            if files.contains(it.file.as_path()) {
                continue;
            }
            let from = graph.entry(it.file.clone()).or_default();
            for &to in files {
                from.entry(to.to_owned()).or_default().insert(call.clone());
            }
        }
    }
    graph
}

/// Collects the names of what an `impl` of `type_name` calls on its own type.
struct CallReader<'a> {
    type_name: &'a str,
    calls: BTreeSet<String>,
}

impl CallReader<'_> {
    /// Calls in the arguments of a macro, which may not parse as Rust.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let text = |index: usize| match tokens.get(index) {
            Some(TokenTree::Ident(it)) => it.to_string(),
            Some(TokenTree::Punct(it)) => it.as_char().to_string(),
            _ => String::new(),
        };
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Ident(it) if it == "self" && text(index + 1) == "." => {
                    let is_call = matches!(tokens.get(index + 3), Some(TokenTree::Group(_)))
                        || text(index + 3) == ":";
                    if is_call {
                        self.calls.insert(text(index + 2));
                    }
                }
                TokenTree::Ident(it)
                    if (it == "Self" || it == self.type_name)
                        && text(index + 1) == ":"
                        && text(index + 2) == ":" =>
                {
                    self.calls.insert(text(index + 3));
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for CallReader<'_> {
    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_test(&it.attrs) {
            visit::visit_impl_item_fn(self, it);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_self(&call.receiver) {
            self.calls.insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().map(|it| &it.ident);
        if let (Some(of), Some(name), None) = (names.next(), names.next(), names.next())
            && (of == "Self" || of == self.type_name)
        {
            self.calls.insert(name.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.read_tokens(it.tokens.clone());
    }
}

/// `self`, also as `(&mut *self)`.
fn is_self(receiver: &syn::Expr) -> bool {
    match receiver {
        syn::Expr::Path(it) => it.path.is_ident("self"),
        syn::Expr::Paren(it) => is_self(&it.expr),
        syn::Expr::Reference(it) => is_self(&it.expr),
        syn::Expr::Unary(it) => is_self(&it.expr),
        _ => false,
    }
}
