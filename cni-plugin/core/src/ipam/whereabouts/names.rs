//! Names of Whereabouts' objects, and addresses as its keys.

use crate::ipam::range::{from_bits, to_bits};
use ipnet::IpNet;
use std::net::IpAddr;

/// Returns the name of the pool of a range. An empty network name is the unnamed network's.
pub fn pool(network: &str, range: IpNet) -> String {
    in_network(network, &object_name(&range.to_string()))
}

/// Returns the name of the pool of a node's slice of a range.
pub fn slice_pool(network: &str, node: &str, slice: IpNet) -> String {
    in_network(network, &in_network(node, &object_name(&slice.to_string())))
}

/// Returns the name of the reservation of an address.
pub fn reservation(network: &str, address: IpAddr) -> String {
    in_network(network, &object_name(&address.to_string()))
}

/// Converts the name of a reservation to the offset of its address in the range; `None` for another
/// network, and for an address outside.
pub fn reserved_offset(network: &str, range: IpNet, name: &str) -> Option<u128> {
    let text = match network {
        "" => name,
        network => name.strip_prefix(network)?.strip_prefix('-')?,
    };
    let text = match range {
        IpNet::V4(_) => text.to_owned(),
        IpNet::V6(_) => text.replace('-', ":"),
    };
    let at = offset(range, text.parse().ok()?)?;
    // Each address has one name.
    (reservation(network, address(range, at)?) == name).then_some(at)
}

/// Returns the network names that the pool of a range may belong to. Its name does not tell a network
/// from a node with a slice. Empty if the pool is not named for its range.
pub fn networks<'p>(pool: &'p str, range: IpNet, node: &str) -> Vec<&'p str> {
    let range = object_name(&range.to_string());
    let slice = in_network(node, &range);
    let before = |rest: &str| match pool.strip_suffix(rest)? {
        "" => Some(""),
        network => network.strip_suffix('-'),
    };
    [before(&range), before(&slice)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the network names that the pool of a range may belong to if its node is not known: all starts
/// of its name that end before a hyphen. Empty if the pool is not named for its range.
pub fn all_networks(pool: &str, range: IpNet) -> Vec<&str> {
    let range = object_name(&range.to_string());
    let before = match pool.strip_suffix(&*range) {
        Some("") => return vec![""],
        Some(before) => before,
        None => return Vec::new(),
    };
    let Some(network) = before.strip_suffix('-') else {
        return Vec::new();
    };
    let mut all = vec![network, ""];
    all.extend(network.match_indices('-').map(|(at, _)| &network[..at]));
    all
}

fn in_network(network: &str, name: &str) -> String {
    if network.is_empty() {
        return name.to_owned();
    }
    format!("{network}-{name}")
}

/// Replaces the characters that no object name has. A name does not end with a hyphen.
fn object_name(text: &str) -> String {
    let mut name = text.replace([':', '/'], "-");
    if text.ends_with(':') {
        name.push('0');
    }
    name
}

/// Returns the distance of an address from the network address of its range, the key of its entry
/// in a pool; `None` if it is outside.
pub fn offset(range: IpNet, address: IpAddr) -> Option<u128> {
    let is_inside = range.contains(&address);
    is_inside.then(|| to_bits(address) - to_bits(range.network()))
}

/// Returns the address at this distance from the network address; `None` if it is outside.
pub fn address(range: IpNet, offset: u128) -> Option<IpAddr> {
    let bits = to_bits(range.network()).checked_add(offset)?;
    let address = from_bits(bits, matches!(range, IpNet::V4(_)));
    range.contains(&address).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_whereabouts() {
        for (network, range, name) in [
            ("", "10.0.0.0/24", "10.0.0.0-24"),
            ("lan", "10.0.0.0/24", "lan-10.0.0.0-24"),
            ("", "fd00::/64", "fd00---64"),
            ("", "fd00:1:2::/48", "fd00-1-2---48"),
        ] {
            assert_eq!(pool(network, range.parse().unwrap()), name);
        }
        let slice = "10.0.1.0/24".parse().unwrap();
        assert_eq!(slice_pool("", "node-a", slice), "node-a-10.0.1.0-24");
        assert_eq!(slice_pool("lan", "node-a", slice), "lan-node-a-10.0.1.0-24");
        for (network, address, name) in [
            ("", "10.0.0.5", "10.0.0.5"),
            ("lan", "10.0.0.5", "lan-10.0.0.5"),
            ("", "fd00::", "fd00--0"),
            ("", "fd00::5", "fd00--5"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(reservation(network, address), name);
            let range = if address.is_ipv4() {
                "10.0.0.0/24"
            } else {
                "fd00::/64"
            };
            let range: IpNet = range.parse().unwrap();
            let at = offset(range, address);
            assert!(at.is_some() && reserved_offset(network, range, name) == at);
            for (network, name) in [("other", name), (network, "10.0.1.5"), (network, "fd00-5")] {
                assert_eq!(reserved_offset(network, range, name), None, "{name}");
            }
        }
    }

    #[test]
    fn a_pool_is_of_a_network_or_of_a_node_of_it() {
        for (pool, expected) in [
            ("10.0.0.0-24", &[""][..]),
            ("lan-10.0.0.0-24", &["lan"]),
            ("node-a-10.0.0.0-24", &["node-a", ""]),
            ("lan-node-a-10.0.0.0-24", &["lan-node-a", "lan"]),
            ("110.0.0.0-24", &[]),
            ("other", &[]),
        ] {
            let range = "10.0.0.0/24".parse().unwrap();
            assert_eq!(networks(pool, range, "node-a"), expected, "{pool}");
        }
    }

    #[test]
    fn without_its_node_a_pool_may_be_of_more_networks() {
        let range = "10.0.0.0/24".parse().unwrap();
        for (pool, expected) in [
            ("10.0.0.0-24", &[""][..]),
            ("lan-10.0.0.0-24", &["lan", ""]),
            (
                "my-lan-a.b-10.0.0.0-24",
                &["my-lan-a.b", "", "my", "my-lan"],
            ),
            ("110.0.0.0-24", &[]),
            ("other", &[]),
        ] {
            assert_eq!(all_networks(pool, range), expected, "{pool}");
        }
    }

    #[test]
    fn an_offset_counts_from_the_network_address() {
        for (range, text, expected) in [
            ("10.0.0.0/24", "10.0.0.5", Some(5)),
            ("10.0.0.0/24", "10.0.1.5", None),
            ("10.0.0.0/24", "fd00::5", None),
            ("fd00::/64", "fd00::8000:0:0:1", Some((1 << 63) + 1)),
        ] {
            let (range, ip): (IpNet, IpAddr) = (range.parse().unwrap(), text.parse().unwrap());
            assert_eq!(offset(range, ip), expected, "{range} {ip}");
            if let Some(offset) = expected {
                assert_eq!(address(range, offset), Some(ip));
            }
        }
        let range = "10.0.0.0/24".parse().unwrap();
        assert_eq!(address(range, 256), None);
        assert_eq!(address(range, u128::MAX), None);
    }
}
