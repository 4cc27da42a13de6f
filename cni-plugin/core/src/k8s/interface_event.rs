//! Events about a pod's interfaces, in the words of Multus.

use super::source::{Event, Severity};
use ipnet::IpNet;

/// Returns the event about an interface that a pod has got from `network`.
pub fn added(ifname: &str, addresses: &[IpNet], network: &str) -> Event {
    normal(
        "AddedInterface",
        format!("Add {}", of(ifname, addresses, network)),
    )
}

/// Returns the event about an interface that a pod no longer has.
pub fn removed(ifname: &str, addresses: &[IpNet], network: &str) -> Event {
    normal(
        "RemovedInterface",
        format!("Remove {}", of(ifname, addresses, network)),
    )
}

fn of(ifname: &str, addresses: &[IpNet], network: &str) -> String {
    let mut texts = Vec::new();
    for address in addresses {
        texts.push(address.to_string());
    }
    format!("{ifname} [{}] from {network}", texts.join(" "))
}

fn normal(reason: &'static str, message: String) -> Event {
    Event {
        severity: Severity::Normal,
        reason: reason.into(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_interface_addresses_and_network() {
        let addresses = ["10.1.0.5/24", "fd00::5/64"].map(|text| text.parse().expect("an address"));
        assert_eq!(
            added("net1", &addresses, "lan/a").message,
            "Add net1 [10.1.0.5/24 fd00::5/64] from lan/a"
        );
        assert_eq!(
            removed("net1", &[], "lan/a").message,
            "Remove net1 [] from lan/a"
        );
    }
}
