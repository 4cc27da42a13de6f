//! Credentials of braid's client of the API server, and the client's errors if a permission is
//! missing.

use crate::{Fault, World, json, token, write_kubeconfig};
use braid_client::api::{Access, Api};
use braid_core::k8s::source::{Source, SourceError};
use braid_node::source::client::protocol::Limits;
use braid_tests::Value;
use std::fs;
use std::process::{Command, Stdio};

fn base64(text: &str) -> String {
    token::encode(text.as_bytes(), "base64")
}

fn why<T: std::fmt::Debug>(result: Result<T, SourceError>) -> String {
    match result {
        Err(SourceError::Lasting { why }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_credentials_is_accepted() {
    let Some(world) = World::new("credentials") else {
        return;
    };
    world.create_pod("web", &json!({}));
    let server = world.server;
    fs::write("/run/token", format!("{}\n", server.token)).expect("a token's file");
    let data: Value = json!({"server": world.proxy.url(), "certificate-authority-data": base64(&server.authority)});
    let [certificate, key] = &server.admin;
    for user in [
        json!({"token": server.token}),
        json!({"tokenFile": "/run/token"}),
        // A relative path in a kubeconfig is relative to the kubeconfig's folder, as for kubectl.
        json!({"tokenFile": "token", "token": "stale"}),
        json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)}),
    ] {
        let mut api = Api::new(
            Access::new(write_kubeconfig(&data, &user)),
            Limits::default(),
        );
        api.pod(&world.name("web"), None, &[])
            .unwrap_or_else(|err| panic!("{user}: {err}"));
    }
}

#[test]
fn a_renewed_token_is_read_by_the_next_process() {
    let Some(world) = World::new("renewed") else {
        return;
    };
    world.create_pod("web", &json!({}));
    let user = json!({"tokenFile": "/run/token"});
    fs::write("/run/token", "stale").expect("a token's file");
    why(world
        .api(&user, Limits::default())
        .pod(&world.name("web"), None, &[]));
    fs::write("/run/token", &world.server.token).expect("a token's file");
    world
        .api(&user, Limits::default())
        .pod(&world.name("web"), None, &[])
        .expect("a pod");
}

#[test]
fn an_expired_token_is_a_permanent_error_without_the_token() {
    let Some(world) = World::new("expired") else {
        return;
    };
    let expired = token::expired(world.server);
    let text = why(world
        .api(&json!({"token": expired}), Limits::default())
        .pod(&world.name("web"), None, &[]));
    assert_eq!(text, "get pod expired/web: 401: Unauthorized");
    assert_eq!(world.proxy.connections(), 1, "tried again in vain");
}

#[test]
fn a_missing_right_is_reported_with_the_servers_message() {
    let Some(world) = World::new("no-right") else {
        return;
    };
    world.server.kubectl(
        &["create", "serviceaccount", "nobody", "-n", "kube-system"],
        None,
    );
    let user = json!({"token": world.server.create_token("nobody")});
    let text = why(world
        .api(&user, Limits::default())
        .nads(&[world.name("lan")]));
    let expected = "get NetworkAttachmentDefinition no-right/lan: 403: network-attachment-definitions.k8s.cni.cncf.io \
                    \"lan\" is forbidden: User \"system:serviceaccount:kube-system:nobody\" cannot get resource";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_server_of_another_authority_is_a_permanent_error() {
    let Some(world) = World::new("authority") else {
        return;
    };
    let make = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=other",
    ];
    let mut openssl = Command::new("openssl");
    openssl
        .args(make)
        .args(["-keyout", "/run/other.key", "-out", "/run/other.crt"])
        .stderr(Stdio::null());
    assert!(openssl.status().expect("openssl starts").success());
    let cluster = json!({"server": world.proxy.url(), "certificate-authority": "/run/other.crt"});
    let access = Access::new(write_kubeconfig(&cluster, &json!({"token": "some-token"})));
    let text = why(Api::new(access, Limits::default()).pod(&world.name("web"), None, &[]));
    assert!(text.contains("invalid peer certificate"), "{text}");
    assert_eq!(world.proxy.connections(), 2, "once by each version of HTTP");
}

#[test]
fn an_echoed_token_does_not_appear_in_an_error() {
    let echo = |status| Fault::Answer(status, "", "you said {authorization}");
    let Some(world) = World::with("echo", vec![echo(400), echo(403), echo(404)], echo(200)) else {
        return;
    };
    let mut source = world.source();
    let mut tell = || {
        source
            .pod(&world.name("web"), None, &[])
            .map(drop)
            .expect_err("a failure")
            .to_string()
    };
    let told: Vec<String> = (0..4).map(|_| tell()).collect();
    assert!(
        told[0].ends_with("get pod echo/web: 400, tried 2 times: you said Bearer <redacted>"),
        "{told:?}"
    );
    assert!(
        told[3].ends_with("can't parse the response: line 1 column 1"),
        "{told:?}"
    );
    assert!(!told.concat().contains(&world.server.token), "{told:?}");
}
