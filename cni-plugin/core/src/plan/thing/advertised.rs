//! Links of the host that accept router advertisements, which a host that forwards IPv6 refuses by
//! default.

use super::{LinkRef, Sysctl};

/// A link that accepts router advertisements as long as the host forwards no IPv6 (`accept_ra` is
/// 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The link.
    pub at: LinkRef,
    /// Its kind, `""` for hardware.
    pub kind: String,
    /// It is a port of another link.
    pub is_port: bool,
    /// The host has a route from such an advertisement through it.
    pub has_route: bool,
}

impl Advertised {
    /// The sysctl that has the link accept them while the host forwards; none for a link without a
    /// router that may lead to containers, which must not become one.
    pub fn accept(&self) -> Option<Sysctl> {
        const OUTWARD: [&str; 4] = ["", "bond", "team", "vlan"];
        let name = self.at.name.as_str();
        let leads_out = OUTWARD.contains(&self.kind.as_str()) && !self.is_port && name != "lo";
        let key = Sysctl::accept_ra(name);
        // A link that is gone meanwhile needs none.
        (self.has_route || leads_out).then(|| Sysctl {
            ns: self.at.ns,
            key,
            value: "2".to_owned(),
            optional: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;

    #[test]
    fn a_link_with_a_router_is_kept_and_one_without_if_it_leads_out_of_the_node() {
        let kept = |name, kind: &str, is_port, has_route| {
            let at = LinkRef::host(IfName::parse(name).expect("a name"));
            Advertised {
                at,
                kind: kind.to_owned(),
                is_port,
                has_route,
            }
            .accept()
            .map(|sysctl| sysctl.key)
        };
        let key = |name| Some(format!("net/ipv6/conf/{name}/accept_ra"));
        assert_eq!(
            (
                kept("eth0", "", false, false),
                kept("eth0.5", "vlan", false, false)
            ),
            (key("eth0"), key("eth0.5"))
        );
        assert_eq!(
            (kept("eth0", "", true, false), kept("lo", "", false, false)),
            (None, None)
        );
        for kind in ["bridge", "veth", "tun"] {
            assert_eq!(
                (kept("x", kind, false, true), kept("x", kind, false, false)),
                (key("x"), None),
                "{kind}"
            );
        }
    }
}
