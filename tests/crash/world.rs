//! A host on which one container is attached and detached, and checks for what the container leaves
//! behind.

use crate::cluster::{self, Cluster, Due};
use crate::dhcp::{self, Program, Server};
use crate::pools::{self, Pools};
use braid_tests::{Answer, Call, Ns, Sandbox, Value, json, state};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;

/// Content of flanneld's file on the node. Its subnet is the subnet of all configurations here.
const FLANNELD: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.0.1/29\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n";
/// Folder of the leases of `host-local`.
const LEASES: &str = "/var/lib/cni/networks";
/// Files in a network's folder of leases that do not belong to a container.
const SHARED: &[&str] = &["lock", "last_reserved_ip.0", "last_reserved_ip.1"];
/// Host link that is the parent of macvlan, ipvlan and vlan links.
pub(crate) const PARENT: &str = "up0";
/// Name of the case with a macvlan that has an address from DHCP.
const DHCP: &str = "dhcp";
/// Name of the case with a bridge and a foreign IPAM.
const FOREIGN: &str = "foreign";
/// Script of a foreign IPAM. It keeps a file for each container on the disk, in the folder
/// [`HELD`].
const THEIRS: &str = r#"#!/bin/sh
cat >/dev/null
mkdir -p /var/lib/theirs
case $CNI_COMMAND in
ADD)
    touch /var/lib/theirs/$CNI_CONTAINERID
    echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.2/29"}]}' ;;
DEL) rm -f /var/lib/theirs/$CNI_CONTAINERID ;;
esac
"#;
const HELD: &str = "/var/lib/theirs";
/// Name of the case with a pod on three networks.
const POD: &str = "pod";
/// Name of the case with a bridge and addresses that are unique in the cluster.
const POOLED: &str = "pooled";
/// Host link that `host-device` moves into the container, and its veth peer.
const DEVICE: [&str; 2] = ["dev0", "far0"];
const DEVICE_MTU: u32 = 1500;

/// A host, and the network namespace of its container.
pub(crate) struct World {
    /// Cluster of the pod, only in the pod case. It is dropped before the host, on which its proxy
    /// listens.
    cluster: Option<Cluster>,
    /// The cluster's objects, only in the case [`POOLED`]. Dropped before the host too.
    pools: Option<Pools>,
    /// DHCP server behind [`PARENT`] and the DHCP daemon, only in the DHCP case.
    dhcp: Option<(Server, Program)>,
    pub(crate) host: Sandbox,
    pub(crate) pod: Rc<Ns>,
    plugin: &'static str,
}

impl World {
    /// Creates a world for containers of the case `plugin`. `name` makes its Kubernetes namespace
    /// unique. `None` if the case needs an API server and there is none.
    pub(crate) fn new(plugin: &'static str, name: &str) -> Option<Self> {
        let (mut cluster, mut pools) = (None, None);
        let host = match plugin {
            POD => {
                let (made, host) = Cluster::new(&format!("{POD}-{name}"))?;
                cluster = Some(made);
                host
            }
            POOLED => {
                let (made, host) = Pools::new(&format!("{POOLED}-{name}"))?;
                pools = Some(made);
                host
            }
            _ => Sandbox::new(),
        };
        let far = host.outside(PARENT, "192.0.2.1/24", "192.0.2.2/24");
        let pod = host.pod("pod");
        if plugin == "flannel" {
            fs::create_dir_all("/run/flannel").expect("a folder");
            fs::write("/run/flannel/subnet.env", FLANNELD).expect("flanneld's file");
        }
        if plugin == FOREIGN {
            host.script("theirs", THEIRS);
        }
        let dhcp = (plugin == DHCP).then(|| {
            let server =
                Server::with_range(&far, PARENT, "192.0.2.10,192.0.2.99,255.255.255.0,2m", &[]);
            (server, dhcp::daemon(&host, &[]))
        });
        let world = Self {
            cluster,
            pools,
            dhcp,
            host,
            pod,
            plugin,
        };
        world.add_device();
        Some(world)
    }

    /// Creates [`DEVICE`] unless it exists.
    fn add_device(&self) {
        let [device, far] = DEVICE;
        if self.host.link(device).is_none() {
            self.host
                .run(&format!("ip link add {device} type veth peer name {far}"));
            self.host.run(&format!("ip link set {far} up"));
            self.host.run(&format!("ip link set {device} up"));
        }
    }

    /// Returns the reason why [`DEVICE`] is not in its original state on the host; `None` if it is.
    fn device_is_not_back(&self) -> Option<String> {
        let Some(device) = self.host.link(DEVICE[0]) else {
            return Some("the device is not on the host".to_owned());
        };
        let is_up = device["flags"]
            .as_array()
            .is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
        let is_back = is_up && device.get("ifalias").is_none() && device["mtu"] == DEVICE_MTU;
        (!is_back).then(|| format!("the device came back as {device}"))
    }

    /// Returns a call for `eth0` of container `id`.
    pub(crate) fn call(&self, id: &str) -> Call {
        let call = self
            .host
            .call(face(self.plugin), &self.pod, conf(self.plugin))
            .container(id);
        self.with_args(call)
    }

