use super::*;
use crate::cni::Kind;

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").unwrap()
}

fn braid(rest: &str) -> Result<Option<NetConfList>, Error> {
    let text = format!(r#"{{"name":"pods","cniVersion":"1.0.0","type":"braid"{rest}}}"#);
    NetConfList::from_braid(&NetConf::parse(text.as_bytes())?)
}

#[test]
fn the_greatest_known_version_is_chosen() {
    for (versions, chosen) in [
        ("", Version::V0_1_0),
        (r#","cniVersion":"0.4.0""#, Version::V0_4_0),
        (r#","cniVersion":"0.4.0","cniVersions":[]"#, Version::V0_4_0),
        (
            r#","cniVersions":["0.3.1","1.0.0","0.4.0"]"#,
            Version::V1_0_0,
        ),
        (
            r#","cniVersion":"1.1.0","cniVersions":["0.3.1","1.0.0"]"#,
            Version::V1_1_0,
        ),
        (
            r#","cniVersion":"2.0.0","cniVersions":["0.3.1","9.9.9"]"#,
            Version::V0_3_1,
        ),
    ] {
        let list = NetConfList::parse(
            format!(r#"{{"name":"n","plugins":[{{"type":"t"}}]{versions}}}"#).as_bytes(),
        );
        assert_eq!(list.unwrap().version, chosen, "{versions}");
    }
}

#[test]
fn switches_are_booleans_or_words() {
    for (value, expected) in [
        ("true", Some(true)),
        ("\"TRUE\"", Some(true)),
        ("\"false\"", Some(false)),
        ("\"yes\"", None),
        ("1", None),
    ] {
        let list = json(&format!(
            r#"{{"name":"n","plugins":[{{"type":"t"}}],"disableCheck":{value},"disableGC":{value}}}"#
        ));
        let read = NetConfList::from_json(&list)
            .ok()
            .map(|list| (list.disable_check, list.disable_gc));
        assert_eq!(read, expected.map(|on| (on, on)), "{value}");
    }
}

#[test]
fn a_list_without_a_valid_plugin_is_refused() {
    for (rest, code) in [
        ("", Kind::InvalidConfig),
        (r#","plugins":[]"#, Kind::InvalidConfig),
        (r#","plugins":[{}]"#, Kind::InvalidConfig),
        (r#","plugins":[{"type":"a/b"}]"#, Kind::InvalidConfig),
        (r#","plugins":{}"#, Kind::Decode),
        (r#","plugins":["bridge"]"#, Kind::Decode),
        (
            r#","plugins":[{"type":"t"}],"cniVersion":"0.3.2""#,
            Kind::IncompatibleVersion,
        ),
        (
            r#","plugins":[{"type":"t"}],"cniVersions":["x"]"#,
            Kind::Decode,
        ),
    ] {
        let error = NetConfList::parse(format!(r#"{{"name":"n"{rest}}}"#).as_bytes()).unwrap_err();
        assert_eq!(error.kind, code, "{rest}: {error}");
    }
}

#[test]
fn plugin_gets_name_version_and_the_keys_of_its_capabilities() {
    let list = NetConfList::from_json(&json(
        r#"{"name":"n","cniVersion":"0.4.0","plugins":[
            {"type":"a","name":"own","prevResult":{"ips":[]},"cni.dev/attachments":[]},
            {"type":"b","capabilities":{"mac":true,"ips":false,"bandwidth":true}}]}"#,
    ))
    .unwrap();
    let offered = json(r#"{"mac":"00:11:22:33:44:55","ips":["10.0.0.1/8"],"other":1}"#);
    let first = list
        .plugin_conf(
            0,
            &Injected {
                runtime_config: Some(&offered),
                ..Injected::default()
            },
        )
        .unwrap();
    assert_eq!(
        first.json.to_string(),
        r#"{"type":"a","name":"n","cniVersion":"0.4.0"}"#
    );
    let prev = AddResult::default();
    let injected = Injected {
        runtime_config: Some(&offered),
        prev_result: Some(&prev),
        ..Injected::default()
    };
    let second = list.plugin_conf(1, &injected).unwrap();
    assert_eq!(second.prev_result, Some(AddResult::default()));
    assert_eq!(
        second.json.get("runtimeConfig").unwrap().to_string(),
        r#"{"mac":"00:11:22:33:44:55"}"#
    );
    assert_eq!(
        list.plugin_conf(2, &injected).unwrap_err().kind,
        Kind::Internal
    );
}

#[test]
fn gc_sends_the_valid_attachments_under_both_names() {
    let list = NetConfList::from_json(&json(r#"{"name":"n","plugins":[{"type":"a"}]}"#)).unwrap();
    let valid = [Owner::new("n", "c", "eth0")];
    for valid in [&valid[..], &[]] {
        let conf = list
            .plugin_conf(
                0,
                &Injected {
                    valid_attachments: Some(valid),
                    ..Injected::default()
                },
            )
            .unwrap();
        assert_eq!(conf.valid_attachments.as_deref(), Some(valid));
        assert!(VALID_ATTACHMENTS.iter().all(|key| conf.json.has(key)));
    }
}

#[test]
fn configuration_of_type_braid_holds_a_list_in_three_forms() {
    let types = |list: NetConfList| {
        let mut types = Vec::new();
        for plugin in &list.plugins {
            types.push(plugin.string("type").unwrap());
        }
        (list.name.clone(), list.version, types.join(","))
    };
    for (rest, expected) in [
        (
            r#","plugins":[{"type":"a"},{"type":"b"}]"#,
            ("pods", Version::V1_0_0, "a,b"),
        ),
        (r#","network":{"type":"a"}"#, ("pods", Version::V1_0_0, "a")),
        (
            r#","network":{"type":"a","name":"own","cniVersion":"0.4.0"}"#,
            ("own", Version::V0_4_0, "a"),
        ),
        (
            r#","network":{"name":"own","plugins":[{"type":"a"}]}"#,
            ("own", Version::V1_0_0, "a"),
        ),
        (
            r#","network":{"type":"a"},"bandwidth":{}"#,
            ("pods", Version::V1_0_0, "a,bandwidth"),
        ),
        (
            r#","plugins":[{"type":"a"}],"runtimeConfig":{"bandwidth":{}}"#,
            ("pods", Version::V1_0_0, "a,bandwidth"),
        ),
        (
            r#","plugins":[{"type":"a","capabilities":{"bandwidth":true}}],"runtimeConfig":{"bandwidth":{}}"#,
            ("pods", Version::V1_0_0, "a"),
        ),
        (
            r#","plugins":[{"type":"bandwidth"},{"type":"b"}],"runtimeConfig":{"bandwidth":{}}"#,
            ("pods", Version::V1_0_0, "bandwidth,b"),
        ),
    ] {
        let (name, version, plugins) = types(braid(rest).unwrap().unwrap());
        assert_eq!(
            (name.as_str(), version, plugins.as_str()),
            expected,
            "{rest}"
        );
    }
    assert!(braid("").unwrap().is_none());
}

#[test]
fn a_list_inside_braid_is_checked_like_any_other() {
    for rest in [
        r#","plugins":[{"type":"a"}],"network":{"type":"a"}"#,
        r#","plugins":[{"type":"braid"}]"#,
        r#","plugins":[{"type":"bandwidth"}],"bandwidth":{}"#,
        r#","network":{"type":"braid"}"#,
        r#","network":{"name":"../x","type":"a"}"#,
        r#","network":{"name":"x"}"#,
        r#","network":{"plugins":[]}"#,
    ] {
        assert_eq!(braid(rest).unwrap_err().kind, Kind::InvalidConfig, "{rest}");
    }
}
