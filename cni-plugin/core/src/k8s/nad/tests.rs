use super::*;
use crate::cni::Kind;
use crate::k8s::on_disk::{DiskFile, of_disk};
use std::collections::BTreeMap;

fn nad(name: &str, config: &str) -> Nad {
    let name = ObjectName {
        namespace: "pods".to_owned(),
        name: name.to_owned(),
    };
    Nad {
        name,
        config: config.to_owned(),
        annotations: BTreeMap::new(),
    }
}

fn nowhere(name: &str) -> Result<Definition, Error> {
    of_disk(name, &[])?.definition(&[])
}

fn files(all: &[(&str, &str)]) -> Vec<DiskFile> {
    all.iter()
        .map(|(name, text)| DiskFile {
            name: (*name).to_owned(),
            bytes: text.as_bytes().to_vec(),
        })
        .collect()
}

fn definition(config: &str) -> Definition {
    Found::of_nad(&nad("a", config), nowhere)
        .unwrap()
        .definition
}

fn types(definition: &Definition) -> String {
    definition.types().collect::<Vec<_>>().join(",")
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").unwrap()
}

// Conformance: N2, N5, N6, N7, N9
#[test]
fn network_is_found_in_its_object_then_in_a_list_then_in_a_file() {
    let config = r#"{"name":"x","type":"own"}"#;
    let conf = ("00-x.conf", r#"{"name":"x","type":"conf"}"#);
    let list = (
        "99-x.conflist",
        r#"{"name":"x","plugins":[{"type":"l1"},{"type":"l2"}]}"#,
    );
    let json = ("10-x.json", r#"{"name":"x","type":"json"}"#);
    let other = ("01-y.conf", r#"{"name":"y","type":"other"}"#);
    let text = ("00-x.txt", r#"{"name":"x","type":"text"}"#);
    for (config, on_disk, expected) in [
        (config, vec![conf, list], Some("own")),
        ("", vec![conf, list, json], Some("l1,l2")),
        (" \n", vec![json, conf, other], Some("conf")),
        ("", vec![json, other], Some("json")),
        ("", vec![other, text], None),
        ("", vec![], None),
    ] {
        let found = Found::of_nad(&nad("x", config), |name| {
            of_disk(name, &files(&on_disk))?.definition(&[])
        });
        let found = found
            .map(|found| types(&found.definition))
            .map_err(|error| error.kind);
        assert_eq!(
            found,
            expected.map(str::to_owned).ok_or(Kind::InvalidConfig),
            "{config} {on_disk:?}"
        );
    }
    let error = Found::of_nad(&nad("x", ""), |name| {
        of_disk(name, &files(&[other]))?.definition(&[])
    })
    .unwrap_err();
    assert_eq!(
        error.msg,
        r#"network pods/x: no configuration is named "x", in 1 files"#
    );
}

// Conformance: N8
#[test]
fn broken_file_of_another_network_is_ignored() {
    let broken = [
        ("00-broken.conflist", "{"),
        ("01-broken.conf", "\u{0}"),
        ("02-y.conf", r#"{"name":"y"}"#),
    ];
    let good = ("03-x.conf", r#"{"name":"x","type":"good"}"#);
    let found = of_disk("x", &files(&[broken[0], broken[1], broken[2], good]))
        .unwrap()
        .definition(&[])
        .unwrap();
    assert_eq!(types(&found), "good");
    let error = of_disk("x", &files(&broken)).unwrap_err();
    assert!(
        error
            .msg
            .contains("in 3 files; not read: 00-broken.conflist: invalid JSON"),
        "{error}"
    );
    let error = of_disk("y", &files(&broken))
        .unwrap()
        .definition(&[])
        .unwrap_err();
    assert_eq!(error.msg, "02-y.conf: no plugin name provided");
}

// Conformance: N10, N11
#[test]
fn missing_name_is_injected() {
    for (config, name) in [
        (r#"{"type":"t"}"#, "a"),
        (r#"{"type":"t","name":""}"#, "a"),
        (r#"{"plugins":[{"type":"t"}]}"#, "a"),
        (r#"{"type":"t","name":"b"}"#, "b"),
        (
            r#"{"plugins":[{"type":"t","name":"inner"}],"name":"b"}"#,
            "b",
        ),
        (r#"{"type":"braid","network":{"type":"t"}}"#, "a"),
    ] {
        let definition = definition(config);
        let conf = definition.conf(&Json::Null).unwrap();
        assert_eq!(
            (definition.name(), conf.str("name")),
            (name, Ok(Some(name))),
            "{config}"
        );
    }
}

#[test]
fn invalid_network_is_refused_with_its_name() {
    for (config, code) in [
        ("{", Kind::Decode),
        ("[]", Kind::Decode),
        (r#"{"type":5}"#, Kind::Decode),
        (r#"{"type":"t","capabilities":{"mac":"yes"}}"#, Kind::Decode),
        ("{}", Kind::InvalidConfig),
        (r#"{"type":"../sh"}"#, Kind::InvalidConfig),
        (r#"{"type":"t","name":"../x"}"#, Kind::InvalidConfig),
        (r#"{"plugins":[]}"#, Kind::InvalidConfig),
        (r#"{"plugins":[{"type":"a/b"}]}"#, Kind::InvalidConfig),
        (
            r#"{"plugins":[{"type":"braid","plugins":[{"type":"t"}]}]}"#,
            Kind::InvalidConfig,
        ),
        (r#"{"type":"braid"}"#, Kind::InvalidConfig),
        (
            r#"{"type":"braid","kubeconfig":"/k","plugins":[{"type":"t"}]}"#,
            Kind::InvalidConfig,
        ),
        (
            r#"{"type":"braid","delegates":[{"type":"t"}]}"#,
            Kind::InvalidConfig,
        ),
        (
            r#"{"type":"t","cniVersion":"9.0.0"}"#,
            Kind::IncompatibleVersion,
        ),
    ] {
        let error = Found::of_nad(&nad("a", config), nowhere).unwrap_err();
        assert_eq!(error.kind, code, "{config}: {error}");
        assert!(
            error.msg.starts_with("network pods/a: spec.config: "),
            "{error}"
        );
    }
}

#[test]
fn configuration_is_kept_unchanged() {
    let own =
        r#""x":{"big":9007199254740993,"huge":1e+400,"deep":[null,{"K":1,"k":2}]},"ü":"\u0001""#;
    let conf = definition(&format!(r#"{{"name":"n","type":"t",{own}}}"#))
        .conf(&Json::Null)
        .unwrap();
    assert_eq!(
        conf.to_string(),
        format!(r#"{{"type":"t",{own},"name":"n","cniVersion":"0.1.0"}}"#)
    );
    let list = definition(&format!(
        r#"{{"cniVersion":"1.0.0","name":"n","disableCheck":true,"plugins":[{{"type":"t",{own}}},{{"type":"u"}}],"z":1}}"#
    ));
    let expected = format!(
        r#"{{"name":"n","cniVersion":"1.0.0","type":"braid","plugins":[{{"type":"t",{own}}},{{"type":"u"}}],"disableCheck":true}}"#
    );
    assert_eq!(list.conf(&Json::Null).unwrap().to_string(), expected);
}

#[test]
fn single_plugin_gets_declared_keys_and_list_gets_all() {
    let offered = json(r#"{"mac":"02:00:00:00:00:01","ips":["10.0.0.1"]}"#);
    let runtime = |config: &str| {
        let conf = definition(config).conf(&offered).unwrap();
        conf.get("runtimeConfig").map(ToString::to_string)
    };
    assert_eq!(runtime(r#"{"type":"t"}"#), None);
    let one = runtime(
        r#"{"type":"t","capabilities":{"ips":true,"mac":false},"runtimeConfig":{"mac":"x"}}"#,
    );
    assert_eq!(one.as_deref(), Some(r#"{"ips":["10.0.0.1"]}"#));
    assert_eq!(
        runtime(r#"{"plugins":[{"type":"t"}]}"#),
        Some(offered.to_string())
    );
}

#[test]
fn list_of_type_braid_is_read_back_unchanged() {
    let list = definition(
        r#"{"cniVersions":["0.4.0","1.0.0"],"name":"n","disableGC":"true","plugins":[{"type":"t","n":1e400},{"type":"u"}]}"#,
    );
    let conf = NetConf::from_json(list.conf(&Json::Null).unwrap()).unwrap();
    let read = NetConfList::from_braid(&conf).unwrap().unwrap();
    assert_eq!(
        (read.name.as_str(), read.version, read.disable_gc),
        ("n", Version::V1_0_0, true)
    );
    assert_eq!(read.plugins, list.plugins());
}

// Conformance: S10
#[test]
fn capability_counts_only_if_true() {
    for (capabilities, is_there) in [
        ("", false),
        (r#","capabilities":{}"#, false),
        (r#","capabilities":null"#, false),
        (r#","capabilities":{"ips":false}"#, false),
        (r#","capabilities":{"IPS":true}"#, false),
        (r#","capabilities":{"ips":true}"#, true),
        (r#","capabilities":{"ips":true,"ips":false}"#, false),
    ] {
        let one = definition(&format!(r#"{{"type":"t"{capabilities}}}"#));
        let list = definition(&format!(
            r#"{{"plugins":[{{"type":"t"}},{{"type":"u"{capabilities}}}]}}"#
        ));
        assert_eq!(
            (one.has("ips"), list.has("ips")),
            (is_there, is_there),
            "{capabilities}"
        );
    }
}

// Conformance: S17, S18
#[test]
fn cni_args_reach_every_plugin_and_replace_its_own() {
    let more = [("b".to_owned(), json("3")), ("B".to_owned(), json("4"))];
    let mut list = definition(
        r#"{"plugins":[{"type":"t","args":{"cni":{"a":1,"b":2},"other":{"x":1}}},{"type":"u"},{"type":"v","args":null}]}"#,
    );
    list.merge_args(&more).unwrap();
    let args: Vec<String> = list
        .plugins()
        .iter()
        .map(|plugin| plugin.get("args").unwrap().to_string())
        .collect();
    let only = r#"{"cni":{"b":3,"B":4}}"#;
    assert_eq!(
        args,
        [r#"{"other":{"x":1},"cni":{"a":1,"b":3,"B":4}}"#, only, only]
    );
    let mut one = definition(r#"{"type":"t","args":{"cni":{"a":1,"b":2}}}"#);
    one.merge_args(&more[..1]).unwrap();
    assert_eq!(
        one.conf(&Json::Null)
            .unwrap()
            .get("args")
            .unwrap()
            .to_string(),
        r#"{"cni":{"a":1,"b":3}}"#
    );
    one.merge_args(&[]).unwrap();
    for args in ["5", r#"{"cni":[]}"#] {
        let mut wrong = definition(&format!(r#"{{"type":"t","args":{args}}}"#));
        assert_eq!(
            wrong.merge_args(&more).unwrap_err().kind,
            Kind::Decode,
            "{args}"
        );
    }
}

#[test]
fn device_is_set_in_every_plugin() {
    let mut list = definition(r#"{"plugins":[{"type":"t","deviceid":"old"},{"type":"u"}]}"#);
    list.set_device("0000:01:02.3");
    for plugin in list.plugins() {
        for key in ["deviceID", "pciBusID"] {
            assert_eq!(plugin.str(key), Ok(Some("0000:01:02.3")), "{plugin}");
        }
    }
}

#[test]
fn hostile_networks_are_refused_with_a_short_message() {
    let deep = format!(r#"{{"type":"t","x":{}}}"#, "[".repeat(200_000));
    let long = format!(r#"{{"type":"{}"}}"#, "../".repeat(300_000));
    let wide = format!(
        r#"{{"plugins":[{}{{}}]}}"#,
        "{\"type\":\"t\"},".repeat(10_000)
    );
    let huge = "x".repeat(5 << 20);
    for config in [
        deep.as_str(),
        &long,
        &wide,
        &huge,
        r#"{"type":"a\u0000b"}"#,
        r#"{"type":".."}"#,
        r#"{"name":"..","type":"t"}"#,
    ] {
        let error = Found::of_nad(&nad("a", config), nowhere).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
