//! Finds unused public items of libraries.
//!
//! An item is used if another crate names it, or if a used item shows it in its signature. Names
//! are compared as words, so an unused item with a common name is not found. Tests of the item's
//! own crate do not count as users.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

use crate::circles::is_test;

pub(crate) struct Source {
    pub(crate) folder: String,
    /// From the root of the repository.
    pub(crate) file: String,
    pub(crate) text: String,
    /// Whether it may define a part of a library's interface.
    pub(crate) is_library: bool,
}

/// A public item of a library.
struct Item {
    folder: String,
    /// Where to report it. None for a member of an item that is reported itself.
    at: Option<String>,
    name: String,
    /// Words of its signature, which must be public because the item is.
    shows: BTreeSet<String>,
}

/// One finding for each public item that nothing uses.
pub(crate) fn findings(sources: &[Source]) -> anyhow::Result<Vec<String>> {
    let mut words: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut items = Vec::new();
    for source in sources {
        let file = syn::parse_file(&source.text)
            .map_err(|error| anyhow::anyhow!("{}: {error}", source.file))?;
        let mut own = BTreeSet::new();
        collect_words(file.to_token_stream(), &mut own);
        for word in own {
            words.entry(word).or_default().insert(&source.folder);
        }
        if source.is_library {
            let mut finder = Finder { source, items: &mut items };
            finder.visit_file(&file);
        }
    }
    let is_named = |item: &Item| {
        words.get(&item.name).is_some_and(|folders| folders.iter().any(|it| *it != item.folder))
    };
    let (mut used, mut left): (Vec<&Item>, Vec<&Item>) = items.iter().partition(|it| is_named(it));
    let mut shown: BTreeSet<(&str, &str)> = BTreeSet::new();
    while !used.is_empty() {
        for item in std::mem::take(&mut used) {
            shown.extend(item.shows.iter().map(|word| (item.folder.as_str(), word.as_str())));
        }
        (used, left) = left
            .into_iter()
            .partition(|item| shown.contains(&(item.folder.as_str(), item.name.as_str())));
    }
    let findings = left.iter().filter_map(|item| {
        Some(format!("{}: nothing uses public `{}`", item.at.as_ref()?, item.name))
    });
    Ok(findings.collect())
}

pub(crate) fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(words.insert(ident.to_string())),
            TokenTree::Group(group) => collect_words(group.stream(), words),
            // `serialize_with = "path::of_a_function"`
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let is_path =
                    |it: &str| it.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
                if let Some(path) = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'))
                    && is_path(path)
                {
                    words.extend(path.split("::").map(str::to_owned));
                }
            }
            TokenTree::Punct(_) => {}
        }
    }
}

struct Finder<'a> {
    source: &'a Source,
    items: &'a mut Vec<Item>,
}

impl Finder<'_> {
    fn add(&mut self, vis: &syn::Visibility, name: &syn::Ident, shows: impl ToTokens) {
        if !matches!(vis, syn::Visibility::Public(_)) {
            return;
        }
        let mut words = BTreeSet::new();
        collect_words(shows.to_token_stream(), &mut words);
        words.remove(&name.to_string());
        let at = Some(format!("{}:{}", self.source.file, name.span().start().line));
        let (folder, name) = (self.source.folder.clone(), name.to_string());
        self.items.push(Item { folder, at, name, shows: words });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item as I;
        match item {
            I::Mod(it) if is_test(&it.attrs) => {}
            I::Const(it) => self.add(&it.vis, &it.ident, &it.ty),
            I::Static(it) => self.add(&it.vis, &it.ident, &it.ty),
            I::Type(it) => self.add(&it.vis, &it.ident, it),
            I::Fn(it) if !is_test(&it.attrs) => self.add(&it.vis, &it.sig.ident, &it.sig),
            I::Enum(it) => self.add(&it.vis, &it.ident, it),
            I::Trait(it) => self.add(&it.vis, &it.ident, Public::of_trait(it)),
            I::Struct(it) => self.add(&it.vis, &it.ident, Public::of_struct(it)),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        if is_test(&it.attrs) {
            return;
        }
        if it.trait_.is_some() {
            // A user of the type also gets the trait's types, such as the items of an iterator.
            let (mut of, mut shows) = (BTreeSet::new(), BTreeSet::new());
            collect_words(it.self_ty.to_token_stream(), &mut of);
            for item in &it.items {
                if let syn::ImplItem::Type(it) = item {
                    collect_words(it.ty.to_token_stream(), &mut shows);
                }
            }
            let folder = || self.source.folder.clone();
            let items = of.into_iter().map(|name| Item {
                folder: folder(),
                at: None,
                name,
                shows: shows.clone(),
            });
            return self.items.extend(items);
        }
        for item in &it.items {
            match item {
                syn::ImplItem::Fn(it) if !is_test(&it.attrs) => {
                    self.add(&it.vis, &it.sig.ident, &it.sig);
                }
                syn::ImplItem::Const(it) => self.add(&it.vis, &it.ident, &it.ty),
                _ => {}
            }
        }
    }
}

/// The words of an item that others see.
struct Public(TokenStream);

impl Public {
    fn of_struct(it: &syn::ItemStruct) -> Self {
        let mut tokens = it.generics.to_token_stream();
        it.generics.where_clause.to_tokens(&mut tokens);
        for field in &it.fields {
            if matches!(field.vis, syn::Visibility::Public(_)) {
                field.ty.to_tokens(&mut tokens);
            }
        }
        Self(tokens)
    }

    fn of_trait(it: &syn::ItemTrait) -> Self {
        let mut tokens = it.generics.to_token_stream();
        it.supertraits.to_tokens(&mut tokens);
        for item in &it.items {
            match item {
                syn::TraitItem::Fn(it) => it.sig.to_tokens(&mut tokens),
                other => other.to_tokens(&mut tokens),
            }
        }
        Self(tokens)
    }
}

impl ToTokens for Public {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.clone());
    }
}
