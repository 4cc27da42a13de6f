//! Memory and requests of an agent in a large cluster: 1,000 Nodes, 500 pods of its node and 100
//! networks, and three updates a second. Processor time and seconds are printed, not judged.

use super::{Agent, await_true, is_ready};
use crate::server::Server;
use crate::{World, json};
use braid_tests::{Ns, Value};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

const NODES: usize = 1000;
const PODS: usize = 500;
const NETWORKS: usize = 100;
/// Nodes on the link of the agent's node. Others are behind a router.
const NEIGHBOURS: usize = 200;
const NODE: &str = "sizes-0000";
/// Most resident memory of the program that is shipped, in KiB.
const RESIDENT: u64 = 20 << 10;
/// Most resident memory so far of the program that is shipped, in KiB.
const PEAK: u64 = 40 << 10;
/// Most memory of any build that is not part of a file, in KiB.
const ANONYMOUS: u64 = 10 << 10;
/// Most requests in [`WINDOW`].
const REQUESTS: usize = 30;
/// Time in which processor time and requests are counted.
const WINDOW: Duration = Duration::from_mins(1);
/// Folder of the networks for calls without agent and API.
const COPIES: &str = "/var/lib/braid/networks";
/// Time between two updates of an object.
const PAUSE: Duration = Duration::from_millis(333);

fn object(api: &str, kind: &str, metadata: &Value, more: &Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": metadata});
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn node_name(number: usize) -> String {
    format!("sizes-{number:04}")
}

/// Returns a Node object as a kubelet writes it, of about 18 KB.
fn node(number: usize) -> Value {
    let name = node_name(number);
    let range = format!("10.{}.{}.0/24", 144 + number / 250, number % 250);
    let address = match number {
        0 => "198.18.0.1".to_owned(),
        _ if number < NEIGHBOURS => format!("198.18.64.{number}"),
        _ => format!("198.19.{}.{}", number / 250, number % 250),
    };
    let image = |image: usize| {
        let repository = format!("registry.example.com/some-team/service-{number:04}-{image:02}");
        let names = [
            format!("{repository}@sha256:{:064x}", number * 100 + image),
            format!("{repository}:v1.{image}.0"),
        ];
        json!({"names": names, "sizeBytes": 123_456_789 + image})
    };
    let images: Vec<Value> = (0..70).map(image).collect();
    let condition = |kind: &&str| {
        json!({"type": kind, "status": if *kind == "Ready" {"True"} else {"False"}, "reason": "KubeletHasSufficientMemory",
            "message": "kubelet has sufficient memory available", "lastHeartbeatTime": "2026-11-29T00:00:00Z",
            "lastTransitionTime": "2026-11-28T00:00:00Z"})
    };
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .iter()
        .map(condition)
        .collect();
    let amounts = json!({"cpu": "16", "memory": "65738612Ki", "pods": "500", "ephemeral-storage": "203070420Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": "eu-central-1a",
        "node.kubernetes.io/instance-type": "m6i.4xlarge", "example.com/pool": "workers",
    });
    let metadata = json!({"name": name, "labels": labels, "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}});
    let addresses =
        json!([{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]);
    let info = json!({
        "machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"), "bootID": format!("{number:032x}"),
        "kernelVersion": "6.12.0-1", "osImage": "Debian GNU/Linux 13 (trixie)", "containerRuntimeVersion": "containerd://2.3.3",
        "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
    });
    let status = json!({
        "capacity": amounts, "allocatable": amounts, "conditions": conditions, "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}, "nodeInfo": info, "images": images,
    });
    let spec = json!({"podCIDR": range, "podCIDRs": [range], "providerID": format!("aws:///eu-central-1a/i-{number:017x}")});
    object(
        "v1",
        "Node",
        &metadata,
        &json!({"spec": spec, "status": status}),
    )
}

fn pod_name(number: usize) -> String {
    format!("service-{number:03}")
}

/// Returns a pod of the agent's node, of about 8 KB with the fields that the API server adds.
fn pod(namespace: &str, number: usize) -> Value {
    let name = pod_name(number);
    let variable = |index: usize| json!({"name": format!("SERVICE_SETTING_{index:02}"), "value": format!("value {index} of {name}")});
    let variables: Vec<Value> = (0..20).map(variable).collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 5});
    let container = |name: &&str| {
        json!({"name": name, "image": format!("registry.example.com/some-team/{name}:v1.2.3"), "env": variables,
            "livenessProbe": probe, "readinessProbe": probe,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "configuration", "mountPath": "/etc/service"}, {"name": "data", "mountPath": "/var/lib/service"}]})
    };
    let containers: Vec<Value> = ["service", "sidecar"].iter().map(container).collect();
    let volumes = json!([{"name": "configuration", "configMap": {"name": "configuration"}}, {"name": "data", "emptyDir": {}}]);
    let mut annotations = json!({"example.com/checksum": format!("{number:064x}")});
    if number.is_multiple_of(5) {
        annotations["k8s.v1.cni.cncf.io/networks"] = format!("lan-{:03}", number % NETWORKS).into();
    }
    let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "6d4f8c7b9d"});
    let metadata =
        json!({"name": name, "namespace": namespace, "labels": labels, "annotations": annotations});
    object(
        "v1",
        "Pod",
        &metadata,
        &json!({"spec": {"nodeName": NODE, "containers": containers, "volumes": volumes}}),
    )
}

