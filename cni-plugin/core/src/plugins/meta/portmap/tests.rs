use super::*;
use crate::cni::NetConf;
use crate::cni::{Interface, IpConfig};
use crate::name::IfName;
use crate::plugins::call::tests::call;

fn parse(keys: &str, mappings: &str) -> Result<Portmap, String> {
    let text = format!(
        r#"{{"cniVersion":"1.1.0","name":"net","type":"portmap",{keys}"runtimeConfig":{{"portMappings":{mappings}}}}}"#
    );
    Portmap::parse(&NetConf::parse(text.as_bytes()).expect("json")).map_err(|err| err.msg)
}

fn ports(mappings: &str, ips: &[&str]) -> Vec<String> {
    let eth0 = IfName::parse("eth0").expect("a name");
    let interface = Interface {
        name: "eth0".to_owned(),
        sandbox: "/run/netns/pod".to_owned(),
        ..Interface::default()
    };
    let ip = |text: &&str| IpConfig {
        address: text.parse().expect("a net"),
        gateway: None,
        interface: Some(0),
    };
    let prev = AddResult {
        interfaces: vec![interface],
        ips: ips.iter().map(ip).collect(),
        ..AddResult::default()
    };
    let mut call = call(&eth0);
    call.prev = Some(&prev);
    let ports = parse("", mappings).expect("parsed").ports(&call);
    ports
        .iter()
        .map(|port| format!("{} {}", port.at, port.to))
        .collect()
}

#[test]
fn a_mapping_applies_to_the_families_of_container_and_host_address() {
    let both = ["10.1.0.5/24", "10.1.0.6/24", "fd00::5/64"];
    let all = r#"[{"hostPort":8080,"containerPort":80,"protocol":"TCP"}]"#;
    assert_eq!(
        ports(all, &both),
        ["0.0.0.0:8080/tcp 10.1.0.5:80", "[::]:8080/tcp [fd00::5]:80"]
    );
    assert_eq!(ports(all, &both[..1]), ["0.0.0.0:8080/tcp 10.1.0.5:80"]);
    let ports_at = |host: &str| {
        ports(
            &format!(
                r#"[{{"hostPort":53,"containerPort":53,"protocol":"udp","hostIP":"{host}"}}]"#
            ),
            &both,
        )
    };
    assert_eq!(ports_at("192.0.2.1"), ["192.0.2.1:53/udp 10.1.0.5:53"]);
    assert_eq!(ports_at("0.0.0.0"), ["0.0.0.0:53/udp 10.1.0.5:53"]);
    assert_eq!(ports_at("::"), ["[::]:53/udp [fd00::5]:53"]);
    assert_eq!(
        ports_at(""),
        ["0.0.0.0:53/udp 10.1.0.5:53", "[::]:53/udp [fd00::5]:53"]
    );
    let twice = format!("{},{}", &all[..all.len() - 1], &all[1..]);
    assert_eq!(ports(&twice, &both[..1]), ["0.0.0.0:8080/tcp 10.1.0.5:80"]);
}

#[test]
fn a_refusal_names_the_key_and_the_value() {
    let refusal_of = |mapping: &str| {
        let said = parse("", &format!("[{mapping}]")).expect_err("refused");
        said.strip_prefix("portMappings[0]: ")
            .expect("which one")
            .to_owned()
    };
    assert_eq!(
        refusal_of(r#"{"hostPort":80}"#),
        "Invalid container port number: 0"
    );
    assert_eq!(
        refusal_of(r#"{"containerPort":80}"#),
        "Invalid host port number: 0"
    );
    assert_eq!(
        refusal_of(r#"{"containerPort":80,"hostPort":65536}"#),
        "Invalid host port number: 65536"
    );
    let full = |more: &str| refusal_of(&format!(r#"{{"containerPort":80,"hostPort":80,{more}}}"#));
    assert_eq!(
        full(r#""protocol":"icmp""#),
        r#""protocol": "icmp" is not "tcp", "udp" or "sctp""#
    );
    assert!(full(r#""hostIP":"1.2.3""#).starts_with(r#""hostIP": bad address "1.2.3""#));
    let key = |keys: &str| {
        parse(keys, "[]")
            .expect("DEL can go on")
            .refusal
            .expect("refused")
            .msg
    };
    assert_eq!(key(r#""backend":"x","#), r#"unrecognized backend "x""#);
    assert!(key(r#""markMasqBit":32,"#).contains("32"));
    let both = r#""externalSetMarkChain":"KUBE","markMasqBit":5,"#;
    assert_eq!(
        key(both),
        "Cannot specify externalSetMarkChain and markMasqBit"
    );
    let words = key(r#""conditionsV4":["-s","10.0.0.0/8","-j"],"#);
    assert!(
        words.starts_with(r#""conditionsV4": "-s 10.0.0.0/8 -j": unknown iptables option "-j""#),
        "{words}"
    );
    for fine in [
        r#""markMasqBit":5,"conditionsV6":[],"backend":"nftables","#,
        r#""externalSetMarkChain":"KUBE","conditionsV4":["-s","10.0.0.0/8"],"backend":"iptables","#,
    ] {
        assert_eq!(parse(fine, "[]").map(|portmap| portmap.refusal), Ok(None));
    }
}
