//! What a Rust file says, as far as the rules care: the paths it names, its functions and its size, tests left out.
//!
//! The compiler's own lexer (proc-macro2) splits the text, so comments, strings and macros need no special cases.

use crate::sh;
use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};
use std::fs;
use std::path::Path;

/// A file without its tests.
#[derive(Default)]
pub(super) struct Source {
    /// Below the root, as messages show it.
    pub path: String,
    pub names: Vec<Name>,
    pub functions: Vec<Function>,
    pub lines: usize,
}

/// A path in the code, such as `crate::plan::Step`; imports are spread to one name a leaf. Single words are names too.
#[derive(Debug, PartialEq)]
pub(super) struct Name {
    pub line: usize,
    /// The module that says it, from the crate's root.
    pub module: Vec<String>,
    pub segments: Vec<String>,
}

pub(super) struct Function {
    pub name: String,
    pub line: usize,
    /// From `fn` to the closing brace.
    pub lines: usize,
}

/// Reads the Rust files below `folder`, which is below the root; build products and files of tests are left out.
pub(super) fn read_all(folder: &str) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    read_folder(&sh::root().join(folder), &mut sources)?;
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(sources)
}

fn read_folder(folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "tests" {
            read_folder(&path, sources)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let path = path.strip_prefix(sh::root()).unwrap_or(&path);
            sources.push(Source::parse(&path.display().to_string(), &text)?);
        }
    }
    Ok(())
}

impl Source {
    /// Reads `text`, which stands in `path` below the root.
    pub(super) fn parse(path: &str, text: &str) -> Result<Self> {
        let not_rust = |err: LexError| anyhow!("{path}:{}: {err}", err.span().start().line);
        let tokens: TokenStream = text.parse().map_err(not_rust)?;
        let mut source = Self { path: path.to_owned(), lines: text.lines().count(), ..Self::default() };
        source.walk(tokens, &module(path));
        Ok(source)
    }

    fn walk(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let [first, after @ ..] = rest {
            rest = match rest {
                [hash, TokenTree::Group(attribute), ..] if is(hash, '#') && is_for_tests(attribute) => {
                    self.skip_item(rest)
                }
                [hash, bang, TokenTree::Group(attribute), ..]
                    if is(hash, '#') && is(bang, '!') && is_for_tests(attribute) =>
                {
                    self.lines = 0;
                    &[]
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(body), after @ ..]
                    if word == "mod" =>
                {
                    self.walk(body.stream(), &[module, &[name.to_string()]].concat());
                    after
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), after @ ..] if word == "fn" => {
                    self.function(first, &name.to_string(), after);
                    after
                }
                [TokenTree::Ident(word), after @ ..] if word == "use" => self.import(after, module),
                [TokenTree::Ident(_), ..] => self.path(rest, module),
                [TokenTree::Group(group), ..] => {
                    self.walk(group.stream(), module);
                    after
                }
                _ => after,
            };
        }
    }

    /// Passes over the item that `tokens` begin with, and takes its lines off.
    fn skip_item<'a>(&mut self, tokens: &'a [TokenTree]) -> &'a [TokenTree] {
        let end = tokens.iter().position(ends_item).unwrap_or(tokens.len() - 1);
        self.lines = self.lines.saturating_sub(line_after(&tokens[end]) - line(&tokens[0]));
        &tokens[end + 1..]
    }

    fn function(&mut self, keyword: &TokenTree, name: &str, after: &[TokenTree]) {
        if let Some(body @ TokenTree::Group(_)) = after.iter().find(|token| ends_item(token)) {
            let lines = line_after(body) - line(keyword);
            self.functions.push(Function { name: name.to_owned(), line: line(keyword), lines });
        }
    }

    /// Reads from after `use` to the semicolon.
    fn import<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        let end = tokens.iter().position(|token| is(token, ';')).unwrap_or(tokens.len());
        self.leaves(&tokens[..end], &[], module);
        &tokens[end..]
    }

    fn leaves(&mut self, tree: &[TokenTree], prefix: &[String], module: &[String]) {
        for branch in tree.split(|token| is(token, ',')) {
            let mut segments = prefix.to_vec();
            for token in branch {
                match token {
                    TokenTree::Ident(word) if word == "as" => break,
                    TokenTree::Ident(word) if word == "self" && !segments.is_empty() => {}
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.leaves(&inner, &segments, module);
                        segments.clear();
                    }
                    token if is(token, ':') => {}
                    token => segments.push(token.to_string()),
                }
            }
            if let (Some(last), false) = (branch.last(), segments.is_empty()) {
                self.names.push(Name { line: line(last), module: module.to_vec(), segments });
            }
        }
    }

    /// Reads words joined by `::`.
    fn path<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        let mut segments = Vec::new();
        let mut rest = tokens;
        while let [TokenTree::Ident(word), after @ ..] = rest {
            segments.push(word.to_string());
            rest = match after {
                [one, two, TokenTree::Ident(_), ..] if is(one, ':') && is(two, ':') => &after[2..],
                _ => {
                    rest = after;
                    break;
                }
            };
        }
        self.names.push(Name { line: line(&tokens[0]), module: module.to_vec(), segments });
        rest
    }
}

