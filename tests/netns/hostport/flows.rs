//! `portmap` beyond a request and its answer: large datagrams, ICMP errors, and similar flows.

use super::{BOTH, SERVICE, attach, bridge_nf, mapped, mapping, network, network_by, outside, tcp};
use braid_tests::arriving::{PATIENCE, assert_rate};
use braid_tests::{Ns, Sandbox, Service, Transport, Value, json, needs, state};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const BACKENDS: [&str; 2] = ["nftables", "ebpf"];

/// Makes `backend` the only one that redirects incoming packets. For eBPF, this flushes the
/// nf_tables chain that also redirects them.
fn use_only(host: &Sandbox, backend: &str) {
    if backend == "ebpf" {
        host.run("nft flush chain inet braid hostport-in");
    }
}

/// Returns a UDP socket in `ns`, connected to `to`.
fn client(ns: &Ns, to: &str) -> UdpSocket {
    let any = if to.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = ns.enter(|| UdpSocket::bind(any)).unwrap();
    ns.enter(|| socket.connect(to)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn datagrams_larger_than_the_link_pass_both_ways() {
    for (plugin, backend) in ["bridge", "ptp"]
        .into_iter()
        .flat_map(|plugin| BACKENDS.map(|backend| (plugin, backend)))
    {
        let host = Sandbox::new();
        let outside = outside(&host);
        bridge_nf(&host, false);
        let stranger = attach(&host, "c", network("bridge", "other", 9));
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by(plugin, backend),
            &json!(BOTH.map(mapping)),
        );
        let result = call.add().result();
        use_only(&host, backend);
        let service = pod.enter(|| UdpSocket::bind(("::", SERVICE))).unwrap();
        service.set_read_timeout(Some(PATIENCE)).unwrap();
        let clients: [(&str, &Ns); 3] = [
            ("outside", &outside),
            ("itself", &pod),
            ("stranger", &stranger),
        ];
        for ((who, ns), at) in clients
            .into_iter()
            .flat_map(|who| ["192.0.2.1:8080", "[2001:db8::1]:8080"].map(|at| (who, at)))
        {
            let socket = client(ns, at);
            // The first and the last datagram are small. All of them belong to one flow.
            for len in [10, 4000, 60_000, 10] {
                let what = format!("{plugin}, {backend}: {len} bytes, {who} to {at}");
                let sent: Vec<u8> = (0..len)
                    .map(|at: usize| u8::try_from(at % 251).unwrap())
                    .collect();
                socket
                    .send(&sent)
                    .unwrap_or_else(|err| panic!("{what}: {err}"));
                let mut got = vec![0; 65_536];
                let (len, from) = service
                    .recv_from(&mut got)
                    .unwrap_or_else(|err| panic!("{what}: {err}"));
                service.send_to(&got[..len], from).unwrap();
                let len = socket
                    .recv(&mut got)
                    .unwrap_or_else(|err| panic!("{what}, back: {err}"));
                assert!(got[..len] == sent, "{what}");
            }
        }
        call.prev(&result).del().ok();
        assert_eq!(state::filters(&host), Vec::<String>::new());
    }
}

#[test]
fn a_client_gets_connection_refused_if_the_container_does_not_listen() {
    for (plugin, backend) in ["bridge", "ptp"]
        .into_iter()
        .flat_map(|plugin| BACKENDS.map(|backend| (plugin, backend)))
    {
        let host = Sandbox::new();
        let outside = outside(&host);
        bridge_nf(&host, false);
        let (sibling, stranger) = (
            attach(&host, "b", network(plugin, "net", 1)),
            attach(&host, "c", network("bridge", "other", 9)),
        );
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by(plugin, backend),
            &json!(BOTH.map(mapping)),
        );
        let result = call.add().result();
        use_only(&host, backend);
        let clients: [(&str, &Ns); 3] = [
            ("outside", &outside),
            ("sibling", &sibling),
            ("stranger", &stranger),
        ];
        for ((who, ns), at) in clients
            .into_iter()
            .flat_map(|who| ["192.0.2.1:8080", "[2001:db8::1]:8080"].map(|at| (who, at)))
        {
            let socket = client(ns, at);
            socket.send(b"?").unwrap();
            let said = socket.recv(&mut [0; 8]).expect_err("nobody listens").kind();
            assert_eq!(
                said,
                ErrorKind::ConnectionRefused,
                "{plugin}, {backend}: {who} to {at}"
            );
        }
        call.prev(&result).del().ok();
        assert_eq!(state::filters(&host), Vec::<String>::new());
    }
}

