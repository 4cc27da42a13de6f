//! Checks of the book: mdBook can build it, every link in the documentation has a target, and all
//! named files exist.

use super::files;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::sh;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Version of mdBook that builds the book.
const MDBOOK: &str = "0.5.4";
/// Folder of the book, with `book.toml`.
const BOOK: &str = "docs";
/// Pages outside the book.
const OTHER_PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "bench/README.md",
    "deploy/README.md",
    "ebpf/README.md",
    "tests/README.md",
];
/// Page that says which files to change for an addition to braid.
const ADDING: &str = "docs/adding.md";
/// Page with a section for each feature that `braid doctor` checks. The file `FEATURES` has the
/// names of the features.
const TROUBLES: &str = "docs/troubleshooting.md";
const FEATURES: &str = "cni-plugin/core/src/plan/feature.rs";
/// Table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Texts of the pages by path from the root of the checkout.
type Pages = BTreeMap<String, String>;

/// Checks links and paths, then builds the book into `target/book`.
pub(super) fn check() -> Result<String> {
    let pages = read()?;
    let mut faults = faults(&pages, &sources()?, &sh::root());
    faults.extend(unexplained(
        &pages,
        &files::all("cni-plugin/core/src/plan")?,
    ));
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    build()?;
    Ok(format!("{} pages, target/book/index.html", pages.len()))
}

fn build() -> Result<()> {
    let mut mdbook = sh::cmd(mdbook()?, ["build", "--dest-dir"]);
    mdbook.arg(sh::root().join("target/book")).arg(BOOK);
    // The progress is not shown; errors are printed separately.
    sh::read(&mut mdbook).map(drop)
}

/// Returns the path of mdBook, which is built on the first use. As a library it would add 60 crates
/// to every build of xtask.
fn mdbook() -> Result<PathBuf> {
    let root = sh::cache().join("tools").join(format!("mdbook-{MDBOOK}"));
    let program = root.join("bin/mdbook");
    if !program.is_file() {
        fs::create_dir_all(&root).with_context(|| format!("create {}", root.display()))?;
        eprintln!("building mdbook {MDBOOK}");
        let install = [
            "install",
            "--quiet",
            "--locked",
            // The build takes half as long, and the book is small.
            "--debug",
            "--no-default-features",
            "--features",
            "search",
            "--version",
            MDBOOK,
            "--root",
        ];
        let mut cargo = sh::cmd("cargo", install);
        // Outside the checkout, so that braid's build flags do not apply.
        cargo.arg(&root).arg("mdbook").current_dir(&root);
        sh::run(&mut cargo).context("install mdbook by cargo")?;
    }
    Ok(program)
}

/// Reads the pages of the book and the pages outside it.
fn read() -> Result<Pages> {
    let mut paths: Vec<PathBuf> = OTHER_PAGES.iter().map(PathBuf::from).collect();
    list(Path::new(BOOK), &mut paths)?;
    let mut pages = Pages::new();
    for path in paths {
        let text = fs::read_to_string(sh::root().join(&path))
            .with_context(|| format!("read {}", path.display()))?;
        pages.insert(path.display().to_string(), text);
    }
    Ok(pages)
}

/// Returns the paths of all Rust files of the checkout.
fn sources() -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for folder in ["bench", "cni-plugin", "ebpf", "tests", "xtask"] {
        for file in files::all(folder)? {
            paths.push(file.path);
        }
    }
    Ok(paths)
}

/// Adds the Markdown files below a folder of the checkout to `paths`.
fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(sh::root().join(folder));
    for entry in entries.with_context(|| format!("list {}", folder.display()))? {
        let entry = entry.with_context(|| format!("list {}", folder.display()))?;
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            list(&path, paths)?;
        } else if has_ending(&path, "md") {
            paths.push(path);
        }
    }
    Ok(())
}

fn has_ending(path: impl AsRef<Path>, ext: &str) -> bool {
    path.as_ref().extension().is_some_and(|found| found == ext)
}

/// Returns all faults as `file:line: fault`. A fault is a link without a target, the name of a file
/// that does not exist, or a page missing from the table of contents.
fn faults(pages: &Pages, sources: &[String], root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in pages {
        for (line, target) in links(text) {
            if let Err(fault) = resolve(path, &target, pages, root) {
                faults.push(format!("{path}:{line}: {target}: {fault:#}"));
            }
        }
        for (line, named) in paths(text) {
            let exists = match path.as_str() {
                // The changelog describes earlier versions.
                "CHANGELOG.md" => true,
                ADDING => root.join(&named).exists(),
                _ => !has_ending(&named, "rs") || sources.iter().any(|file| is_end(file, &named)),
            };
            if !exists {
                faults.push(format!("{path}:{line}: {named} does not exist"));
            }
        }
    }
    faults.extend(unlisted(pages));
    faults
}

