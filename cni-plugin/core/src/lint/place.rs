//! Line numbers of values in a JSON text, for messages.

use crate::cni::Json;

/// A step from a value to one inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Field of an object.
    Key(String),
    /// Item of a list.
    Index(usize),
}

/// Returns the line of the value at `path`, with its key; 1 if the text has no such value.
pub(super) fn line_of(text: &str, path: &[Step]) -> usize {
    let offset = Scan {
        bytes: text.as_bytes(),
        at: 0,
    }
    .find(path)
    .unwrap_or_default();
    1 + text
        .bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
}

/// Returns the deepest value that a message names. Words in quotes or before a colon are keys, as
/// in `ipam: ranges[0]: "subnet": …`.
pub(super) fn named<'a>(json: &'a Json, message: &str) -> (Vec<Step>, &'a Json) {
    let (mut path, mut value) = (Vec::new(), json);
    for word in message
        .split(' ')
        .filter(|word| word.starts_with('"') || word.ends_with(':'))
    {
        let word = word.trim_matches([':', '"']);
        let (key, index) = match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
            Some((key, index)) => (key, index.parse().ok()),
            None => (word, None),
        };
        let Some(field) = value.get(key) else {
            continue;
        };
        value = field;
        path.push(Step::Key(key.to_owned()));
        if let (Some(index), Json::Array(items)) = (index, value)
            && let Some(item) = items.get(index)
        {
            value = item;
            path.push(Step::Index(index));
        }
    }
    (path, value)
}

/// Valid JSON text, and the read position.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Returns the offset of the value at `path`, or of its key.
    fn find(&mut self, path: &[Step]) -> Option<usize> {
        let mut offset = self.next()?;
        for step in path {
            offset = match step {
                Step::Key(key) => self.enter_field(key)?,
                Step::Index(index) => self.enter_item(*index)?,
            };
        }
        Some(offset)
    }

    /// Moves to the value of a field and returns the offset of its key.
    fn enter_field(&mut self, key: &str) -> Option<usize> {
        self.take(b'{')?;
        loop {
            let start = self.next()?;
            self.skip_string()?;
            let found = self
                .bytes
                .get(start + 1..self.at - 1)?
                .eq_ignore_ascii_case(key.as_bytes());
            self.take(b':')?;
            if found {
                self.next()?;
                return Some(start);
            }
            self.skip_value()?;
            self.take(b',')?;
        }
    }

    fn enter_item(&mut self, index: usize) -> Option<usize> {
        self.take(b'[')?;
        for _ in 0..index {
            self.skip_value()?;
            self.take(b',')?;
        }
        self.next()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips blanks and returns the offset.
    fn next(&mut self) -> Option<usize> {
        while self.peek()?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.at)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.next()?;
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.next()?;
            match self.peek()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_word(),
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_word(&mut self) {
        while self
            .peek()
            .is_some_and(|byte| !b",:]}\"".contains(&byte) && !byte.is_ascii_whitespace())
        {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\n \"a\\\"}\": [1, {\"x\":\n \"]\"}],\n \"Plugins\": [\n {\"type\": \"t\"},\n {\n  \"vlan\": -5e3,\n  \"b\": \
                        {\"c\":\n null}\n }\n ]\n}";

    fn steps(words: &[&str]) -> Vec<Step> {
        let step = |word: &&str| {
            word.parse()
                .map_or_else(|_| Step::Key((*word).to_owned()), Step::Index)
        };
        words.iter().map(step).collect()
    }

    #[test]
    fn value_has_the_line_of_its_key() {
        for (path, line) in [
            (&[][..], 1),
            (&["plugins"], 4),
            (&["plugins", "0", "type"], 5),
            (&["plugins", "1"], 6),
            (&["plugins", "1", "vlan"], 7),
            (&["plugins", "1", "b", "c"], 8),
            (&["plugins", "9"], 1),
            (&["none"], 1),
            (&["plugins", "type"], 1),
        ] {
            assert_eq!(line_of(TEXT, &steps(path)), line, "{path:?}");
        }
    }

    #[test]
    fn any_prefix_of_a_text_has_lines() {
        for end in 0..TEXT.len() {
            let path = steps(&["plugins", "1", "b", "c"]);
            assert!(line_of(&TEXT[..end], &path) <= 8);
        }
        assert_eq!(line_of("\"\\", &steps(&["x"])), 1);
        assert_eq!(line_of("{\"a\\", &steps(&["x"])), 1);
        assert_eq!(line_of(&"[".repeat(1 << 20), &steps(&["1"])), 1);
    }

    #[test]
    fn words_of_a_message_name_a_value() {
        let json = Json::parse(
            br#"{"ipam":{"ranges":[{},{"subnet":"x"}]},"subnet":1}"#,
            "test",
        )
        .unwrap();
        for (message, path, value) in [
            (
                r#"ipam: ranges[1]: "subnet": bad"#,
                &["ipam", "ranges", "1", "subnet"][..],
                r#""x""#,
            ),
            (r#""subnet": bad subnet "ipam""#, &["subnet"], "1"),
            (
                "\"ipam\" is wrong",
                &["ipam"],
                r#"{"ranges":[{},{"subnet":"x"}]}"#,
            ),
            (
                "ipam: no subnet: ranges[7]: none",
                &["ipam", "ranges"],
                r#"[{},{"subnet":"x"}]"#,
            ),
            (
                "ipam: ranges[x]: none",
                &["ipam", "ranges"],
                r#"[{},{"subnet":"x"}]"#,
            ),
            ("no ipam, no subnet", &[], &json.to_string()),
        ] {
            let (found, at) = named(&json, message);
            assert_eq!(
                (found, at.to_string().as_str()),
                (steps(path), value),
                "{message}"
            );
        }
    }
}