    /// Returns the call with the pod's `CNI_ARGS`, in cases with a pod.
    fn with_args(&self, call: Call) -> Call {
        let args = self.cluster.as_ref().map(Cluster::args);
        match args.or_else(|| self.pools.as_ref().map(Pools::args)) {
            Some(args) => call.args(&args),
            None => call,
        }
    }

    /// Fails if the pod's status is wrong about container `id`. Succeeds in cases without a pod.
    pub(crate) fn judge_status(&self, id: &str, due: Due) -> Result<(), String> {
        self.cluster
            .as_ref()
            .map_or(Ok(()), |cluster| cluster.judge_status(id, &self.pod, due))
    }

    /// Returns a call of the reference host-local for the same leases. `None` in cases without leases
    /// of host-local.
    pub(crate) fn reference(&self) -> Option<Call> {
        let call = self
            .host
            .call("host-local", &self.pod, pools(self.plugin).remove(0))
            .container("reference");
        self.pools.is_none().then(|| call.reference())
    }

    /// Returns everything that detached containers have left.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = self.host.leftovers();
        left.retain(|path| !path.starts_with(pools::JOURNALS));
        left.extend(self.device_is_not_back());
        left.extend(self.pools.iter().flat_map(Pools::left));
        if let Some((server, _)) = &self.dhcp {
            server.await_free();
        }
        left.extend(
            self.pod
                .link_names()
                .into_iter()
                .map(|name| format!("link {name} in the container")),
        );
        let files = state::tree(Path::new(LEASES))
            .into_keys()
            .filter(|path| Path::new(path).is_file());
        left.extend(
            rules(&self.pod)
                .into_iter()
                .map(|(family, place)| format!("rule {family} {place} in the container")),
        );
        left.extend(state::tree(Path::new(HELD)).into_keys());
        left.extend(
            files.filter(|path| !SHARED.iter().any(|name| Path::new(path).ends_with(name))),
        );
        left
    }

    /// Fails unless the container has all its interfaces, each with exactly one IPv4 address.
    pub(crate) fn attached(&self) -> Result<(), String> {
        let links = self.pod.list("ip -j -4 addr");
        let has_one = |name: &&str| {
            let addrs = links
                .iter()
                .find(|link| link["ifname"] == **name)
                .map(|link| &link["addr_info"]);
            addrs.and_then(Value::as_array).map(Vec::len) == Some(1)
        };
        let interfaces = if self.cluster.is_some() {
            &cluster::INTERFACES[..]
        } else {
            &["eth0"]
        };
        if interfaces.iter().all(has_one) {
            Ok(())
        } else {
            Err(format!("the container has {links:?}"))
        }
    }

    /// Fails unless every address of the networks can be reserved. The addresses stay reserved.
    pub(crate) fn all_addresses_are_free(&self) -> Result<(), String> {
        for pool in pools(self.plugin) {
            for number in 0..ADDRESSES {
                let call = self.host.call(
                    pool["type"].as_str().expect("a type"),
                    &self.pod,
                    pool.clone(),
                );
                let call = self.with_args(call);
                let added = call.container(&format!("last{number}")).add();
                if added.code != 0 {
                    let network = &pool["name"];
                    return Err(format!(
                        "{number} of {ADDRESSES} addresses of {network} are free: {}",
                        added.stdout
                    ));
                }
            }
        }
        Ok(())
    }

    /// Restores the host to the state before its first container.
    pub(crate) fn wipe(&self) {
        for ns in [self.host.host(), self.pod.as_ref()] {
            for name in ns
                .link_names()
                .into_iter()
                .filter(|name| name != PARENT && !DEVICE.contains(&name.as_str()))
            {
                ns.run(&format!("ip link del {name}"));
            }
        }
        self.add_device();
        if let Some(pools) = self.pools.as_ref().filter(|pools| !pools.left().is_empty()) {
            pools.wipe();
        }
        self.host.run("nft flush ruleset");
        for ns in [self.host.host(), self.pod.as_ref()] {
            for (family, place) in rules(ns) {
                ns.run(&format!("ip {family} rule del priority {place}"));
            }
        }
        for folder in [
            "/run/braid",
            LEASES,
            "/var/lib/cni/flannel",
            "/var/lib/braid",
            HELD,
        ] {
            match fs::remove_dir_all(folder) {
                Err(err) if err.kind() != ErrorKind::NotFound => panic!("remove {folder}: {err}"),
                _ => {}
            }
        }
    }
}

/// Number of addresses for containers in the range of a configuration.
const ADDRESSES: usize = 5;

/// Returns the plugin type that a call of the case `plugin` has. Some cases are plugin lists in one
/// call.
fn face(plugin: &str) -> &str {
    match plugin {
        "full-chain" | "ports-by-ebpf" | "shaped-macvlan" | "shaped-netkit" | "host-device"
        | "sbr" | "vrf" | POD => "braid",
        "ptp-routed" => "ptp",
        FOREIGN | POOLED => "bridge",
        DHCP => "macvlan",
        other => other,
    }
}