/// Returns the pages of the book that are missing from the table of contents.
fn unlisted(pages: &Pages) -> Vec<String> {
    let mut listed = BTreeSet::new();
    if let Some(summary) = pages.get(SUMMARY) {
        for (_, target) in links(summary) {
            listed.extend(beside(SUMMARY, &target));
        }
    }
    let mut faults = Vec::new();
    for path in pages.keys() {
        if path.starts_with(BOOK) && path != SUMMARY && !listed.contains(path) {
            faults.push(format!("{path}: {SUMMARY} does not list it"));
        }
    }
    faults
}

/// Returns a fault for each feature in [`FEATURES`] without a heading on the page [`TROUBLES`].
fn unexplained(pages: &Pages, sources: &[files::Source]) -> Vec<String> {
    let page = pages.get(TROUBLES).map_or("", String::as_str);
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let explained: BTreeSet<&str> = headings.collect();
    let Some(file) = sources.iter().find(|file| file.path == FEATURES) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    for line in file.text.lines() {
        if let Some((_, value)) = line.split_once(" => \"")
            && let Some(name) = value.strip_suffix("\",")
            && !explained.contains(name)
        {
            faults.push(format!(
                "{TROUBLES}: no heading for {name:?} of braid doctor"
            ));
        }
    }
    faults
}

/// True if `end` is the end of a path and starts at a file or folder name.
fn is_end(path: &str, end: &str) -> bool {
    let before = path.strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Checks that the target of a link on the page `from` exists.
fn resolve(from: &str, target: &str, pages: &Pages, root: &Path) -> Result<()> {
    let is_elsewhere = ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme));
    if is_elsewhere {
        return Ok(());
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        Some(from.to_owned())
    } else {
        beside(from, file)
    };
    let path = path.context("it is outside the checkout")?;
    if from.starts_with(BOOK) && !path.starts_with(BOOK) {
        bail!("the book has only {BOOK}/: name the file instead of linking to it");
    }
    ensure!(root.join(&path).exists(), "{path} does not exist");
    if !anchor.is_empty() {
        let text = pages.get(&path).context("an anchor needs a page")?;
        ensure!(anchors(text).contains(anchor), "{path} has no such heading");
    }
    Ok(())
}

/// Resolves a link on the page `from` to a path relative to the checkout; `None` if the target is
/// outside the checkout.
fn beside(from: &str, link: &str) -> Option<String> {
    let mut path = Path::new(from).parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path.display().to_string())
}

/// Returns the lines of a page outside its code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut prose = Vec::new();
    let mut fence: Option<&str> = None;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => prose.push((index + 1, line)),
        }
    }
    prose
}

/// Returns the targets of the links on a page, each with its line number.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        // Code has no links: every second piece is between backticks.
        let outside: Vec<&str> = line.split('`').step_by(2).collect();
        let outside = outside.join("`");
        for piece in outside.split("](").skip(1) {
            if let Some((target, _)) = piece.split_once(')') {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// Returns the anchors of a page. mdBook and GitHub derive an anchor from each heading.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title);
        let mut free = anchor.clone();
        let mut number = 0;
        while anchors.contains(&free) {
            number += 1;
            free = format!("{anchor}-{number}");
        }
        anchors.insert(free);
    }
    anchors
}

/// Returns the anchor of a heading. Does not add the number that distinguishes headings with the
/// same title.
fn anchor(title: &str) -> String {
    let mut anchor = String::new();
    for c in title.trim().to_lowercase().chars() {
        if c.is_whitespace() {
            anchor.push('-');
        } else if c.is_alphanumeric() || "-_".contains(c) {
            anchor.push(c);
        }
    }
    anchor
}

