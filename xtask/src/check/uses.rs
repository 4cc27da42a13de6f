//! Uses between the files of a crate. Imports, paths in code and re-exports are resolved to the
//! file that defines the item.
//!
//! Only paths count. A method call is not a use, because the type of the value is already named by
//! some path.

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of re-exports followed from one path.
const MAX_HOPS: usize = 16;

/// Modules of a crate.
#[derive(Default)]
pub(super) struct Crate {
    /// Modules by path from the root; `[]` is the root.
    modules: BTreeMap<Vec<String>, Module>,
}

/// A module, in a separate file or inline.
#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Imported paths as they are written, by local name.
    imports: BTreeMap<String, Vec<String>>,
    /// Names of the items defined here.
    items: BTreeSet<String>,
    /// Paths in the code of the module, as they are written.
    paths: BTreeSet<Vec<String>>,
}

impl Crate {
    /// Reads the crate with this root, `lib.rs` or `main.rs`, without test modules.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut modules = Self::default();
        modules.read_file(root, &[], root.parent().unwrap_or(Path::new("")))?;
        Ok(modules)
    }

    /// Reads the module at `path` from its file, then its child modules from `folder`.
    fn read_file(&mut self, file: &Path, path: &[String], folder: &Path) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let tokens = text
            .parse::<TokenStream>()
            .map_err(|err| anyhow!("{}: {err}", file.display()))?;
        let children = self.add(file, path.to_vec(), tokens);
        for child in children {
            let below = folder.join(child.join("/"));
            let files = [below.with_extension("rs"), below.join("mod.rs")];
            let file = files.iter().find(|file| file.is_file());
            let file = file.with_context(|| {
                format!(
                    "{}: no file of module {}",
                    file_name(&files),
                    child.join("::")
                )
            })?;
            self.read_file(file, &[path, &child].concat(), &below)?;
        }
        Ok(())
    }

    /// Adds a module from its tokens, with its inline modules. Returns the child modules in
    /// separate files, by relative path.
    fn add(&mut self, file: &Path, path: Vec<String>, tokens: TokenStream) -> Vec<Vec<String>> {
        let mut scan = Scan::default();
        scan.read(tokens);
        let mut children: Vec<Vec<String>> =
            scan.outer.into_iter().map(|name| vec![name]).collect();
        for (name, tokens) in scan.inner {
            let below = self.add(
                file,
                [path.as_slice(), std::slice::from_ref(&name)].concat(),
                tokens,
            );
            for child in below {
                children.push([vec![name.clone()], child].concat());
            }
        }
        self.modules.insert(
            path,
            Module {
                file: file.to_owned(),
                ..scan.module
            },
        );
        children
    }

    /// Returns the files that each file uses. A file does not use itself.
    pub(super) fn uses(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut uses: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for (at, module) in &self.modules {
            let used = uses.entry(&module.file).or_default();
            // An imported module is used by the paths that begin with its name.
            let imports = module
                .imports
                .values()
                .filter(|path| !self.is_module(at, path));
            for path in imports.chain(&module.paths) {
                if let Some(file) = self.file_of(at, path, MAX_HOPS)
                    && file != module.file
                {
                    used.insert(file);
                }
            }
        }
        uses
    }

    fn is_module(&self, at: &[String], path: &[String]) -> bool {
        let (mut here, rest, _) = rooted(at, path);
        here.extend(rest.iter().cloned());
        self.modules.contains_key(&here)
    }

    /// Returns the file that defines the item at a path, seen from the module `at`; `None` if the
    /// item is in another crate.
    fn file_of(&self, at: &[String], path: &[String], hops: usize) -> Option<&Path> {
        let (mut here, mut rest, mut is_rooted) = rooted(at, path);
        loop {
            let module = self.modules.get(&here)?;
            let [name, more @ ..] = rest else {
                return Some(&module.file);
            };
            let child = [here.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                (here, rest, is_rooted) = (child, more, true);
            } else if hops > 0
                && let Some(import) = module.imports.get(name)
            {
                let whole = [import.as_slice(), more].concat();
                // A name imported from another crate belongs to this module for modules that import
                // it from here.
                return self
                    .file_of(&here, &whole, hops - 1)
                    .or(is_rooted.then_some(&*module.file));
            } else {
                return (is_rooted || module.items.contains(name)).then_some(&module.file);
            }
        }
    }
}

/// Resolves the start of a path (`crate`, `super`, `self`) in the module `at`. Returns the module
/// in which the path begins, and the rest of the path. Also returns true if the path starts with
/// one of these words.
fn rooted<'p>(at: &[String], path: &'p [String]) -> (Vec<String>, &'p [String], bool) {
    let mut here = at.to_vec();
    let mut rest = path;
    while let [first, more @ ..] = rest {
        match first.as_str() {
            "crate" => here.clear(),
            "super" => drop(here.pop()),
            "self" => {}
            _ => break,
        }
        rest = more;
    }
    (here, rest, rest.len() < path.len())
}

