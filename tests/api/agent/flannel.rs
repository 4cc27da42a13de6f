//! Mode `flannel` beside the real flanneld: three nodes on a bridge. The first changes from one
//! program to the other and back.
//!
//! ```text
//!  sandbox: node a, 192.0.2.1 ─┐
//!  namespace b: 192.0.2.2 ─────┼─ bridge in namespace "lan"
//!  namespace c: 192.0.2.3 ─────┘
//! ```

use super::fabric::Relay;
use super::node::events;
use super::pings::Pings;
use super::{Agent, Pair, await_true, is_ready};
use crate::{World, json, write_kubeconfig};
use braid_testbed::tools;
use braid_tests::{Call, Ns, Value};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Flanneld's file of the first node.
const FILE: &str = "/run/flannel/subnet.env";
const PREFIX: &str = "flannel.alpha.coreos.com/";

/// The three nodes with flannel's `ConfigMap`.
struct Cluster {
    /// Ways to the API server of the other nodes. First field, so that they end before their
    /// namespaces.
    relays: [Relay; 2],
    /// The first two nodes, with the rights of the agent.
    pair: Pair,
    third: Rc<Ns>,
    names: [String; 3],
    net: u8,
    conf: String,
}

/// A running flanneld, killed when dropped.
struct Flanneld(Child);

impl Drop for Flanneld {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection on which a byte goes to and fro all the time.
struct Connection {
    is_over: Arc<AtomicBool>,
    talking: JoinHandle<Result<(), String>>,
}

impl Connection {
    fn open(from: &Ns, to: &Ns, address: &str) -> Self {
        let listener = to.enter(|| TcpListener::bind((address, 4000)).expect("a port"));
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut byte = [0];
            while matches!(client.read(&mut byte), Ok(1)) && client.write_all(&byte).is_ok() {}
        });
        let mut stream =
            from.enter(|| TcpStream::connect((address, 4000)).expect("a connection between pods"));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let talking = std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let mut byte = [7];
                stream.write_all(&byte).map_err(|err| err.to_string())?;
                stream
                    .read_exact(&mut byte)
                    .map_err(|err| err.to_string())?;
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        Self { is_over, talking }
    }

    /// Ends the connection. Fails if it was reset.
    #[track_caller]
    fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let ended = self.talking.join().expect("the thread");
        ended.expect("an open connection");
    }
}

impl Cluster {
    fn new(test: &str, net: u8, backend: &Value) -> Option<Self> {
        let world = World::new(test)?;
        let flannel = json!({"Network": format!("10.{net}.0.0/16"), "Backend": backend});
        let lan = world.sandbox.pod("lan");
        lan.run("ip link add br0 type bridge");
        lan.run("ip link set br0 up");
        let [second, third] = ["b", "c"].map(|name| world.sandbox.pod(name));
        let path = lan.path().display().to_string();
        let hosts = [world.sandbox.host(), &second, &third];
        for (number, ns) in hosts.into_iter().enumerate() {
            let port = format!("port{number}");
            ns.run(&format!(
                "ip link add uplink type veth peer name {port} netns {path}"
            ));
            ns.run(&format!("ip addr add 192.0.2.{}/24 dev uplink", number + 1));
            ns.run("ip link set uplink up");
            ns.run("ip link set lo up");
            ns.set_sysctl("net/ipv4/ip_forward", "1");
            lan.run(&format!("ip link set {port} master br0 up"));
        }
        let ranges = [1, 2].map(|node| format!("10.{net}.{node}.0/24"));
        let pair = Pair::in_world(
            world,
            second,
            [
                (&[&ranges[0]], &["192.0.2.1"]),
                (&[&ranges[1]], &["192.0.2.2"]),
            ],
        );
        let names = ["a", "b", "c"].map(|name| format!("{test}-{name}"));
        pair.create_node(&names[2], &format!("10.{net}.3.0/24"), "192.0.2.3");
        let server = pair.world.server;
        for name in &names {
            // flanneld ends at a Node without annotations. The kubelet sets this one.
            let ttl = "volumes.kubernetes.io/controller-managed-attach-detach=true";
            server.kubectl(&["annotate", "node", name, ttl], None);
        }
        allow(&pair);
        let relays = [&pair.other, &third].map(|ns| Relay::new(&pair.world, ns));
        let cluster = Self {
            pair,
            third,
            names,
            relays,
            net,
            conf: flannel.to_string(),
        };
        cluster.configure();
        Some(cluster)
    }

