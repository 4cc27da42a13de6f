//! Check for plain English in comments. Counts words that stand in place of a noun, with a ceiling
//! for each folder.

use super::files;
use anyhow::{Context, Result, ensure};
use braid_testbed::sh;
use std::fs;

/// Words that stand in place of a noun. Comments are clearer with the noun.
const WORDS: &[&str] = &["what", "whoever", "whom", "whose", "nobody", "somebody"];
/// Pairs of consecutive words that stand in place of a noun.
const PAIRS: &[(&str, &str)] = &[("of", "which"), ("those", "who")];
/// File with a line for each folder: its path, and the maximum number of matches per 1,000 words of
/// comments.
const CEILINGS: &str = "xtask/src/check/words.txt";

/// Number of matches and of words in comments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    matches: usize,
    words: usize,
}

/// Compares the comments of each folder with its ceiling. Also fails if a folder is below its
/// ceiling by one or more. The ceiling must then be lowered.
pub(super) fn check() -> Result<String> {
    let list = fs::read_to_string(sh::root().join(CEILINGS))
        .with_context(|| format!("read {CEILINGS}"))?;
    let (mut wrong, mut all) = (Vec::new(), Count::default());
    for line in list.lines() {
        let (folder, ceiling) = parse(line)?;
        let count = count_folder(folder)?;
        all.add(count);
        let reached = count.per_thousand_words();
        if reached != ceiling {
            wrong.push(format!(
                "{folder}: {reached} per 1,000 words, not {ceiling}"
            ));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{CEILINGS} does not fit; rewrite comments, or lower a ceiling:\n{}",
        wrong.join("\n")
    );
    Ok(format!(
        "{} of {} words of comments hide a noun",
        all.matches, all.words
    ))
}

/// Parses a line of [`CEILINGS`] into a folder and its ceiling.
fn parse(line: &str) -> Result<(&str, usize)> {
    let (folder, ceiling) = line
        .split_once(' ')
        .with_context(|| format!("{CEILINGS}: \"{line}\" is not a folder and a number"))?;
    let ceiling = ceiling
        .parse()
        .with_context(|| format!("{CEILINGS}: ceiling of {folder}"))?;
    Ok((folder, ceiling))
}

fn count_folder(folder: &str) -> Result<Count> {
    let mut all = Count::default();
    for source in files::all(folder)? {
        all.add(count(&source.text));
    }
    Ok(all)
}

/// Counts matches and words in the comments of a file. A comment behind code on the same line does
/// not count.
fn count(text: &str) -> Count {
    let mut count = Count::default();
    // A pair may have a line break between its words.
    let mut before = String::new();
    for line in text.lines() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            before.clear();
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        count.words += comment.split_whitespace().count();
        for word in comment.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if word.is_empty() {
                continue;
            }
            let word = word.to_lowercase();
            let is_match =
                WORDS.contains(&word.as_str()) || PAIRS.contains(&(before.as_str(), word.as_str()));
            count.matches += usize::from(is_match);
            before = word;
        }
    }
    count
}

impl Count {
    fn add(&mut self, other: Self) {
        self.matches += other.matches;
        self.words += other.words;
    }

    /// Returns the matches per 1,000 words, rounded up.
    fn per_thousand_words(self) -> usize {
        (1000 * self.matches).div_ceil(self.words.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_comments_count() {
        let text = "//! What it does.\nlet what = 1;\n    /// A link of\n    /// which somewhat is known.\n";
        let expected = Count {
            matches: 2,
            words: 10,
        };
        assert_eq!(count(text), expected);
        assert_eq!(expected.per_thousand_words(), 200);
    }

    #[test]
    fn a_pair_does_not_span_code() {
        let text = "/// A list of\nstruct A;\n/// Which one.\n";
        assert_eq!(count(text).matches, 0);
    }
}