fn file_name(files: &[PathBuf]) -> String {
    files
        .first()
        .map_or_else(String::new, |file| file.display().to_string())
}

/// Reader of a module's tokens, with the results so far.
#[derive(Default)]
struct Scan {
    module: Module,
    /// Names of child modules in separate files.
    outer: Vec<String>,
    /// Names and tokens of inline child modules.
    inner: Vec<(String, TokenStream)>,
}

impl Scan {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = tokens.as_slice();
        while let [first, more @ ..] = rest {
            rest = self.step(first, more);
        }
    }

    /// Reads the syntax that begins with a token; returns the remaining tokens.
    fn step<'t>(&mut self, first: &TokenTree, rest: &'t [TokenTree]) -> &'t [TokenTree] {
        match first {
            TokenTree::Group(group) => {
                self.read(group.stream());
                rest
            }
            TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(rest) => {
                after_item(rest)
            }
            TokenTree::Ident(word) => self.word(&word.to_string(), rest),
            TokenTree::Punct(_) | TokenTree::Literal(_) => rest,
        }
    }

    fn word<'t>(&mut self, word: &str, rest: &'t [TokenTree]) -> &'t [TokenTree] {
        match (word, rest) {
            ("mod", [TokenTree::Ident(name), TokenTree::Punct(_), rest @ ..]) => {
                self.outer.push(name.to_string());
                rest
            }
            ("mod", [TokenTree::Ident(name), TokenTree::Group(body), rest @ ..]) => {
                self.inner.push((name.to_string(), body.stream()));
                rest
            }
            ("use", _) => {
                let end = rest
                    .iter()
                    .position(|token| is_punct(token, ';'))
                    .unwrap_or(rest.len());
                self.import(&[], &rest[..end]);
                &rest[end..]
            }
            ("macro_rules", [TokenTree::Punct(_), TokenTree::Ident(name), ..])
            | (
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union",
                [TokenTree::Ident(name), ..],
            ) => {
                self.module.items.insert(name.to_string());
                rest
            }
            // The path in `pub(in …)` is not a use.
            ("pub", [TokenTree::Group(group), rest @ ..])
                if group.delimiter() == Delimiter::Parenthesis =>
            {
                rest
            }
            _ => self.path(word, rest),
        }
    }

    /// Reads a path in code that begins with `first`.
    fn path<'t>(&mut self, first: &str, mut rest: &'t [TokenTree]) -> &'t [TokenTree] {
        let mut path = vec![first.to_owned()];
        while let [colon, _, TokenTree::Ident(name), more @ ..] = rest
            && is_punct(colon, ':')
            && is_punct(&rest[1], ':')
        {
            path.push(name.to_string());
            rest = more;
        }
        if path.len() > 1 {
            self.module.paths.insert(path);
        }
        rest
    }

    /// Reads the tree of a `use` declaration below the path `before`.
    fn import(&mut self, before: &[String], tree: &[TokenTree]) {
        let mut path = before.to_vec();
        let mut rest = tree;
        loop {
            match rest {
                [
                    TokenTree::Ident(name),
                    TokenTree::Ident(word),
                    TokenTree::Ident(alias),
                    ..,
                ] if word == "as" => {
                    return self.imported(alias.to_string(), path, &name.to_string());
                }
                [TokenTree::Ident(name), colon, _, more @ ..] if is_punct(colon, ':') => {
                    path.push(name.to_string());
                    rest = more;
                }
                [TokenTree::Ident(name)] => {
                    return self.imported(name.to_string(), path, &name.to_string());
                }
                [TokenTree::Group(group)] if group.delimiter() == Delimiter::Brace => {
                    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                    return tokens
                        .split(|token| is_punct(token, ','))
                        .for_each(|tree| self.import(&path, tree));
                }
                // A glob import uses the module itself, because the used names are unknown.
                [star] if is_punct(star, '*') => {
                    self.module.paths.insert(path);
                    return;
                }
                _ => return,
            }
        }
    }

    fn imported(&mut self, alias: String, mut path: Vec<String>, name: &str) {
        if name == "self" {
            let Some(last) = path.last().cloned() else {
                return;
            };
            let alias = if alias == "self" { last } else { alias };
            self.module.imports.insert(alias, path);
        } else {
            path.push(name.to_owned());
            self.module.imports.insert(alias, path);
        }
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// True if `rest`, the tokens after `#`, begins with `[cfg(test)]`.
fn is_for_tests(rest: &[TokenTree]) -> bool {
    matches!(rest, [TokenTree::Group(attribute), ..] if attribute.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// Returns the tokens after the body or the semicolon of an item.
fn after_item(rest: &[TokenTree]) -> &[TokenTree] {
    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let end = rest
        .iter()
        .position(|token| is_punct(token, ';') || is_body(token));
    end.map_or(&[], |end| &rest[end + 1..])
}
