//! Examples in pages of the book.

/// Returns the code blocks of a page that are marked with `language`.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts
        .filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'))
        .map(|text| text.to_owned() + "\n")
        .collect()
}
