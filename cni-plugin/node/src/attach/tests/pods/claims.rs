//! IPAMClaims of a pod's networks, with leases in a folder of the test.

use super::*;
use crate::apply::host::Machine;
use braid_core::k8s::IpamClaim;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const ANNOTATION: &str = r#"[{"name":"vm","ipam-claim-reference":"vm-a.vm"}]"#;

/// A cluster with a network `vm` with `host-local` addresses, and the claim `vm-a.vm`.
struct Bed {
    machine: Model,
    data: PathBuf,
    _temp: TempDir,
}

impl Bed {
    fn new(annotation: &str, ips: &[&str]) -> Self {
        let temp = TempDir::new().expect("a folder");
        let bed = Self {
            machine: cluster(Some(annotation)),
            data: temp.path().to_owned(),
            _temp: temp,
        };
        bed.fill(ips)
    }

    /// Creates the cluster with leases in the machine's default folder.
    fn in_default_folder(annotation: &str) -> Self {
        let machine = cluster(Some(annotation));
        let data = machine
            .root()
            .at(braid_core::ipam::host_local::config::DEFAULT_DATA_DIR);
        Self {
            machine,
            data,
            _temp: TempDir::new().expect("a folder"),
        }
        .fill(&[])
    }

    fn fill(self, ips: &[&str]) -> Self {
        let bed = self;
        let ipam = format!(
            r#""ipam":{{"type":"host-local","dataDir":{:?},"subnet":"10.9.0.0/24"}}"#,
            bed.data
        );
        let config = format!(r#"{{"cniVersion":"1.0.0","type":"macvlan","master":"lan",{ipam}}}"#);
        let mut cluster = bed.machine.cluster.borrow_mut();
        cluster.nads.push(Nad {
            name: object("vm"),
            config,
            annotations: BTreeMap::new(),
        });
        cluster.claims.push(IpamClaim {
            name: object("vm-a.vm"),
            uid: "u7".to_owned(),
            network: "vm".to_owned(),
            interface: "net1".to_owned(),
            version: "1".to_owned(),
            ips: ips.iter().map(ToString::to_string).collect(),
            owner_pod: None,
            conditions: Vec::new(),
        });
        drop(cluster);
        bed
    }

    fn leases(&self) -> PathBuf {
        self.data.join("vm")
    }

    /// Lists the leases, each with its file's content.
    fn leased(&self) -> Vec<String> {
        let names = fs::read_dir(self.leases())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| name.parse::<std::net::IpAddr>().is_ok());
        names.sort();
        let read = |name: &String| fs::read_to_string(self.leases().join(name)).expect("a lease");
        names
            .iter()
            .map(|name| format!("{name} {}", read(name)))
            .collect()
    }

    fn ips(&self) -> Vec<String> {
        self.machine.cluster.borrow().claims[0].ips.clone()
    }