    /// Writes flannel's `ConfigMap`.
    fn configure(&self) {
        let server = self.pair.world.server;
        let _ = server.try_kubectl(&["create", "namespace", "kube-flannel"], None);
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-flannel"},
            "data": {"net-conf.json": self.conf},
        });
        server.kubectl(&["apply", "-f", "-"], Some(&map));
    }

    fn host(&self) -> &Ns {
        self.pair.world.sandbox.host()
    }

    fn node(&self, number: usize) -> &Ns {
        [self.host(), &self.pair.other, &self.third][number]
    }

    /// Starts flanneld on a node, as flannel's manifest does.
    fn start_flanneld(&self, number: usize) -> Flanneld {
        let namespace = &self.pair.world.namespace;
        let create = ["create", "token", "flanneld", "-n", namespace];
        let token = self.pair.world.server.kubectl(&create, None);
        let url = match number {
            0 => self.pair.world.proxy.url(),
            other => format!("https://{}", self.relays[other - 1].address),
        };
        fs::write("/run/ca.crt", &self.pair.world.server.authority).expect("a certificate");
        let cluster = json!({"server": url, "certificate-authority": "/run/ca.crt"});
        let written = write_kubeconfig(&cluster, &json!({"token": token.trim()}));
        let kubeconfig = format!("/run/flanneld-{number}");
        fs::rename(written, &kubeconfig).expect("a kubeconfig");
        fs::write("/run/net-conf.json", &self.conf).expect("a configuration");
        let file = match number {
            0 => FILE.to_owned(),
            other => format!("/run/node-{other}/subnet.env"),
        };
        let program = tools::flanneld().expect("flanneld");
        let log = fs::File::create(format!("/run/flanneld-{number}.log")).expect("a log");
        let (node, conf) = (&self.names[number], "/run/net-conf.json");
        let child = self.node(number).enter(|| {
            Command::new(program)
                .args(["--ip-masq", "--kube-subnet-mgr", "--iface=uplink"])
                .arg(format!("--kubeconfig-file={kubeconfig}"))
                .arg(format!("--net-config-path={conf}"))
                .arg(format!("--subnet-file={file}"))
                .env("NODE_NAME", node)
                .stderr(Stdio::from(log))
                .spawn()
                .expect("flanneld starts")
        });
        let flanneld = Flanneld(child);
        self.await_routes(number);
        await_true("flanneld's file", || fs::exists(&file).unwrap_or_default());
        flanneld
    }

    /// Waits for the routes of a node to the ranges of the nodes that published themselves.
    fn await_routes(&self, number: usize) {
        let server = self.pair.world.server;
        let key = format!("{PREFIX}backend-data");
        for other in (0..3).filter(|other| *other != number) {
            let get = ["get", "node", &self.names[other], "-o", "json"];
            let printed = server.try_kubectl(&get, None).stdout;
            // A test may have deleted the Node.
            let node: Value = serde_json::from_slice(&printed).unwrap_or_default();
            if node["metadata"]["annotations"].get(&key).is_some() {
                let range = format!("10.{}.{}.0/24", self.net, other + 1);
                await_true(&format!("route of node {number} to {range}"), || {
                    !self
                        .node(number)
                        .list(&format!("ip -j route show {range}"))
                        .is_empty()
                });
            }
        }
    }

    /// Starts the agent on the first node and waits until it is ready.
    fn start_agent(&self) -> Agent {
        let agent = self.pair.start_in("flannel");
        await_true("readiness", is_ready);
        agent
    }

    /// Returns flannel's annotations of the first node.
    fn annotations(&self) -> Value {
        let get = ["get", "node", &self.names[0], "-o", "json"];
        let printed = self.pair.world.server.kubectl(&get, None);
        let mut node: Value = serde_json::from_str(&printed).expect("JSON");
        let annotations = node["metadata"]["annotations"].as_object_mut();
        annotations
            .expect("annotations")
            .retain(|key, _| key.starts_with(PREFIX));
        node["metadata"]["annotations"].take()
    }

    /// Creates a pod on the second or third node, as a bridge or a veth would connect it.
    fn pod(&self, number: usize, name: &str) -> Rc<Ns> {
        let pod = self.pair.world.sandbox.pod(name);
        let (node, path) = (self.node(number), pod.path().display().to_string());
        let prefix = format!("10.{}.{}", self.net, number + 1);
        node.run(&format!(
            "ip link add {name} type veth peer name eth0 netns {path}"
        ));
        node.run(&format!("ip addr add {prefix}.1/24 dev {name}"));
        node.run(&format!("ip link set {name} up"));
        pod.run(&format!("ip addr add {prefix}.5/24 dev eth0"));
        pod.run("ip link set eth0 up");
        pod.run("ip link set lo up");
        pod.run(&format!("ip route add default via {prefix}.1"));
        pod
    }

    /// Returns a call that attaches a pod of the first node to flannel's network.
    fn call(&self, pod: &Ns) -> Call {
        let conf = json!({
            "cniVersion": "1.0.0",
            "name": "cbr0",
            "type": "flannel",
            "delegate": {"hairpinMode": true, "isDefaultGateway": true},
        });
        self.pair.world.sandbox.call("flannel", pod, conf)
    }

    /// Returns all that flanneld makes on the first node, without the program that made it.
    fn state(&self, link: &str) -> Value {
        let host = self.host();
        let mut all = Vec::new();
        for other in [2, 3] {
            let range = format!("10.{}.{other}.0/24", self.net);
            all.extend(host.list(&format!("ip -j route show {range}")));
        }
        for route in &mut all {
            route.as_object_mut().expect("a route").remove("protocol");
        }
        if let Some(found) = host.link(link) {
            all.push(found);
            all.push(json!(host.addrs(link)));
            // The kernel lists entries in the order of a hash that differs between links.
            let mut entries = host.list(&format!("bridge -j fdb show dev {link}"));
            entries.sort_by_key(|it| it["mac"].to_string());
            all.extend(entries);
            let mut neighbours = host.list(&format!("ip -j -4 neigh show dev {link}"));
            neighbours.sort_by_key(|it| it["dst"].to_string());
            all.extend(neighbours);
        }
        let mut state = json!(all);
        without(&mut state, &["protocol", "used", "stats", "stats64"]);
        state
    }
}

