//! STATUS after a boot of the node. A time namespace makes the boot recent.

use super::{Agent, CONFLIST, Pair, await_true};
use crate::{Value, json};
use std::fs;

/// File that exists once the agent has set the routes of this boot.
const ROUTES: &str = "/run/braid/routes";

/// Returns the command under which the node has booted `seconds` ago.
fn booted(seconds: u64) -> String {
    let uptime = fs::read_to_string("/proc/uptime").expect("an uptime");
    let uptime: f64 = uptime
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    let whole = uptime.trunc().to_string();
    let whole: u64 = whole.parse().expect("seconds");
    format!("unshare --time --boottime -{}", whole - seconds)
}

#[test]
fn status_waits_for_the_routes_of_a_boot_for_a_minute_and_only_if_an_agent_wrote_the_list() {
    let Some(pair) = Pair::new("boot", 111) else {
        return;
    };
    let agent: Agent = pair.start();
    await_true("the conflist", || fs::exists(CONFLIST).is_ok_and(|is| is));
    let list: Value =
        serde_json::from_str(&fs::read_to_string(CONFLIST).expect("a list")).expect("JSON");
    let mut conf = list["plugins"][0].clone();
    conf["name"] = list["name"].clone();
    conf["cniVersion"] = list["cniVersion"].clone();
    let pod = pair.world.sandbox.pod("none");
    let call = pair.world.sandbox.call("braid", &pod, conf.clone());
    let just_booted = call.clone().under(&booted(5));
    just_booted.status().ok();
    // The boot empties /run.
    agent.kill();
    fs::remove_file(ROUTES).expect("the agent's file");
    just_booted
        .status()
        .refused(50, &["routes of this boot", ROUTES]);
    call.clone().under(&booted(70)).status().ok();
    call.status().ok();
    // ADD does not wait.
    call.clone().under(&booted(5)).add().result();
    call.del().ok();
    conf["routesFile"] = json!("");
    pair.world
        .sandbox
        .call("braid", &pod, conf)
        .under(&booted(5))
        .status()
        .ok();
    let again = pair.start();
    await_true("the routes", || fs::exists(ROUTES).is_ok_and(|is| is));
    just_booted.status().ok();
    again.kill();
}
