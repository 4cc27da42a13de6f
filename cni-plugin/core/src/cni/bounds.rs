//! Length limits for text in messages: quoted input, lists, and the message itself.

/// Maximum length of quoted input in a message, in characters.
const SHOWN_CHARS: usize = 60;
/// Maximum length of a message, and of its details, in bytes.
const MOST_BYTES: usize = 2048;
/// Maximum length of a list within a message, in bytes.
const LIST_BYTES: usize = 512;

/// Returns `text` for a message: unchanged, or the first 60 characters and `...`.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Joins items into a list of about 512 bytes, and counts the omitted items: `a; b; (400 more)`. A
/// first item that is longer than 512 bytes is cut.
pub fn listed<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    listed_within(LIST_BYTES, items)
}

/// Joins sentences like [`listed`], but into about 1,536 bytes, which fit into a message.
pub fn sentences<T: AsRef<str>>(all: impl IntoIterator<Item = T>) -> String {
    listed_within(MOST_BYTES - LIST_BYTES, all)
}

fn listed_within<T: AsRef<str>>(most: usize, items: impl IntoIterator<Item = T>) -> String {
    let (mut text, mut more) = (String::new(), 0_usize);
    for item in items {
        let item = item.as_ref();
        if more > 0 || !text.is_empty() && text.len() + item.len() > most {
            more += 1;
            continue;
        }
        text.push_str(if text.is_empty() { "" } else { "; " });
        text.push_str(&cut(item, most));
    }
    if more > 0 {
        format!("{text}; ({more} more)")
    } else {
        text
    }
}

/// Returns a message of up to 2,048 bytes unchanged. A longer message loses its middle, because its
/// end has the cause.
pub fn bounded(text: String) -> String {
    if text.len() <= MOST_BYTES {
        text
    } else {
        cut(&text, MOST_BYTES)
    }
}

/// Returns a text of up to `most` bytes unchanged. A longer text loses its middle, like a message in
/// [`bounded`]. `most` is at least 200.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - most / 4)..];
    format!(
        "{head}... ({} bytes more) ...{tail}",
        text.len() - head.len() - tail.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_says_how_many_more_there_are() {
        let items: Vec<String> = (0..402).map(|port| format!("port {port}")).collect();
        let text = listed(&items);
        assert!(
            text.starts_with("port 0; port 1; ") && text.ends_with(" more)"),
            "{text}"
        );
        let shown = text.matches("port").count();
        assert!(
            text.ends_with(&format!("; ({} more)", 402 - shown)) && text.len() < 600,
            "{text}"
        );
        assert_eq!(listed(["a", "b"]), "a; b");
        assert_eq!(listed([""; 0]), "");
    }

    #[test]
    fn cut_text_keeps_both_ends_and_whole_characters() {
        let text = format!("begin {} the cause", "é".repeat(4000));
        let cut = bounded(text.clone());
        assert!(
            cut.starts_with("begin é") && cut.ends_with("é the cause") && cut.len() < MOST_BYTES,
            "{cut}"
        );
        assert_eq!(bounded("short".to_owned()), "short");
        assert!(listed([text]).len() < 600);
    }
}