/// Removes keys at all depths.
fn without(value: &mut Value, keys: &[&str]) {
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !keys.contains(&key.as_str()));
        for value in object.values_mut() {
            without(value, keys);
        }
    }
    for value in value.as_array_mut().into_iter().flatten() {
        without(value, keys);
    }
}

/// Gives the agent the rights of deploy/flannel.yaml, and flanneld those that it needs.
fn allow(pair: &Pair) {
    let server = pair.world.server;
    let namespace = &pair.world.namespace;
    let role = format!("{namespace}-flannel");
    let create = ["create", "clusterrole", &role];
    server.kubectl(
        &[&create[..], &["--verb=patch", "--resource=nodes"]].concat(),
        None,
    );
    let subject = format!("--serviceaccount={namespace}:agent");
    let bound = format!("--clusterrole={role}");
    let bind = ["create", "clusterrolebinding", &role, &bound, &subject];
    server.kubectl(&bind, None);
    let maps = format!("{namespace}-maps");
    let create = [
        "create",
        "clusterrole",
        &maps,
        "--verb=get",
        "--resource=configmaps",
    ];
    server.kubectl(
        &[&create[..], &["--resource-name=kube-flannel-cfg"]].concat(),
        None,
    );
    let bound = format!("--clusterrole={maps}");
    server.kubectl(
        &["create", "clusterrolebinding", &maps, &bound, &subject],
        None,
    );
    server.kubectl(
        &["create", "serviceaccount", "flanneld", "-n", namespace],
        None,
    );
    let subject = format!("--serviceaccount={namespace}:flanneld");
    let name = format!("{namespace}-flanneld");
    let bind = [
        "create",
        "clusterrolebinding",
        &name,
        "--clusterrole=cluster-admin",
        &subject,
    ];
    server.kubectl(&bind, None);
}

