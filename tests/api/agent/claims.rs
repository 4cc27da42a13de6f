//! Resource claims: the agent prepares them for the kubelet, and keeps them until the kubelet no longer
//! needs them.

mod kubelet;
mod status;

use super::metrics::scrape;
use super::node::configure;
use super::sizes::judge;
use super::socket::allow_objects;
use super::{Agent, Pair, await_true, is_ready};
use crate::proxy::Fault;
use crate::{World, json};
use braid_tests::Value;
use kubelet::{Device, Kubelet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FOLDER: &str = "/run/braid/claims";
const CONFIG: &str = "
mode: direct
dra:
  enabled: true
  include: ['nic*']
  capacity: {nic0: 1G}
";
const SHARE: &str = "aed5bbdc-6a0b-4a0a-8e3e-0f1f0c0a0b0c";

/// A node with the links `nic0` and `far0`, of which the first one is offered.
struct Node {
    pair: Pair,
}

impl Node {
    fn new(test: &str, net: u8) -> Option<Self> {
        Some(Self::of(Pair::new(test, net)?))
    }

    fn of(pair: Pair) -> Self {
        let host = pair.world.sandbox.host();
        host.run("ip link add nic0 type veth peer name far0");
        for link in ["nic0", "far0"] {
            host.run(&format!("ip link set {link} up"));
        }
        allow_objects(&pair);
        configure(&pair, CONFIG);
        let node = Self { pair };
        let verbs = "list,watch,create,update,delete";
        node.allow("slices", verbs, "resourceslices");
        node
    }

    /// Gives the agent rights to a kind of the group `resource.k8s.io`.
    fn allow(&self, name: &str, verbs: &str, kind: &str) {
        let namespace = &self.pair.world.namespace;
        let role = format!("{namespace}-{name}");
        let server = self.pair.world.server;
        let (verbs, kind) = (
            format!("--verb={verbs}"),
            format!("--resource={kind}.resource.k8s.io"),
        );
        server.kubectl(&["create", "clusterrole", &role, &verbs, &kind], None);
        let subject = format!("--serviceaccount={namespace}:agent");
        let bound = format!("--clusterrole={role}");
        let binding = ["create", "clusterrolebinding", &role, &bound, &subject];
        server.kubectl(&binding, None);
    }

    fn start(&self) -> (Agent, Kubelet) {
        let map = self.pair.config_map();
        let folder = kubelet::FOLDER;
        let arguments = ["--config-map", &map, "--kubelet-root-dir", folder];
        let agent = self.pair.start_with(&arguments);
        await_true("readiness", is_ready);
        let mut kubelet = None;
        await_true("a plugin", || {
            kubelet = Kubelet::register();
            kubelet.is_some()
        });
        (agent, kubelet.expect("a plugin"))
    }

    /// Creates a claim with an allocated share of `nic0`, for the pod of the same name. `keys` are keys of
    /// its parameters.
    fn claim(&self, name: &str, rate: &str, keys: &Value) -> Value {
        self.claim_for(name, rate, keys, &json!({}))
    }

    /// Like [`Node::claim`], with more keys of the pod's `spec`.
    fn claim_for(&self, name: &str, rate: &str, keys: &Value, spec: &Value) -> Value {
        let mut pod = self.pod_of(name);
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        let pod = self.pair.world.create(pod);
        let claim = self.pair.world.create(claim_of(name, keys));
        self.set_status(name, &self.allocated(&claim, rate, &pod));
        claim
    }

    /// Changes keys of a claim's status, as the scheduler does.
    fn set_status(&self, claim: &str, status: &Value) {
        let namespace = &self.pair.world.namespace;
        let patch = format!("--patch={}", json!({"status": status}));
        let more = ["--type=merge", "--subresource=status", &patch];
        let patched = ["patch", "resourceclaim", claim, "-n", namespace];
        let server = self.pair.world.server;
        server.kubectl(&[&patched, &more[..]].concat(), None);
    }

    /// Deletes an object by force.
    fn delete(&self, kind: &str, name: &str) {
        let namespace = &self.pair.world.namespace;
        let delete = ["delete", kind, name, "-n", namespace, "--force"];
        self.pair.world.server.kubectl(&delete, None);
    }

    /// Creates many claims like [`Node::claim`], in a few requests of kubectl.
    fn claims(&self, count: usize, rate: &str) -> Vec<Value> {
        let names: Vec<String> = (0..count).map(|number| format!("many-{number}")).collect();
        let pods = self.create_all(names.iter().map(|name| self.pod_of(name)));
        let claims = self.create_all(names.iter().map(|name| claim_of(name, &json!({}))));
        let with_status = |(claim, pod): (&Value, &Value)| {
            let mut claim = claim.clone();
            claim["status"] = self.allocated(&claim, rate, pod);
            claim
        };
        let items: Vec<Value> = claims.iter().zip(&pods).map(with_status).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let replace = ["replace", "--subresource=status", "-f", "-"];
        self.pair.world.server.kubectl(&replace, Some(&list));
        claims
    }

    fn create_all(&self, objects: impl Iterator<Item = Value>) -> Vec<Value> {
        let mut items: Vec<Value> = objects.collect();
        for item in &mut items {
            item["metadata"]["namespace"] = self.pair.world.namespace.clone().into();
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let create = ["create", "-o", "json", "-f", "-"];
        let made = self.pair.world.server.kubectl(&create, Some(&list));
        // kubectl prints the objects one after the other.
        let made = serde_json::Deserializer::from_str(&made).into_iter();
        made.map(|object| object.expect("JSON")).collect()
    }

    /// Returns a pod with the claim of its name.
    fn pod_of(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.pair.names[0],
                "containers": [{"name": "c", "image": "none"}],
                "resourceClaims": [{"name": "nic", "resourceClaimName": name}],
            },
        })
    }

    /// Returns the status of a claim that has a share of `nic0` for the pod.
    fn allocated(&self, claim: &Value, rate: &str, pod: &Value) -> Value {
        let result = json!({
            "request": "nic",
            "driver": "braid.dev",
            "pool": self.pair.names[0],
            "device": "nic0",
            "shareID": SHARE,
            "consumedCapacity": {"bandwidth": rate},
        });
        let opaque = &claim["spec"]["devices"]["config"][0]["opaque"];
        let config = json!({"source": "FromClaim", "requests": [], "opaque": opaque});
        let metadata = &pod["metadata"];
        let reserved =
            json!({"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]});
        json!({
            "allocation": {"devices": {"results": [result], "config": [config]}},
            "reservedFor": [reserved],
        })
    }

    /// Returns the devices that the kubelet gets for a claim.
    fn devices(&self) -> Vec<Device> {
        vec![Device {
            request_names: vec!["nic".to_owned()],
            pool_name: self.pair.names[0].clone(),
            name: "nic0".to_owned(),
            share_id: Some(SHARE.to_owned()),
        }]
    }

    /// Returns the note of the event about a refused claim.
    fn refusal(&self, pod: &str) -> Option<String> {
        let namespace = &self.pair.world.namespace;
        let fields = format!("--field-selector=regarding.name={pod},reason=ClaimRefused");
        let kind = "events.v1.events.k8s.io";
        let get = ["get", kind, "-n", namespace, &fields, "-o", "json"];
        let listed = self.pair.world.server.kubectl(&get, None);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        listed["items"][0]["note"].as_str().map(str::to_owned)
    }
}

/// Returns a claim of a share. `keys` are keys of its parameters.
fn claim_of(name: &str, keys: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "braid.dev/v1alpha1", "kind": "Attachment"});
    for (key, value) in keys.as_object().into_iter().flatten() {
        parameters[key] = value.clone();
    }
    let opaque = json!({"driver": "braid.dev", "parameters": parameters});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {
            "requests": [{"name": "nic", "exactly": {"deviceClassName": "braid.dev"}}],
            "config": [{"opaque": opaque}],
        }},
    })
}

