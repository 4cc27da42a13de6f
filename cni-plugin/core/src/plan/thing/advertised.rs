//! Host links that accept router advertisements. By default a link ignores them once the host
//! forwards IPv6.

use super::sysctl::Sysctl;
pub use crate::plan::fact::advertised::Advertised;

impl Advertised {
    /// Returns the sysctl that lets the link accept advertisements even if the host forwards.
    /// `None` for a link that may connect to containers and has no route from an advertisement,
    /// because no container may become the host's router.
    pub fn accept(&self) -> Option<Sysctl> {
        const OUTWARD: [&str; 4] = ["", "bond", "team", "vlan"];
        let name = self.at.name.as_str();
        let leads_out = OUTWARD.contains(&self.kind.as_str()) && !self.is_port && name != "lo";
        let key = Sysctl::accept_ra(name);
        // Optional, because the link may disappear meanwhile.
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
    use crate::plan::fact::link_ref::LinkRef;

    #[test]
    fn links_with_a_router_and_uplinks_keep_accepting_advertisements() {
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
