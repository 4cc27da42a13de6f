use super::*;
use crate::cni::Kind;
use std::collections::BTreeMap;

fn conf(keys: &str) -> NetConf {
    NetConf::parse(
        format!(r#"{{"name":"pods","cniVersion":"1.1.0","type":"braid"{keys}}}"#).as_bytes(),
    )
    .unwrap()
}

fn settings(keys: &str) -> Settings {
    Settings::of(&conf(keys)).unwrap().unwrap()
}

fn object(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn a_configuration_without_kubernetes_has_no_settings() {
    for keys in [
        "",
        r#","plugins":[{"type":"bridge"}]"#,
        r#","network":{"type":"ptp"},"kubeconfig":null"#,
    ] {
        assert_eq!(Settings::of(&conf(keys)), Ok(None), "{keys}");
    }
}

#[test]
fn multus_configuration_is_accepted_unchanged() {
    let thin = r#","kubeconfig":"/etc/k","confDir":"/c","cniDir":"/x","binDir":"/b","logFile":"/l","logLevel":"debug",
        "logToStderr":true,"logOptions":{"maxAge":5},"readinessindicatorfile":"/r","namespaceIsolation":true,
        "globalNamespaces":"a, b","systemNamespaces":["s"],"multusNamespace":"m","clusterNetwork":"c",
        "defaultNetworks":["d1","d2"],"auxiliaryCNIChainName":"aux","retryDeleteOnError":true,"capabilities":{"mac":true}"#;
    let named = |name: &str| Origin::Named(name.to_owned());
    let expected = Settings {
        routes_file: None,
        kubelet_root_dir: "/var/lib/kubelet".into(),
        kubeconfig: Some("/etc/k".into()),
        invalid_annotation: InvalidAnnotation::Fail,
        default_network: named("c"),
        more_networks: Vec::new(),
        default_networks: vec![named("d1"), named("d2")],
        system_namespaces: vec!["s".to_owned()],
        multus_namespace: "m".to_owned(),
        conf_dir: "/c".into(),
        cni_dir: "/x".into(),
        bin_dir: Some("/b".into()),
        readiness_file: Some("/r".into()),
        auxiliary_chain: Some("aux".to_owned()),
        status: Form {
            with_prefix: false,
            with_gateway: true,
        },
        require_capabilities: false,
        isolation: Some(vec!["a".to_owned(), "b".to_owned()]),
    };
    assert_eq!(settings(thin), expected);
    let least =
        settings(r#","delegates":[{"type":"flannel"},{"type":"macvlan"}],"systemNamespaces":[]"#);
    assert_eq!(least.system_namespaces, ["kube-system"]);
    assert_eq!(
        (least.multus_namespace.as_str(), least.conf_dir.to_str()),
        (SYSTEM, Some(CONF_DIR))
    );
    assert_eq!(
        (least.kubeconfig, least.bin_dir, least.isolation),
        (None, None, None)
    );
}

#[test]
fn default_network_has_one_of_four_sources() {
    let text = |keys: &str| match settings(keys).default_network {
        Origin::Inline(json) => json.to_string(),
        Origin::Named(name) => name,
        Origin::Nad(object) => object.to_string(),
    };
    assert_eq!(
        text(r#","clusterNetwork":"c","delegates":[{"type":"x"}]"#),
        "c"
    );
    let delegates = settings(r#","delegates":[{"type":"x","n":1e400},{"type":"y"}]"#);
    let inline = |text: &str| Origin::Inline(Json::parse(text.as_bytes(), "test").unwrap());
    assert_eq!(
        delegates.default_network,
        inline(r#"{"type":"x","n":1e+400}"#)
    );
    assert_eq!(delegates.more_networks, [inline(r#"{"type":"y"}"#)]);
    let own = r#","kubeconfig":"/k","runtimeConfig":{"mac":"x"},"plugins":[{"type":"bridge"}],"bandwidth":{}"#;
    let left = r#"{"name":"pods","cniVersion":"1.1.0","type":"braid","plugins":[{"type":"bridge"}],"bandwidth":{}}"#;
    assert_eq!(text(own), left);
    for keys in [
        r#","kubeconfig":"/k""#,
        r#","delegates":[]"#,
        r#","delegates":[{"type":"x"}],"plugins":[{"type":"bridge"}]"#,
    ] {
        assert_eq!(
            Settings::of(&conf(keys)).unwrap_err().kind,
            Kind::InvalidConfig,
            "{keys}"
        );
    }
}

#[test]
fn invalid_value_is_named_in_the_error() {
    for (keys, message) in [
        (
            r#","invalidAnnotation":"skip""#,
            r#""invalidAnnotation": "skip" is neither"#,
        ),
        (
            r#","multusNamespace":"../x""#,
            r#""multusNamespace": "../x" is not"#,
        ),
        (
            r#","auxiliaryCNIChainName":"a/b""#,
            r#""auxiliaryCNIChainName": "a/b" is not"#,
        ),
        (
            r#","systemNamespaces":"x""#,
            r#""systemNamespaces": expected a list, got "x""#,
        ),
        (
            r#","namespaceIsolation":"yes""#,
            r#""namespaceIsolation": expected true or false"#,
        ),
        (
            r#","namespaceIsolation":true,"globalNamespaces":5"#,
            r#""globalNamespaces": expected a string"#,
        ),
        (
            r#","delegates":["x"]"#,
            r#"delegates[0]: expected an object, got "x""#,
        ),
    ] {
        let error = Settings::of(&conf(&format!(
            r#","kubeconfig":"/k","clusterNetwork":"c"{keys}"#
        )))
        .unwrap_err();
        assert!(error.msg.contains(message), "{keys}: {error}");
    }
    let ignore = settings(r#","clusterNetwork":"c","invalidAnnotation":"ignore""#);
    assert_eq!(ignore.invalid_annotation, InvalidAnnotation::Ignore);
}

// Conformance: R7
#[test]
fn isolation_lets_pods_use_networks_of_their_own_and_of_global_namespaces() {
    let base = r#","clusterNetwork":"c""#;
    for (keys, network, is_allowed) in [
        ("", "other/n", true),
        (
            r#","namespaceIsolation":false,"globalNamespaces":"x""#,
            "other/n",
            true,
        ),
        (r#","namespaceIsolation":true"#, "pods/n", true),
        (r#","namespaceIsolation":true"#, "default/n", true),
        (r#","namespaceIsolation":true"#, "other/n", false),
        (r#","namespaceIsolation":true"#, "kube-system/n", false),
        (
            r#","namespaceIsolation":true,"globalNamespaces":"shared,,x""#,
            "shared/n",
            true,
        ),
        (
            r#","namespaceIsolation":true,"globalNamespaces":"shared""#,
            "default/n",
            false,
        ),
        (
            r#","namespaceIsolation":true,"globalNamespaces":["shared","x"]"#,
            "x/n",
            true,
        ),
    ] {
        let settings = settings(&format!("{base}{keys}"));
        assert_eq!(
            settings.allow("pods", &object(network), false).is_ok(),
            is_allowed,
            "{keys} {network}"
        );
    }
    let error = settings(r#","clusterNetwork":"c","namespaceIsolation":true"#)
        .allow("pods", &object("a/n"), false)
        .unwrap_err();
    let sentence =
        "network a/n: namespaceIsolation allows pods in pods only networks in pods, default";
    assert_eq!(
        (error.msg.as_str(), error.kind),
        (sentence, Kind::InvalidConfig)
    );
}

#[test]
fn pod_is_read_from_cni_args_among_other_keys() {
    let parsed = |args: &str| PodRef::of(args).unwrap();
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u=1;X=a=b;";
    let pod = parsed(args).unwrap();
    assert_eq!(
        (pod.name.to_string().as_str(), pod.infra_container.as_str()),
        ("ns/web-0", "abc")
    );
    assert_eq!(pod.uid.as_deref(), Some("u=1"));
    let least = parsed("K8S_POD_NAME=p;K8S_POD_NAMESPACE=ns;K8S_POD_UID=;;none").unwrap();
    assert_eq!((least.uid, least.infra_container.as_str()), (None, ""));
    for args in [
        "",
        ";",
        "IgnoreUnknown=1",
        "K8S_POD_NAME=p",
        "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=",
    ] {
        assert_eq!(parsed(args), None, "{args}");
    }
    for args in [
        "K8S_POD_NAMESPACE=../x;K8S_POD_NAME=p",
        "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=a/b",
    ] {
        assert_eq!(
            PodRef::of(args).unwrap_err().kind,
            Kind::InvalidEnv,
            "{args}"
        );
    }
}

#[test]
fn a_pod_with_another_uid_is_another_pod() {
    let args = |uid: &str| {
        PodRef::of(&format!(
            "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID={uid}"
        ))
        .unwrap()
        .unwrap()
    };
    // Annotations, as `<source> <mirror> <hash>`; "-" if there is none.
    let pod = |annotations: &str| {
        let mut pod = Pod {
            name: object("ns/p"),
            uid: "u1".to_owned(),
            annotations: BTreeMap::new(),
            resource_claims: Vec::new(),
            node: String::new(),
            is_over: false,
        };
        for (key, value) in ["source", "mirror", "hash"]
            .iter()
            .zip(annotations.split(' '))
        {
            if value != "-" {
                let key = format!("kubernetes.io/config.{key}");
                pod.annotations.insert(key, value.to_owned());
            }
        }
        pod
    };
    for (uid, annotations, is_it) in [
        ("u1", "- - -", true),
        ("", "- - -", true),
        ("u2", "api - -", false),
        ("u2", "file - -", false),
        ("u2", "file u3 u3", false),
        ("u2", "file u2 -", true),
        ("u2", "file - u2", true),
        ("u1", "file u2 u2", true),
    ] {
        assert_eq!(
            args(uid).refuse_other(&pod(annotations)).is_ok(),
            is_it,
            "{uid} {annotations}"
        );
    }
    let sentence = "pod ns/p: the call is for uid u2, but the API has uid u1";
    assert_eq!(
        args("u2").refuse_other(&pod("file - -")).unwrap_err().msg,
        sentence
    );
}
