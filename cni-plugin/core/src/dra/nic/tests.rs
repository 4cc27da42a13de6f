//! Tests of the choice of links.

use super::*;
use crate::name::Mac;

fn nic(name: &str, index: u32, kind: &str) -> Nic {
    let mut fact = LinkFact::planned(kind, Some(Mac([2, 0, 0, 0, 0, 1])), 1500, true);
    fact.index = index;
    Nic {
        name: IfName::parse(name).expect("a name"),
        fact,
        device: kind.is_empty().then(Device::default),
        speed_mbit: Some(10_000),
        is_uplink: false,
    }
}

/// Returns a VLAN over the link with the index `lower`.
fn over(name: &str, index: u32, lower: u32) -> Nic {
    let mut nic = nic(name, index, "vlan");
    nic.fact.parent = Some(lower);
    nic
}

/// Returns a link with the device at the end of this path.
fn function(name: &str, index: u32, device: &str, physfn: &str) -> Nic {
    let path = format!("/sys/devices/pci0000:00/0000:00:02.0/{device}");
    Nic {
        device: Some(Device::of(&path, "0", physfn)),
        ..nic(name, index, "")
    }
}

fn settings(json: &str) -> Settings {
    serde_json::from_str(json).expect("settings")
}

/// Returns the names of the offered links, and the refusals of others.
fn chosen(nics: &[Nic], json: &str) -> (Vec<String>, Vec<String>) {
    let settings = settings(json);
    let (offers, refused) = offers(nics, &settings);
    let names = offers.iter().map(|offer| offer.nic.name.to_string());
    let refused = refused.iter().map(|(name, why)| format!("{name}: {why}"));
    (names.collect(), refused.collect())
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the links of a node with pods.
fn node() -> Vec<Nic> {
    let mut lo = nic("lo", 1, "");
    (lo.fact.mac, lo.device) = (None, None);
    let mut slave = nic("eth2", 4, "");
    slave.fact.master = Some(5);
    let mut end = nic("veth12345678", 6, "veth");
    (end.fact.parent_netns, end.fact.master) = (Some(0), Some(7));
    let mut own = nic("pod0", 8, "veth");
    own.fact.alias = "braid net 4f1c eth0".to_owned();
    let mut data = nic("data0", 9, "veth");
    data.fact.parent_netns = Some(3);
    vec![
        nic("eth1", 3, ""),
        nic("eth0", 2, ""),
        lo,
        slave,
        nic("bond0", 5, "bond"),
        end,
        nic("br0", 7, "bridge"),
        own,
        data,
        nic("braid-vxlan", 10, "vxlan"),
        nic("br1", 11, "bridge"),
        nic("cni0", 12, "bridge"),
    ]
}

#[test]
fn links_with_a_device_are_offered_unless_they_are_ports() {
    let (offered, refused) = chosen(&node(), "{}");
    assert_eq!(offered, ["eth0", "eth1"]);
    assert_eq!(refused, ["eth2: it is a port of bond0"]);
}

#[test]
fn included_links_are_offered_but_never_those_of_pods_and_plugins() {
    let (offered, refused) = chosen(&node(), r#"{"include": ["*"], "exclude": ["eth0"]}"#);
    assert_eq!(offered, ["bond0", "br1", "data0", "eth1"]);
    assert_eq!(
        refused,
        [
            "lo: it has no hardware address",
            "eth2: it is a port of bond0",
            "veth12345678: it is the end of a pod's link",
            "br0: it is the bridge of a plugin",
            "pod0: braid made it",
            "braid-vxlan: braid made it",
            "cni0: it is the bridge of a plugin",
        ]
    );
}

#[test]
fn a_link_with_the_name_of_a_pods_end_is_offered_only_by_this_name() {
    let mut end = nic("veth0", 2, "veth");
    end.fact.parent_netns = Some(0);
    let offered = |json| chosen(std::slice::from_ref(&end), json).0;
    assert_eq!(offered(r#"{"include": ["veth*"]}"#), [""; 0]);
    assert_eq!(offered(r#"{"include": ["veth0"]}"#), ["veth0"]);
    end.fact.parent_netns = None;
    let (offered, _) = chosen(&[end], r#"{"include": ["veth*"]}"#);
    assert_eq!(offered, ["veth0"], "both ends are on the node");
}

#[test]
fn the_capacity_is_the_configured_one_or_the_speed_without_the_reserve() {
    let mut nics = [nic("eth0", 2, ""), nic("eth1", 3, ""), nic("eth2", 4, "")];
    nics[1].speed_mbit = None;
    nics[2].speed_mbit = Some(10);
    nics[2].is_uplink = true;
    let rates = |json| -> Vec<(u64, u64, usize)> {
        let settings = settings(json);
        let (offers, _) = offers(&nics, &settings);
        let mut offers = offers.iter();
        let rates = offers
            .by_ref()
            .map(|it| (it.speed.0, it.bandwidth.0, it.forms.len()));
        rates.collect()
    };
    let (ten, mega) = (10_000_000_000, 1_000_000);
    assert_eq!(rates("{}"), [(ten, ten, 2), (10 * mega, 10 * mega, 1)]);
    assert_eq!(
        rates(r#"{"capacity": {"eth[01]": "1G"}, "reserve": "9M"}"#),
        [
            (1000 * mega, 991 * mega, 2),
            (1000 * mega, 991 * mega, 2),
            (10 * mega, mega, 1),
        ]
    );
    let (_, refused) = chosen(&nics, r#"{"reserve": "9500k"}"#);
    assert_eq!(
        refused,
        [
            "eth1: its speed is not known: dra.capacity can set it",
            "eth2: 500k bit/s are left beside dra.reserve, less than 1M",
        ]
    );
}

#[test]
fn the_place_of_a_device_is_read_from_recorded_paths() {
    let of = |path: &str, numa: &str| {
        let device = Device::of(path, numa, "");
        (device.pci, device.root, device.numa_node)
    };
    let some = |text: &str| Some(text.to_owned());
    let root = "/sys/devices/pci0000:00";
    let at = |rest: &str| format!("{root}/{rest}");
    for (path, numa, pci, node) in [
        // A server's NIC behind a bridge, on the second socket.
        (
            at("0000:00:02.0/0000:03:00.1"),
            "1\n",
            some("0000:03:00.1"),
            Some(1),
        ),
        // A virtual machine's.
        (
            at("0000:00:03.0/virtio0"),
            "-1\n",
            some("0000:00:03.0"),
            None,
        ),
        // A function of an adapter.
        (
            at("0000:00:02.0/0000:03:00.0/mlx5_core.sf.4"),
            "0\n",
            some("0000:03:00.0"),
            Some(0),
        ),
    ] {
        assert_eq!(of(&path, numa), (pci, some("pci0000:00"), node), "{path}");
    }
    // USB, and a board without PCI.
    let usb = at("0000:00:14.0/usb1/1-2/1-2:1.0");
    for path in [&usb, "/sys/devices/platform/soc/1e100000.ethernet", ""] {
        assert_eq!(of(path, ""), (None, None, None), "{path}");
    }
}

#[test]
fn the_physical_function_is_read_from_recorded_paths() {
    let card = "/sys/devices/pci0000:00/0000:00:02.0";
    for (device, physfn, physical) in [
        ("0000:03:00.0", "", None),
        ("0000:03:02.1", "../0000:03:00.0", Some("0000:03:00.0")),
        // A card's own virtio.
        (
            "0000:03:02.1/virtio4",
            "../0000:03:00.1",
            Some("0000:03:00.1"),
        ),
        ("0000:03:00.0/mlx5_core.sf.4", "", Some("0000:03:00.0")),
        (
            "0000:03:02.1/mlx5_core.sf.4",
            "../0000:03:00.0",
            Some("0000:03:00.0"),
        ),
        ("0000:03:00.0/virtio0", "", None),
        ("0000:03:00.0", "../other", None),
    ] {
        let device = Device::of(&format!("{card}/{device}"), "0", physfn);
        assert_eq!(device.physical.as_deref(), physical, "{device:?}");
    }
}

#[test]
fn a_kind_has_the_name_that_users_know() {
    let mut tap = nic("tap0", 2, "tun");
    tap.fact.mode = Some("tap");
    let nics = [nic("eth0", 1, ""), nic("v", 3, "veth"), tap];
    assert_eq!(nics.each_ref().map(Nic::kind), ["physical", "veth", "tap"]);
}

#[test]
fn links_below_the_uplink_are_not_offered_as_a_whole() {
    let mut nics = [
        nic("eth0", 2, ""),
        nic("eth1", 3, ""),
        over("eth0.7", 4, 2),
        nic("br0", 5, "bridge"),
    ];
    let forms = |nics: &[Nic]| -> Vec<usize> {
        let (offers, _) = offers(nics, &Settings::default());
        offers.iter().map(|offer| offer.forms.len()).collect()
    };
    assert_eq!(forms(&nics), [2, 2]);
    nics[2].is_uplink = true;
    assert_eq!(forms(&nics), [1, 2]);
    // The address is on the VLAN's bridge.
    nics[2].is_uplink = false;
    nics[2].fact.master = Some(5);
    nics[3].is_uplink = true;
    assert_eq!(forms(&nics), [1, 2]);
}

/// Returns the message about a link over an offered one.
fn is_over(name: &str, lower: &str) -> String {
    format!(
        "{name}: it is over {lower}, which is offered: only its full name in dra.include offers it"
    )
}

#[test]
fn a_link_over_an_offered_one_is_offered_only_by_its_name() {
    let nics = [nic("eth1", 2, ""), over("eth1.7", 3, 2)];
    for (settings, offered, refused) in [
        (
            r#"{"include": ["eth*"]}"#,
            &["eth1"][..],
            vec![is_over("eth1.7", "eth1")],
        ),
        (
            r#"{"include": ["eth*", "eth1.7"]}"#,
            &["eth1", "eth1.7"],
            vec![],
        ),
        (
            r#"{"include": ["eth*"], "exclude": ["eth1"]}"#,
            &["eth1.7"],
            vec![],
        ),
        (r#"{"include": ["*.7"]}"#, &["eth1.7"], vec![]),
        (
            r#"{"include": ["eth*", "eth1.7"], "exclude": ["*.7"]}"#,
            &["eth1"],
            vec![],
        ),
    ] {
        let (names, why) = chosen(&nics, settings);
        assert_eq!((names, why), (texts(offered), refused), "{settings}");
    }
    // Below it is a link without a speed, which is not offered.
    let mut nics = nics;
    nics[0].speed_mbit = None;
    assert_eq!(chosen(&nics, r#"{"include": ["eth*"]}"#).0, ["eth1.7"]);
}

#[test]
fn links_over_each_other_are_refused_for_the_lowest() {
    let mut port = over("eth1.8", 5, 2);
    port.fact.master = Some(6);
    let nics = [
        nic("eth1", 2, ""),
        over("eth1.7", 3, 2),
        over("eth1.7.9", 4, 3),
        port,
        nic("br8", 6, "bridge"),
    ];
    let (offered, refused) = chosen(&nics, r#"{"include": ["*"]}"#);
    assert_eq!(offered, ["eth1"]);
    assert_eq!(
        refused,
        [
            "eth1.8: it is a port of br8".to_owned(),
            is_over("eth1.7", "eth1"),
            is_over("eth1.7.9", "eth1"),
            is_over("br8", "eth1"),
        ]
    );
    let (offered, refused) = chosen(&nics, r#"{"include": ["*"], "exclude": ["eth1"]}"#);
    assert_eq!(offered, ["br8", "eth1.7"]);
    assert_eq!(refused[1..], [is_over("eth1.7.9", "eth1.7")]);
}

#[test]
fn links_over_a_link_of_another_namespace_and_ends_of_pairs_are_over_none() {
    let mut elsewhere = over("data0", 3, 2);
    elsewhere.fact.parent_netns = Some(1);
    let mut ends = [nic("a", 4, "veth"), nic("b", 5, "veth")];
    (ends[0].fact.parent, ends[1].fact.parent) = (Some(5), Some(4));
    let [a, b] = ends;
    let (offered, refused) = chosen(
        &[nic("eth1", 2, ""), elsewhere, a, b],
        r#"{"include": ["*"]}"#,
    );
    assert_eq!(offered, ["a", "b", "data0", "eth1"]);
    assert_eq!(refused, [""; 0]);
}

#[test]
fn virtual_functions_are_offered_only_by_their_names() {
    let mut nics = vec![
        function("eth1", 2, "0000:03:00.0", ""),
        function("eth1v0", 3, "0000:03:02.0", "../0000:03:00.0"),
        function("eth1s4", 4, "0000:03:00.0/mlx5_core.sf.4", ""),
        over("eth1v0.7", 5, 3),
    ];
    let is_function = |name: &str, of: &str| {
        format!(
            "{name}: it is a virtual function of {of}: only its full name in dra.include offers it"
        )
    };
    let functions = |of| [is_function("eth1v0", of), is_function("eth1s4", of)];
    let (offered, refused) = chosen(&nics, "{}");
    assert_eq!(
        (offered, refused),
        (texts(&["eth1"]), functions("eth1").into())
    );
    let (offered, refused) = chosen(&nics, r#"{"include": ["eth*", "eth1v0"]}"#);
    assert_eq!(offered, ["eth1", "eth1v0"]);
    let why = [is_function("eth1s4", "eth1"), is_over("eth1v0.7", "eth1")];
    assert_eq!(refused, why);
    // Functions share the port also if the physical one is left out, or is in a pod.
    let (offered, refused) = chosen(&nics, r#"{"exclude": ["eth1"]}"#);
    assert_eq!((offered, refused), (texts(&[]), functions("eth1").into()));
    nics.remove(0);
    let (offered, refused) = chosen(&nics, "{}");
    assert_eq!(
        (offered, refused),
        (texts(&[]), functions("0000:03:00.0").into())
    );
}
