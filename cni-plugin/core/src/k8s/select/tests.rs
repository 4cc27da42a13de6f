use super::*;
use crate::cni::{AddResult, NetConf, Version};
use crate::ipam::configuration;
use crate::k8s::annotation;
use crate::k8s::nad::Definition;
use crate::k8s::request::BuiltIn;
use crate::name::Mac;
use crate::plugins;

const RULES: Rules<'_> = Rules {
    is_strict: true,
    built_in: BuiltIn {
        plugins: plugins::TYPES,
        ipams: configuration::TYPES,
        mac_by: plugins::mac_by,
    },
};

const ALL: &str = r#""capabilities":{"ips":true,"mac":true,"portMappings":true,"bandwidth":true,"infinibandGUID":true,
    "CNIDeviceInfoFile":true}"#;

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").unwrap()
}

fn settings(keys: &str) -> Settings {
    let text = format!(r#"{{"name":"pods","type":"braid","clusterNetwork":"cluster"{keys}}}"#);
    Settings::of(&NetConf::parse(text.as_bytes()).unwrap())
        .unwrap()
        .unwrap()
}

/// Returns the networks to look up for a pod of namespace `pods`.
fn wanted_by(keys: &str, default: &str, networks: &str) -> Result<Vec<Choice>, Error> {
    let settings = settings(keys);
    let default = annotation::default_network(default, &settings.multus_namespace)?;
    wanted(
        &settings,
        "pods",
        default,
        annotation::networks(networks, "pods")?,
    )
}

/// Returns the networks of a pod, all with this configuration.
fn with_config(
    config: &str,
    wanted: Vec<Choice>,
    runtime: Option<&Json>,
) -> Result<Vec<Network>, Error> {
    let found = |wanted: Choice| {
        let definition = Definition::parse(json(config), "conf").unwrap();
        let object = wanted.object(&settings(""));
        (
            wanted,
            Found {
                object,
                ..Found::of(definition)
            },
        )
    };
    let all = wanted.into_iter().map(found).collect();
    networks(all, "pods", &IfName::parse("eth0").unwrap(), runtime, RULES)
}

fn of(networks: &str) -> Result<Vec<Network>, Error> {
    with_config(
        &format!(r#"{{"type":"t",{ALL}}}"#),
        wanted_by("", "", networks)?,
        None,
    )
}

/// Formats names and interfaces, in order.
fn shown(networks: &[Network]) -> String {
    let text = |network: &Network| format!("{}@{}", network.name(), network.ifname);
    networks.iter().map(text).collect::<Vec<_>>().join(" ")
}

// Conformance: C1, C6
#[test]
fn default_network_comes_first_with_the_interface_of_the_runtime() {
    assert_eq!(shown(&of("").unwrap()), "kube-system/cluster@eth0");
    assert_eq!(
        shown(&of("a,ns/b").unwrap()),
        "kube-system/cluster@eth0 pods/a@net1 ns/b@net2"
    );
    let networks = of("a").unwrap();
    assert_eq!(
        networks
            .iter()
            .map(|network| network.is_default)
            .collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn the_annotation_replaces_the_default_network() {
    let config = r#"{"type":"t"}"#;
    let networks = with_config(config, wanted_by("", "other/net", "a").unwrap(), None).unwrap();
    assert_eq!(shown(&networks), "other/net@eth0 pods/a@net1");
    let same = wanted_by("", r#"[{"name":"net","interface":"eth0"}]"#, "").unwrap();
    assert_eq!(
        shown(&with_config(config, same, None).unwrap()),
        "kube-system/net@eth0"
    );
    let other = wanted_by("", r#"[{"name":"net","interface":"eth1"}]"#, "").unwrap();
    let error = with_config(config, other, None).unwrap_err();
    let sentence =
        "network kube-system/net: interface eth1 is requested, but the runtime expects eth0";
    assert_eq!(error.msg, sentence);
}

#[test]
fn default_networks_are_for_pods_outside_the_system_namespaces() {
    let keys = r#","defaultNetworks":["d1","d2"],"systemNamespaces":["sys"]"#;
    let networks = with_config(r#"{"type":"t"}"#, wanted_by(keys, "", "a").unwrap(), None).unwrap();
    assert_eq!(
        shown(&networks),
        "kube-system/cluster@eth0 kube-system/d1@net1 kube-system/d2@net2 pods/a@net3"
    );
    let system = wanted(&settings(keys), "sys", None, Vec::new()).unwrap();
    assert_eq!(system.len(), 1);
}

#[test]
fn further_delegates_are_networks_of_each_pod() {
    let text =
        r#"{"name":"pods","type":"braid","delegates":[{"type":"x"},{"type":"y","name":"second"}]}"#;
    let settings = Settings::of(&NetConf::parse(text.as_bytes()).unwrap())
        .unwrap()
        .unwrap();
    let wanted = wanted(
        &settings,
        "kube-system",
        None,
        annotation::networks("a", "pods").unwrap(),
    )
    .unwrap();
    assert_eq!(wanted.len(), 3);
    let networks = with_config(r#"{"type":"t"}"#, wanted, None).unwrap();
    assert_eq!(shown(&networks), "conf@eth0 conf@net1 pods/a@net2");
}

// Conformance: R7
#[test]
fn isolation_holds_for_every_network_that_a_pod_selects() {
    let keys = r#","namespaceIsolation":true,"globalNamespaces":"shared","defaultNetworks":["d"]"#;
    for (default, networks, is_allowed) in [
        ("", "", true),
        ("", "a,shared/b,pods/c", true),
        ("", "a,other/b", false),
        ("", r#"[{"name":"b","namespace":"kube-system"}]"#, false),
        ("pods/x", "a", true),
        ("shared/x", "a", true),
        ("other/x", "a", false),
        ("x", "", true),
        ("kube-system/x", "", true),
        ("kube-system/x", "kube-system/b", false),
    ] {
        let found = wanted_by(keys, default, networks);
        assert_eq!(found.is_ok(), is_allowed, "{default} {networks}: {found:?}");
    }
}

// Conformance: S34
#[test]
fn same_network_twice_is_two_attachments() {
    assert_eq!(
        shown(&of("a,a").unwrap()),
        "kube-system/cluster@eth0 pods/a@net1 pods/a@net2"
    );
}

// Conformance: S36
#[test]
fn generated_names_never_collide_with_requested_names() {
    for (networks, expected) in [
        ("a@net2,b", "net2 net1"),
        ("a,b@net1", "net2 net1"),
        ("a@net3,b@net2,c,d", "net3 net2 net1 net4"),
        ("a@net2,b@net1,c,d@net3", "net2 net1 net4 net3"),
        ("a,b@lan,c", "net1 lan net3"),
    ] {
        let all = of(networks).unwrap();
        let names: Vec<&str> = all
            .iter()
            .skip(1)
            .map(|network| network.ifname.as_str())
            .collect();
        assert_eq!(names.join(" "), expected, "{networks}");
    }
    let many = vec!["a"; annotation::MAX_ITEMS].join(",");
    assert_eq!(of(&many).unwrap().last().unwrap().ifname.as_str(), "net64");
}

// Conformance: S15
#[test]
fn taken_interface_name_fails_the_later_network() {
    for (networks, item) in [
        ("a@x,b@x", "pods/b (item 2)"),
        ("a,b@eth0", "pods/b (item 2)"),
        ("a@lo", "pods/a (item 1)"),
    ] {
        let error = of(networks).unwrap_err();
        assert!(
            error
                .msg
                .starts_with(&format!("network {item}: interface ")),
            "{networks}: {error}"
        );
        assert!(
            error.msg.ends_with("is already used by another network"),
            "{error}"
        );
    }
}

// Conformance: S10, S13, S20, S21, S23, S31
#[test]
fn request_without_a_capability_is_refused() {
    for (value, key, capability) in [
        (r#""ips":["10.0.0.1"]"#, "ips", "ips"),
        (r#""mac":"02:00:00:00:00:01""#, "mac", "mac"),
        (
            r#""portMappings":[{"hostPort":1,"containerPort":1}]"#,
            "portMappings",
            "portMappings",
        ),
        (r#""bandwidth":{"egressRate":1}"#, "bandwidth", "bandwidth"),
        (
            r#""infiniband-guid":"24:8a:07:03:00:8d:ae:2f""#,
            "infiniband-guid",
            "infinibandGUID",
        ),
    ] {
        let networks = format!(r#"[{{"name":"a",{value}}}]"#);
        for (capabilities, is_allowed) in [
            (String::new(), false),
            (
                format!(r#","capabilities":{{"{capability}":false}}"#),
                false,
            ),
            (format!(r#","capabilities":{{"{capability}":true}}"#), true),
        ] {
            let list = format!(r#"{{"plugins":[{{"type":"t"}},{{"type":"u"{capabilities}}}]}}"#);
            let made = with_config(&list, wanted_by("", "", &networks).unwrap(), None);
            let sentence = format!(
                r#"network pods/a (item 1): "{key}": no plugin of the network has the capability "{capability}""#
            );
            assert_eq!(
                made.map(|_| ()).map_err(|error| error.msg),
                if is_allowed { Ok(()) } else { Err(sentence) }
            );
        }
    }
}

// Conformance: S9, S13, S21, S23, S31
#[test]
fn request_becomes_runtime_config() {
    let networks = of(r#"[{"name":"a","ips":["10.2.2.42/24","2001:DB8::5/64"],"mac":"02:00:00:00:00:0A",
        "portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"UDP"},{"hostPort":1,"containerPort":2,"hostIP":"::1"}],
        "bandwidth":{"ingressRate":2048,"ingressBurst":1600,"egressRate":4096},
        "infiniband-guid":"24:8a:07:03:00:8d:ae:2f"}]"#)
    .unwrap();
    let expected = concat!(
        r#"{"ips":["10.2.2.42/24","2001:DB8::5/64"],"mac":"02:00:00:00:00:0a","portMappings":["#,
        r#"{"hostPort":80,"containerPort":8080,"protocol":"udp"},"#,
        r#"{"hostPort":1,"containerPort":2,"protocol":"tcp","hostIP":"::1"}],"#,
        r#""bandwidth":{"ingressRate":2048,"ingressBurst":1600,"egressRate":4096,"egressBurst":524288},"#,
        r#""infinibandGUID":"24:8a:07:03:00:8d:ae:2f"}"#
    );
    assert_eq!(networks[1].runtime_config.to_string(), expected);
    assert_eq!(
        networks[1]
            .conf()
            .unwrap()
            .get("runtimeConfig")
            .unwrap()
            .to_string(),
        expected
    );
    assert_eq!(networks[0].conf().unwrap().get("runtimeConfig"), None);
}

// Conformance: R8
#[test]
fn runtime_config_of_the_runtime_reaches_only_the_default_network() {
    let offered = json(
        r#"{"portMappings":[{"hostPort":80}],"mac":"02:00:00:00:00:01","dns":{"servers":[]}}"#,
    );
    let config = format!(r#"{{"type":"t",{ALL}}}"#);
    let wanted = wanted_by("", r#"[{"name":"d","mac":"02:00:00:00:00:02"}]"#, "a").unwrap();
    let networks = with_config(&config, wanted, Some(&offered)).unwrap();
    let own =
        r#"{"portMappings":[{"hostPort":80}],"dns":{"servers":[]},"mac":"02:00:00:00:00:02"}"#;
    assert_eq!(networks[0].runtime_config.to_string(), own);
    let declared = networks[0]
        .conf()
        .unwrap()
        .get("runtimeConfig")
        .unwrap()
        .to_string();
    assert_eq!(
        declared,
        r#"{"portMappings":[{"hostPort":80}],"mac":"02:00:00:00:00:02"}"#
    );
    assert_eq!(networks[1].runtime_config, Json::object_of([]));
}

// Conformance: S17, S18
#[test]
fn cni_args_are_merged_into_the_configuration() {
    let networks = with_config(
        r#"{"type":"t","args":{"cni":{"a":1,"b":2}}}"#,
        wanted_by("", "", r#"[{"name":"a","cni-args":{"b":3}},{"name":"b"}]"#).unwrap(),
        None,
    )
    .unwrap();
    let args = |at: usize| {
        networks[at]
            .conf()
            .unwrap()
            .get("args")
            .unwrap()
            .to_string()
    };
    assert_eq!(args(1), r#"{"cni":{"a":1,"b":3}}"#);
    assert_eq!(args(2), r#"{"cni":{"a":1,"b":2}}"#);
}

// Conformance: S32, I2
#[test]
fn addresses_come_from_the_pod_or_from_a_claim() {
    let claim = of(r#"[{"name":"a","ipam-claim-reference":"vm.a"}]"#).unwrap();
    assert_eq!(
        claim[1].ipam_claim.as_ref().unwrap().to_string(),
        "pods/vm.a"
    );
    let error =
        of(r#"[{"name":"a","ipam-claim-reference":"vm.a","ips":["10.0.0.1"]}]"#).unwrap_err();
    assert_eq!(
        error.msg,
        r#"network pods/a (item 1): "ips" and "ipam-claim-reference" can't both be set"#
    );
    let default = wanted_by("", r#"[{"name":"d","ipam-claim-reference":"vm.a"}]"#, "").unwrap();
    assert!(with_config(r#"{"type":"t"}"#, default, None).is_err());
}

// Conformance: S25
#[test]
fn both_annotations_together_have_one_default_route() {
    let route = |name: &str| format!(r#"[{{"name":"{name}","default-route":["10.0.0.1"]}}]"#);
    let both = wanted_by("", &route("d"), &route("a")).unwrap();
    let error = with_config(r#"{"type":"t"}"#, both, None).unwrap_err();
    assert_eq!(
        error.msg,
        r#"network pods/a (item 1): "default-route": network kube-system/d has it already"#
    );
    let one = with_config(
        r#"{"type":"t"}"#,
        wanted_by("", "", &route("a")).unwrap(),
        None,
    )
    .unwrap();
    assert_eq!(one[1].default_route.as_ref().unwrap().len(), 1);
}

// Conformance: D12
#[test]
fn a_plugin_with_the_capability_gets_the_path_of_the_device_file() {
    let mut networks = of("a").unwrap();
    assert!(networks[1].set_device_info_file("/x"));
    assert_eq!(
        networks[1]
            .conf()
            .unwrap()
            .get("runtimeConfig")
            .unwrap()
            .to_string(),
        r#"{"CNIDeviceInfoFile":"/x"}"#
    );
    let mut without =
        with_config(r#"{"type":"t"}"#, wanted_by("", "", "a").unwrap(), None).unwrap();
    assert!(!without[1].set_device_info_file("/x"));
}

// Conformance: V3
#[test]
fn ignored_request_is_detected_in_the_result() {
    let networks =
        of(r#"[{"name":"a","ips":["10.0.0.5/16","::5"],"mac":"02:00:00:00:00:01"}]"#).unwrap();
    let result = |ips: &str, mac: &str| {
        let text = format!(
            r#"{{"interfaces":[{{"name":"veth"}},{{"name":"net1","mac":"{mac}","sandbox":"/x"}}],"ips":[{ips}]}}"#
        );
        AddResult::parse(&json(&text), Version::V1_0_0).unwrap()
    };
    let both = r#"{"address":"10.0.0.5/24"},{"address":"::5/64"}"#;
    for (ips, mac, message) in [
        (both, "02:00:00:00:00:01", None),
        (both, "", None),
        (
            r#"{"address":"::5/64"}"#,
            "",
            Some("ips 10.0.0.5/16 was requested, but the plugins returned ::5/64"),
        ),
        (
            "",
            "",
            Some("ips 10.0.0.5/16 was requested, but the plugins returned none"),
        ),
        (
            both,
            "02:00:00:00:00:02",
            Some("mac 02:00:00:00:00:01 was requested, but the plugins returned 02:00:00:00:00:02"),
        ),
    ] {
        let verified = networks[1]
            .verify(&result(ips, mac), None)
            .map_err(|error| error.msg);
        assert_eq!(
            verified,
            message.map_or(Ok(()), |text| Err(format!("network pods/a: {text}")))
        );
    }
    let seen = Mac::parse("02:00:00:00:00:03");
    let wrong = networks[1].verify(&result(both, ""), seen).unwrap_err().msg;
    assert!(
        wrong.ends_with("the plugins returned 02:00:00:00:00:03"),
        "{wrong}"
    );
    assert_eq!(
        networks[1].verify(&result(both, "02:00:00:00:00:01"), seen),
        Ok(()),
        "the result counts"
    );
    assert!(networks[1].is_to_verify() && !networks[0].is_to_verify());
    assert_eq!(networks[0].verify(&AddResult::default(), None), Ok(()));
}
