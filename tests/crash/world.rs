//! A host on which one container comes and goes, until something of it stays.

use braid_tests::{Answer, Call, Ns, Sandbox, Value, json, state};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

/// Folder of the leases.
const LEASES: &str = "/var/lib/cni/networks";
/// What the containers of a network share there.
const SHARED: &[&str] = &["lock", "last_reserved_ip.0", "last_reserved_ip.1"];
/// The link that macvlan and ipvlan are children of.
const PARENT: &str = "up0";

/// A host and a container's namespace.
pub(crate) struct World {
    pub(crate) host: Sandbox,
    pub(crate) pod: Rc<Ns>,
    plugin: &'static str,
}

impl World {
    /// A world for containers of this plugin.
    pub(crate) fn new(plugin: &'static str) -> Self {
        let host = Sandbox::new();
        host.outside(PARENT, "192.0.2.1/24", "192.0.2.2/24");
        let pod = host.pod("pod");
        Self { host, pod, plugin }
    }

    /// A call for `eth0` of container `id`.
    pub(crate) fn call(&self, id: &str) -> Call {
        self.host.call(face(self.plugin), &self.pod, conf(self.plugin)).container(id)
    }

    /// A call of the reference host-local, which shares the store.
    pub(crate) fn reference(&self) -> Call {
        self.host.call("host-local", &self.pod, conf(self.plugin)).container("reference").reference()
    }

    /// What is left of containers that are gone.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = self.host.leftovers();
        left.extend(self.pod.link_names().into_iter().map(|name| format!("link {name} in the container")));
        let files = state::tree(Path::new(LEASES)).into_keys().filter(|path| Path::new(path).is_file());
        left.extend(files.filter(|path| !SHARED.iter().any(|name| Path::new(path).ends_with(name))));
        left
    }

    /// Fails unless the container has its interface with its address.
    pub(crate) fn attached(&self) -> Result<(), String> {
        let links = self.pod.list("ip -j -4 addr");
        let addrs = links.iter().find(|link| link["ifname"] == "eth0").map(|link| &link["addr_info"]);
        match addrs.and_then(Value::as_array).map(Vec::len) {
            Some(1) => Ok(()),
            _ => Err(format!("the container has {links:?}")),
        }
    }

    /// Fails unless containers can have every address of the network. They have them when it returns.
    pub(crate) fn all_addresses_are_free(&self) -> Result<(), String> {
        for number in 0..ADDRESSES {
            let call = Call::new("host-local", conf(self.plugin)).netns(self.pod.path());
            let added = call.container(&format!("last{number}")).add();
            if added.code != 0 {
                return Err(format!("{number} of {ADDRESSES} addresses are free: {}", added.stdout));
            }
        }
        Ok(())
    }

    /// Makes the host one that never had a container.
    pub(crate) fn wipe(&self) {
        for ns in [self.host.host(), self.pod.as_ref()] {
            for name in ns.link_names().into_iter().filter(|name| name != PARENT) {
                ns.run(&format!("ip link del {name}"));
            }
        }
        self.host.run("nft flush ruleset");
        for folder in ["/run/braid", LEASES] {
            match fs::remove_dir_all(folder) {
                Err(err) if err.kind() != ErrorKind::NotFound => panic!("remove {folder}: {err}"),
                _ => {}
            }
        }
    }
}

/// Addresses for containers in the configuration's range.
const ADDRESSES: usize = 5;

/// The type that is called: some are lists in one call.
fn face(plugin: &str) -> &str {
    if ["full-chain", "ports-by-ebpf", "shaped-macvlan"].contains(&plugin) { "braid" } else { plugin }
}

/// A configuration with all that has to be taken back, and few addresses, so that a lost one is soon missed.
fn conf(plugin: &str) -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/29", "routes": [{"dst": "0.0.0.0/0"}]});
    let keys = match plugin {
        "full-chain" => {
            let bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": ipam});
            let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "udp"});
            json!({
                "plugins": [
                    bridge,
                    {"type": "bandwidth", "capabilities": {"bandwidth": true}},
                    {"type": "portmap", "capabilities": {"portMappings": true}},
                    {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "mtu": 1400},
                    {"type": "firewall", "ingressPolicy": "isolated"},
                ],
                "runtimeConfig": {"bandwidth": limits(), "portMappings": [mapping]},
            })
        }
        "ports-by-ebpf" => {
            // With IPv6 there are ports at [::1], which have programs of their own.
            let ranges = json!([[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00:1::/125"}]]);
            let ipam = json!({"type": "host-local", "ranges": ranges});
            let bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam});
            let portmap = json!({"type": "portmap", "backend": "ebpf", "capabilities": {"portMappings": true}});
            let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
            json!({"plugins": [bridge, portmap], "runtimeConfig": {"portMappings": [mapping]}})
        }
        "shaped-macvlan" => {
            json!({"network": {"type": "macvlan", "master": PARENT, "ipam": ipam}, "bandwidth": limits()})
        }
        "bridge" => json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "macspoofchk": true}),
        "ptp" => json!({"ipMasq": true}),
        _ => json!({"master": PARENT}),
    };
    let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "type": face(plugin), "ipam": ipam});
    for (key, value) in keys.as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// Why a call that should have succeeded and printed nothing did not.
pub(crate) fn ok(what: &str, answer: &Answer) -> Result<(), String> {
    match (answer.code, answer.stdout.as_str()) {
        (0, "") => Ok(()),
        (code, said) => Err(format!("{what} ended with {code}: {said} {}", answer.stderr)),
    }
}

fn limits() -> Value {
    let (rate, burst) = (10_000_000, 800_000);
    json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
}
