//! Traffic shaping on this node, for people.

use super::output;
use braid_node::attach::shaped;
pub(super) use braid_node::attach::shaped::Direction;
use braid_node::store::record::{Attached, Record};

/// Returns the shaped directions of one attachment.
pub(super) fn of(record: &Record, attached: &Attached) -> Vec<Direction> {
    shaped::of(record, attached, &output::log())
}

/// Formats bits or bytes with a decimal prefix: `20M`, `1.5G`.
pub(super) fn short(number: u64) -> String {
    const PREFIXES: [(u64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "k"),
    ];
    let Some((unit, prefix)) = PREFIXES.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    match (number / unit, number % unit / (unit / 10)) {
        (whole, 0) => format!("{whole}{prefix}"),
        (whole @ ..10, tenths) => format!("{whole}.{tenths}{prefix}"),
        (whole, _) => format!("{whole}{prefix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_number_has_at_least_two_digits() {
        let texts = [0, 999, 1_000, 1_550, 20_000_000, 12_345_678, 4_294_967_295].map(short);
        assert_eq!(texts, ["0", "999", "1k", "1.5k", "20M", "12M", "4.2G"]);
    }
}