fn network(namespace: &str, number: usize) -> Value {
    let ipam = json!({"type": "whereabouts", "range": format!("10.148.{number}.0/24"), "routes": [{"dst": "192.168.0.0/16"}]});
    let config = json!({"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "mode": "bridge", "ipam": ipam});
    let metadata = json!({"name": format!("lan-{number:03}"), "namespace": namespace});
    object(
        "k8s.cni.cncf.io/v1",
        "NetworkAttachmentDefinition",
        &metadata,
        &json!({"spec": {"config": config.to_string()}}),
    )
}

/// Creates objects with several clients, since kubectl limits its requests.
fn create(server: &'static Server, objects: &[Value]) {
    std::thread::scope(|scope| {
        for items in objects.chunks(250) {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            let arguments = ["create", "--validate=false", "-o", "name", "-f", "-"];
            scope.spawn(move || server.kubectl(&arguments, Some(&list)));
        }
    });
}

/// Returns a field of `/proc/<pid>/status` in KiB.
fn memory(agent: &Agent, field: &str) -> u64 {
    let path = format!("/proc/{}/status", agent.child.id());
    let status = fs::read_to_string(path).expect("the agent runs");
    let line = status.lines().find(|line| line.starts_with(field));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.and_then(|text| text.parse().ok()).expect("a number")
}

/// Returns the processor time of the agent in hundredths of a second.
fn ticks(agent: &Agent) -> u64 {
    let stat =
        fs::read_to_string(format!("/proc/{}/stat", agent.child.id())).expect("the agent runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let field = |index: usize| {
        fields
            .split(' ')
            .nth(index)
            .and_then(|text| text.parse::<u64>().ok())
    };
    // Fields 14 and 15 of proc_pid_stat(5) are user and system time.
    field(11).expect("utime") + field(12).expect("stime")
}

/// A cluster and the node of the measured agent.
struct Large {
    world: World,
    token: String,
    other: Rc<Ns>,
}

impl Large {
    /// Creates a cluster of two nodes.
    fn new() -> Option<Self> {
        let world = World::loaded("sizes")?;
        let other = world
            .sandbox
            .outside("other", "198.18.0.1/16", "198.18.0.2/16");
        world.sandbox.run("ip route add default via 198.18.0.2");
        fs::create_dir_all("/etc/cni/net.d").expect("a folder for the conflist");
        create(world.server, &[node(0), node(1)]);
        let token = world.server.agent_token(NODE);
        Some(Self {
            world,
            token,
            other,
        })
    }

    /// Creates all other nodes, the pods and the networks.
    fn grow(&self) {
        // The other namespace answers probes to all nodes on the link.
        for command in [
            "ip route add local 198.18.64.0/18 dev lo",
            "ip route add local 10.144.0.0/14 dev lo",
            "ip route add 10.144.0.0/24 via 198.18.0.1",
        ] {
            self.other.run(command);
        }
        let namespace = &self.world.namespace;
        let nodes: Vec<Value> = (2..NODES).map(node).collect();
        let pods: Vec<Value> = (0..PODS).map(|number| pod(namespace, number)).collect();
        let networks = (0..NETWORKS).map(|number| network(namespace, number));
        let networks: Vec<Value> = networks.collect();
        for objects in [nodes, pods, networks] {
            create(self.world.server, &objects);
        }
        let size = |path: &str| {
            self.world
                .server
                .kubectl(&["get", "--raw", path], None)
                .len()
        };
        let node = size(&format!("/api/v1/nodes/{}", node_name(NODES / 2)));
        let pod = size(&format!(
            "/api/v1/namespaces/{namespace}/pods/{}",
            pod_name(PODS / 2)
        ));
        eprintln!("{NODES} Nodes of {node} bytes, {PODS} pods of {pod} bytes, {NETWORKS} networks");
    }

    /// Starts the agent, waits until it is ready, and checks and prints its sizes.
    fn start(&self, doing: &str) -> Agent {
        let kubeconfig = self.world.kubeconfig(&json!({"token": self.token}));
        let start = Instant::now();
        let log = File::create("/run/agent.log").expect("a log");
        let child = Command::new(braid_tests::binary::braid())
            .arg("agent")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--node-name", NODE])
            .stderr(log)
            .spawn()
            .expect("the agent starts");
        let agent = Agent { child };
        await_true("readiness", is_ready);
        let seconds = start.elapsed().as_secs_f64();
        judge(&agent, &format!("{doing}: ready after {seconds:.2} s"));
        agent
    }

    /// Waits until the node has a route to each other node's pods, and copies of all networks.
    fn await_state(&self) {
        let routes = || self.world.sandbox.list("ip -j route show proto 98").len();
        await_true("routes", || routes() == NODES - 1);
        let copies = || fs::read_dir(COPIES).map_or(0, Iterator::count);
        await_true("copies of networks", || copies() == NETWORKS);
    }

    /// Identifiers of the requests of the agent so far. A watch has two entries in the audit log.
    fn requests(&self) -> BTreeSet<String> {
        let audit = self.world.server.audit().of_node(NODE);
        let id = |request: &Value| request["auditID"].to_string();
        audit.requests().iter().map(id).collect()
    }

    /// Returns the text of the condition that [`Updates`] changes.
    fn condition(&self, number: usize) -> String {
        let arguments = ["get", "node", &node_name(number), "-o", "json"];
        let object = self.world.server.kubectl(&arguments, None);
        let object: Value = serde_json::from_str(&object).expect("JSON");
        object["status"]["conditions"].to_string()
    }
}

/// Prints sizes of the agent, and fails if its memory is beyond the bounds.
#[track_caller]
pub(super) fn judge(agent: &Agent, what: &str) {
    let [resident, anonymous, peak] =
        ["VmRSS:", "RssAnon:", "VmHWM:"].map(|field| memory(agent, field));
    let milliseconds = ticks(agent) * 10;
    eprintln!(
        "{what}; {resident} KiB resident, {anonymous} of them anonymous, peak {peak} KiB; \
         {milliseconds} ms of a processor"
    );
    assert!(anonymous <= ANONYMOUS, "{anonymous} KiB");
    // A development build is several times as large as the program that is shipped.
    if std::env::var_os("BRAID_BIN").is_some() {
        assert!(resident <= RESIDENT, "{resident} KiB");
        assert!(peak <= PEAK, "{peak} KiB");
    }
}

#[test]
fn an_agent_of_a_large_cluster_stays_small() {
    let Some(large) = Large::new() else {
        return;
    };
    large.start("start, two Nodes").kill();
    large.grow();
    let agent = large.start("start");
    large.await_state();
    agent.kill();
    let agent = large.start("restart");
    large.await_state();
    let mut updates = Updates::start(large.world.server);
    let (requests, used) = (large.requests(), ticks(&agent));
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < WINDOW {
        updates.send(number);
        number += 1;
        std::thread::sleep(PAUSE);
    }
    let more = large.requests().difference(&requests).count();
    let seconds = start.elapsed().as_secs_f64();
    let used = u32::try_from(ticks(&agent) - used).expect("little time");
    let share = f64::from(used) / seconds;
    judge(
        &agent,
        &format!(
            "{number} updates in {seconds:.0} s: {share:.2} % of a processor, {more} requests"
        ),
    );
    assert!(more <= REQUESTS, "{more} requests");
    // The API server has accepted the updates.
    let last = (0..number).rev().find(|number| number % 3 != 0);
    let last = last.expect("an update of a Node");
    assert!(large.condition(last).contains(&time(last)));
    large.await_state();
}

/// A connection to the API server for updates of objects. It ignores the answers.
struct Updates {
    client: Child,
    token: String,
}

impl Updates {
    fn start(server: &'static Server) -> Self {
        let client = server.client(&["-quiet"], Stdio::null());
        server.kubectl(
            &["create", "serviceaccount", "updates", "-n", "kube-system"],
            None,
        );
        let binding = [
            "create",
            "clusterrolebinding",
            "updates",
            "--clusterrole=cluster-admin",
            "--serviceaccount=kube-system:updates",
        ];
        server.kubectl(&binding, None);
        Self {
            client,
            token: server.create_token("updates"),
        }
    }

    fn send(&mut self, number: usize) {
        let time = time(number);
        let (path, kind) = match number % 3 {
            0 => (
                format!("namespaces/sizes/pods/{}", pod_name(number % PODS)),
                "Ready",
            ),
            _ => (
                format!("nodes/{}", node_name(number % NODES)),
                "MemoryPressure",
            ),
        };
        let condition = json!({"type": kind, "status": "False", "lastHeartbeatTime": time, "lastProbeTime": time});
        let body = json!({"status": {"conditions": [condition]}}).to_string();
        let head = format!(
            "PATCH /api/v1/{path}/status HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {}\r\nContent-Type: application/strategic-merge-patch+json\r\nContent-Length: {}",
            self.token,
            body.len()
        );
        let stdin = self.client.stdin.as_mut().expect("its input");
        stdin
            .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
            .expect("it reads");
    }
}

/// Returns the time that update `number` writes.
fn time(number: usize) -> String {
    let [minutes, seconds] = [number / 60, number % 60];
    format!("2026-11-29T01:{minutes:02}:{seconds:02}Z")
}

impl Drop for Updates {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
