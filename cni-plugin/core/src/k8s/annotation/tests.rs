use super::*;
use crate::k8s::selection::{Bandwidth, Limit, PortMapping};

fn parsed(text: &str) -> Vec<Selection> {
    networks(text, "pods").unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
}

/// Parses an annotation with one item that has a name and these keys.
fn item(keys: &str) -> Result<Selection, Invalid> {
    networks(&format!(r#"[{{"name":"a",{keys}}}]"#), "pods").map(|mut all| all.remove(0))
}

fn names_of(text: &str) -> String {
    let selected = |selection: &Selection| match &selection.interface {
        Some(ifname) => format!("{}@{ifname}", selection.object),
        None => selection.object.to_string(),
    };
    parsed(text)
        .iter()
        .map(selected)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Checks that each value of `key` is refused with an error about the item and `key`.
fn all_refused(key: &str, values: &[&str]) {
    for value in values {
        let text = format!(r#"[{{"name":"good"}},{{"name":"a","{key}":{value}}}]"#);
        let invalid = networks(&text, "pods").expect_err(value);
        assert_eq!(
            (invalid.item, invalid.key.as_str()),
            (2, key),
            "{value}: {invalid}"
        );
        assert!(
            !invalid.value.is_empty() && !invalid.why.is_empty(),
            "{invalid}"
        );
    }
}

// Conformance: S1, S2
#[test]
fn both_formats_select_the_same_networks() {
    let expected = "pods/net-a pods/net-b other/net-c@lan";
    assert_eq!(names_of("net-a,net-b,other/net-c@lan"), expected);
    let json = r#"[{"name":"net-a"},{"name":"net-b","namespace":""},
        {"name":"net-c","namespace":"other","interface":"lan"}]"#;
    assert_eq!(names_of(json), expected);
    assert_eq!(parsed(json), parsed("net-a,net-b,other/net-c@lan"));
    assert_eq!(parsed(json)[2].item, 3);
}

// Conformance: S3
#[test]
fn blanks_newlines_and_a_trailing_comma_are_ignored() {
    for text in [
        "a,b",
        " a, b ,",
        "\n a,\n b\n",
        "a , b,\n",
        "pods / a, pods/b",
        "\t[ {\"name\":\"a\"},\n{\"name\":\"b\"} ]\n",
    ] {
        assert_eq!(names_of(text), "pods/a pods/b", "{text:?}");
    }
    for text in ["", " \n", "[]"] {
        assert_eq!(parsed(text), [], "{text:?}");
    }
}

// Conformance: S3
#[test]
fn malformed_list_is_refused_with_item_and_text() {
    for (text, message) in [
        ("a,,b", r#"item 2: "": "" is not the name of an object"#),
        (",", r#"item 1: "": "" is not the name of an object"#),
        (
            "a,lan@",
            r#"item 2: "lan@": interface name after "@" is empty"#,
        ),
        ("a@b@c", r#"item 1: "a@b@c": more than one "@""#),
        (
            "a/b/c",
            r#"item 1: "a/b/c": "b/c" is not the name of an object"#,
        ),
        ("/a", r#"item 1: "/a": "" is not the name of a namespace"#),
        (
            "a b",
            r#"item 1: "a b": "a b" is not the name of an object"#,
        ),
        (
            "../a",
            r#"item 1: "../a": ".." is not the name of a namespace"#,
        ),
        ("a\0", r#"item 1: "a\0": "#),
        ("{\"name\":\"a\"}", r#""{\"name\":\"a\"}": not a list"#),
        ("\"a\"", "not a list"),
        ("[{\"name\":\"a\"},]", "value: invalid JSON: "),
        ("[1]", "item 1: 1: not an object"),
    ] {
        let invalid = networks(text, "pods").expect_err(text).to_string();
        assert!(
            invalid.starts_with("k8s.v1.cni.cncf.io/networks: ") && invalid.contains(message),
            "{text:?}: {invalid}"
        );
    }
}

// Conformance: N4
#[test]
fn names_have_dots_in_both_formats() {
    assert_eq!(names_of("a.b,ns/c.d@x"), "pods/a.b ns/c.d@x");
    assert_eq!(names_of(r#"[{"name":"a.b"}]"#), "pods/a.b");
    all_refused("name", &[r#""Net_A""#, r#""a..b""#, r#""other/a""#, "5"]);
    all_refused("namespace", &[r#""A""#, r#""a.b""#, r#""..""#, "{}"]);
}

// Conformance: S4
#[test]
fn dotted_keys_are_extensions_and_others_are_noted() {
    let selection = item(
        r#""org.foo.x":{"deep":[1]},"unknown":1,"MAC":"02:00:00:00:00:01","interfaceRequest":"x""#,
    )
    .unwrap();
    assert_eq!(selection.unknown, ["unknown"]);
    assert_eq!(selection.mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert_eq!(selection.interface.unwrap().as_str(), "x");
}

// Conformance: S5, S6
#[test]
fn name_is_required_and_namespace_is_optional() {
    for text in [
        "[{}]",
        r#"[{"name":""}]"#,
        r#"[{"name":null}]"#,
        r#"[{"namespace":"x"}]"#,
    ] {
        let invalid = networks(text, "pods").expect_err(text);
        assert_eq!(
            (invalid.item, invalid.key.as_str(), invalid.why.as_str()),
            (1, "name", "missing"),
            "{text}"
        );
    }
    assert_eq!(
        item(r#""namespace":null"#).unwrap().object.to_string(),
        "pods/a"
    );
}

// Conformance: S7, S8
#[test]
fn ips_are_addresses_with_or_without_prefix() {
    let ips = item(r#""ips":["10.2.2.42/24","2001:db8::5/64","10.0.0.1","::1"]"#)
        .unwrap()
        .ips;
    assert_eq!(ips, ["10.2.2.42/24", "2001:db8::5/64", "10.0.0.1", "::1"]);
    let many = format!("[{}]", vec![r#""10.0.0.1""#; 65].join(","));
    all_refused(
        "ips",
        &[
            "[]",
            r#"["1.2.3.300"]"#,
            r#"["10.0.0.1/33"]"#,
            r#"[" 10.0.0.1"]"#,
            r#""10.0.0.1""#,
            "[1]",
            r#"[""]"#,
            &many,
        ],
    );
    let invalid = item(r#""ips":["10.0.0.1","1.2.3.300"]"#).unwrap_err();
    let text = r#"k8s.v1.cni.cncf.io/networks: item 1: ips ["10.0.0.1","1.2.3.300"]: "1.2.3.300" is not an address"#;
    assert_eq!(invalid.to_string(), text);
}

// Conformance: S8, S12
#[test]
fn a_mac_that_is_not_six_bytes_makes_the_annotation_invalid() {
    let twenty = format!(r#""{}""#, vec!["00"; 20].join(":"));
    all_refused(
        "mac",
        &[
            r#""""#,
            r#""zz""#,
            r#""02:00:00:00:00""#,
            r#""02:00:00:00:00:00:00:01""#,
            &twenty,
            "2",
            "[]",
        ],
    );
    assert_eq!(
        item(r#""mac":"02-AB-00-00-00-01""#)
            .unwrap()
            .mac
            .unwrap()
            .to_string(),
        "02:ab:00:00:00:01"
    );
}

// Conformance: S8, S14
#[test]
fn interface_name_must_be_valid_for_the_kernel() {
    for name in ["eth1", "a-b.c", "123456789012345"] {
        assert_eq!(
            item(&format!(r#""interface":"{name}""#))
                .unwrap()
                .interface
                .unwrap()
                .as_str(),
            name
        );
    }
    let bad = [
        "1234567890123456",
        "a/b",
        ".",
        "..",
        "",
        "a b",
        "a:b",
        "net%d",
        "all",
        "default",
        "a\\u0000",
    ];
    let bad = bad.map(|name| format!("\"{name}\""));
    all_refused("interface", &bad.each_ref().map(String::as_str));
    for name in ["1234567890123456", "a/../b", ".", "a:b", "net%d", "all"] {
        assert!(networks(&format!("a@{name}"), "pods").is_err(), "{name}");
    }
}

// Conformance: S17
#[test]
fn cni_args_object_is_kept_unchanged() {
    let args = item(r#""cni-args":{"b":3,"B":[18446744073709551616],"x.y":null}"#)
        .unwrap()
        .cni_args;
    assert_eq!(
        Json::Object(args).to_string(),
        r#"{"b":3,"B":[18446744073709551616],"x.y":null}"#
    );
    all_refused("cni-args", &["[]", "\"a=b\"", "1"]);
}

// Conformance: S8, S19
#[test]
fn a_port_mapping_has_two_ports_and_a_protocol() {
    let mappings = |keys: &str| {
        item(&format!(r#""portMappings":[{{{keys}}}]"#)).map(|selection| selection.port_mappings)
    };
    let mapping = |protocol| PortMapping {
        host_port: 1,
        container_port: 65535,
        protocol,
        host_ip: None,
    };
    for (protocol, expected) in [
        ("", "tcp"),
        (r#","protocol":"Udp""#, "udp"),
        (r#","protocol":"SCTP""#, "sctp"),
        (r#","protocol":null"#, "tcp"),
    ] {
        let read = mappings(&format!(r#""hostPort":1,"containerPort":65535{protocol}"#)).unwrap();
        assert_eq!(read, [mapping(expected)], "{protocol}");
    }
    for keys in [
        "",
        r#""hostPort":0,"containerPort":80"#,
        r#""hostPort":70000,"containerPort":80"#,
        r#""hostPort":-1,"containerPort":80"#,
        r#""hostPort":80.5,"containerPort":80"#,
        r#""hostPort":1e400,"containerPort":80"#,
        r#""hostPort":"80","containerPort":80"#,
        r#""containerPort":80"#,
        r#""hostPort":80"#,
        r#""hostPort":80,"containerPort":80,"protocol":"icmp""#,
        r#""hostPort":80,"containerPort":80,"protocol":6"#,
        r#""hostPort":80,"containerPort":80,"hostIP":"x""#,
    ] {
        let invalid = mappings(keys).expect_err(keys);
        assert_eq!(
            (invalid.item, invalid.key.as_str()),
            (1, "portMappings"),
            "{keys}"
        );
        assert!(invalid.why.starts_with("mapping 1: "), "{invalid}");
    }
    all_refused("portMappings", &["[]", "{}", "[1]"]);
}

// Conformance: S8, S22
#[test]
fn bandwidth_burst_requires_a_rate() {
    let bandwidth = |keys: &str| {
        item(&format!(r#""bandwidth":{{{keys}}}"#)).map(|selection| selection.bandwidth.unwrap())
    };
    let both = bandwidth(r#""ingressRate":2048,"ingressBurst":1600,"egressRate":4096"#).unwrap();
    let ingress = Some(Limit {
        rate: 2048,
        burst: Some(1600),
    });
    assert_eq!(
        both,
        Bandwidth {
            ingress,
            egress: Some(Limit {
                rate: 4096,
                burst: None
            })
        }
    );
    all_refused(
        "bandwidth",
        &[
            "{}",
            "[]",
            "1",
            r#"{"x":1}"#,
            r#"{"ingressBurst":1}"#,
            r#"{"egressBurst":1,"ingressRate":1}"#,
            r#"{"ingressRate":0}"#,
            r#"{"ingressRate":1,"ingressBurst":0}"#,
            r#"{"ingressRate":-1}"#,
            r#"{"ingressRate":1.5}"#,
            r#"{"ingressRate":"1M"}"#,
            r#"{"ingressRate":18446744073709551616}"#,
        ],
    );
}

// Conformance: S23
#[test]
fn missing_burst_gets_a_bounded_default() {
    for (rate, burst) in [
        (1, 524_288),
        (8_000_000, 524_288),
        (1_000_000_000, 10_000_000),
        (u64::MAX, 34_359_738_344),
    ] {
        assert_eq!(
            Limit { rate, burst: None }.burst_or_default(),
            burst,
            "{rate}"
        );
    }
    assert_eq!(
        Limit {
            rate: 1,
            burst: Some(7)
        }
        .burst_or_default(),
        7
    );
}

// Conformance: S25
#[test]
fn at_most_one_network_has_the_default_route() {
    let one = r#"{"name":"a","default-route":["10.0.0.1","2001:db8::1"]}"#;
    let gateways = parsed(&format!(r#"[{one},{{"name":"b"}}]"#))[0]
        .default_route
        .clone()
        .unwrap();
    assert_eq!(
        gateways.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.1", "2001:db8::1"]
    );
    assert_eq!(
        item(r#""default-route":[]"#).unwrap().default_route,
        Some(Vec::new())
    );
    let invalid = networks(
        &format!(r#"[{{"name":"b"}},{one},{{"name":"c","default-route":[]}}]"#),
        "pods",
    )
    .unwrap_err();
    assert_eq!((invalid.item, invalid.key.as_str()), (3, "default-route"));
    assert_eq!(
        invalid.why,
        "item 2 has it already; at most one network can have it"
    );
    all_refused(
        "default-route",
        &[
            r#"["x"]"#,
            r#"["10.0.0.1/24"]"#,
            r#"["0.0.0.0"]"#,
            r#"["ff02::1"]"#,
            r#""10.0.0.1""#,
            r#"[""]"#,
            "[null]",
        ],
    );
}

// Conformance: S30
#[test]
fn an_infiniband_guid_has_eight_bytes() {
    for text in [
        "24:8A:07:03:00:8d:ae:2f",
        "24-8a-07-03-00-8d-ae-2f",
        "248a.0703.008d.ae2f",
    ] {
        let guid = item(&format!(r#""infiniband-guid":"{text}""#))
            .unwrap()
            .infiniband_guid;
        assert_eq!(guid.as_deref(), Some("24:8a:07:03:00:8d:ae:2f"));
    }
    let twenty = format!(r#""{}""#, vec!["00"; 20].join(":"));
    let mixed = r#""24:8a-07:03:00:8d:ae:2f""#;
    all_refused(
        "infiniband-guid",
        &[
            r#""24:8a:07:03:00:8d""#,
            &twenty,
            r#""""#,
            mixed,
            r#""2é:8a:07:03:00:8d:ae:2""#,
            "1",
        ],
    );
}

// Conformance: S32
#[test]
fn claim_name_must_be_an_object_name() {
    assert_eq!(
        item(r#""ipam-claim-reference":"vm-a.tenantred.eth1""#)
            .unwrap()
            .ipam_claim
            .unwrap(),
        "vm-a.tenantred.eth1"
    );
    all_refused(
        "ipam-claim-reference",
        &[r#""a/b""#, r#""""#, r#""../x""#, "[]"],
    );
}

#[test]
fn default_network_annotation_names_exactly_one_network() {
    let network = |text: &str| default_network(text, "kube-system");
    assert_eq!(
        network("net").unwrap().unwrap().object.to_string(),
        "kube-system/net"
    );
    assert_eq!(
        network(r#"[{"name":"net","namespace":"x"}]"#)
            .unwrap()
            .unwrap()
            .object
            .to_string(),
        "x/net"
    );
    assert_eq!(network(" "), Ok(None));
    for (text, why) in [
        ("a,b", "2 networks; "),
        ("[]", "no network; "),
        ("[{}]", "missing"),
    ] {
        let invalid = network(text).unwrap_err();
        assert!(invalid.why.starts_with(why), "{invalid}");
        assert!(
            invalid
                .to_string()
                .starts_with("v1.multus-cni.io/default-network: "),
            "{invalid}"
        );
    }
}

#[test]
fn hostile_annotations_are_refused_in_bounded_time_with_a_short_message() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let deep_args = format!(r#"[{{"name":"a","cni-args":{{"x":{deep}}}}}]"#);
    let many = format!("[{}]", vec![r#"{"name":"a"}"#; 10_000].join(","));
    let names = vec!["a"; 10_000].join(",");
    let long = "a".repeat(2 << 20);
    let wide = format!("[{}]", "1,".repeat(500_000) + "1");
    let unicode = format!("{}@{}", "é".repeat(300), "\u{10ffff}".repeat(300));
    for text in [&deep, &deep_args, &many, &names, &long, &wide, &unicode] {
        let message = networks(text, "pods").unwrap_err().to_string();
        assert!(message.len() < 600, "{message}");
    }
    assert_eq!(
        networks(&many, "pods").unwrap_err().why,
        "10000 networks, more than 64"
    );
    assert_eq!(
        networks(&names, "pods").unwrap_err().why,
        "10000 networks, more than 64"
    );
}

#[test]
fn any_prefix_and_any_changed_byte_of_an_annotation_is_read_or_refused() {
    let text = r#"[{"name":"a","ips":["10.0.0.1/24"],"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1,
        "containerPort":2}],"bandwidth":{"ingressRate":1},"default-route":["::1"],"infiniband-guid":"24:8a:07:03:00:8d:ae:2f"}]"#;
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        let _ = networks(&text[..at], "pods");
        for byte in ["\"", "{", "]", "é", "-", "9", "\0"] {
            let _ = networks(&format!("{}{byte}{}", &text[..at], &text[at + 1..]), "pods");
        }
    }
}