fn ipam() -> Value {
    json!({"type": "host-local", "subnet": "10.1.0.0/29", "routes": [{"dst": "0.0.0.0/0"}]})
}

/// Returns a configuration of the IPAM alone for each network of the case.
fn pools(plugin: &str) -> Vec<Value> {
    let pool = |name: &Value, ipam: &Value| json!({"cniVersion": "1.0.0", "name": name, "type": ipam["type"], "ipam": ipam});
    match plugin {
        POD => {}
        POOLED => return vec![pool(&json!("net"), &pools::ipam())],
        _ => return vec![pool(&json!("net"), &ipam())],
    }
    cluster::networks()
        .iter()
        .map(|network| pool(&network["name"], &network["plugins"][0]["ipam"]))
        .collect()
}

/// Returns the case's configuration. It has everything that needs a rollback, and few addresses, so
/// that a lost address is noticed soon.
fn conf(plugin: &str) -> Value {
    if plugin == POD {
        return cluster::conf();
    }
    let mut conf =
        json!({"cniVersion": "1.1.0", "name": "net", "type": face(plugin), "ipam": ipam()});
    for (key, value) in keys(plugin, &ipam()).as_object().into_iter().flatten() {
        conf[key] = value.clone();
    }
    conf
}

/// Returns the keys that the case `plugin` adds to its configuration: a plugin list, or the keys of
/// one plugin.
fn keys(plugin: &str, ipam: &Value) -> Value {
    match plugin {
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
            // IPv6 adds ports at `[::1]`, which have separate eBPF programs.
            let ranges = json!([[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00:1::/125"}]]);
            let ipam = json!({"type": "host-local", "ranges": ranges});
            let bridge =
                json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam});
            let portmap = json!({"type": "portmap", "backend": "ebpf", "capabilities": {"portMappings": true}});
            let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
            json!({"plugins": [bridge, portmap], "runtimeConfig": {"portMappings": [mapping]}})
        }
        "shaped-macvlan" => {
            json!({"network": {"type": "macvlan", "master": PARENT, "ipam": ipam}, "bandwidth": limits()})
        }
        "shaped-netkit" => {
            let main = json!({"type": "bridge", "bridge": "br0", "device": "netkit", "isGateway": true, "ipam": ipam});
            json!({"network": main, "bandwidth": limits()})
        }
        // DEL must undo the change that `tuning` made to the device before it returns the device to
        // the host.
        "host-device" => {
            let device = json!({"type": plugin, "device": DEVICE[0], "ipam": ipam});
            json!({"plugins": [device, {"type": "tuning", "mtu": 1400}]})
        }
        "bridge" => {
            json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "macspoofchk": true})
        }
        "ptp" | "netkit" => json!({"ipMasq": true}),
        "ptp-routed" => json!({"ipMasq": true, "routed": true, "table": 100}),
        "vlan" => json!({"master": PARENT, "vlanId": 5}),
        "vxlan" => json!({"id": 5, "dev": PARENT, "remote": "192.0.2.7"}),
        "flannel" => json!({"delegate": {"bridge": "br0"}, "ipam": {"type": "host-local"}}),
        "sbr" => {
            json!({"plugins": [{"type": "macvlan", "master": PARENT, "ipam": ipam}, {"type": "sbr"}]})
        }
        DHCP => json!({"master": PARENT, "ipam": {"type": "dhcp"}}),
        FOREIGN => json!({"bridge": "br0", "ipam": {"type": "theirs"}}),
        POOLED => {
            json!({"bridge": "br0", "isGateway": true, "ipMasq": true, "ipam": pools::ipam()})
        }
        "vrf" => {
            let bridge =
                json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipam": ipam});
            json!({"plugins": [bridge, {"type": "vrf", "vrfname": "blue"}]})
        }
        _ => json!({"master": PARENT}),
    }
}

/// Returns an error unless the call succeeded and printed nothing.
pub(crate) fn ok(what: &str, answer: &Answer) -> Result<(), String> {
    match (answer.code, answer.stdout.as_str()) {
        (0, "") => Ok(()),
        (code, said) => Err(format!(
            "{what} ended with {code}: {said} {}",
            answer.stderr
        )),
    }
}

/// Returns family and priority of each policy routing rule that the kernel did not create.
fn rules(ns: &Ns) -> Vec<(&'static str, Value)> {
    // The kernel creates the rule with priority 1000 with the first VRF, and keeps it.
    let own = |rule: &Value| {
        [0, 1000, 32766, 32767]
            .iter()
            .any(|place| rule["priority"] == *place)
    };
    let of = |family| {
        let all = ns.list(&format!("ip {family} -j rule")).into_iter();
        all.filter(|rule| !own(rule))
            .map(move |rule| (family, rule["priority"].clone()))
    };
    ["-4", "-6"].into_iter().flat_map(of).collect()
}

fn limits() -> Value {
    let (rate, burst) = (10_000_000, 800_000);
    json!({"ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst})
}
