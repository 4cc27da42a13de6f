//! Environment variable `BRAID_WITHIN`: the foreign plugins among the parents of this process, each
//! started by another call of braid.
//!
//! A foreign plugin may call braid for the same container, for an address or a bridge. That call
//! must not wait for its parent call's lock. And it must not start the same plugin again for the
//! same attachment, which would never end.

use braid_core::cni::Owner;
use std::env;
use std::fmt::Write;

/// Environment variable with four fields for each foreign plugin among the ancestors of this
/// process: container, interface, network, plugin. The outermost plugin is first. Each field ends
/// with a `/`, which the kernel and CNI do not allow in these names.
const VARIABLE: &str = "BRAID_WITHIN";
const FIELDS: usize = 4;

/// True if a parent process is a call for this container, so it has locked the container's folder.
pub(crate) fn holds(container_id: &str) -> bool {
    let text = env::var(VARIABLE).unwrap_or_default();
    text.split('/')
        .step_by(FIELDS)
        .any(|held| held == container_id)
}

/// True if a parent process already runs `plugin` for the same attachment to the same network.
pub(crate) fn runs(plugin: &str, owner: &Owner) -> bool {
    is_in(&env::var(VARIABLE).unwrap_or_default(), plugin, owner)
}

fn is_in(text: &str, plugin: &str, owner: &Owner) -> bool {
    let fields: Vec<&str> = text.split('/').collect();
    fields
        .chunks_exact(FIELDS)
        .any(|fields| *fields == fields_of(plugin, owner))
}

/// Returns name and value of the environment variable for a run of `plugin` by a call for `owner`.
pub(crate) fn variable(plugin: &str, owner: &Owner) -> (&'static str, String) {
    (
        VARIABLE,
        behind(env::var(VARIABLE).unwrap_or_default(), plugin, owner),
    )
}

fn behind(mut text: String, plugin: &str, owner: &Owner) -> String {
    for field in fields_of(plugin, owner) {
        // Writing to a String can't fail.
        let _ = write!(text, "{field}/");
    }
    text
}

fn fields_of<'a>(plugin: &'a str, owner: &'a Owner) -> [&'a str; FIELDS] {
    [&owner.container_id, &owner.ifname, &owner.network, plugin]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(container_id: &str) -> Owner {
        Owner::new("net", container_id, "eth0")
    }

    #[test]
    fn plugin_is_found_among_the_parents_of_the_call() {
        let text = behind(
            behind(String::new(), "vlan", &owner("a")),
            "flannel",
            &owner("b"),
        );
        assert_eq!(text, "a/eth0/net/vlan/b/eth0/net/flannel/");
        let found = |plugin, id| is_in(&text, plugin, &owner(id));
        assert_eq!([found("vlan", "a"), found("flannel", "b")], [true; 2]);
        assert_eq!(
            [found("flannel", "a"), found("vlan", "b"), found("vlan", "")],
            [false; 3]
        );
    }
}