/// Moves the first node from flanneld to the agent and back. Pods of the others talk all the time.
fn move_there_and_back(test: &str, net: u8, backend: &Value, link: &str) {
    let Some(cluster) = Cluster::new(test, net, backend) else {
        return;
    };
    let [first, _second, _third] = [0, 1, 2].map(|number| cluster.start_flanneld(number));
    let (there, other) = (cluster.pod(1, "pod-b"), cluster.pod(2, "pod-c"));
    let moving = cluster.pair.world.sandbox.pod("pod-a");
    let call = cluster.call(&moving);
    let result = call.add().result();
    let (peer, own) = (format!("10.{net}.2.5"), format!("10.{net}.1.2"));
    await_true("traffic from the pod", || moving.can_ping(&peer));
    let before = cluster.state(link);
    let (file, annotations) = (fs::read(FILE).expect("its file"), cluster.annotations());
    let others = Connection::open(&other, &there, &peer);
    let lossless = Pings::start(&other, &peer, "0.02");
    let moved = Connection::open(&there, &moving, &own);

    drop(first);
    // As after a reboot, since it is on a tmpfs.
    fs::remove_file(FILE).expect("its file");
    let agent = cluster.start_agent();
    assert_eq!(cluster.state(link), before);
    assert_eq!(fs::read(FILE).expect("the agent's file"), file);
    assert_eq!(cluster.annotations(), annotations);
    assert!(there.can_ping(&own) && moving.can_ping(&peer));
    let next = cluster.pair.world.sandbox.pod("pod-a2");
    let next_call = cluster.call(&next);
    next_call.add().result();
    assert_eq!(
        next.seen_by(&there, &peer).to_string(),
        format!("10.{net}.1.3")
    );

    agent.kill();
    let _again = cluster.start_flanneld(0);
    assert_eq!(cluster.state(link), before);
    assert_eq!(cluster.annotations(), annotations);
    assert!(there.can_ping(&own) && next.can_ping(&peer));
    lossless.end();
    others.end();
    moved.end();
    next_call.del().ok();
    call.prev(&result).del().ok();
}

#[test]
fn a_node_moves_from_flanneld_with_vxlan_to_the_agent_and_back() {
    move_there_and_back("flannel-vxlan", 200, &json!({"Type": "vxlan"}), "flannel.1");
    move_there_and_back("flannel-gw", 201, &json!({"Type": "host-gw"}), "flannel.1");
    let direct = json!({"Type": "vxlan", "VNI": 7, "Port": 4789, "DirectRouting": true});
    move_there_and_back("flannel-direct", 202, &direct, "flannel.7");
    nodes_join_and_leave("flannel-join", 203);
}