#[test]
fn a_container_learns_the_path_mtu_to_a_client() {
    const LEN: usize = 300_000;
    for (plugin, backend) in ["bridge", "ptp"]
        .into_iter()
        .flat_map(|plugin| BACKENDS.map(|backend| (plugin, backend)))
    {
        let host = Sandbox::new();
        let router = outside(&host);
        let far = host.pod("far");
        router.run(&format!(
            "ip link add far type veth peer name far netns {}",
            far.path().display()
        ));
        for (ns, v4, v6) in [
            (&router, "198.51.100.1/24", "2001:db8:1::1/64"),
            (&far, "198.51.100.2/24", "2001:db8:1::2/64"),
        ] {
            ns.run(&format!("ip addr add {v4} dev far"));
            ns.run(&format!("ip addr add {v6} dev far nodad"));
            ns.run("ip link set far up");
        }
        // The far end does not know this MTU, so its TCP handshake does not announce it.
        router.run("ip link set far mtu 1300");
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            router.set_sysctl(key, "1");
        }
        for (ns, route) in [
            (&far, "192.0.2.0/24 via 198.51.100.1"),
            (&far, "2001:db8::/64 via 2001:db8:1::1"),
        ] {
            ns.run(&format!("ip route add {route}"));
        }
        host.run("ip route add 198.51.100.0/24 via 192.0.2.2");
        host.run("ip route add 2001:db8:1::/64 via 2001:db8::2");
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by(plugin, backend),
            &json!(BOTH.map(mapping)),
        );
        let result = call.add().result();
        use_only(&host, backend);
        let listener = pod.enter(|| TcpListener::bind(("::", SERVICE))).unwrap();
        for at in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
            let mut client = far
                .enter(|| TcpStream::connect_timeout(&at.parse().unwrap(), PATIENCE))
                .unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let (mut served, _) = listener.accept().unwrap();
            let sender = std::thread::spawn(move || served.write_all(&vec![7; LEN]));
            let mut got = Vec::new();
            let read = client.read_to_end(&mut got).map_err(|err| err.to_string());
            assert_eq!(
                (read, got.len()),
                (Ok(LEN), LEN),
                "{plugin}, {backend}: from {at}"
            );
            sender.join().unwrap().unwrap();
        }
        call.prev(&result).del().ok();
    }
}

#[test]
fn a_client_of_the_container_address_gets_answers_from_that_address() {
    let host = Sandbox::new();
    let outside = outside(&host);
    outside.run("ip route add 10.1.0.0/24 via 192.0.2.1");
    let pod = host.pod("a");
    let call = mapped(
        &host,
        &pod,
        network_by("bridge", "ebpf"),
        &json!(BOTH.map(mapping)),
    );
    let result = call.add().result();
    let _service = Service::start(&pod, Transport::Udp, SERVICE);
    let socket = outside.enter(|| UdpSocket::bind("0.0.0.0:5000")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for to in [
        "192.0.2.1:8080",
        "10.1.0.2:80",
        "192.0.2.1:8080",
        "10.1.0.2:80",
    ] {
        socket.send_to(b"?", to).unwrap();
        let (_, from) = socket
            .recv_from(&mut [0; 64])
            .unwrap_or_else(|err| panic!("{to}: {err}"));
        assert_eq!(from.to_string(), to);
    }
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}

#[test]
fn isolated_neighbours_on_a_bridge_reach_a_port() {
    for backend in BACKENDS {
        let host = Sandbox::new();
        bridge_nf(&host, false);
        outside(&host);
        let isolated = |mut network: Value| {
            network["plugins"][0]["portIsolation"] = json!(true);
            network
        };
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            isolated(network_by("bridge", backend)),
            &json!(BOTH.map(mapping)),
        );
        let result = call.add().result();
        let sibling = attach(&host, "b", isolated(network("bridge", "net", 1)));
        let _service = Service::start(&pod, Transport::Tcp, SERVICE);
        for (at, bridge) in [
            ("192.0.2.1:8080", "10.1.0.1"),
            ("[2001:db8::1]:8080", "fd00:1::1"),
        ] {
            assert_eq!(
                sibling.ask(Transport::Tcp, at),
                Ok(bridge.parse().unwrap()),
                "{backend}, {at}"
            );
        }
        call.check(&result).ok();
        call.prev(&result).del().ok();
    }
}

