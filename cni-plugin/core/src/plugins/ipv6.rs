//! IPv6 of the node: without it the container gets no IPv6 address.

use crate::name::Ns;
use crate::plan::thing::LinkRef;
use crate::plan::{Facts, Need};

/// Sysctl that disables IPv6 on new links. A kernel without IPv6 has no such sysctl.
const DEFAULT: &str = "net/ipv6/conf/default/disable_ipv6";

/// Returns the fact that [`off`] needs; `None` if the known links already show whether IPv6 is on.
pub fn need(at: Option<&LinkRef>, facts: &Facts) -> Option<Need> {
    is_on(at, facts)
        .is_none()
        .then(|| Need::Sysctl(Ns::Host, DEFAULT.to_owned()))
}

/// Returns the reason why a container can't have IPv6, if any. Either the kernel lacks IPv6, or it
/// is disabled on the host link `at`, which carries the container's gateway. The container's own
/// interface does not matter: braid enables IPv6 on it.
pub fn off(at: Option<&LinkRef>, facts: &Facts) -> Option<String> {
    let is_one = |link: &str| format!("net.ipv6.conf.{link}.disable_ipv6 is 1");
    match (
        is_on(at, facts),
        at,
        facts.sysctls.get(&(Ns::Host, DEFAULT.to_owned())),
    ) {
        (Some(false), Some(at), _) => Some(is_one(at.name.as_str())),
        (None, _, None) => Some("the kernel does not support it".to_owned()),
        (None, Some(_), Some(value)) if value != "0" => Some(is_one("default")),
        _ => None,
    }
}

/// Returns true if IPv6 is enabled on the link `at`; `None` if unknown. Without `at`, any link with
/// an IPv6 state proves that the kernel has IPv6.
fn is_on(at: Option<&LinkRef>, facts: &Facts) -> Option<bool> {
    match at {
        Some(at) => facts.link(at)?.has_ipv6,
        None => facts
            .links
            .values()
            .any(|fact| fact.has_ipv6.is_some())
            .then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::IfName;
    use crate::plan::facts::LinkFact;

    #[test]
    fn an_existing_link_decides_for_itself_and_the_default_for_new_links() {
        let br0 = LinkRef::host(IfName::parse("br0").expect("a name"));
        let judge =
            |at: Option<&LinkRef>, has_ipv6: Option<Option<bool>>, default: Option<&str>| {
                let mut facts = Facts::default();
                if let Some(has_ipv6) = has_ipv6 {
                    let fact = LinkFact {
                        has_ipv6,
                        ..LinkFact::planned("bridge", None, 1500, true)
                    };
                    facts.links.insert(br0.clone(), fact);
                }
                if let Some(default) = default
                    && need(at, &facts).is_some()
                {
                    let key = (Ns::Host, DEFAULT.to_owned());
                    facts.sysctls.insert(key, default.to_owned());
                }
                off(at, &facts)
            };
        let (of_link, of_new) = (
            "net.ipv6.conf.br0.disable_ipv6 is 1",
            "net.ipv6.conf.default.disable_ipv6 is 1",
        );
        let at = Some(&br0);
        assert_eq!(judge(at, Some(Some(true)), Some("1")), None);
        assert_eq!(
            judge(at, Some(Some(false)), Some("0")).as_deref(),
            Some(of_link)
        );
        assert_eq!(
            (
                judge(at, None, Some("1")).as_deref(),
                judge(at, None, Some("0"))
            ),
            (Some(of_new), None)
        );
        for at in [at, None] {
            assert_eq!(
                judge(at, Some(None), None).as_deref(),
                Some("the kernel does not support it")
            );
        }
        assert_eq!(
            (
                judge(None, Some(Some(false)), None),
                judge(None, None, Some("1"))
            ),
            (None, None)
        );
    }
}
