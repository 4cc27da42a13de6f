//! The number of addresses that a node holds before pods need them, so that an ADD sends no request.

/// Most addresses of a pool that a node holds.
pub const MOST: usize = 16;

/// Returns the number of addresses that a node may hold: a quarter of those it uses, and a part of those
/// that are left so small that all nodes together never hold more than half of these. The last ones,
/// fewer than two for each node, are held by none.
pub fn target(used: usize, left: u128, nodes: usize) -> usize {
    let nodes = u128::try_from(nodes.max(1)).unwrap_or(u128::MAX);
    let share = usize::try_from(left / nodes.saturating_mul(2)).unwrap_or(MOST);
    used.div_ceil(4).min(share).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_holds_a_quarter_of_its_use_and_leaves_half_of_the_rest() {
        for (used, left, nodes, expected) in [
            (0, 1_000, 10, 0),
            (1, 1_000, 10, 1),
            (40, 1_000, 10, 10),
            (200, 1_000, 10, 16),
            (200, 100, 10, 5),
            (200, 20, 10, 1),
            (200, 19, 10, 0),
            (200, u128::MAX, 0, 16),
        ] {
            assert_eq!(target(used, left, nodes), expected, "{used} {left} {nodes}");
        }
    }
}