#[test]
fn an_isolated_container_is_unreachable_for_neighbours() {
    for (backend, policy) in BACKENDS
        .into_iter()
        .flat_map(|backend| [(backend, "open"), (backend, "isolated")])
    {
        let host = Sandbox::new();
        bridge_nf(&host, false);
        let outside = outside(&host);
        let mut guarded = network_by("bridge", backend);
        guarded["plugins"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "firewall", "ingressPolicy": policy}));
        let pod = host.pod("a");
        let call = mapped(&host, &pod, guarded.clone(), &json!(BOTH.map(mapping)));
        let result = call.add().result();
        let sibling = attach(&host, "b", guarded);
        let service = pod.enter(|| UdpSocket::bind(("::", SERVICE))).unwrap();
        for at in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
            let is_open = policy == "open";
            service
                .set_read_timeout(Some(if is_open {
                    PATIENCE
                } else {
                    Duration::from_millis(300)
                }))
                .unwrap();
            client(&sibling, at).send(b"?").unwrap();
            let came = service.recv(&mut [0; 8]).is_ok();
            assert_eq!(
                came, is_open,
                "{backend}, {policy}: the neighbour's to {at}"
            );
            service.set_read_timeout(Some(PATIENCE)).unwrap();
            client(&outside, at).send(b"?").unwrap();
            service
                .recv(&mut [0; 8])
                .unwrap_or_else(|err| panic!("{backend}, {policy}, {at}: {err}"));
        }
        call.check(&result).ok();
        call.prev(&result).del().ok();
    }
}

/// Returns the numbers of packets that the link `bridge` has sent and received.
fn passed(host: &Sandbox, bridge: &str) -> [u64; 2] {
    let shown = host.json(&format!("ip -j -s link show {bridge}"));
    ["tx", "rx"].map(|way| shown[0]["stats64"][way]["packets"].as_u64().unwrap())
}

#[test]
fn with_ebpf_packets_and_answers_bypass_the_bridge_interface() {
    const QUESTIONS: u64 = 100;
    for backend in BACKENDS {
        for (is_first, sees_bridged) in [(true, false), (true, true), (false, false)] {
            let host = Sandbox::new();
            let outside = outside(&host);
            bridge_nf(&host, sees_bridged);
            // If `is_first`, the bridge exists before the first host port of the node, else
            // afterwards.
            if !is_first {
                let ptp = host.pod("p");
                let mapping =
                    json!([{"hostPort": 9090, "containerPort": SERVICE, "protocol": "udp"}]);
                let mut network = network("ptp", "other", 9);
                network["plugins"][1]["backend"] = json!(backend);
                mapped(&host, &ptp, network, &mapping).add().result();
            }
            let pod = host.pod("a");
            mapped(
                &host,
                &pod,
                network_by("bridge", backend),
                &json!(BOTH.map(mapping)),
            )
            .add()
            .result();
            use_only(&host, backend);
            let _service = Service::start(&pod, Transport::Tcp, SERVICE);
            for at in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
                outside.ask(Transport::Tcp, at).unwrap();
                let before = passed(&host, "br1");
                for _ in 0..QUESTIONS {
                    outside.ask(Transport::Tcp, at).unwrap();
                }
                for (before, after) in before.into_iter().zip(passed(&host, "br1")) {
                    // A request through the bridge is at least a handshake, a request and a FIN.
                    let passed = after - before;
                    let is_straight = passed < QUESTIONS / 10;
                    assert!(
                        is_straight == (backend == "ebpf"),
                        "{backend}, {at}: {passed} passed"
                    );
                    assert!(
                        is_straight || passed > 2 * QUESTIONS,
                        "{backend}, {at}: {passed} passed"
                    );
                }
            }
        }
    }
}

#[test]
fn answers_from_a_host_port_are_limited_like_the_container() {
    const RATE: f64 = 20_000_000.0;
    let limits = json!({"type": "bandwidth", "egressRate": 20_000_000, "egressBurst": 200_000});
    for backend in BACKENDS {
        // If `with_it`, the call that creates the host port also sets the limit, else a later call
        // does.
        for with_it in [true, false] {
            let host = Sandbox::new();
            let outside = outside(&host);
            let pod = host.pod("a");
            let mut network = network_by("bridge", backend);
            if with_it {
                network["plugins"]
                    .as_array_mut()
                    .unwrap()
                    .push(limits.clone());
            }
            let result = mapped(&host, &pod, network, &tcp()).add().result();
            if !with_it {
                let mut alone = limits.clone();
                (alone["cniVersion"], alone["name"]) = (json!("1.1.0"), json!("net"));
                host.call("bandwidth", &pod, alone)
                    .prev(&result)
                    .add()
                    .result();
            }
            let listener = pod
                .enter(|| TcpListener::bind(("0.0.0.0", SERVICE)))
                .unwrap();
            let client = outside
                .enter(|| TcpStream::connect("192.0.2.1:8080"))
                .unwrap();
            let (server, _) = listener.accept().unwrap();
            assert_rate(server, client, 0.7 * RATE, (1.01 * RATE, RATE / 100.0));
        }
    }
}