    fn gc(&self, listed: &str) -> Result<(), Error> {
        let (request, settings) = request(
            Command::Gc,
            &format!(r#","cni.dev/valid-attachments":[{listed}]"#),
        );
        pods::gc(&request, &settings, "braid", &self.machine, &self.machine)
    }
}

// Conformance: S33, I1, I3
#[test]
fn a_claim_without_addresses_gets_some_and_keeps_them_until_it_is_deleted() {
    let bed = Bed::new(ANNOTATION, &[]);
    add(&bed.machine, "").expect("attached");
    assert_eq!(
        bed.machine.cluster.borrow().asked,
        5,
        "pod, network, claim, its status, the pod's status"
    );
    assert_eq!(
        (bed.ips(), bed.leased()),
        (
            vec!["10.9.0.2/24".to_owned()],
            vec!["10.9.0.2 ipamclaim-u7".to_owned()]
        )
    );
    let records = Machine::records(&bed.machine).expect("records");
    assert_eq!(
        records[0].attachments[1].claim.as_deref(),
        Some("ipamclaim-u7")
    );
    del(&bed.machine).expect("detached");
    assert_nothing_left(&bed.machine, "but the lease");
    bed.gc("").expect("collected");
    assert_eq!(bed.leased(), ["10.9.0.2 ipamclaim-u7"]);
    // Another pod that uses the claim later.
    add(&bed.machine, "").expect("attached");
    assert_eq!(bed.leased(), ["10.9.0.2 ipamclaim-u7"]);
    bed.machine.cluster.borrow_mut().claims.clear();
    bed.gc("")
        .expect("the pod is gone, and the claim is deleted");
    assert_eq!(bed.leased(), [""; 0]);
}

/// Damages the only record of a machine.
fn damage(machine: &Model) {
    let folder = machine.root().at(crate::store::record::ROOT).join("c1");
    let record = fs::read_dir(folder)
        .expect("records")
        .next()
        .expect("a record")
        .expect("its entry")
        .path();
    let text = fs::read(&record).expect("a record");
    fs::write(record, &text[..text.len() / 2]).expect("damaged");
}

#[test]
fn after_a_damaged_record_del_or_gc_leaves_no_lease_of_any_network() {
    for is_gc in [false, true] {
        let bed = Bed::in_default_folder(r#"[{"name":"blue"},{"name":"vm"}]"#);
        add(&bed.machine, "").expect("attached");
        assert_eq!(bed.leased(), ["10.9.0.2 c1\r\nnet2"]);
        damage(&bed.machine);
        let listed = r#"{"containerID":"c1","ifname":"eth0"}"#;
        bed.gc(listed).expect("collected");
        assert_eq!(bed.leased().len(), 1, "the container is listed");
        if is_gc {
            bed.gc("").expect("collected");
        } else {
            del(&bed.machine).expect("detached");
        }
        assert_eq!(bed.leased(), [""; 0], "by GC: {is_gc}");
        // The model does not show the owner of a link, unlike the kernel.
        assert_eq!(bed.machine.folders(), 0, "by GC: {is_gc}");
    }
}

// Conformance: I1
#[test]
fn a_full_range_reuses_the_addresses_of_deleted_claims_without_gc() {
    let bed = Bed::new(ANNOTATION, &[]);
    for nad in &mut bed.machine.cluster.borrow_mut().nads {
        nad.config = nad.config.replace("10.9.0.0/24", "10.9.0.0/30");
    }
    add(&bed.machine, "").expect("attached");
    del(&bed.machine).expect("detached");
    let other = [(NETWORKS.to_owned(), r#"[{"name":"vm"}]"#.to_owned())];
    bed.machine.cluster.borrow_mut().pods[0].annotations = other.into();
    let err = add(&bed.machine, "").expect_err("the claim has the one address");
    let words = "network ns/vm: failed to allocate for range 0: no IP addresses available";
    assert!(err.msg.starts_with(words), "{err}");
    assert_eq!(bed.leased(), ["10.9.0.2 ipamclaim-u7"]);
    bed.machine.cluster.borrow_mut().claims.clear();
    add(&bed.machine, "").expect("attached");
    assert_eq!(bed.leased(), ["10.9.0.2 c1\r\nnet1"]);
}

// Conformance: S33
#[test]
fn the_network_gets_the_addresses_of_the_claim() {
    let bed = Bed::new(ANNOTATION, &["10.9.0.77/24"]);
    add(&bed.machine, "").expect("attached");
    assert_eq!(bed.leased(), ["10.9.0.77 ipamclaim-u7"]);
    let cluster = bed.machine.cluster.borrow();
    assert!(cluster.pods[0].annotations[NETWORK_STATUS].contains("10.9.0.77"));
    assert_eq!(
        cluster.asked, 5,
        "pod, network, claim, that the pod has it, the pod's status"
    );
    let claim = &cluster.claims[0];
    assert_eq!(
        (claim.ips.join(" "), claim.owner_pod.as_deref()),
        ("10.9.0.77/24".to_owned(), Some("web"))
    );
}

// Conformance: I7
#[test]
fn a_claim_of_another_pod_is_refused_while_that_pod_runs() {
    let bed = Bed::new(ANNOTATION, &["10.9.0.77/24"]);
    bed.machine.cluster.borrow_mut().claims[0].owner_pod = Some("old".to_owned());
    bed.machine
        .cluster
        .borrow_mut()
        .pods
        .push(pod("old", BTreeMap::new()));
    let err = add(&bed.machine, "").expect_err("in use");
    assert_eq!(
        (err.kind, err.msg.as_str()),
        (Kind::TryAgain, "claim ns/vm-a.vm: pod ns/old uses it")
    );
    assert_nothing_left(&bed.machine, "");
    bed.machine.cluster.borrow_mut().pods[1].is_over = true;
    add(&bed.machine, "").expect("attached");
    del(&bed.machine).expect("detached");
    bed.machine.cluster.borrow_mut().claims[0].owner_pod = Some("gone".to_owned());
    add(&bed.machine, "").expect("attached");
    let claim = bed.machine.cluster.borrow().claims[0].clone();
    assert_eq!(
        (claim.owner_pod.as_deref(), claim.conditions.len()),
        (Some("web"), 1)
    );
}

// Conformance: I1
#[test]
fn without_the_api_no_lease_is_released() {
    let bed = Bed::new(ANNOTATION, &[]);
    add(&bed.machine, "").expect("attached");
    let asked = bed.machine.cluster.borrow().asked;
    bed.machine.cluster.borrow_mut().fails_at = Some(asked);
    let err = bed.gc("").expect_err("it is tried again");
    assert_eq!(err.kind, Kind::TryAgain, "{err}");
    assert_eq!(bed.leased(), ["10.9.0.2 ipamclaim-u7"]);
}

// Conformance: I3
#[test]
fn a_claim_that_cannot_be_read_or_written_fails_the_pod_and_keeps_its_address() {
    for (at, leased) in [(2, 0), (3, 1)] {
        let bed = Bed::new(ANNOTATION, &[]);
        bed.machine.cluster.borrow_mut().fails_at = Some(at);
        let err = add(&bed.machine, "").expect_err("no API");
        assert_eq!(
            (err.kind, bed.leased().len()),
            (Kind::TryAgain, leased),
            "{err}"
        );
        assert_eq!(status(&bed.machine), [""; 0]);
        assert_nothing_left(&bed.machine, "but the lease");
        bed.machine.cluster.borrow_mut().fails_at = None;
        add(&bed.machine, "").expect("attached");
        assert_eq!(
            (bed.ips()[0].as_str(), bed.leased().len()),
            ("10.9.0.2/24", 1)
        );
    }
}

// Conformance: I2, I5, I7, S32
#[test]
fn a_claim_is_for_one_network_of_one_container() {
    let twice = format!("{},{}", ANNOTATION.trim_end_matches(']'), &ANNOTATION[1..]);
    let [with_ips, other, none] = [
        r#"vm","ips":["10.9.0.5/24"],"ipam-"#,
        r#"blue","x.y/z":1,"ipam-"#,
        "vm\",\"ipam-",
    ];
    let annotation =
        |keys: &str, claim: &str| format!(r#"[{{"name":"{keys}claim-reference":"{claim}"}}]"#);
    for (annotation, word) in [
        (twice, "two networks"),
        (annotation(with_ips, "vm-a.vm"), "can't both be set"),
        (
            annotation(none, "vm-b.vm"),
            "IPAMClaim ns/vm-b.vm does not exist",
        ),
    ] {
        let bed = Bed::new(&annotation, &[]);
        let err = add(&bed.machine, "").expect_err(&annotation);
        assert!(err.to_string().contains(word), "{annotation}: {err}");
        assert_nothing_left(&bed.machine, &annotation);
    }
    // An IPAM without leases ignores claims.
    let bed = Bed::new(&annotation(other, "vm-b.vm"), &[]);
    add(&bed.machine, "").expect("attached");
    assert_eq!(bed.machine.cluster.borrow().asked, 3);
    // Another container, while the first one is running.
    let bed = Bed::new(ANNOTATION, &[]);
    add(&bed.machine, "").expect("attached");
    let mut record = Machine::records(&bed.machine).expect("records").remove(0);
    // The model's cookie differs from the one of the namespace at the path.
    record.netns_cookie = None;
    Machine::folder(&bed.machine, "c1")
        .expect("a folder")
        .store(&record)
        .expect("stored");
    let (mut second, settings) = request(Command::Add, "");
    second
        .attachment
        .as_mut()
        .expect("a container")
        .container_id = "c2".to_owned();
    let err = pods::add(&second, &settings, &bed.machine, &bed.machine, &mut |_| {
        Ok(())
    })
    .map(drop)
    .expect_err("in use");
    assert_eq!(err.kind, Kind::TryAgain);
    assert!(
        err.msg.contains("claim ns/vm-a.vm: container c1 uses it"),
        "{err}"
    );
}
