//! A DHCP daemon with a thousand leases.

use super::{SOCKET, Server, daemon, lan, said, until};
use braid_core::ipam::dhcp::rpc::{ALLOCATE, Args};
use braid_node::ipam::dhcp::call::Daemon;
use braid_tests::arriving::PATIENCE;
use braid_tests::{Ns, Sandbox, json, needs};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Number of leases that the daemon acquires.
const MANY: usize = 1000;
/// Number of parallel calls to the daemon.
const AT_ONCE: usize = 8;
/// Lease time in seconds. It matches the range of the DHCP server.
const LENGTH: u64 = 120;

#[test]
fn one_daemon_acquires_and_renews_a_thousand_leases() {
    needs!(Dnsmasq);
    let host = Sandbox::new();
    let far = lan(&host);
    let more = [
        "--dhcp-lease-max=5000",
        "--dhcp-option=option:T1,30",
        "--dhcp-option=option:T2,80",
    ];
    let server = Server::with_range(&far, "lan", "10.3.16.0,10.3.31.255,255.255.0.0,2m", &more);
    let daemon = daemon(&host, &[]);
    let pod = host.pod("a");
    add_links(&host, &pod);
    let told = allocate_all(&pod);
    assert_eq!(told.len(), MANY);
    // The server may be writing its lease file at this moment.
    let leased = || -> BTreeMap<String, String> {
        server
            .leases()
            .into_iter()
            .map(|(_, mac, ip)| (ip, mac))
            .filter(|(ip, _)| told.contains_key(ip))
            .collect()
    };
    let leased = until("the server has all leases", || {
        Some(leased()).filter(|leased| leased.len() == MANY)
    });
    // No link has the leased addresses, so nothing answers neighbour solicitations for them.
    let known = |(ip, mac): (&String, &String)| {
        format!("neigh replace {ip} lladdr {mac} dev lan nud permanent\n")
    };
    batch(&far, &leased.iter().map(known).collect::<String>());
    let mut prolonged = 0;
    while prolonged < MANY {
        prolonged = until("a further lease is prolonged", || {
            let is_later = |(expiry, _, ip): &(u64, String, String)| {
                told.get(ip).is_some_and(|told| *expiry > told + LENGTH + 1)
            };
            Some(
                server
                    .leases()
                    .iter()
                    .filter(|lease| is_later(lease))
                    .count(),
            )
            .filter(|count| *count > prolonged)
        });
    }
    assert!(!said().contains("lost the lease"), "{}", said());
    let process = format!("/proc/{}", daemon.0.id());
    until("an idle lease holds no thread and no descriptor", || {
        let count = |of: &str| {
            fs::read_dir(Path::new(&process).join(of))
                .expect("a folder of the process")
                .count()
        };
        (count("task") < MANY / 10 && count("fd") < MANY / 10).then_some(())
    });
}

/// Creates a link for each lease, all in one container. For the daemon this is the same work as one
/// link in each of many containers.
fn add_links(host: &Sandbox, pod: &Ns) {
    pod.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1");
    let add = |at| {
        format!(
            "link add link lan name e{at} netns {} type macvlan mode private\n",
            pod.path().display()
        )
    };
    batch(host.host(), &(0..MANY).map(add).collect::<String>());
    let up = |at| format!("link set e{at} up\n");
    batch(pod, &(0..MANY).map(up).collect::<String>());
}

fn batch(ns: &Ns, commands: &str) {
    fs::write("/run/batch", commands).expect("a batch");
    ns.run("ip -batch /run/batch");
}

/// Requests a lease for each link. Maps each leased address to the time when the lease arrived, in
/// seconds since 1970.
fn allocate_all(pod: &Ns) -> BTreeMap<String, u64> {
    let netns = pod.path().display().to_string();
    let conf =
        json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "ipam": {"type": "dhcp"}})
            .to_string();
    let allocate = |at: usize| {
        let args = Args {
            container_id: "a".to_owned(),
            netns: netns.clone(),
            ifname: format!("e{at}"),
            args: String::new(),
            stdin: conf.clone().into_bytes(),
        };
        let lease = Daemon::open(Path::new(SOCKET))
            .and_then(|mut daemon| daemon.call(ALLOCATE, &args, PATIENCE));
        let lease = lease.unwrap_or_else(|err| panic!("e{at}: {err}\n{}", said()));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time")
            .as_secs();
        (lease.ips[0].address.addr().to_string(), now)
    };
    let share = |first: usize| {
        (first..MANY)
            .step_by(AT_ONCE)
            .map(allocate)
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let share = &share;
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|first| scope.spawn(move || share(first)))
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("all leases"))
            .collect()
    })
}
