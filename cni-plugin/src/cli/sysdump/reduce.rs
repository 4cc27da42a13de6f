//! Configurations without secrets: known keys keep their value, all other values are replaced by
//! their JSON type.
//!
//! A network's configuration may contain a password under any key, because a foreign plugin chooses
//! its keys. So a value is only kept if its key is in a table here and the value has the form that
//! the table requires. Below an unknown key nothing is kept, names of keys included.

use crate::cli::names::{PROGRAM, drop_in_names};
use braid_core::cni::Json;
use braid_core::cni::netconf::is_identifier;
use braid_core::name::{IfName, Mac};
use ipnet::IpNet;
use std::net::IpAddr;

/// An allowed key, and the form of its value.
type Rule = (&'static str, Form);

/// Form that a value must have to be kept.
#[derive(Debug, Clone, Copy)]
enum Form {
    Flag,
    Number,
    /// Name of a network, plugin type or CNI version.
    Name,
    /// Name of a link.
    Link,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An IP address with or without prefix, a range of them, or a hardware address.
    Address,
    /// Path of a network namespace.
    Netns,
    /// A list of these, of any depth.
    Each(&'static Form),
    /// An object with these keys.
    Object(&'static [Rule]),
    /// The configuration of a list or of a plugin.
    Conf,
    Ipam,
}

const PORT_MAPPING: &[Rule] = &[
    ("hostPort", Form::Number),
    ("containerPort", Form::Number),
    ("protocol", Form::Word(&["tcp", "udp", "sctp"])),
    ("hostIP", Form::Address),
];
const BANDWIDTH: &[Rule] = &[
    ("ingressRate", Form::Number),
    ("ingressBurst", Form::Number),
    ("egressRate", Form::Number),
    ("egressBurst", Form::Number),
];
const ROUTE: &[Rule] = &[
    ("dst", Form::Address),
    ("gw", Form::Address),
    ("mtu", Form::Number),
    ("advmss", Form::Number),
    ("priority", Form::Number),
    ("table", Form::Number),
    ("scope", Form::Number),
];
const RANGE: &[Rule] = &[
    ("subnet", Form::Address),
    ("rangeStart", Form::Address),
    ("rangeEnd", Form::Address),
    ("gateway", Form::Address),
];
const ADDRESS: &[Rule] = &[("address", Form::Address), ("gateway", Form::Address)];

/// Requests of a pod to a network, and values that a runtime passes.
const REQUESTS: &[Rule] = &[
    ("ips", Form::Each(&Form::Address)),
    ("mac", Form::Address),
    ("default-route", Form::Each(&Form::Address)),
    ("bandwidth", Form::Object(BANDWIDTH)),
    ("portMappings", Form::Each(&Form::Object(PORT_MAPPING))),
    ("ipRanges", Form::Each(&Form::Object(RANGE))),
];

/// Result of an ADD.
const RESULT: &[Rule] = &[
    ("cniVersion", Form::Name),
    (
        "interfaces",
        Form::Each(&Form::Object(&[
            ("name", Form::Link),
            ("mac", Form::Address),
            ("mtu", Form::Number),
            ("sandbox", Form::Netns),
        ])),
    ),
    (
        "ips",
        Form::Each(&Form::Object(&[
            ("address", Form::Address),
            ("gateway", Form::Address),
            ("interface", Form::Number),
        ])),
    ),
    ("routes", Form::Each(&Form::Object(ROUTE))),
];

/// Keys of every configuration.
const ANY: &[Rule] = &[
    ("cniVersion", Form::Name),
    ("name", Form::Name),
    ("type", Form::Name),
    ("ipam", Form::Ipam),
    ("plugins", Form::Each(&Form::Conf)),
    ("delegates", Form::Each(&Form::Conf)),
    ("prevResult", Form::Object(RESULT)),
    ("runtimeConfig", Form::Object(REQUESTS)),
];

/// Further keys of the types that braid implements. A foreign type may use them for anything.
const OWN: &[Rule] = &[
    ("delegate", Form::Conf),
    ("disableCheck", Form::Flag),
    ("disableGC", Form::Flag),
    ("bridge", Form::Link),
    ("master", Form::Link),
    ("dev", Form::Link),
    ("device", Form::Link),
    (
        "mode",
        Form::Word(&[
            "bridge",
            "private",
            "vepa",
            "passthru",
            "l2",
            "l3",
            "l3s",
            "blackhole",
            "pass",
        ]),
    ),
    ("mtu", Form::Number),
    ("mac", Form::Address),
    ("vlan", Form::Number),
    ("vlanId", Form::Number),
    ("id", Form::Number),
    ("port", Form::Number),
    ("table", Form::Number),
    ("local", Form::Address),
    ("remote", Form::Address),
    ("isGateway", Form::Flag),
    ("isDefaultGateway", Form::Flag),
    ("forceAddress", Form::Flag),
    ("ipMasq", Form::Flag),
    ("hairpinMode", Form::Flag),
    ("promiscMode", Form::Flag),
    ("preserveDefaultVlan", Form::Flag),
    ("macspoofchk", Form::Flag),
    ("portIsolation", Form::Flag),
    ("linkInContainer", Form::Flag),
    ("promisc", Form::Flag),
    ("allmulti", Form::Flag),
    ("snat", Form::Flag),
    ("masqAll", Form::Flag),
    ("ingressRate", Form::Number),
    ("ingressBurst", Form::Number),
    ("egressRate", Form::Number),
    ("egressBurst", Form::Number),
];

const ANY_IPAM: &[Rule] = &[("type", Form::Name)];
/// Further keys of braid's IPAMs and Whereabouts.
const OWN_IPAM: &[Rule] = &[
    ("subnet", Form::Address),
    ("rangeStart", Form::Address),
    ("rangeEnd", Form::Address),
    ("gateway", Form::Address),
    ("ranges", Form::Each(&Form::Object(RANGE))),
    ("routes", Form::Each(&Form::Object(ROUTE))),
    ("addresses", Form::Each(&Form::Object(ADDRESS))),
    ("range", Form::Address),
    ("exclude", Form::Each(&Form::Address)),
];

const WHEREABOUTS: &str = "whereabouts";
/// Replacement of a text.
pub(super) const STRING: &str = "<string>";

/// Reduces the configuration of a network: a plugin, or a list of plugins.
pub(super) fn conf(conf: &Json) -> Json {
    reduced(conf, Form::Conf)
}

/// Reduces the requests of a pod to a network.
pub(super) fn requests(requests: &Json) -> Json {
    reduced(requests, Form::Object(REQUESTS))
}

/// Reduces the result of an ADD.
pub(super) fn result(result: &Json) -> Json {
    reduced(result, Form::Object(RESULT))
}

/// Reduces `CNI_ARGS`: keeps the pod's names and addresses.
pub(super) fn args(args: &str) -> String {
    let mut parts = Vec::new();
    for part in args.split(';').filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            parts.push(STRING.to_owned());
            continue;
        };
        let is_kept = match key {
            "K8S_POD_NAMESPACE"
            | "K8S_POD_NAME"
            | "K8S_POD_INFRA_CONTAINER_ID"
            | "K8S_POD_UID"
            | "IgnoreUnknown" => is_identifier(value),
            "IP" | "MAC" | "GATEWAY" => value.split(',').all(is_address),
            _ => false,
        };
        let value = if is_kept { value } else { STRING };
        parts.push(format!("{key}={value}"));
    }
    parts.join(";")
}

fn reduced(value: &Json, form: Form) -> Json {
    match (form, value) {
        (Form::Flag, Json::Bool(_)) | (Form::Number, Json::Number(_)) | (_, Json::Null) => {
            value.clone()
        }
        (Form::Name, Json::String(text)) => kept_if(is_identifier(text), value),
        (Form::Link, Json::String(text)) => kept_if(IfName::parse(text).is_ok(), value),
        (Form::Word(words), Json::String(text)) => kept_if(words.contains(&&**text), value),
        (Form::Address, Json::String(text)) => kept_if(is_address(text), value),
        (Form::Netns, Json::String(text)) => kept_if(is_netns(text), value),
        (Form::Each(one), Json::Array(list)) => {
            let item = |item: &Json| match item {
                Json::Array(_) => reduced(item, form),
                Json::Null
                | Json::Bool(_)
                | Json::Number(_)
                | Json::String(_)
                | Json::Object(_) => reduced(item, *one),
            };
            Json::Array(list.iter().map(item).collect())
        }
        (Form::Object(rules), Json::Object(fields)) => object(fields, rules, &[]),
        (Form::Conf, Json::Object(fields)) => object(fields, ANY, own_rules(value, OWN)),
        (Form::Ipam, Json::Object(fields)) => object(fields, ANY_IPAM, own_rules(value, OWN_IPAM)),
        _ => type_of(value),
    }
}

fn object(fields: &[(String, Json)], rules: &[Rule], more: &[Rule]) -> Json {
    let mut kept = Vec::new();
    for (key, value) in fields {
        let mut all = rules.iter().chain(more);
        let rule = all.find(|(known, _)| known.eq_ignore_ascii_case(key));
        let value = rule.map_or_else(|| type_of(value), |(_, form)| reduced(value, *form));
        kept.push((key.clone(), value));
    }
    Json::Object(kept)
}

/// Returns the further rules of a configuration: `own` for a type that braid implements.
fn own_rules(conf: &Json, own: &'static [Rule]) -> &'static [Rule] {
    let of = conf.get("type").and_then(Json::as_str);
    let is_known = of.is_some_and(|of| {
        of == PROGRAM || of == WHEREABOUTS || drop_in_names().any(|name| name == of)
    });
    if is_known { own } else { &[] }
}

fn kept_if(is_kept: bool, value: &Json) -> Json {
    if is_kept {
        value.clone()
    } else {
        type_of(value)
    }
}

/// Returns the JSON type of a value, in angle brackets.
fn type_of(value: &Json) -> Json {
    let name = match value {
        Json::Null => "<null>",
        Json::Bool(_) => "<boolean>",
        Json::Number(_) => "<number>",
        Json::String(_) => STRING,
        Json::Array(_) => "<array>",
        Json::Object(_) => "<object>",
    };
    name.into()
}

fn is_address(text: &str) -> bool {
    let is_one = |text: &str| {
        text.parse::<IpAddr>().is_ok()
            || text.parse::<IpNet>().is_ok()
            || Mac::parse(text).is_some()
    };
    // Whereabouts accepts `10.0.0.1-10.0.0.9/24`.
    let range = text.split_once('-');
    is_one(text) || range.is_some_and(|(first, last)| is_one(first) && is_one(last))
}

fn is_netns(text: &str) -> bool {
    let folders = ["/run/netns/", "/var/run/netns/", "/proc/"];
    let has_folder = folders.iter().any(|folder| text.starts_with(folder));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    text.is_empty() || has_folder && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").expect("json")
    }

    /// Checks that a configuration is reduced to `expected`.
    #[track_caller]
    fn assert_reduced(text: &str, expected: &str) {
        assert_eq!(conf(&json(text)).to_string(), json(expected).to_string());
    }

    #[test]
    fn known_keys_of_a_known_type_are_kept_in_their_form() {
        let whole = r#"{"cniVersion":"1.1.0","name":"lan","type":"bridge","bridge":"br0","mtu":1400,
            "isGateway":true,"vlan":5,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24",
            "gateway":"10.1.0.1"}]],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.9"}]}}"#;
        assert_reduced(whole, whole);
        assert_reduced(
            r#"{"type":"macvlan","master":"s3cret password","mode":"s3cret","mtu":"s3cret","isGateway":7,"mac":"s3cret"}"#,
            r#"{"type":"macvlan","master":"<string>","mode":"<string>","mtu":"<string>","isGateway":"<number>","mac":"<string>"}"#,
        );
    }

    #[test]
    fn keys_match_in_any_case() {
        assert_reduced(
            r#"{"Type":"ptp","IPAM":{"TYPE":"host-local","Subnet":"10.1.0.0/24","DataDir":"s3cret"}}"#,
            r#"{"Type":"ptp","IPAM":{"TYPE":"host-local","Subnet":"10.1.0.0/24","DataDir":"<string>"}}"#,
        );
    }

    #[test]
    fn values_of_unknown_keys_are_replaced_by_their_type() {
        for (secret, name) in [
            (r#""s3cret""#, "<string>"),
            ("5317", "<number>"),
            ("true", "<boolean>"),
            ("null", "<null>"),
            (r#"["s3cret",{"type":"s3cret"}]"#, "<array>"),
            (
                r#"{"type":"bridge","s3cret":{"name":"s3cret"}}"#,
                "<object>",
            ),
        ] {
            // In a known type, in a foreign one, in an IPAM, in a list, and below `delegates`.
            for [before, after] in [
                [r#"{"type":"bridge","token":"#, "}"],
                [r#"{"type":"theirs","token":"#, "}"],
                [
                    r#"{"type":"ptp","ipam":{"type":"host-local","token":"#,
                    "}}",
                ],
                [r#"{"type":"ptp","ipam":{"type":"theirs","token":"#, "}}"],
                [r#"{"name":"n","token":"#, r#","plugins":[]}"#],
                [
                    r#"{"name":"n","plugins":[{"type":"tuning","sysctl":"#,
                    "}]}",
                ],
                [
                    r#"{"type":"braid","delegates":[{"name":"n","plugins":[{"type":"theirs","auth":"#,
                    "}]}]}",
                ],
                [r#"{"type":"flannel","delegate":{"token":"#, "}}"],
                [r#"{"type":"bridge","args":"#, "}"],
                [r#"{"type":"bridge","capabilities":"#, "}"],
                [r#"{"type":"bridge","dns":"#, "}"],
                [
                    r#"{"type":"bridge","runtimeConfig":{"io.kubernetes.cri.pod-annotations":"#,
                    "}}",
                ],
                [
                    r#"{"type":"bridge","runtimeConfig":{"portMappings":[{"token":"#,
                    "}]}}",
                ],
                [
                    r#"{"type":"bridge","prevResult":{"interfaces":[{"socketPath":"#,
                    "}]}}",
                ],
            ] {
                assert_reduced(
                    &[before, secret, after].concat(),
                    &format!("{before}{name:?}{after}"),
                );
            }
        }
    }

    #[test]
    fn a_foreign_type_keeps_its_type_and_its_ipam() {
        assert_reduced(
            r#"{"type":"theirs","mtu":5317,"master":"s3cret","ipam":{"type":"theirs","subnet":"10.1.0.0/24"}}"#,
            r#"{"type":"theirs","mtu":"<number>","master":"<string>","ipam":{"type":"theirs","subnet":"<string>"}}"#,
        );
    }

    #[test]
    fn requests_of_pods_and_results_keep_addresses_alone() {
        let asked = json(
            r#"{"ips":["10.1.0.5/24","s3cret"],"mac":"02:00:00:00:00:05","cni-args":{"token":"s3cret"},
            "portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp","name":"s3cret"}],
            "bandwidth":{"ingressRate":1000},"default-route":["10.1.0.1"],"deviceID":"s3cret"}"#,
        );
        let expected = json(
            r#"{"ips":["10.1.0.5/24","<string>"],"mac":"02:00:00:00:00:05","cni-args":"<object>",
            "portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp","name":"<string>"}],
            "bandwidth":{"ingressRate":1000},"default-route":["10.1.0.1"],"deviceID":"<string>"}"#,
        );
        assert_eq!(requests(&asked), expected);
        let added = json(
            r#"{"interfaces":[{"name":"eth0","sandbox":"/run/netns/a"},{"name":"v","sandbox":"/s3cret"}],
            "ips":[{"address":"10.9.0.7/24","interface":0}],"dns":{"domain":"s3cret"},"s3cret":"s3cret"}"#,
        );
        let expected = json(
            r#"{"interfaces":[{"name":"eth0","sandbox":"/run/netns/a"},{"name":"v","sandbox":"<string>"}],
            "ips":[{"address":"10.9.0.7/24","interface":0}],"dns":"<object>","s3cret":"<string>"}"#,
        );
        assert_eq!(result(&added), expected);
    }

    #[test]
    fn arguments_keep_the_pod_and_addresses() {
        let given = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;IP=10.1.0.5;MAC=s3cret;token=s3cret;s3cret";
        assert_eq!(
            args(given),
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;IP=10.1.0.5;MAC=<string>;token=<string>;<string>"
        );
    }
}
