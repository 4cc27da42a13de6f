//! Foreign plugins that run this call, each for another call of braid: `BRAID_WITHIN`.
//!
//! A foreign plugin may call braid for the same container, to have an address or a bridge of it. That call must not wait
//! for the one that waits for it. And it must not start that plugin again for the same attachment: it would have no end.

use super::record::Key;
use std::env;
use std::fmt::Write;

/// Four fields of each plugin, outermost first, with a `/` behind each: the kernel and CNI allow none in any of them.
const VARIABLE: &str = "BRAID_WITHIN";
const FIELDS: usize = 4;

/// Whether a call that waits for one of them is for this container, whose folder it holds.
pub(super) fn holds(container_id: &str) -> bool {
    let text = env::var(VARIABLE).unwrap_or_default();
    text.split('/').step_by(FIELDS).any(|held| held == container_id)
}

/// Whether `plugin` is one of them, run for the same attachment of the same network.
pub(super) fn runs(plugin: &str, key: &Key) -> bool {
    is_in(&env::var(VARIABLE).unwrap_or_default(), plugin, key)
}

fn is_in(text: &str, plugin: &str, key: &Key) -> bool {
    let fields: Vec<&str> = text.split('/').collect();
    fields.chunks_exact(FIELDS).any(|fields| *fields == fields_of(plugin, key))
}

/// The variable for `plugin`, run by the call with this key.
pub(super) fn variable(plugin: &str, key: &Key) -> (&'static str, String) {
    (VARIABLE, behind(env::var(VARIABLE).unwrap_or_default(), plugin, key))
}

fn behind(mut text: String, plugin: &str, key: &Key) -> String {
    for field in fields_of(plugin, key) {
        // Writing to a String can't fail.
        let _ = write!(text, "{field}/");
    }
    text
}

fn fields_of<'a>(plugin: &'a str, key: &'a Key) -> [&'a str; FIELDS] {
    [&key.container_id, &key.ifname, &key.network, plugin]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container_id: &str) -> Key {
        let text = |text: &str| text.to_owned();
        Key { container_id: text(container_id), ifname: text("eth0"), ..Key::of_no_container("net", "braid") }
    }

    #[test]
    fn a_plugin_is_found_among_those_around_the_call() {
        let text = behind(behind(String::new(), "vlan", &key("a")), "flannel", &key("b"));
        assert_eq!(text, "a/eth0/net/vlan/b/eth0/net/flannel/");
        let found = |plugin, id| is_in(&text, plugin, &key(id));
        assert_eq!([found("vlan", "a"), found("flannel", "b")], [true; 2]);
        assert_eq!([found("flannel", "a"), found("vlan", "b"), found("vlan", "")], [false; 3]);
    }
}
