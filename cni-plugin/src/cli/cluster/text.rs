//! Tables and sentences in 80 columns.

use crate::cli::output;

/// Columns of a narrow terminal.
pub(super) const WIDTH: usize = 80;
/// Blanks between two columns of a table.
const GAP: u16 = 2;
/// Least width of a column that was shortened.
const LEAST: usize = 8;

/// Formats a table of at most [`WIDTH`] columns. The columns `flexible` are shortened if necessary,
/// the widest first.
pub(in crate::cli) fn table(
    header: &[&str],
    mut rows: Vec<Vec<String>>,
    flexible: &[usize],
) -> String {
    for cell in rows.iter_mut().flatten() {
        *cell = printable(cell);
    }
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let gaps = usize::from(GAP) * header.len().saturating_sub(1);
    let room = WIDTH.saturating_sub(gaps);
    shrink(&mut widths, flexible, room);
    for row in &mut rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            *cell = shorten(cell, *width);
        }
    }
    output::columns(header, rows, GAP)
}

/// Replaces characters by which a node could control the terminal.
pub(super) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// Reduces the widest of the columns `flexible` until all fit into `room`.
fn shrink(widths: &mut [usize], flexible: &[usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let widest = flexible.iter().copied().max_by_key(|at| widths[*at]);
        match widest {
            Some(at) if widths[at] > LEAST => widths[at] -= 1,
            Some(_) | None => return,
        }
    }
}

/// Replaces the middle of a text by an ellipsis if it is longer than `width` characters. Ends of
/// names tell pods apart.
pub(super) fn shorten(text: &str, width: usize) -> String {
    let len = text.chars().count();
    if len <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (first, last) = (kept - kept / 2, kept / 2);
    let mut short: String = text.chars().take(first).collect();
    short.push('…');
    short.extend(text.chars().skip(len - last));
    short
}

/// Breaks a text at blanks into lines of at most [`WIDTH`] columns, each with a newline. The first
/// line begins with `first`, the others with `indent` blanks. A longer word is cut.
pub(in crate::cli) fn wrap(first: &str, text: &str, indent: usize) -> String {
    let (mut lines, mut line) = (String::new(), printable(first));
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let room = WIDTH - indent;
        let letters: Vec<char> = printable(word).chars().collect();
        for piece in letters.chunks(room) {
            let piece: String = piece.iter().collect();
            let gap = usize::from(!is_empty);
            if line.chars().count() + gap + piece.chars().count() > WIDTH {
                lines += line.trim_end();
                lines += "\n";
                line = " ".repeat(indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += &piece;
            is_empty = false;
        }
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_in_the_middle() {
        let texts = [
            ("web-7d4b9c-x7k2p", 16),
            ("web-7d4b9c-x7k2p", 9),
            ("é-é-é-é", 4),
            ("a", 0),
        ];
        let short = texts.map(|(text, width)| shorten(text, width));
        assert_eq!(short, ["web-7d4b9c-x7k2p", "web-…7k2p", "é-…é", "…"]);
    }

    #[test]
    fn the_widest_flexible_columns_shrink_until_a_table_fits() {
        let row =
            |pod: usize, node: usize| vec!["p".repeat(pod), "eth0".to_owned(), "n".repeat(node)];
        let text = table(
            &["POD", "IF", "NODE"],
            vec![row(100, 70), row(3, 3)],
            &[0, 2],
        );
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths[1], WIDTH, "{text}");
        assert!(widths.iter().all(|width| *width <= WIDTH), "{text}");
        let narrow = table(&["POD", "IF", "NODE"], vec![row(3, 3)], &[0, 2]);
        assert_eq!(narrow, "POD  IF    NODE\nppp  eth0  nnn\n");
    }

    #[test]
    fn sentences_break_at_blanks_and_long_words_anywhere() {
        let text = wrap(
            "n1: ",
            &format!("{} {}", "word ".repeat(20), "x".repeat(100)),
            4,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("n1: word") && lines[1].starts_with("    word"));
        assert_eq!(wrap("n1: ", "ok", 4), "n1: ok\n");
    }
}