/// Returns the file paths between backticks on a page, each with its line number. A path with a
/// placeholder, such as `docs/<name>.md`, is cut to the folder before the placeholder.
fn paths(text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (number, line) in prose(text) {
        for code in line.split('`').skip(1).step_by(2) {
            let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./<>".contains(c);
            let is_file = ["md", "rs", "toml"].iter().any(|ext| has_ending(code, ext));
            let is_named = code.contains('/') || is_file;
            if !is_named || code.starts_with(['/', '.', '<']) || !code.chars().all(is_path) {
                continue;
            }
            let fixed = match code.split_once('<') {
                Some((before, _)) => before.rsplit_once('/').map_or("", |(folder, _)| folder),
                None => code,
            };
            paths.push((number, fixed.to_owned()));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        texts.iter().map(owned).collect()
    }

    #[test]
    fn every_link_and_path_of_the_documentation_exists() {
        let (pages, sources) = (read().expect("pages"), sources().expect("files"));
        let mut faults = faults(&pages, &sources, &sh::root());
        let features = files::all("cni-plugin/core/src/plan").expect("files");
        faults.extend(unexplained(&pages, &features));
        assert_eq!(faults, [""; 0], "{}", faults.join("\n"));
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "[a](b.md) and ![c](d.svg)\n```\n[no](no.md)\n```\n`[no](no)` [e `f`](g.md#h)\n";
        let found = [(1, "b.md"), (1, "d.svg"), (5, "g.md#h")];
        assert_eq!(
            links(text),
            found.map(|(line, target)| (line, target.to_owned()))
        );
    }

    #[test]
    fn a_heading_is_an_anchor_and_a_comment_in_code_is_not() {
        let text = "# Host ports\n## `[::1]` and a_b\n```sh\n# no\n```\n#no\n## Host ports\n";
        let expected = ["1-and-a_b", "host-ports", "host-ports-1"];
        assert_eq!(anchors(text), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("docs")).expect("a folder");
        for name in ["README.md", "docs/a.md", "docs/b.md"] {
            fs::write(root.path().join(name), "").expect("a file");
        }
        let pages = pages(&[
            ("README.md", "# Top"),
            ("docs/a.md", "# A"),
            ("docs/b.md", "# B b"),
        ]);
        let fault = |from: &str, target: &str| {
            let result = resolve(from, target, &pages, root.path());
            result.err().map(|err| err.to_string()).unwrap_or_default()
        };
        for target in [
            "b.md#b-b",
            "#a",
            "./b.md",
            "../docs/b.md",
            "https://a.example/x#y",
        ] {
            assert_eq!(fault("docs/a.md", target), "", "{target}");
        }
        assert_eq!(fault("README.md", "docs/b.md"), "");
        assert_eq!(fault("docs/a.md", "c.md"), "docs/c.md does not exist");
        assert_eq!(
            fault("docs/a.md", "b.md#a"),
            "docs/b.md has no such heading"
        );
        assert!(fault("docs/a.md", "../README.md").contains("name the file"));
        assert_eq!(fault("README.md", "../x.md"), "it is outside the checkout");
    }

    #[test]
    fn a_page_that_the_table_of_contents_leaves_out_is_a_fault() {
        let root = tempfile::tempdir().expect("a folder");
        let pages = pages(&[
            ("docs/SUMMARY.md", ""),
            ("docs/a.md", ""),
            ("README.md", ""),
        ]);
        let expected = "docs/a.md: docs/SUMMARY.md does not list it";
        assert_eq!(faults(&pages, &[], root.path()), [expected]);
    }

    #[test]
    fn a_page_may_name_a_file_by_the_end_of_its_path() {
        let named = |text: &str| {
            let pages = pages(&[("ARCHITECTURE.md", text), ("CHANGELOG.md", "`old.rs`")]);
            faults(
                &pages,
                &["core/src/plan/order.rs".to_owned()],
                Path::new("/"),
            )
        };
        assert_eq!(named("`plan/order.rs` and `order.rs`"), [""; 0]);
        let expected = "ARCHITECTURE.md:1: der.rs does not exist";
        assert_eq!(named("`der.rs`"), [expected]);
    }

    #[test]
    fn a_feature_of_doctor_has_a_heading() {
        let text = "match self {\n    Self::Fq => \"fq\",\n    Self::Htb => \"htb\",\n}";
        let source = files::Source {
            path: FEATURES.to_owned(),
            text: text.to_owned(),
        };
        let pages = pages(&[(TROUBLES, "## fq\n\nA queue.")]);
        let expected = "docs/troubleshooting.md: no heading for \"htb\" of braid doctor";
        assert_eq!(unexplained(&pages, &[source]), [expected]);
    }

    #[test]
    fn paths_are_between_backticks_and_end_before_a_placeholder() {
        let text = "`a/b.rs`, `c/<type>.rs`, `<type>.rs`, `README.md`, `/run/x`, `cargo test a/b`, `Thing`";
        let expected = [(1, "a/b.rs"), (1, "c"), (1, "README.md")];
        assert_eq!(
            paths(text),
            expected.map(|(line, path)| (line, path.to_owned()))
        );
    }
}
