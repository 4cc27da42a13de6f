//! Policy routing rules and routes of plugins behind the IPAM `dhcp`, when a lease gets another
//! address.

use super::lost::SHORT;
use super::{Server, address, daemon, lan, said, until};
use braid_tests::{Call, Ns, Sandbox, Value, json, needs};
use nix::sys::signal::Signal;
use std::rc::Rc;

const ROUTER: &str = "--dhcp-option=option:router,10.3.0.254";
/// Address range and router option of the second DHCP server, on the machine behind `lan`.
const NEXT: (&str, &str) = (
    "10.9.0.10,10.9.0.99,255.255.255.0,2m",
    "--dhcp-option=option:router,10.9.0.254",
);

fn call(host: &Sandbox, pod: &Ns, behind: &Value) -> Call {
    let first = json!({"type": "macvlan", "master": "lan", "ipam": {"type": "dhcp"}});
    let conf =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": [first, behind]});
    host.call("braid", pod, conf)
}

/// Replaces the DHCP server by a server for another subnet, which refuses the container's lease.
/// Waits until the container has an address of the new subnet. Returns the new server and this
/// address.
#[track_caller]
fn move_to_another_net(far: &Rc<Ns>, pod: &Ns, server: Server) -> (Server, String) {
    drop(server);
    far.run("ip addr add 10.9.0.254/24 dev lan");
    let server = Server::with_range(far, "lan", NEXT.0, &[SHORT, NEXT.1]);
    let is_new = |addr: &String| addr.starts_with("10.9.0.");
    let new = until("there is another address", || {
        pod.addrs("eth0").into_iter().find(is_new)
    });
    (server, new.trim_end_matches("/24").to_owned())
}

/// Returns source and table of each policy routing rule that the kernel did not create.
fn rules(pod: &Ns) -> Vec<String> {
    let own = |rule: &Value| rule["src"] != "all";
    let text = |rule: Value| format!("{} {}", rule["src"], rule["table"]).replace('"', "");
    pod.list("ip -j rule")
        .into_iter()
        .filter(own)
        .map(text)
        .collect()
}

/// Returns destination, gateway and source of each IPv4 unicast route in a table, sorted.
fn table(pod: &Ns, table: &str) -> Vec<String> {
    let shown = pod
        .try_run(&format!("ip -4 -j route show table {table}"))
        .unwrap_or_default();
    let routes: Vec<Value> = serde_json::from_str(&shown).unwrap_or_default();
    let unicast = routes
        .iter()
        .filter(|route| route["type"].is_null() || route["type"] == "unicast");
    let text = |route: &Value| {
        format!("{} {} {}", route["dst"], route["gateway"], route["prefsrc"]).replace('"', "")
    };
    let mut all: Vec<String> = unicast.map(text).collect();
    all.sort();
    all
}

#[test]
fn rule_and_table_of_sbr_follow_the_next_address() {
    needs!(Dnsmasq);
    for (keys, main, own) in [
        (json!({}), &[][..], "100"),
        (
            json!({"addSourceHints": true}),
            &["10.9.0.0/24 null NEW"][..],
            "100",
        ),
        (
            json!({"table": 5000}),
            &["10.9.0.0/24 null NEW", "default 10.9.0.254 null"][..],
            "5000",
        ),
    ] {
        let host = Sandbox::new();
        let far = lan(&host);
        let server = Server::start(&far, "lan", &[SHORT, ROUTER]);
        let _daemon = daemon(&host, &[]);
        let pod = host.pod("a");
        let mut sbr = keys.clone();
        sbr["type"] = "sbr".into();
        let call = call(&host, &pod, &sbr);
        let result = call.add().result();
        assert_eq!(rules(&pod), [format!("{} {own}", address(&result))]);
        let (server, new) = move_to_another_net(&far, &pod, server);
        let expected = [format!("{new} {own}")];
        until("the rule follows", || {
            (rules(&pod) == expected).then_some(())
        });
        let main: Vec<String> = main
            .iter()
            .map(|route| route.replace("NEW", &new))
            .collect();
        assert_eq!(table(&pod, "main"), main, "{keys}: {}", said());
        if own == "100" {
            let routes = [
                format!("10.9.0.0/24 null {new}"),
                "default 10.9.0.254 null".to_owned(),
            ];
            assert_eq!(table(&pod, "100"), routes, "{keys}");
        }
        pod.run(&format!("ping -n -q -c 1 -w 10 -I {new} 10.9.0.254"));
        call.del().ok();
        server.await_free();
        assert_eq!(rules(&pod), Vec::<String>::new(), "{keys}");
    }
}

#[test]
fn routes_of_the_next_address_are_in_the_table_of_the_vrf() {
    needs!(Dnsmasq, Vrf);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[SHORT, ROUTER]);
    let _daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = call(
        &host,
        &pod,
        &json!({"type": "vrf", "vrfname": "blue", "table": 7}),
    );
    call.add().result();
    let (server, new) = move_to_another_net(&far, &pod, server);
    let expected = [
        format!("10.9.0.0/24 null {new}"),
        "default 10.9.0.254 null".to_owned(),
    ];
    until("the routes are there", || {
        (table(&pod, "7") == expected).then_some(())
    });
    assert_eq!(table(&pod, "main"), Vec::<String>::new());
    call.del().ok();
    server.await_free();
}

#[test]
fn a_restarted_daemon_knows_the_table_of_a_lost_address() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let server = Server::start(&far, "lan", &[SHORT, ROUTER]);
    let first = daemon(&host, &[]);
    let pod = host.pod("a");
    let call = call(&host, &pod, &json!({"type": "sbr"}));
    call.add().result();
    drop(server);
    far.run("ip addr add 10.9.0.254/24 dev lan");
    // The next server refuses the lease and has no address to assign.
    let refusing = Server::with_range(&far, "lan", "10.9.0.0,static,255.255.255.0", &[]);
    until("the address is gone", || {
        pod.addrs("eth0").is_empty().then_some(())
    });
    assert_eq!(rules(&pod), Vec::<String>::new());
    first.signal(Signal::SIGKILL);
    drop((first, refusing));
    let _second = daemon(&host, &[]);
    let server = Server::with_range(&far, "lan", NEXT.0, &[SHORT, NEXT.1]);
    let rule = until("there is a rule again", || rules(&pod).pop());
    assert!(
        rule.starts_with("10.9.0.") && rule.ends_with(" 100"),
        "{rule}"
    );
    assert_eq!(table(&pod, "main"), Vec::<String>::new());
    call.del().ok();
    server.await_free();
}
