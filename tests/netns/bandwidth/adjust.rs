//! Limits of a running container that change in place, by each kind of queue. The library changes
//! them, as the agent does.

use super::{AT_ONCE, GOODPUT, RATE, RATE_F, lacking, limits, list, shaped};
use crate::conf;
use braid_core::cni::{Attachment, Json, NetConf};
use braid_node::apply::host::{Machine, This};
use braid_node::attach::adjust::{Adjust, is_possible};
use braid_node::attach::chain::{BRAID, Chain};
use braid_node::attach::edit::{Edit, edit};
use braid_node::attach::invocation::Wanted;
use braid_node::log::Log;
use braid_node::store::record;
use braid_node::sys::netns::NetNs;
use braid_tests::{Ns, Sandbox, Value, json};

/// Gives the container of the sandbox another configuration in place.
fn adjust(conf: &Value) {
    let record = record::list().unwrap().remove(0);
    let attached = &record.attachments[0];
    let attachment = Attachment {
        container_id: record.key.owner.container_id.clone(),
        ifname: attached.ifname.clone(),
        netns: record.netns.clone(),
        args: attached.args.clone(),
    };
    let json = Json::parse(conf.to_string().as_bytes(), "test").unwrap();
    let chain = Chain::parse(BRAID, NetConf::from_json(json).unwrap(), "", &record.path).unwrap();
    let adjust = Adjust {
        at: 0,
        wanted: Wanted::new(attachment, chain),
    };
    assert!(is_possible(&record, &adjust));
    let machine = This::new(Log::new(|text| eprintln!("{text}")));
    let folder = machine.folder(&record.key.owner.container_id).unwrap();
    let netns = NetNs::open(record.netns.as_deref().unwrap()).unwrap();
    let mut host = machine.open(Some(netns)).unwrap();
    let changed = Edit {
        adjust: vec![adjust],
        ..Edit::default()
    };
    edit(
        record,
        changed,
        (&folder, &mut *host),
        &mut |_, _, _| Ok(()),
    )
    .unwrap();
}

/// Limits of `times` the rate, in the directions with a name in `keys`.
fn scaled(times: u64, keys: &[&str]) -> Value {
    let mut scaled = limits();
    let fields = scaled.as_object_mut().unwrap();
    fields.retain(|key, _| keys.iter().any(|direction| key.starts_with(direction)));
    for (key, value) in fields {
        if key.ends_with("Rate") {
            *value = json!(times * RATE);
        }
    }
    scaled
}

/// Returns the container's address, and the namespace and the address of its peer.
fn ends<'a>(
    result: &'a Value,
    main: &Value,
    host: &'a Sandbox,
    other: &'a Ns,
) -> (&'a str, (&'a Ns, &'a str)) {
    let ip = &result["ips"][0];
    let own = ip["address"].as_str().unwrap().split('/').next().unwrap();
    if main["type"] == "bridge" {
        (own, (host.host(), ip["gateway"].as_str().unwrap()))
    } else {
        (own, (other, "10.3.0.254"))
    }
}

#[test]
fn limits_change_in_place_with_each_kind_of_queue() {
    for lacks in [&[][..], &["fq"], &["fq", "tbf"], &["bpf", "fq_codel"]] {
        // The ends of a pair and an interface without a host end have the same kinds of queues.
        let mains = [conf::bridge(), conf::macvlan()];
        for main in mains.into_iter().take(if lacks.is_empty() { 2 } else { 1 }) {
            let host = Sandbox::new();
            let pod = host.pod("a");
            let other = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
            lacking(lacks);
            let call = shaped(&host, &pod, &main, &limits());
            let result = call.add().result();
            let (own, (there, to)) = ends(&result, &main, &host, &other);
            let handles = |of: &Ns| -> Vec<Value> {
                let queues = of.list("tc -j qdisc show");
                queues.iter().map(|queue| queue["handle"].clone()).collect()
            };
            let before = [host.host(), &pod].map(handles);
            let both = ["ingress", "egress"];
            adjust(&list(&main, &scaled(3, &both)));
            for (from, there, to) in [(&*pod, there, to), (there, &*pod, own)] {
                let most = (3.0 * 1.01 * RATE_F, 3.0 * AT_ONCE);
                from.assert_sends(there, to, 3.0 * 0.7 * GOODPUT, most);
            }
            let after = [host.host(), &pod].map(handles);
            assert_eq!(after, before, "the same queues: {lacks:?}");
            // Packets that wait are larger than those that the lower rate lets pass at a time.
            adjust(&list(&main, &scaled(50, &both)));
            pod.while_sending(there, to, || {
                std::thread::sleep(std::time::Duration::from_millis(200));
                adjust(&list(&main, &limits()));
            });
            pod.assert_sends(there, to, 0.7 * GOODPUT, (1.01 * RATE_F, AT_ONCE));
            // One direction without a limit, and back.
            adjust(&list(&main, &scaled(1, &["egress"])));
            there.assert_sends(&pod, own, 4.0 * RATE_F, (1e12, 1e12));
            adjust(&list(&main, &limits()));
            there.assert_sends(&pod, own, 0.7 * GOODPUT, (1.01 * RATE_F, AT_ONCE));
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}

#[test]
fn a_limit_comes_in_place_to_a_direction_that_had_none() {
    for main in [conf::bridge(), conf::macvlan()] {
        for keys in [&[][..], &["ingress"]] {
            let host = Sandbox::new();
            let pod = host.pod("a");
            let other = host.outside("lan", "10.3.0.253/24", "10.3.0.254/24");
            let call = shaped(&host, &pod, &main, &scaled(1, keys));
            let result = call.add().result();
            let (own, (there, to)) = ends(&result, &main, &host, &other);
            adjust(&list(&main, &limits()));
            for (from, there, to) in [(&*pod, there, to), (there, &*pod, own)] {
                from.assert_sends(there, to, 0.7 * GOODPUT, (1.01 * RATE_F, AT_ONCE));
            }
            call.prev(&result).del().ok();
            host.assert_nothing_left();
        }
    }
}
