//! Events about a pod's interfaces, in the words of Multus.

use super::source::{Event, Severity};
use crate::cni::Error;
use ipnet::IpNet;

/// Reason of the event about an ADD that failed.
pub const FAILED_ADD: &str = "FailedAddInterface";
/// Reason of the event about a DEL that failed.
pub const FAILED_REMOVE: &str = "FailedRemoveInterface";

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

/// Returns the event about an ADD or DEL that failed. `networks` are the networks of the call.
pub fn failed(reason: &'static str, err: &Error, networks: &[String]) -> Event {
    let mut message = err.to_string();
    let is_told = |name: &String| {
        [format!("network {name}"), format!("network {name:?}")]
            .iter()
            .any(|words| message.contains(words))
    };
    if !networks.iter().any(is_told) {
        message = format!("network {}: {message}", networks.join(", "));
    }
    Event {
        severity: Severity::Warning,
        reason: reason.into(),
        message,
        trace: None,
    }
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
        trace: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_a_network_once() {
        let names = ["pods".to_owned(), "lan/a".to_owned()];
        let text = |err: &str| failed(FAILED_ADD, &Error::internal(err), &names).message;
        let told = text("add link net1: EBUSY");
        assert!(told.starts_with("network pods, lan/a: "), "{told}");
        assert!(told.contains("EBUSY"), "{told}");
        let told = text("4 in use, 1 held for next pods");
        assert!(told.starts_with("network pods, lan/a: "), "{told}");
        for names in ["network lan/a: ", "network \"pods\": "] {
            let told = text(&format!("{names}no free address"));
            assert!(told.starts_with(names), "{told}");
        }
    }

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