/// Whether `path` begins with the words of `part`, of which the last may end in `*`; all paths are below "".
pub(super) fn is_below(path: &[String], part: &str) -> bool {
    let mut words = path.iter();
    part.split("::").filter(|part| !part.is_empty()).all(|part| {
        words.next().is_some_and(|word| match part.strip_suffix('*') {
            Some(beginning) => word.starts_with(beginning),
            None => word == part,
        })
    })
}

/// The module of a file: `plugins::bridge` for cni-plugin/src/plugins/bridge.rs, nothing for a crate's root.
fn module(path: &str) -> Vec<String> {
    let below = path.split_once("src/").map_or(path, |(_, below)| below);
    let names = below.trim_end_matches(".rs").split('/').map(str::to_owned);
    names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect()
}

/// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, …))]`, but not `#[cfg(not(test))]`.
fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    match words.next() {
        Some("test") => true,
        Some("cfg") => {
            let words: Vec<&str> = words.collect();
            words.contains(&"test") && !words.contains(&"not")
        }
        _ => false,
    }
}

fn ends_item(token: &TokenTree) -> bool {
    is(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is(token: &TokenTree, punctuation: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == punctuation)
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

fn line_after(token: &TokenTree) -> usize {
    token.span().end().line + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let source = Source::parse("cni-plugin/src/apply/mod.rs", text).unwrap();
        source.names.iter().map(|name| name.segments.join("::")).filter(|path| path.contains("::")).collect()
    }

    #[test]
    fn an_import_is_one_name_a_leaf() {
        let text = "use crate::{cni, plan::{self, name::{IfName as Name, Mac}, facts::*}};";
        let leaves = [
            "crate::cni",
            "crate::plan",
            "crate::plan::name::IfName",
            "crate::plan::name::Mac",
            "crate::plan::facts::*",
        ];
        assert_eq!(paths(text), leaves);
    }

    #[test]
    fn paths_in_code_and_macros_are_names_and_those_in_text_are_not() {
        let text = r#"
            // crate::comment::x
            /// crate::doc::x
            fn f(a: crate::plan::Step) -> Option<crate::cni::Json> { println!("crate::text::x {}", crate::sys::y()) }
        "#;
        assert_eq!(paths(text), ["crate::plan::Step", "crate::cni::Json", "crate::sys::y"]);
    }

    #[test]
    fn tests_are_neither_read_nor_counted() {
        let text = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n    fn t() {}\n}\n#[cfg(not(test))]\nfn g() {}\n";
        let source = Source::parse("cni-plugin/src/apply/mod.rs", text).unwrap();
        assert_eq!(source.lines, 4);
        assert_eq!(source.functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>(), ["f", "g"]);
        assert_eq!(paths(text), Vec::<String>::new());
    }

    #[test]
    fn a_name_knows_the_inline_module_that_it_stands_in() {
        let source =
            Source::parse("cni-plugin/src/ipam/range.rs", "mod inner { type T = super::super::Lease; }").unwrap();
        let name = source.names.iter().find(|name| name.segments.len() > 1).unwrap();
        assert_eq!((name.line, name.module.join("::").as_str()), (1, "ipam::range::inner"));
    }

    #[test]
    fn a_function_is_measured_from_fn_to_its_brace() {
        let text = "trait T {\n    fn declared();\n}\n\n/// Doc.\nfn long(\n    a: u8,\n) -> u8 {\n    a\n}\n";
        let source = Source::parse("xtask/src/x.rs", text).unwrap();
        let measured: Vec<_> = source.functions.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(measured, [("long", 6, 5)]);
    }
}