#[test]
fn a_container_may_answer_through_another_gateway_on_the_bridge() {
    for backend in BACKENDS {
        let host = Sandbox::new();
        bridge_nf(&host, false);
        let outside = outside(&host);
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by("bridge", backend),
            &json!(BOTH.map(mapping)),
        );
        call.add().result();
        let gateway = host.pod("b");
        let result = host
            .call("braid", &gateway, network("bridge", "net", 1))
            .add()
            .result();
        let addr = result["ips"][0]["address"]
            .as_str()
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        for key in [
            "net.ipv4.ip_forward=1",
            "net.ipv4.conf.all.send_redirects=0",
            "net.ipv4.conf.eth0.send_redirects=0",
        ] {
            gateway.run(&format!("sysctl -qw {key}"));
        }
        use_only(&host, backend);
        let _service = Service::start(&pod, Transport::Tcp, SERVICE);
        let forwarded = || {
            gateway.list("ip -j -s link show eth0")[0]["stats64"]["tx"]["packets"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(
            outside.ask(Transport::Tcp, "192.0.2.1:8080"),
            Ok("192.0.2.2".parse().unwrap()),
            "{backend}"
        );
        pod.run(&format!("ip route replace default via {addr}"));
        let before = forwarded();
        for _ in 0..10 {
            assert_eq!(
                outside.ask(Transport::Tcp, "192.0.2.1:8080"),
                Ok("192.0.2.2".parse().unwrap()),
                "{backend}"
            );
        }
        assert!(
            forwarded() - before >= 20,
            "{backend}: the answers went elsewhere"
        );
    }
}

#[test]
fn clients_outside_reach_a_port_in_a_vlan_of_the_bridge() {
    needs!(VlanFiltering);
    for backend in BACKENDS {
        let host = Sandbox::new();
        let outside = outside(&host);
        let mut network = network_by("bridge", backend);
        network["plugins"][0]["vlan"] = json!(100);
        let pod = host.pod("a");
        let call = mapped(&host, &pod, network, &json!(BOTH.map(mapping)));
        let result = call.add().result();
        use_only(&host, backend);
        for transport in BOTH {
            let _service = Service::start(&pod, transport, SERVICE);
            for (at, client) in [
                ("192.0.2.1:8080", "192.0.2.2"),
                ("[2001:db8::1]:8080", "2001:db8::2"),
            ] {
                let seen = outside
                    .ask(transport, at)
                    .unwrap_or_else(|err| panic!("{backend}, {at}: {err}"));
                assert_eq!(seen.to_string(), client, "{backend}, {at}");
            }
        }
        call.prev(&result).del().ok();
    }
}

#[test]
fn many_parallel_connections_transfer_much_data() {
    const CLIENTS: usize = 50;
    const LEN: usize = 1_000_000;
    for plugin in ["bridge", "ptp"] {
        let host = Sandbox::new();
        let outside = outside(&host);
        let pod = host.pod("a");
        let call = mapped(
            &host,
            &pod,
            network_by(plugin, "ebpf"),
            &json!(BOTH.map(mapping)),
        );
        let result = call.add().result();
        use_only(&host, "ebpf");
        let listener = pod.enter(|| TcpListener::bind(("::", SERVICE))).unwrap();
        for (ns, at) in [
            (&outside, "192.0.2.1:8080"),
            (&outside, "[2001:db8::1]:8080"),
            (&pod, "192.0.2.1:8080"),
        ] {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    ns.enter(|| TcpStream::connect_timeout(&at.parse().unwrap(), PATIENCE))
                        .unwrap()
                })
                .collect();
            let served: Vec<_> = (0..CLIENTS).map(|_| listener.accept().unwrap().0).collect();
            std::thread::scope(|scope| {
                for mut stream in served {
                    scope.spawn(move || {
                        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap()
                    });
                }
                for stream in &clients {
                    scope.spawn(move || {
                        let mut writer = stream;
                        let sender = scope.spawn(move || {
                            writer.write_all(&vec![5; LEN / CLIENTS]).unwrap();
                            writer.shutdown(std::net::Shutdown::Write).unwrap();
                        });
                        let (mut reader, mut got) = (stream, Vec::new());
                        reader.set_read_timeout(Some(PATIENCE)).unwrap();
                        reader
                            .read_to_end(&mut got)
                            .unwrap_or_else(|err| panic!("{plugin}, {at}: {err}"));
                        assert_eq!(got.len(), LEN / CLIENTS, "{plugin}, {at}");
                        sender.join().unwrap();
                    });
                }
            });
        }
        call.prev(&result).del().ok();
    }
}
