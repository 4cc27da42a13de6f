use super::*;
use braid_core::k8s::source::Severity;

fn name(namespace: &str, name: &str) -> ObjectName {
    ObjectName {
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn answer(status: u16, is_object: bool, is_uid: bool) -> Failure {
    Failure::Answer {
        status,
        message: "so".into(),
        is_object,
        is_uid,
        retry_after: None,
    }
}

fn line(ask: &ApiRequest) -> String {
    format!(
        "{} {} {}",
        ask.request.method(),
        ask.request.uri(),
        String::from_utf8_lossy(ask.request.body())
    )
}

#[test]
fn request_names_its_object_and_makes_one_change() {
    let web = name("shop", "web-0");
    assert_eq!(
        line(&ApiRequest::get(ObjectKind::Pod, &web).unwrap()),
        "GET /api/v1/namespaces/shop/pods/web-0 "
    );
    assert_eq!(
        line(&ApiRequest::get(ObjectKind::Nad, &web).unwrap()),
        "GET /apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/web-0 "
    );
    let [network, interface] = ["n", "net1"].map(String::from);
    let claim = IpamClaim {
        name: web,
        uid: "u2".into(),
        network,
        interface,
        version: "7".into(),
        ips: vec!["10.0.0.9/24".into()],
        owner_pod: Some("web-0".into()),
        conditions: vec![],
    };
    let fill = ApiRequest::fill(&claim).unwrap();
    assert!(fill.is_of_version);
    assert_eq!(
        line(&fill),
        "PATCH /apis/k8s.cni.cncf.io/v1alpha1/namespaces/shop/ipamclaims/web-0/status \
         {\"metadata\":{\"resourceVersion\":\"7\"},\"status\":{\"conditions\":[],\"ips\":[\"10.0.0.9/24\"],\
         \"ownerPod\":{\"name\":\"web-0\"}}}"
    );
    assert_eq!(
        line(&ApiRequest::slices("n-1.x", "nic.example", "abc").unwrap()),
        "GET /apis/resource.k8s.io/v1/resourceslices?limit=500\
         &fieldSelector=spec.nodeName%3Dn-1.x%2Cspec.driver%3Dnic.example&continue=abc "
    );
    assert!(ApiRequest::slices("n", "a,spec.nodeName=b", "").is_err());
    assert_eq!(
        line(&ApiRequest::list(ObjectKind::Claim, "").unwrap()),
        "GET /apis/k8s.cni.cncf.io/v1alpha1/ipamclaims?limit=500 "
    );
    let next = ApiRequest::list(ObjectKind::Claim, "abc").unwrap();
    assert_eq!(
        line(&next),
        "GET /apis/k8s.cni.cncf.io/v1alpha1/ipamclaims?limit=500&continue=abc "
    );
    let pools = ApiRequest::list_whole(ExchangeKind::Pool, "kube-system", "abc").unwrap();
    assert_eq!(
        line(&pools),
        "GET /apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools?limit=500\
         &continue=abc "
    );
    for (kind, expected) in [
        (ExchangeKind::Pod, "GET /api/v1/pods?limit=500 "),
        (
            ExchangeKind::DaemonSet,
            "GET /apis/apps/v1/daemonsets?limit=500 ",
        ),
        (
            ExchangeKind::CronJob,
            "GET /apis/batch/v1/cronjobs?limit=500 ",
        ),
    ] {
        let all = ApiRequest::list_whole(kind, "kube-system", "").unwrap();
        assert_eq!(line(&all), expected);
    }
    let event = Event {
        severity: Severity::Warning,
        reason: "R".into(),
        message: "m".into(),
        trace: None,
    };
    let event = ApiRequest::tell(&name("shop", "web-0"), "u1", &event).unwrap();
    assert!(
        line(&event).starts_with("POST /apis/events.k8s.io/v1/namespaces/shop/events {")
            && !event.is_repeated
    );
}

#[test]
fn an_annotation_is_set_over_the_value_that_was_read() {
    let web = name("shop", "web-0");
    let [all, own] = ["", "/a~1b"].map(|key| format!("/metadata/annotations{key}"));
    for (present, path, before, after) in [
        (&[][..], &all, "null", r#"{"a/b":"\"v\""}"#),
        (&[("c", "d")], &own, "null", r#""\"v\"""#),
        (&[("c", "d"), ("a/b", "w")], &own, r#""w""#, r#""\"v\"""#),
    ] {
        let present = present
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let uid = r#"{"op":"test","path":"/metadata/uid","value":"u1"}"#;
        let ops = [("test", before), ("add", after)]
            .map(|(op, value)| format!(r#"{{"op":"{op}","path":"{path}","value":{value}}}"#));
        assert_eq!(
            line(&ApiRequest::annotate(&web, "u1", ("a/b", "\"v\""), &present).unwrap()),
            format!(
                "PATCH /api/v1/namespaces/shop/pods/web-0/status [{uid},{},{}]",
                ops[0], ops[1]
            )
        );
    }
}

#[test]
fn name_that_could_address_another_object_is_refused() {
    let long = "a".repeat(NAME_MAX + 1);
    for wrong in [
        "",
        ".",
        "..",
        "../secrets/x",
        "a/b",
        "a?b",
        "a%2fb",
        "A",
        "a\0",
        "-a",
        "ä",
        &long,
    ] {
        for name in [name("default", wrong), name(wrong, "web")] {
            let refused = ApiRequest::get(ObjectKind::Nad, &name).map(|ask| line(&ask));
            assert!(
                matches!(refused, Err(SourceError::Lasting { .. })),
                "{name:?}: {refused:?}"
            );
        }
    }
    assert!(ApiRequest::get(ObjectKind::Pod, &name("kube-system", "a.b-0")).is_ok());
}

#[test]
fn error_has_verb_object_status_and_the_servers_message() {
    let get = ApiRequest::get(ObjectKind::Pod, &name("a", "b")).unwrap();
    let lasting = |why: &str| SourceError::Lasting { why: why.into() };
    let passing = |why: &str| SourceError::Passing { why: why.into() };
    assert_eq!(
        get.failed(answer(403, true, false), 1),
        lasting("get pod a/b: 403: so")
    );
    assert_eq!(
        get.failed(answer(401, false, false), 1),
        lasting("get pod a/b: 401: so")
    );
    for status in [409, 429, 500, 503, 504] {
        assert_eq!(
            get.failed(answer(status, true, false), 3),
            passing(&format!("get pod a/b: {status}, tried 3 times: so"))
        );
    }
    let silence = || "1.2.3.4:6443: connection refused".to_owned();
    assert_eq!(
        get.failed(Failure::Silence { why: silence() }, 2),
        passing("get pod a/b: 1.2.3.4:6443: connection refused, tried 2 times")
    );
    assert_eq!(
        get.failed(Failure::Stranger { why: silence() }, 1),
        lasting("get pod a/b: 1.2.3.4:6443: connection refused")
    );
}

#[test]
fn not_found_error_names_the_object_its_kind_or_its_uid() {
    let what = |ask: &ApiRequest, failure| match ask.failed(failure, 1) {
        SourceError::NotFound { what } => what,
        other @ (SourceError::Passing { .. } | SourceError::Lasting { .. }) => panic!("{other:?}"),
    };
    let nad = ApiRequest::get(ObjectKind::Nad, &name("a", "b")).unwrap();
    assert_eq!(
        what(&nad, answer(404, true, false)),
        "NetworkAttachmentDefinition a/b"
    );
    assert_eq!(
        what(&nad, answer(404, false, false)),
        "NetworkAttachmentDefinition a/b (or its kind: are the CRDs applied?)"
    );
    let annotate =
        ApiRequest::annotate(&name("a", "b"), "u1", ("k", "v"), &BTreeMap::new()).unwrap();
    assert_eq!(
        what(&annotate, answer(422, true, true)),
        "pod a/b with uid u1"
    );
}

#[test]
fn unreadable_response_is_not_quoted_in_the_error() {
    let err = braid_core::k8s::object::nad(
        &name("a", "b"),
        br#"{"metadata": {}, "spec": {"config": {"psk": "canary"}}}"#,
    )
    .unwrap_err();
    let ask = ApiRequest::get(ObjectKind::Nad, &name("a", "b")).unwrap();
    let why = "get NetworkAttachmentDefinition a/b: can't parse the response: line 1 column 36";
    assert_eq!(
        ask.unreadable(&err),
        SourceError::Lasting { why: why.into() }
    );
}