/// Breaks what the agent has set. It restores all of it, with an event for each.
fn repairs(cluster: &Cluster) {
    let state = || {
        let mut state = cluster.state("flannel.1");
        without(&mut state, &["ifindex", "link_index", "probes"]);
        state
    };
    let before = state();
    for (command, words) in [
        ("ip link del flannel.1", "lost link: ip link add flannel.1"),
        (
            "ip link set flannel.1 down",
            "lost link: ip link set flannel.1 up",
        ),
        (
            "ip neigh flush dev flannel.1 nud permanent",
            "lost neighbour",
        ),
        ("ip route flush dev flannel.1 proto 98", "lost route"),
    ] {
        cluster.host().run(command);
        await_true(&format!("repair after {command}"), || state() == before);
        await_true(&format!("an event {words:?}"), || {
            let repairs = events(&cluster.pair, "Repaired");
            let mut notes = repairs.iter().filter_map(|event| event["note"].as_str());
            notes.any(|note| note.contains(words))
        });
    }
}

/// Starts the agent on a node that never had flanneld, and lets flanneld take it over.
fn nodes_join_and_leave(test: &str, net: u8) {
    let Some(cluster) = Cluster::new(test, net, &json!({"Type": "vxlan"})) else {
        return;
    };
    let _second = cluster.start_flanneld(1);
    let agent = cluster.start_agent();
    let range = format!("10.{net}.2.0/24");
    let route = |ns: &Ns, range: &str| ns.list(&format!("ip -j route show {range}"));
    await_true("a route back", || {
        !route(cluster.node(1), &format!("10.{net}.1.0/24")).is_empty()
    });
    // flanneld's node reaches the agent's, and the agent learns of a flanneld that starts.
    let there = cluster.pod(1, "pod-b");
    let moving = cluster.pair.world.sandbox.pod("pod-a");
    let call = cluster.call(&moving);
    call.add().result();
    let peer = format!("10.{net}.2.5");
    await_true("traffic", || moving.can_ping(&peer));
    assert!(there.can_ping(&format!("10.{net}.1.2")));
    let third = cluster.start_flanneld(2);
    let third_range = format!("10.{net}.3.0/24");
    await_true("a route to the third node", || {
        !route(cluster.host(), &third_range).is_empty()
    });
    let with_third = cluster.state("flannel.1");
    repairs(&cluster);
    // A node with another backend gets no route.
    let stranger = format!("{test}-d");
    cluster
        .pair
        .create_node(&stranger, &format!("10.{net}.4.0/24"), "192.0.2.4");
    let server = cluster.pair.world.server;
    let annotate = |pair: &str| {
        server.kubectl(&["annotate", "--overwrite", "node", &stranger, pair], None);
    };
    annotate(&format!("{PREFIX}kube-subnet-manager=true"));
    annotate(&format!("{PREFIX}backend-type=host-gw"));
    annotate(&format!("{PREFIX}public-ip=192.0.2.4"));
    drop(third);
    cluster.pair.delete_node(&cluster.names[2]);
    await_true("the end of the route", || {
        route(cluster.host(), &third_range).is_empty()
    });
    let entries = cluster.host().list("bridge -j fdb show dev flannel.1");
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(route(cluster.host(), &format!("10.{net}.4.0/24")).is_empty());
    assert!(
        !route(cluster.host(), &range).is_empty() && with_third.to_string().contains(&third_range)
    );
    // flanneld accepts the link that the agent created.
    let link = cluster.host().the_link("flannel.1");
    let (file, annotations) = (
        fs::read(FILE).expect("the agent's file"),
        cluster.annotations(),
    );
    agent.kill();
    let _flanneld = cluster.start_flanneld(0);
    let taken = cluster.host().the_link("flannel.1");
    assert_eq!(
        (&taken["ifindex"], &taken["address"]),
        (&link["ifindex"], &link["address"])
    );
    assert_eq!(fs::read(FILE).expect("flanneld's file"), file);
    assert_eq!(cluster.annotations(), annotations);
    assert!(moving.can_ping(&peer));
    call.del().ok();
}
