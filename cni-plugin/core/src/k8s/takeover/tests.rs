use super::*;

const OWN: &str = "/c/00-braid.conflist";
const FLANNEL: &str = r#"{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},
    {"type":"portmap","capabilities":{"portMappings":true,"x":false}}]}"#;

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").unwrap()
}

fn conf(path: &str, text: &str) -> Conf {
    Conf {
        path: path.to_owned(),
        json: json(text),
    }
}

/// Returns a node with these files. The runtime would use the first one.
fn node(files: &[(&str, &str)]) -> Known {
    let mut files = files.iter().map(|(path, text)| conf(path, text));
    Known {
        own: OWN.to_owned(),
        kubeconfig: "/k".to_owned(),
        first: files.next().unwrap(),
        others: files.collect(),
        former: None,
        daemon: None,
        paths: BTreeMap::new(),
        named: BTreeMap::new(),
    }
}

/// Returns the plugins of the list built from `known`, and the list's other keys.
fn made(known: &Known) -> (Vec<String>, String) {
    let mut list = list(known).unwrap();
    let plugins = plugins_of(&list)
        .iter()
        .map(|plugin| plugin.clone().sorted().to_string())
        .collect();
    list.remove("plugins");
    (plugins, list.sorted().to_string())
}

fn plugin(known: &Known) -> String {
    let (plugins, _) = made(known);
    assert_eq!(plugins.len(), 1, "{plugins:?}");
    plugins.concat()
}

/// Returns the JSON text with its keys sorted.
fn sorted(text: &str) -> String {
    json(text).sorted().to_string()
}

const NAMED: &str = r#"{"capabilities":{"portMappings":true},"clusterNetwork":"/c/10.conflist","type":"braid","kubeconfig":"/k"}"#;

