//! A node that has an advertised IPv6 default route keeps this route when it begins to forward
//! IPv6.

use crate::conf;
use braid_tests::{Ns, Sandbox, Value, json};

/// Python script that advertises a router to all nodes on a link, with a lifetime of half an hour
/// (RFC 4861, section 4.2).
const ADVERTISE: &str = r#"
import socket, struct, sys
link = sys.argv[1]
s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
s.sendto(struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), ("ff02::1", 0, 0, socket.if_nametoindex(link)))
"#;

/// Returns the node's links through which it has an advertised default route.
fn default_links(host: &Ns) -> Vec<String> {
    let routes = host.list("ip -6 -j route show default proto ra");
    routes
        .iter()
        .filter_map(|route| route["dev"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Sends router advertisements from the other end of `link` until the node has accepted one.
/// Returns false if the node does not accept any.
fn advertise(host: &Ns, router: &Ns, link: &str) -> bool {
    std::fs::write("/run/advertise.py", ADVERTISE).unwrap();
    // An address of either end may still be tentative, and then nothing is sent or accepted.
    (0..20).any(|_| {
        let _ = router.try_run(&format!("python3 /run/advertise.py {link}"));
        default_links(host).contains(&link.to_owned())
    })
}

fn accept_ra(host: &Ns, link: &str) -> String {
    host.sysctl(&format!("net/ipv6/conf/{link}/accept_ra"))
}

fn conf_of(plugin: &str, ranges: &[&str]) -> Value {
    let ranges: Vec<Value> = ranges
        .iter()
        .map(|subnet| json!([{"subnet": subnet}]))
        .collect();
    let conf = if plugin == "ptp" {
        conf::ptp()
    } else {
        conf::bridge()
    };
    let mut conf = conf;
    conf["ipam"] = json!({"type": "host-local", "ranges": ranges});
    conf
}

#[test]
fn an_advertised_default_route_survives_the_first_ipv6_container() {
    for plugin in ["bridge", "ptp"] {
        let host = Sandbox::new();
        host.set_sysctl("net/ipv6/conf/all/forwarding", "0");
        let router = host.outside("wan", "198.51.100.1/24", "198.51.100.2/24");
        let pods = ["a", "b", "c"].map(|name| host.pod(name));
        assert!(advertise(&host, &router, "wan"));

        let both = ["10.1.0.0/24", "fd00:1::/64"];
        host.call(plugin, &pods[0], conf_of(plugin, &both[..1]))
            .with("name", "four")
            .with("bridge", "br4")
            .add()
            .result();
        assert_eq!(
            accept_ra(&host, "wan"),
            "1",
            "{plugin}: IPv6 is not forwarded yet"
        );

        let call = host.call(plugin, &pods[1], conf_of(plugin, &["10.2.0.0/24", both[1]]));
        let result = call.add().result();
        assert_eq!(host.sysctl("net/ipv6/conf/all/forwarding"), "1");
        assert_eq!(
            (default_links(&host), accept_ra(&host, "wan").as_str()),
            (vec!["wan".to_owned()], "2"),
            "{plugin}"
        );
        host.run("ip -6 route del default");
        assert!(
            advertise(&host, &router, "wan"),
            "{plugin}: it is not renewed"
        );
        call.check(&result).ok();
        let own = result["interfaces"][0]["name"].as_str().unwrap_or_default();
        assert_eq!(
            accept_ra(&host, own),
            "0",
            "{plugin}: a container must not be a router of the node"
        );

        // braid keeps a value that the administrator sets while the node forwards.
        host.set_sysctl("net/ipv6/conf/wan/accept_ra", "1");
        host.call(plugin, &pods[2], conf_of(plugin, &["10.2.0.0/24", both[1]]))
            .add()
            .result();
        assert_eq!(accept_ra(&host, "wan"), "1", "{plugin}");
    }
}

#[test]
fn accept_ra_is_unchanged_on_a_link_without_an_advertised_route() {
    let host = Sandbox::new();
    host.set_sysctl("net/ipv6/conf/all/forwarding", "0");
    host.outside("other", "198.51.100.1/24", "198.51.100.2/24");
    let pod = host.pod("a");
    host.call("bridge", &pod, conf::bridge())
        .with("ipam", conf::dual_stack())
        .add()
        .result();
    assert_eq!(accept_ra(&host, "other"), "1");
}