fn file(claim: &Value) -> PathBuf {
    Path::new(FOLDER)
        .join(crate::uid(claim))
        .with_extension("json")
}

/// Returns the file of a prepared claim.
fn prepared(claim: &Value) -> Value {
    let text = fs::read_to_string(file(claim)).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_claim_is_kept_from_its_preparation_until_its_end() {
    let Some(node) = Node::new("claims-kept", 234) else {
        return;
    };
    node.allow("claims", "get", "resourceclaims");
    let (agent, kubelet) = node.start();
    let [first, second] = ["first", "second"].map(|name| {
        let claim = node.claim(name, "300M", &json!({"interface": "data0"}));
        assert!(!file(&claim).exists());
        claim
    });
    let answers = kubelet.prepare(&[&first, &second]);
    for name in ["first", "second"] {
        assert_eq!(answers[name], Ok(node.devices()));
    }
    let written = prepared(&first);
    assert_eq!(written["claim"]["uid"], first["metadata"]["uid"]);
    assert_eq!(written["uses"][0]["parent"], "nic0");
    assert_eq!(written["uses"][0]["rate"], 300_000_000);
    let lines = scrape();
    for line in [
        "braid_dra_prepared_claims 2",
        "braid_dra_capacity_bytes_per_second{link=\"nic0\"} 125000000",
        "braid_dra_claimed_bytes_per_second{link=\"nic0\"} 75000000",
    ] {
        assert!(lines.lines().any(|one| one == line), "{line}: {lines}");
    }
    agent.kill();
    assert_eq!(prepared(&first), written);
    // A write that a kill interrupted.
    fs::write(file(&first).with_extension("tmp"), "{").expect("written");
    fs::write(file(&second), "{").expect("written");
    let (_agent, kubelet) = node.start();
    for claim in [&first, &second] {
        assert_eq!(kubelet.prepare_one(claim), Ok(node.devices()));
    }
    assert_eq!(prepared(&first), written);
    assert_eq!(prepared(&second)["claim"]["name"]["name"], "second");
    // The kubelet ends claims of pods that the API server no longer has.
    let namespace = &node.pair.world.namespace;
    let delete = ["delete", "resourceclaim", "first", "-n", namespace];
    node.pair.world.server.kubectl(&delete, None);
    kubelet.unprepare(&first);
    assert!(!file(&first).exists() && file(&second).exists());
    // Devices are no longer offered, but the pod has to end.
    configure(&node.pair, "mode: direct");
    let slices = || {
        let fields = format!("--field-selector=spec.nodeName={}", node.pair.names[0]);
        let get = ["get", "resourceslices", &fields, "-o", "name"];
        node.pair.world.server.kubectl(&get, None)
    };
    await_true("no slices", || slices().is_empty());
    let refused = kubelet.prepare_one(&second);
    assert_eq!(refused, Err("devices of the node: not offered".to_owned()));
    for _ in 0..2 {
        kubelet.unprepare(&second);
        // Calls ask for claims a while longer.
        let left = fs::read_dir(FOLDER).expect("a folder").flatten();
        let left: Vec<_> = left.map(|file| file.file_name()).collect();
        assert_eq!(left, ["ended"]);
    }
    configure(&node.pair, "mode: direct\nmtu: 1400");
    await_true("no plugin", || Kubelet::register().is_none());
}

#[test]
fn two_hundred_claims_fit_in_the_agents_memory() {
    let Some(node) = Node::new("claims-many", 225) else {
        return;
    };
    node.allow("claims", "get", "resourceclaims");
    let (agent, kubelet) = node.start();
    let claims = node.claims(200, "1M");
    let all: Vec<&Value> = claims.iter().collect();
    let answers = kubelet.prepare(&all);
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    assert!(claims.iter().all(|claim| file(claim).exists()));
    judge(&agent, "200 prepared claims");
    agent.kill();
}

#[test]
fn refused_claims_have_a_message_and_an_event() {
    let Some(node) = Node::new("claims-refused", 235) else {
        return;
    };
    node.allow("claims", "get", "resourceclaims");
    let (_agent, kubelet) = node.start();
    let whole = node.claim("whole", "800M", &json!({}));
    assert_eq!(kubelet.prepare_one(&whole), Ok(node.devices()));
    let host = json!({"hostNetwork": true});
    for (name, rate, keys, spec, words) in [
        (
            "key",
            "1M",
            json!({"ifname": "x"}),
            json!({}),
            r#""ifname": "x": unknown key"#,
        ),
        (
            "name",
            "1M",
            json!({"interface": "eth0"}),
            json!({}),
            r#""interface": "eth0": the pod has it"#,
        ),
        ("host", "1M", json!({}), host, "the pod has hostNetwork"),
        (
            "nad",
            "1M",
            json!({"nad": "none"}),
            json!({}),
            "there is no such NetworkAttachmentDefinition",
        ),
        (
            "rate",
            "300M",
            json!({}),
            json!({}),
            "link nic0 has 1000000000 bit/s, but its claims reserve 1100000000",
        ),
    ] {
        let claim = node.claim_for(name, rate, &keys, &spec);
        let start = Instant::now();
        let message = kubelet.prepare_one(&claim).expect_err(name);
        assert!(start.elapsed() < Duration::from_secs(5), "{name}");
        assert!(message.contains(words), "{message}");
        let start = format!("claim {}/{name}: ", node.pair.world.namespace);
        assert!(message.starts_with(&start), "{message}");
        await_true("an event", || node.refusal(name).is_some());
        assert_eq!(node.refusal(name), Some(message));
        assert!(!file(&claim).exists());
    }
    let lines = scrape();
    for (reason, count) in [("claim", 4), ("link", 1)] {
        let line = format!("braid_dra_prepare_failures_total{{reason=\"{reason}\"}} {count}");
        assert!(lines.lines().any(|one| one == line), "{line}: {lines}");
    }
    // A claim that was deleted and created again.
    let mut old = whole.clone();
    old["metadata"]["uid"] = "f7c3bc1d-0000-4000-8000-000000000000".into();
    let message = kubelet.prepare_one(&old).expect_err("another uid");
    assert!(message.contains("the API has uid"), "{message}");
    // Two claims that fit only one by one.
    kubelet.unprepare(&whole);
    let [a, b] = ["a", "b"].map(|name| node.claim(name, "600M", &json!({})));
    let answers = kubelet.prepare(&[&a, &b]);
    let prepared = answers.values().filter(|answer| answer.is_ok()).count();
    assert_eq!(prepared, 1, "{answers:?}");
}

#[test]
fn a_claim_that_the_api_has_ended_keeps_no_bandwidth() {
    let Some(node) = Node::new("claims-ended", 226) else {
        return;
    };
    node.allow("claims", "get", "resourceclaims");
    let (agent, kubelet) = node.start();
    let [first, second] = ["first", "second"].map(|name| node.claim(name, "600M", &json!({})));
    assert_eq!(kubelet.prepare_one(&first), Ok(node.devices()));
    let refused = kubelet
        .prepare_one(&second)
        .expect_err("no bandwidth is left");
    assert!(
        refused.contains("its claims reserve 1200000000"),
        "{refused}"
    );
    let namespace = &node.pair.world.namespace;
    let delete = ["delete", "resourceclaim", "first", "-n", namespace];
    node.pair.world.server.kubectl(&delete, None);
    assert_eq!(kubelet.prepare_one(&second), Ok(node.devices()));
    // The kubelet has not ended it.
    assert!(file(&first).exists());
    kubelet.unprepare(&first);
    kubelet.unprepare(&second);
    agent.kill();
}

#[test]
fn many_claims_that_the_api_has_ended_do_not_delay_another_one() {
    let far = Fault::Delay(Duration::from_millis(100));
    let world = World::with("claims-far", Vec::new(), far);
    let Some(node) = world.map(|world| Node::of(Pair::of_net(world, 229))) else {
        return;
    };
    node.allow("claims", "get", "resourceclaims");
    let (agent, kubelet) = node.start();
    let ended = node.claims(60, "10M");
    let all: Vec<&Value> = ended.iter().collect();
    let answers = kubelet.prepare(&all);
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    let namespace = &node.pair.world.namespace;
    let delete = ["delete", "resourceclaims", "--all", "-n", namespace];
    node.pair.world.server.kubectl(&delete, None);
    let claim = node.claim("nic", "900M", &json!({}));
    let start = Instant::now();
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    // One after the other, the requests take 12 seconds.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    agent.kill();
}

#[test]
fn faults_that_pass_do_not_end_a_preparation() {
    let Some(node) = Node::new("claims-passing", 236) else {
        return;
    };
    let (_agent, kubelet) = node.start();
    let claim = node.claim("nic", "1M", &json!({}));
    let start = Instant::now();
    // The API server refuses the claim at first.
    let answer = std::thread::scope(|scope| {
        let node = &node;
        let asked = scope.spawn({
            let claim = claim.clone();
            move || Kubelet::register().expect("a plugin").prepare_one(&claim)
        });
        std::thread::sleep(Duration::from_secs(2));
        assert!(!asked.is_finished(), "without the right");
        node.allow("claims", "get", "resourceclaims");
        asked.join().expect("an answer")
    });
    assert_eq!(answer, Ok(node.devices()));
    assert!(start.elapsed() < Duration::from_secs(15));
    kubelet.unprepare(&claim);

    // The API server is away for five seconds.
    let url = node.pair.world.proxy.url();
    let (_, port) = url.rsplit_once(':').expect("a port");
    nft(&format!(
        "add table inet away; add chain inet away in {{ type filter hook input priority 0; }}; \
         add rule inet away in tcp dport {port} reject with tcp reset"
    ));
    let start = Instant::now();
    let back = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(5));
        nft("delete table inet away");
    });
    assert_eq!(kubelet.prepare_one(&claim), Ok(node.devices()));
    let took = start.elapsed();
    assert!(
        took > Duration::from_secs(5) && took < Duration::from_secs(20),
        "{took:?}"
    );
    back.join().expect("it is back");
}

/// Changes nf_tables in the sandbox of this thread.
fn nft(commands: &str) {
    let done = Command::new("nft").arg(commands).status();
    assert!(done.expect("nft(8)").success(), "{commands}");
}
