//! `braid agent --remove`: deletion of the state of agent and calls, with and without attached containers.

use super::{Pair, attach, await_true, is_ready};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn removal_leaves_the_state_of_attached_containers_until_their_del_and_nothing_after_it() {
    let Some(pair) = Pair::new("agent-removal", 116) else {
        return;
    };
    let agent = pair.start();
    await_true("readiness", is_ready);
    let (_pod, call) = attach(&pair);
    agent.stop();
    let present = || {
        let entries = fs::read_dir("/run/braid").expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.into_string().expect("text"));
        names.collect::<BTreeSet<String>>()
    };
    let of_agent = ["agent.sock", "api", "routes"];
    let before = present();
    assert!(
        of_agent.iter().all(|name| before.contains(*name)),
        "{before:?}"
    );
    let _removal = pair.start_with(&["--remove"]);
    await_true("removal", is_ready);
    let during = present();
    assert!(during.contains("attachments"), "{during:?}");
    let journals = Path::new("/var/lib/braid/ipam");
    assert!(
        !journals.exists(),
        "the container has no cluster-wide address"
    );
    assert!(
        of_agent.iter().all(|name| !during.contains(*name)),
        "{during:?}"
    );
    call.del().ok();
    await_true("an empty folder", || present().is_empty());
}

#[test]
fn removal_deletes_the_bridge_of_pods_after_their_last_del() {
    let Some(pair) = Pair::new("agent-bridge", 117) else {
        return;
    };
    fs::write("/run/config.yaml", "type: bridge\n").expect("written");
    let agent = pair.start_with(&["--config", "/run/config.yaml"]);
    await_true("readiness", is_ready);
    let (_pod, call) = attach(&pair);
    let sandbox = &pair.world.sandbox;
    assert!(sandbox.link("braid0").is_some());
    agent.stop();
    let _removal = pair.start_with(&["--remove"]);
    await_true("removal", is_ready);
    assert!(sandbox.link("braid0").is_some(), "a pod uses it");
    call.del().ok();
    await_true("a node without the bridge", || {
        sandbox.link("braid0").is_none()
    });
}
