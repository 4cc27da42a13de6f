//! Reachability of a host port: for every client, protocol, address family and backend, also beside
//! foreign rules.

use super::loopback::{at_the_root, programs};
use super::{
    BOTH, PINS, SERVICE, attach, bridge_nf, mapped, mapping, network, network_by, outside,
};
use braid_tests::{Ns, Sandbox, Service, Transport, Value, json, needs, state};
use std::path::Path;

/// Client addresses, IPv4 and IPv6, that the service behind a host port must see. The clients are a
/// machine outside, the host by its address and by `127.0.0.1` or `::1`, the container itself, a
/// container on the same network, and a container on another network.
struct Seen {
    outside: [&'static str; 2],
    host: [&'static str; 2],
    loopback: [&'static str; 2],
    itself: [&'static str; 2],
    sibling: [&'static str; 2],
    stranger: [&'static str; 2],
}

/// Expected client addresses if the host's NAT sees both directions of all traffic.
const ROUTED: Seen = Seen {
    outside: ["192.0.2.2", "2001:db8::2"],
    host: ["192.0.2.1", "2001:db8::1"],
    loopback: ["10.1.0.1", "fd00:1::1"],
    itself: ["10.1.0.1", "fd00:1::1"],
    sibling: ["10.1.0.3", "fd00:1::3"],
    stranger: ["10.9.0.2", "fd00:9::2"],
};

/// Rate limit in bits per second that no request reaches.
const RATE: u64 = 100_000_000;

/// Time when the other containers are attached: before or after the container with the host port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Before,
    After,
}

/// Setup of a test: the host, its clients and its rules.
#[derive(Debug, Clone, Copy)]
struct Matrix {
    plugin: &'static str,
    backend: &'static str,
    bridge_nf: bool,
    others: Others,
    transports: &'static [Transport],
    /// True if the traffic of the container is limited.
    limited: bool,
    /// Commands of the administrator or of other programs that run on the host first.
    around: &'static [&'static str],
}

const PLAIN: Matrix = Matrix {
    plugin: "bridge",
    backend: "nftables",
    bridge_nf: false,
    others: Others::After,
    transports: &BOTH,
    limited: false,
    around: &[],
};

impl Matrix {
    /// Returns the configuration of the container's network. It has a firewall if there are foreign
    /// rules, which may drop forwarded packets.
    fn network(&self) -> Value {
        let mut network = network_by(self.plugin, self.backend);
        let plugins = network["plugins"].as_array_mut().unwrap();
        if !self.around.is_empty() {
            plugins.push(json!({"type": "firewall"}));
        }
        if self.limited {
            plugins.push(
                json!({"type": "bandwidth", "ingressRate": RATE, "ingressBurst": RATE / 100,
                "egressRate": RATE, "egressBurst": RATE / 100}),
            );
        }
        network
    }

    fn assert(&self, seen: &Seen) {
        let Self {
            backend,
            others,
            transports,
            ..
        } = *self;
        let host = Sandbox::new();
        let outside = outside(&host);
        bridge_nf(&host, self.bridge_nf);
        std::fs::write("/run/kube-proxy.nft", include_str!("kube-proxy.nft")).unwrap();
        for command in self.around {
            host.run(command);
        }
        let come = || {
            (
                attach(&host, "b", self.network()),
                attach(&host, "c", network("bridge", "other", 9)),
            )
        };
        let before = (others == Others::Before).then(come);
        let pod = host.pod("a");
        let mappings = json!(
            transports
                .iter()
                .map(|transport| mapping(*transport))
                .collect::<Vec<_>>()
        );
        let call = mapped(&host, &pod, self.network(), &mappings);
        let result = call.add().result();
        let (sibling, stranger) = before.unwrap_or_else(come);
        if backend == "ebpf" && others == Others::Before {
            // After this, only eBPF redirects incoming packets.
            host.run("nft flush chain inet braid hostport-in");
        }
        for transport in transports {
            let _service = Service::start(&pod, *transport, SERVICE);
            for (family, at) in [(0, "192.0.2.1:8080"), (1, "[2001:db8::1]:8080")] {
                let clients: [(&str, &Ns, &str); 5] = [
                    ("outside", &outside, seen.outside[family]),
                    ("host", host.host(), seen.host[family]),
                    ("itself", &pod, seen.itself[family]),
                    ("sibling", &sibling, seen.sibling[family]),
                    ("stranger", &stranger, seen.stranger[family]),
                ];
                for (who, client, expected) in clients {
                    let found = client.ask(*transport, at);
                    assert_eq!(
                        found,
                        Ok(expected.parse().unwrap()),
                        "{who} to {at} by {transport:?}: {self:?}"
                    );
                }
            }
            self.assert_by_loopback(&host, *transport, seen);
        }
        if !(backend == "ebpf" && others == Others::Before) {
            call.check(&result).ok();
        }
        let programs = if transports[0] == Transport::Sctp {
            Vec::new()
        } else {
            programs(&host)
        };
        call.prev(&result).del().ok();
        assert!(outside.asks_in_vain(transports[0], "192.0.2.1:8080"));
        assert!(
            !state::elements(&host)
                .iter()
                .any(|element| element.contains("net a "))
        );
        // These filters belong to the limits of other containers.
        let is_others = |filter: &String| self.limited && filter.ends_with("braid_shape");
        assert_eq!(
            state::filters(&host)
                .into_iter()
                .filter(|filter| !is_others(filter))
                .collect::<Vec<_>>(),
            [""; 0]
        );
        assert!(!Path::new(PINS).exists());
        assert_eq!(at_the_root(&host, &programs), [0; 0]);
    }

    fn assert_by_loopback(&self, host: &Sandbox, transport: Transport, seen: &Seen) {
        for (at, expected) in ["127.0.0.1:8080", "[::1]:8080"]
            .into_iter()
            .zip(seen.loopback)
        {
            if transport == Transport::Sctp && at.starts_with('[') {
                // The kernel does not route packets from ::1 to a container, and it runs no cgroup
                // program for SCTP sockets.
                assert!(host.host().asks_in_vain(transport, at), "{self:?}");
            } else {
                let found = host.host().ask(transport, at);
                assert_eq!(
                    found,
                    Ok(expected.parse().unwrap()),
                    "{at} by {transport:?}: {self:?}"
                );
            }
        }
    }
}

#[test]
fn all_clients_reach_a_port_of_a_bridge() {
    // The bridge forwards answers to a sibling past the host's NAT, so the sibling is masqueraded
    // with the address of the bridge.
    let seen = Seen {
        sibling: ["10.1.0.1", "fd00:1::1"],
        ..ROUTED
    };
    PLAIN.assert(&seen);
}

#[test]
fn all_clients_reach_a_port_of_a_ptp() {
    Matrix {
        plugin: "ptp",
        ..PLAIN
    }
    .assert(&ROUTED);
}

/// Expected client addresses with eBPF. Only a container that connects to itself differs from
/// [`ROUTED`]: it appears with the requested address.
const BY_EBPF: Seen = Seen {
    itself: ["192.0.2.1", "2001:db8::1"],
    ..ROUTED
};

#[test]
fn all_clients_reach_a_port_of_a_bridge_by_ebpf() {
    Matrix {
        backend: "ebpf",
        others: Others::Before,
        ..PLAIN
    }
    .assert(&Seen {
        sibling: ["10.1.0.2", "fd00:1::2"],
        ..BY_EBPF
    });
}

#[test]
fn all_clients_reach_a_port_of_a_ptp_by_ebpf() {
    Matrix {
        plugin: "ptp",
        backend: "ebpf",
        others: Others::Before,
        ..PLAIN
    }
    .assert(&Seen {
        sibling: ["10.1.0.2", "fd00:1::2"],
        ..BY_EBPF
    });
}

#[test]
fn neighbours_attached_later_reach_a_port_by_ebpf() {
    for plugin in ["bridge", "ptp"] {
        Matrix {
            plugin,
            backend: "ebpf",
            ..PLAIN
        }
        .assert(&BY_EBPF);
    }
}

#[test]
fn all_clients_reach_a_port_of_a_limited_container_by_ebpf() {
    // A container's packets to itself would bypass its qdisc, so nf_tables redirects them.
    for plugin in ["bridge", "ptp"] {
        Matrix {
            plugin,
            backend: "ebpf",
            limited: true,
            ..PLAIN
        }
        .assert(&ROUTED);
    }
}

#[test]
fn all_clients_reach_a_port_of_a_netkit() {
    needs!(Netkit);
    for plugin in ["netkit", "netkit l2"] {
        Matrix { plugin, ..PLAIN }.assert(&ROUTED);
        Matrix {
            plugin,
            limited: true,
            ..PLAIN
        }
        .assert(&ROUTED);
    }
    let seen = Seen {
        sibling: ["10.1.0.1", "fd00:1::1"],
        ..ROUTED
    };
    Matrix {
        plugin: "bridge of netkits",
        ..PLAIN
    }
    .assert(&seen);
}

#[test]
fn all_clients_reach_a_port_of_a_netkit_by_ebpf() {
    needs!(Netkit);
    let by_ebpf = Matrix {
        backend: "ebpf",
        others: Others::Before,
        ..PLAIN
    };
    for plugin in ["bridge of netkits", "netkit l2"] {
        let seen = Seen {
            sibling: ["10.1.0.2", "fd00:1::2"],
            ..BY_EBPF
        };
        Matrix { plugin, ..by_ebpf }.assert(&seen);
        Matrix {
            plugin,
            others: Others::After,
            limited: true,
            ..by_ebpf
        }
        .assert(&ROUTED);
    }
}

#[test]
fn neighbours_keep_their_address_with_bridge_nf_call_iptables() {
    needs!(BridgeNf);
    Matrix {
        bridge_nf: true,
        ..PLAIN
    }
    .assert(&ROUTED);
    Matrix {
        backend: "ebpf",
        bridge_nf: true,
        ..PLAIN
    }
    .assert(&BY_EBPF);
}

/// Commands that create foreign rules: they drop by policy, drop packets with an invalid connection
/// state, and filter by reverse path. The last ones are the rules of kube-proxy.
const FOREIGN_RULES: &[&str] = &[
    "iptables -P FORWARD DROP",
    "ip6tables -P FORWARD DROP",
    "nft table inet own { chain f { type filter hook forward priority 0; ct state invalid drop; }; }",
    "nft add chain inet own i { type filter hook input priority 0; }",
    "nft add rule inet own i ct state invalid drop",
    "nft add chain inet own o { type filter hook output priority 0; }",
    "nft add rule inet own o ct state invalid drop",
    "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1 net.ipv4.conf.world.rp_filter=1",
    "nft -f /run/kube-proxy.nft",
];

#[test]
fn all_clients_reach_a_port_among_foreign_rules() {
    let bridged = Seen {
        sibling: ["10.1.0.1", "fd00:1::1"],
        ..ROUTED
    };
    let around = Matrix {
        around: FOREIGN_RULES,
        ..PLAIN
    };
    around.assert(&bridged);
    Matrix {
        plugin: "ptp",
        ..around
    }
    .assert(&ROUTED);
}

#[test]
fn all_clients_reach_a_port_by_ebpf_among_foreign_rules() {
    let around = Matrix {
        backend: "ebpf",
        around: FOREIGN_RULES,
        ..PLAIN
    };
    for plugin in ["bridge", "ptp"] {
        Matrix { plugin, ..around }.assert(&BY_EBPF);
        let seen = Seen {
            sibling: ["10.1.0.2", "fd00:1::2"],
            ..BY_EBPF
        };
        Matrix {
            plugin,
            others: Others::Before,
            ..around
        }
        .assert(&seen);
    }
}

#[test]
fn all_clients_reach_a_port_among_foreign_rules_with_bridge_nf() {
    needs!(BridgeNf);
    let around = Matrix {
        bridge_nf: true,
        around: FOREIGN_RULES,
        ..PLAIN
    };
    around.assert(&ROUTED);
    Matrix {
        backend: "ebpf",
        ..around
    }
    .assert(&BY_EBPF);
}

#[test]
fn all_clients_reach_an_sctp_port() {
    needs!(Sctp);
    let sctp = Matrix {
        transports: &[Transport::Sctp],
        ..PLAIN
    };
    sctp.assert(&Seen {
        sibling: ["10.1.0.1", "fd00:1::1"],
        ..ROUTED
    });
    Matrix {
        plugin: "ptp",
        ..sctp
    }
    .assert(&ROUTED);
    Matrix {
        backend: "ebpf",
        ..sctp
    }
    .assert(&Seen {
        sibling: ["10.1.0.1", "fd00:1::1"],
        ..ROUTED
    });
}
