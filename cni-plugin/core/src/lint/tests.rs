use super::*;
use crate::k8s::ObjectName;
use std::collections::BTreeMap;

fn nad_of(config: &str) -> Nad {
    let name = ObjectName {
        namespace: "pods".to_owned(),
        name: "a".to_owned(),
    };
    Nad {
        name,
        config: config.to_owned(),
        annotations: BTreeMap::new(),
    }
}

/// Returns a configuration without findings, except for `keys`.
fn config(keys: &str) -> String {
    format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"a\",\n{keys}}}")
}

const LOCAL: &str = r#""ipam":{"type":"host-local","subnet":"10.0.0.0/24"}"#;

/// Returns the place of a finding as text.
fn place(finding: &Finding) -> String {
    match &finding.place {
        FaultPlace::Position { line, column } => format!("{line}:{column}"),
        FaultPlace::Path(path) => {
            let parts = path.iter().map(|part| match part {
                PathPart::Key(key) => key.clone(),
                PathPart::Index(index) => index.to_string(),
            });
            parts.collect::<Vec<_>>().join(".")
        }
    }
}

#[test]
fn finding_has_the_path_of_its_value() {
    for (keys, expected) in [
        (r#""type":"bridge","vlan":5000"#, "vlan"),
        (r#""x":1"#, ""),
        (
            r#""type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"x"}]]}"#,
            "ipam.ranges.0.0.subnet",
        ),
        (
            r#""plugins":[{"type":"macvlan"},{"type":"tuning","sysctl":{"a":[]}}]"#,
            "plugins.1.sysctl.a",
        ),
        (
            r#""plugins":[{"type":"ptp","ipam":{"type":"dhcp","request":[{"option":5}]}}]"#,
            "plugins.0.ipam.request.0.option",
        ),
        (
            r#""type":"bridge","args":{"cni":{"mac":"x"}}"#,
            "args.cni.mac",
        ),
        (r#""type":}"#, "2:8"),
    ] {
        let found = nad(&nad_of(&config(keys)));
        let places: Vec<String> = found.iter().map(place).collect();
        assert_eq!(places, [expected], "{keys}: {found:?}");
    }
}

#[test]
fn a_range_of_host_local_on_a_link_that_spans_nodes_is_a_warning() {
    let ranges = r#""ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/120"}]]}"#;
    let pools = r#""ipam":{"type":"whereabouts","range":"10.0.0.0/24"}"#;
    let one = "10.0.0.1-10.0.0.254 on its own";
    for (keys, expected) in [
        (format!(r#""type":"macvlan",{LOCAL}"#), Some(one)),
        (format!(r#""type":"ipvlan","mode":"l3",{LOCAL}"#), Some(one)),
        (
            format!(r#""type":"vlan","master":"e","vlanId":5,{LOCAL}"#),
            Some(one),
        ),
        (
            format!(r#""type":"macvlan",{ranges}"#),
            Some("10.0.0.1-10.0.0.254, fd00::1-fd00::ff on its own"),
        ),
        (
            format!(r#""type":"macvlan","linkInContainer":true,"master":"e",{LOCAL}"#),
            None,
        ),
        (format!(r#""type":"bridge",{LOCAL}"#), None),
        (format!(r#""type":"macvlan",{pools}"#), None),
    ] {
        let found = nad(&nad_of(&config(&keys)));
        let texts: Vec<String> = found.iter().map(Finding::to_string).collect();
        match expected {
            Some(range) => {
                let start = format!("warning: type: \"host-local\": each node gives out {range}");
                assert!(
                    texts.len() == 1 && texts[0].starts_with(&start),
                    "{texts:?}"
                );
            }
            None => assert_eq!(texts, [""; 0], "{keys}"),
        }
    }
}

#[test]
fn any_changed_byte_of_a_network_is_judged() {
    let text = config(&format!(
        r#""plugins":[{{"type":"bridge","vlan":5,{LOCAL}}},{{"type":"portmap","capabilities":{{"mac":true}}}}]"#
    ));
    for at in 0..text.len() {
        for byte in ["\"", "{", "]", "é", "-", "\\", "\n", ""] {
            let _ = nad(&nad_of(&format!(
                "{}{byte}{}",
                &text[..at],
                &text[at + 1..]
            )));
        }
        let _ = nad(&nad_of(&text[..at]));
    }
}
