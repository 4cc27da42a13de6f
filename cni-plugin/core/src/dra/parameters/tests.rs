use super::*;

fn json(keys: &str) -> Json {
    let separator = if keys.is_empty() { "" } else { "," };
    let text =
        format!(r#"{{"apiVersion":"braid.dev/v1alpha1","kind":"Attachment"{separator}{keys}}}"#);
    Json::parse(text.as_bytes(), "test").expect("JSON")
}

fn config(is_of_class: bool, requests: &[&str], keys: &str) -> Config {
    Config {
        is_of_class,
        requests: requests.iter().map(ToString::to_string).collect(),
        parameters: json(keys),
    }
}

#[test]
fn all_parameters_are_optional() {
    assert_eq!(
        Parameters::parse(&json(""), false),
        Ok(Parameters::default())
    );
    let all = r#""interface":"data0","ips":["192.0.2.5/24","fd00::5"],"mac":"02:00:00:00:00:01","nad":"rails/left""#;
    let parameters = Parameters::parse(&json(all), false).expect("parameters");
    let nad = parameters.nad.clone().expect("a name");
    assert_eq!(nad.object("web").to_string(), "rails/left");
    let expected = Parameters {
        interface: IfName::parse("data0").ok(),
        ips: vec!["192.0.2.5/24".to_owned(), "fd00::5".to_owned()],
        mac: Mac::parse("02:00:00:00:00:01"),
        network: None,
        nad: Some(nad),
    };
    assert_eq!(parameters, expected);
}

#[test]
fn wrong_parameters_are_refused_with_key_and_value() {
    for (keys, message) in [
        (r#""interfce":"a""#, r#""interfce": "a": unknown key"#),
        (r#""Interface":"a""#, r#""Interface": "a": unknown key"#),
        (
            r#""interface":"a/b""#,
            r#""interface": "a/b": interface name contains / or : or whitespace characters"#,
        ),
        (
            r#""interface":"a%d""#,
            r#""interface": "a%d": interface name contains %"#,
        ),
        (
            r#""ips":["192.0.2.5","x"]"#,
            r#""ips": "x" is not an address"#,
        ),
        (
            r#""mac":"02""#,
            r#""mac": "02": not six bytes, as in 02:00:00:00:00:01"#,
        ),
        (
            r#""mac":"01:00:5e:00:00:01""#,
            r#""mac": "01:00:5e:00:00:01": a multicast address, which no interface can have"#,
        ),
        (
            r#""network":{"master":"eth0"}"#,
            r#""network": "master": "eth0": the driver sets this key"#,
        ),
        (
            r#""network":{},"nad":"a""#,
            r#""network" and "nad" can't both be set"#,
        ),
        (
            r#""network":[]"#,
            r#""network": expected an object, got []"#,
        ),
        (
            r#""nad":"a/b/c""#,
            r#""nad": "a/b/c": not the name of a NetworkAttachmentDefinition, as in namespace/name"#,
        ),
        (
            r#""kind":"Network""#,
            r#""kind": "Network": not "Attachment""#,
        ),
        (
            r#""apiVersion":"braid.dev/v1""#,
            r#""apiVersion": "braid.dev/v1": not "braid.dev/v1alpha1""#,
        ),
    ] {
        let error = Parameters::parse(&json(keys), false).expect_err(keys);
        assert_eq!(error.msg, message);
    }
    let error = Parameters::parse(&Json::object_of([]), false).expect_err("no kind");
    assert_eq!(
        error.msg,
        r#""apiVersion": missing, not "braid.dev/v1alpha1""#
    );
    assert!(Parameters::parse(&Json::Null, false).is_err());
    let many = format!(r#""ips":["::1"{}]"#, r#","::1""#.repeat(64));
    assert!(Parameters::parse(&json(&many), false).is_err());
}

#[test]
fn keys_of_the_claim_replace_keys_of_the_class() {
    let configs = [
        config(
            false,
            &["nic"],
            r#""network":{"mtu":1400,"ipam":{"type":"dhcp"}},"interface":"data0""#,
        ),
        config(
            true,
            &["nic"],
            r#""network":{"type":"vlan","vlanId":100,"mtu":9000,"ipam":{"type":"host-local","subnet":"192.0.2.0/24"}},"mac":"02:00:00:00:00:01""#,
        ),
        config(false, &["other"], r#""interface":"no""#),
        config(false, &[], r#""ips":["192.0.2.9/24"]"#),
    ];
    let parameters = Parameters::effective("nic/fast", &configs).expect("parameters");
    assert_eq!(
        parameters.network.expect("a network").sorted().to_string(),
        r#"{"ipam":{"type":"dhcp"},"mtu":1400,"type":"vlan","vlanId":100}"#
    );
    assert_eq!(parameters.interface, IfName::parse("data0").ok());
    assert_eq!(parameters.mac, Mac::parse("02:00:00:00:00:01"));
    assert_eq!(parameters.ips, ["192.0.2.9/24"]);
    assert_eq!(
        Parameters::effective("none", &[]),
        Ok(Parameters::default())
    );
}

#[test]
fn later_source_of_the_network_wins_as_a_whole() {
    let (network, nad) = (r#""network":{"type":"ipvlan"}"#, r#""nad":"a""#);
    for (class, claim, is_nad) in [(network, nad, true), (nad, network, false)] {
        let configs = [config(true, &[], class), config(false, &[], claim)];
        let parameters = Parameters::effective("nic", &configs).expect("parameters");
        assert_eq!(
            (parameters.nad.is_some(), parameters.network.is_some()),
            (is_nad, !is_nad)
        );
    }
    let nad = config(true, &[], r#""nad":"a""#);
    let parameters = Parameters::effective("nic", &[nad]).expect("parameters");
    let nad = parameters.nad.expect("a name");
    assert_eq!(
        (nad.object("web").to_string(), nad.is_of_class),
        ("web/a".to_owned(), true)
    );
}

#[test]
fn only_a_class_has_a_list_of_plugins() {
    let list = r#""network":{"plugins":[{"type":"bridge"}]}"#;
    let error = Parameters::effective("nic", &[config(false, &[], list)]).expect_err("a list");
    assert!(
        error
            .msg
            .starts_with(r#"request "nic": "network": "plugins": [{"type":"bridge"}]: "#),
        "{error}"
    );
    let class = config(true, &[], list);
    let parameters = Parameters::effective("nic", std::slice::from_ref(&class));
    assert!(parameters.expect("parameters").network.is_some());
    let both = [class, config(false, &[], r#""network":{"mtu":1400}"#)];
    let error = Parameters::effective("nic", &both).expect_err("a key of a list");
    assert_eq!(
        error.msg,
        r#"request "nic": "network": the class has a list of plugins, so no key of it can be changed"#
    );
}

/// Returns the network that a claim has over the network of a class.
fn network_over(class: &str, claims: &[&str]) -> Result<String, String> {
    let network =
        |is_of_class, keys: &str| config(is_of_class, &[], &format!(r#""network":{keys}"#));
    let mut configs = vec![network(true, class)];
    configs.extend(claims.iter().map(|keys| network(false, keys)));
    let parameters = Parameters::effective("nic", &configs).map_err(|error| error.msg)?;
    Ok(parameters.network.expect("a network").sorted().to_string())
}

#[test]
fn claim_keeps_the_keys_of_a_class_with_a_type_that_claims_cannot_have() {
    let bridge = r#"{"type":"bridge","bridge":"br-tenants"}"#;
    assert_eq!(
        network_over(bridge, &[r#"{"mtu":1400,"ipam":{"type":"dhcp"}}"#]),
        Ok(
            r#"{"bridge":"br-tenants","ipam":{"type":"dhcp"},"mtu":1400,"type":"bridge"}"#
                .to_owned()
        )
    );
    let other = r#"{"type":"calico"}"#;
    for (class, claim, message) in [
        (
            bridge,
            r#"{"bridge":"br-node"}"#,
            r#""bridge": "br-node": with type "bridge" of the class, a claim may set only mtu and ipam"#,
        ),
        (
            bridge,
            r#"{"mtu":1400,"isGateway":true}"#,
            r#""isGateway": true: with type "bridge" of the class, a claim may set only mtu and ipam"#,
        ),
        (
            other,
            r#"{"MTU":1400}"#,
            r#""MTU": 1400: with type "calico" of the class, a claim may set only mtu and ipam"#,
        ),
        (
            other,
            r#"{"type":null}"#,
            r#""type": null: with type "calico" of the class, a claim may set only mtu and ipam"#,
        ),
    ] {
        let message = format!(r#"request "nic": "network": {message}"#);
        assert_eq!(network_over(class, &[claim]), Err(message));
    }
}

#[test]
fn claim_with_a_type_of_its_own_has_no_key_of_such_a_class() {
    let bridge = r#"{"type":"bridge","bridge":"br-tenants","ipam":{"type":"dhcp"}}"#;
    assert_eq!(
        network_over(bridge, &[r#"{"mtu":1400}"#, r#"{"type":"macvlan"}"#]),
        Ok(r#"{"mtu":1400,"type":"macvlan"}"#.to_owned())
    );
    let vlan = r#"{"type":"vlan","vlanId":7}"#;
    assert_eq!(
        network_over(vlan, &[r#"{"type":"ipvlan"}"#]),
        Ok(r#"{"type":"ipvlan","vlanId":7}"#.to_owned())
    );
}