#[test]
fn a_network_is_named_and_its_folder_is_left_to_it() {
    let known = node(&[("/c/10.conflist", FLANNEL)]);
    assert_eq!(plugin(&known), sorted(NAMED));
    assert_eq!(
        made(&known).1,
        sorted(r#"{"cniVersion":"0.3.1","name":"cbr0","loadOnlyInlinedPlugins":true}"#)
    );
    let none = node(&[("/c/9.conf", r#"{"type":"ptp"}"#)]);
    let expected =
        r#"{"capabilities":{},"clusterNetwork":"/c/9.conf","type":"braid","kubeconfig":"/k"}"#;
    assert_eq!(plugin(&none), sorted(expected));
    let expected = r#"{"cniVersion":"1.0.0","name":"braid","loadOnlyInlinedPlugins":true}"#;
    assert_eq!(made(&none).1, sorted(expected));
}

#[test]
fn keys_of_multus_and_of_braid_are_taken_over() {
    let old = r#"{"cniVersion":"1.0.0","name":"n","type":"multus","kubeconfig":"/old","delegates":[{"type":"ptp"}]}"#;
    let expected = r#"{"type":"braid","kubeconfig":"/k","delegates":[{"type":"ptp"}]}"#;
    assert_eq!(plugin(&node(&[("/c/0", old)])), sorted(expected));
    let braid =
        r#"{"name":"n","disableGC":true,"plugins":[{"type":"braid","plugins":[{"type":"ptp"}]}]}"#;
    let (plugins, list) = made(&node(&[("/c/0", braid)]));
    assert_eq!(
        plugins,
        [sorted(
            r#"{"type":"braid","plugins":[{"type":"ptp"}],"kubeconfig":"/k"}"#
        )]
    );
    assert_eq!(
        list,
        sorted(r#"{"cniVersion":"1.0.0","name":"n","disableGC":true}"#)
    );
}

#[test]
fn paths_of_multus_daemon_become_the_nodes_and_its_keys_are_joined() {
    let shim = r#"{"name":"multus-cni-network","type":"multus-shim","cniVersion":"0.3.1","clusterNetwork":"/host/c/10.conflist",
        "namespaceIsolation":false}"#;
    let mut known = node(&[("/c/00-multus.conf", shim), ("/c/10.conflist", FLANNEL)]);
    let daemon = r#"{"chrootDir":"/hostroot","namespaceIsolation":true,"globalNamespaces":"a","binDir":"/host/b"}"#;
    known.daemon = Some(json(daemon));
    assert_eq!(
        paths(&known.first.json, known.daemon.as_ref()),
        ["/host/c/10.conflist", "/host/b"]
    );
    assert_eq!(names(&known.first.json), ["/host/c/10.conflist"]);
    known.paths = [("/host/c/10.conflist", "/c/10.conflist"), ("/host/b", "/b")]
        .map(|(theirs, ours)| (theirs.to_owned(), ours.to_owned()))
        .into();
    known
        .named
        .insert("/host/c/10.conflist".to_owned(), json(FLANNEL));
    let expected = r#"{"type":"braid","clusterNetwork":"/c/10.conflist","namespaceIsolation":false,"globalNamespaces":"a","binDir":"/b","kubeconfig":"/k"}"#;
    assert_eq!(plugin(&known), sorted(expected));
}

/// Returns braid's list for a node with [`FLANNEL`].
fn braids() -> String {
    list(&node(&[("/c/10.conflist", FLANNEL)]))
        .unwrap()
        .to_string()
}

#[test]
fn a_default_network_that_is_braid_again_is_replaced_by_the_next_network() {
    let keys = r#""name":"m","cniVersion":"0.3.1","systemNamespaces":["s"]"#;
    let (own, shim) = (braids(), r#"{"type":"multus-shim"}"#);
    let expected = r#"{"systemNamespaces":["s"],"type":"braid","clusterNetwork":"/c/10.conflist","capabilities":{"portMappings":true},"kubeconfig":"/k"}"#;
    let back = |keys: &str| {
        node(&[
            ("/c/00-multus.conf", keys),
            ("/c/05.conf", shim),
            ("/c/10.conflist", FLANNEL),
        ])
    };
    let thin = back(&format!(
        r#"{{{keys},"type":"multus","delegates":[{own}]}}"#
    ));
    assert_eq!(plugin(&thin), sorted(expected));
    for (text, content) in [
        (OWN, None),
        ("/host/c/00-braid.conflist", None),
        ("cbr0", Some(own.as_str())),
        ("/c/05.conf", Some(shim)),
    ] {
        let mut known = back(&format!(
            r#"{{{keys},"type":"multus-shim","clusterNetwork":"{text}"}}"#
        ));
        known
            .paths
            .insert("/host/c/00-braid.conflist".to_owned(), OWN.to_owned());
        known
            .named
            .extend(content.map(|content| (text.to_owned(), json(content))));
        assert_eq!(plugin(&known), sorted(expected), "{text}");
    }
}

#[test]
fn further_delegates_stay_if_the_first_is_replaced() {
    let multus = format!(
        r#"{{"name":"m","type":"multus","delegates":[{},{{"type":"macvlan"}}]}}"#,
        braids()
    );
    let ptp = r#"{"name":"n","type":"ptp"}"#;
    let known = node(&[("/c/00-multus.conf", &multus), ("/c/10.conf", ptp)]);
    let expected = r#"{"type":"braid","delegates":[{"name":"n","type":"ptp"},{"type":"macvlan"}],"kubeconfig":"/k"}"#;
    assert_eq!(plugin(&known), sorted(expected));
}

#[test]
fn without_another_network_the_inline_one_is_used_or_the_node_is_refused() {
    let multus_conf = |entry: &str| {
        format!(r#"{{"name":"m","type":"multus","delegates":[{{"plugins":[{entry}]}}]}}"#)
    };
    let inline = multus_conf(r#"{"type":"braid","kubeconfig":"/k","plugins":[{"type":"ptp"}]}"#);
    let expected = r#"{"type":"braid","plugins":[{"type":"ptp"}],"kubeconfig":"/k"}"#;
    assert_eq!(
        plugin(&node(&[("/c/00-multus.conf", &inline)])),
        sorted(expected)
    );
    for entry in [
        r#"{"type":"braid","kubeconfig":"/k","clusterNetwork":"/c/10.conflist"}"#,
        r#"{"type":"multus","delegates":[{"type":"multus"}]}"#,
    ] {
        let error = list(&node(&[("/c/00-multus.conf", &multus_conf(entry))]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/c/00-multus.conf: its default network is braid itself"),
            "{error}"
        );
    }
    let two = r#"{"name":"m","plugins":[{"type":"multus","delegates":[{"type":"ptp"}]},{"type":"multus-shim"}]}"#;
    assert!(
        list(&node(&[("/c/0", two)]))
            .unwrap_err()
            .to_string()
            .contains("two plugins")
    );
}

#[test]
fn plugins_chained_to_multus_stay_chained() {
    let list = r#"{"cniVersion":"0.3.1","name":"k8s-pod-network","plugins":[{"type":"first"},{"type":"multus","name":"m",
        "delegates":[{"type":"ptp"}]},{"type":"istio-cni","name":"istio-cni"},{"type":"linkerd-cni"}]}"#;
    let (plugins, keys) = made(&node(&[("/c/00-multus.conflist", list)]));
    let braid = r#"{"type":"braid","delegates":[{"type":"ptp"}],"kubeconfig":"/k"}"#;
    let istio = r#"{"type":"istio-cni","name":"istio-cni"}"#;
    assert_eq!(
        plugins,
        [
            r#"{"type":"first"}"#,
            braid,
            istio,
            r#"{"type":"linkerd-cni"}"#
        ]
        .map(sorted)
    );
    assert_eq!(
        keys,
        sorted(r#"{"cniVersion":"0.3.1","name":"k8s-pod-network"}"#)
    );
}

#[test]
fn entries_and_keys_of_others_keep_their_place() {
    let mut known = node(&[("/c/10.conflist", FLANNEL)]);
    let former = r#"{"name":"old","disableCheck":true,"plugins":[{"type":"first"},{"type":"braid","kubeconfig":"/old"},
        {"type":"linkerd-cni","log":"x"},{"type":"istio-cni"}]}"#;
    known.former = Some(json(former));
    let (plugins, keys) = made(&known);
    let behind = [
        r#"{"type":"linkerd-cni","log":"x"}"#,
        r#"{"type":"istio-cni"}"#,
    ];
    assert_eq!(
        plugins,
        [r#"{"type":"first"}"#, NAMED, behind[0], behind[1]].map(sorted)
    );
    let expected =
        r#"{"cniVersion":"0.3.1","name":"cbr0","disableCheck":true,"loadOnlyInlinedPlugins":true}"#;
    assert_eq!(keys, sorted(expected));
    let again = list(&Known {
        former: Some(list(&known).unwrap()),
        ..known.clone()
    });
    assert_eq!(again, list(&known), "a second time nothing changes");
    let chained = r#"{"name":"n","plugins":[{"type":"multus","delegates":[{"type":"ptp"}]},{"type":"linkerd-cni"},{"type":"new"}]}"#;
    let (plugins, _) = made(&Known {
        first: conf("/c/0", chained),
        ..known
    });
    let behind = [
        r#"{"type":"linkerd-cni"}"#,
        r#"{"type":"istio-cni"}"#,
        r#"{"type":"new"}"#,
    ];
    assert_eq!(plugins[2..], behind, "each once");
    let twice = r#"{"name":"n","plugins":[{"type":"multus","delegates":[]},{"type":"tuning","mtu":1},{"type":"tuning"}]}"#;
    let once = made(&node(&[("/c/0", twice)]));
    assert_eq!(
        once.0[1..],
        [r#"{"mtu":1,"type":"tuning"}"#, r#"{"type":"tuning"}"#],
        "each of one type"
    );
    let former = Some(list(&node(&[("/c/0", twice)])).unwrap());
    assert_eq!(
        made(&Known {
            former,
            ..node(&[("/c/0", twice)])
        }),
        once
    );
}

#[test]
fn settings_in_the_entry_stay_unless_multus_file_has_them() {
    let own = r#"{"type":"braid","kubeconfig":"/old","clusterNetwork":"/c/old","capabilities":{"mac":true},
        "requireCapabilities":true,"namespaceIsolation":true}"#;
    let mut known = node(&[("/c/10.conflist", FLANNEL)]);
    known.former = Some(json(&format!(r#"{{"name":"old","plugins":[{own}]}}"#)));
    let mut expected = json(NAMED);
    expected.set("requireCapabilities", true);
    expected.set("namespaceIsolation", true);
    assert_eq!(plugin(&known), expected.sorted().to_string());
    let multus =
        r#"{"name":"m","type":"multus","delegates":[{"type":"ptp"}],"namespaceIsolation":false}"#;
    let expected = r#"{"type":"braid","kubeconfig":"/k","delegates":[{"type":"ptp"}],"namespaceIsolation":false}"#;
    assert_eq!(
        plugin(&Known {
            first: conf("/c/00", multus),
            ..known
        }),
        sorted(expected)
    );
}

#[test]
fn the_runtime_appends_a_folder_unless_braid_does_or_it_was_forbidden() {
    let only_inlined = |first: &str| {
        let mut known = node(&[("/c/00", first), ("/c/10.conflist", FLANNEL)]);
        known.named.insert("/elsewhere".to_owned(), json(FLANNEL));
        list(&known).unwrap().get(ONLY_INLINED).is_some()
    };
    let multus_list = |name: &str, keys: &str, list: &str| {
        format!(r#"{{"name":"{name}"{list},"plugins":[{{"type":"multus",{keys}}}]}}"#)
    };
    let inline = r#""delegates":[{"type":"ptp"}]"#;
    assert!(!only_inlined(&multus_list("n", inline, "")));
    assert!(only_inlined(&multus_list(
        "n",
        inline,
        r#","loadOnlyInlinedPlugins":true"#
    )));
    let by_file = |file: &str| format!(r#""clusterNetwork":"{file}""#);
    assert!(
        only_inlined(&multus_list("cbr0", &by_file("/c/10.conflist"), "")),
        "that network has the folder's plugins"
    );
    assert!(
        !only_inlined(&multus_list("n", &by_file("/c/10.conflist"), "")),
        "it has another folder"
    );
    assert!(
        !only_inlined(&multus_list("cbr0", &by_file("/elsewhere"), "")),
        "its folder is elsewhere"
    );
    assert!(
        only_inlined(&format!(r#"{{"name":"n","type":"multus",{inline}}}"#)),
        "a single plugin has no folder"
    );
}
