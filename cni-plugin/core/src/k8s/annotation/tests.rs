use super::*;
use crate::k8s::selection::{Bandwidth, Limit, PortMapping};

fn parsed(text: &str) -> Vec<Selection> {
    networks(text, "pods").unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
}

/// The only item of an annotation that has these keys beside a name.
fn item(keys: &str) -> Result<Selection, Invalid> {
    networks(&format!(r#"[{{"name":"a",{keys}}}]"#), "pods").map(|mut all| all.remove(0))
}

fn names_of(text: &str) -> String {
    let one = |selection: &Selection| match &selection.interface {
        Some(ifname) => format!("{}@{ifname}", selection.object),
        None => selection.object.to_string(),
    };
    parsed(text).iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Each is refused as the whole annotation, with the item's number and its key.
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

#[test]
fn s1_s2_both_formats_select_the_same_networks() {
    let expected = "pods/net-a pods/net-b other/net-c@lan";
    assert_eq!(names_of("net-a,net-b,other/net-c@lan"), expected);
    let json = r#"[{"name":"net-a"},{"name":"net-b","namespace":""},
        {"name":"net-c","namespace":"other","interface":"lan"}]"#;
    assert_eq!(names_of(json), expected);
    assert_eq!(parsed(json), parsed("net-a,net-b,other/net-c@lan"));
    assert_eq!(parsed(json)[2].item, 3);
}

#[test]
fn s3_blanks_newlines_and_a_comma_at_the_end_do_not_matter() {
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

#[test]
fn s3_what_is_no_list_of_names_is_refused_with_item_and_text() {
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

#[test]
fn n4_names_have_dots_in_both_formats() {
    assert_eq!(names_of("a.b,ns/c.d@x"), "pods/a.b ns/c.d@x");
    assert_eq!(names_of(r#"[{"name":"a.b"}]"#), "pods/a.b");
    all_refused("name", &[r#""Net_A""#, r#""a..b""#, r#""other/a""#, "5"]);
    all_refused("namespace", &[r#""A""#, r#""a.b""#, r#""..""#, "{}"]);
}

#[test]
fn s4_dotted_keys_are_extensions_and_others_are_noted() {
    let selection = item(
        r#""org.foo.x":{"deep":[1]},"unknown":1,"MAC":"02:00:00:00:00:01","interfaceRequest":"x""#,
    )
    .unwrap();
    assert_eq!(selection.unknown, ["unknown"]);
    assert_eq!(selection.mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert_eq!(selection.interface.unwrap().as_str(), "x");
}

#[test]
fn s5_s6_a_name_is_required_and_a_namespace_is_not() {
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

#[test]
fn s7_s8_ips_are_addresses_with_or_without_prefix() {
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
    let text = r#"k8s.v1.cni.cncf.io/networks: item 1: ips ["10.0.0.1","1.2.3.300"]: "1.2.3.300" is no address"#;
    assert_eq!(invalid.to_string(), text);
}

#[test]
fn s8_s12_a_mac_that_is_not_six_bytes_makes_the_annotation_invalid() {
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

#[test]
fn s8_s14_an_interface_has_a_name_that_the_kernel_takes() {
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

#[test]
fn s17_cni_args_are_an_object_that_is_kept_as_it_is() {
    let args = item(r#""cni-args":{"b":3,"B":[18446744073709551616],"x.y":null}"#)
        .unwrap()
        .cni_args;
    assert_eq!(
        Json::Object(args).to_string(),
        r#"{"b":3,"B":[18446744073709551616],"x.y":null}"#
    );
    all_refused("cni-args", &["[]", "\"a=b\"", "1"]);
}

#[test]
fn s8_s19_a_port_mapping_has_two_ports_and_a_protocol() {
    let of = |keys: &str| {
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
        let read = of(&format!(r#""hostPort":1,"containerPort":65535{protocol}"#)).unwrap();
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
        let invalid = of(keys).expect_err(keys);
        assert_eq!(
            (invalid.item, invalid.key.as_str()),
            (1, "portMappings"),
            "{keys}"
        );
        assert!(invalid.why.starts_with("mapping 1: "), "{invalid}");
    }
    all_refused("portMappings", &["[]", "{}", "[1]"]);
}

#[test]
fn s8_s22_a_bandwidth_has_a_rate_for_each_burst() {
    let of = |keys: &str| {
        item(&format!(r#""bandwidth":{{{keys}}}"#)).map(|selection| selection.bandwidth.unwrap())
    };
    let both = of(r#""ingressRate":2048,"ingressBurst":1600,"egressRate":4096"#).unwrap();
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

#[test]
fn s23_a_burst_that_is_not_given_is_a_sane_one() {
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

#[test]
fn s25_one_network_at_most_has_the_default_route() {
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
        "item 2 has it already, and one network at most can"
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

#[test]
fn s30_an_infiniband_guid_has_eight_bytes() {
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

#[test]
fn s32_a_claim_is_named_like_an_object() {
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
fn the_default_network_is_exactly_one() {
    let of = |text: &str| default_network(text, "kube-system");
    assert_eq!(
        of("net").unwrap().unwrap().object.to_string(),
        "kube-system/net"
    );
    assert_eq!(
        of(r#"[{"name":"net","namespace":"x"}]"#)
            .unwrap()
            .unwrap()
            .object
            .to_string(),
        "x/net"
    );
    assert_eq!(of(" "), Ok(None));
    for (text, why) in [
        ("a,b", "2 networks, "),
        ("[]", "no network, "),
        ("[{}]", "missing"),
    ] {
        let invalid = of(text).unwrap_err();
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
