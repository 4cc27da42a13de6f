use super::*;
use crate::cni::Kind;

const GOOD: [(&str, &str); 6] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/run/netns/a"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_ARGS", "IgnoreUnknown=1"),
    ("CNI_PATH", "/opt/cni/bin::/usr/lib/cni"),
];
const CONF: &str = r#"{"cniVersion":"1.1.0","name":"n","type":"bridge"}"#;

/// Parses a valid ADD with these variables changed.
fn call(changes: &[(&str, &str)], stdin: &str) -> Result<Request, Error> {
    let env = |key: &str| {
        let is_key = |pair: &&(&str, &str)| pair.0 == key;
        let changed = changes.iter().rfind(is_key);
        let (_, value) = changed.or_else(|| GOOD.iter().find(is_key))?;
        Some((*value).to_owned())
    };
    Request::parse(&env, stdin.as_bytes(), &Version::ALL)
}

fn failure(changes: &[(&str, &str)], stdin: &str) -> (u32, String) {
    let error = call(changes, stdin).unwrap_err();
    (error.kind.code(), error.msg)
}

#[test]
fn valid_call_is_parsed_completely() {
    let request = call(&[], CONF).unwrap();
    assert_eq!(request.command, Command::Add);
    let attachment = request.attachment.unwrap();
    assert_eq!(
        (attachment.container_id.as_str(), attachment.ifname.as_str()),
        ("c1", "eth0")
    );
    assert_eq!(attachment.netns, Some(PathBuf::from("/run/netns/a")));
    assert_eq!(attachment.args, "IgnoreUnknown=1");
    assert_eq!(
        request.path,
        [PathBuf::from("/opt/cni/bin"), PathBuf::from("/usr/lib/cni")]
    );
    assert!(!request.netns_override);
    assert_eq!(request.conf.plugin, "bridge");
}

#[test]
fn each_verb_needs_its_variables_and_all_missing_ones_are_named() {
    let unset = [
        "CNI_CONTAINERID",
        "CNI_NETNS",
        "CNI_IFNAME",
        "CNI_ARGS",
        "CNI_PATH",
    ]
    .map(|key| (key, ""));
    let with_command = |command| {
        let mut changes = unset.to_vec();
        changes.push(("CNI_COMMAND", command));
        changes
    };
    for (command, missing) in [
        ("ADD", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
        ("CHECK", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
        ("DEL", "CNI_CONTAINERID,CNI_IFNAME,CNI_PATH"),
        ("GC", "CNI_PATH"),
        ("STATUS", "CNI_PATH"),
    ] {
        let expected = (4, format!("required env variables [{missing}] missing"));
        assert_eq!(failure(&with_command(command), "not read"), expected);
    }
    let version = call(&with_command("VERSION"), "not read").unwrap();
    assert_eq!(version.command, Command::Version);
}

#[test]
fn malformed_variable_is_reported_before_missing_ones() {
    for (key, value, message, details) in [
        (
            "CNI_CONTAINERID",
            "../etc",
            "invalid characters in containerID",
            "../etc",
        ),
        (
            "CNI_CONTAINERID",
            "-a",
            "invalid characters in containerID",
            "-a",
        ),
        (
            "CNI_CONTAINERID",
            "a\n",
            "invalid characters in containerID",
            "a\n",
        ),
        (
            "CNI_CONTAINERID",
            "a\0",
            "invalid characters in containerID",
            "a\0",
        ),
        ("CNI_NETNS", "/a\0", "CNI_NETNS contains a NUL byte", ""),
        (
            "CNI_IFNAME",
            "0123456789abcdef",
            "interface name is too long",
            "interface name should be less than 16 characters",
        ),
        ("CNI_IFNAME", "..", "interface name is . or ..", ""),
        (
            "CNI_IFNAME",
            "a/b",
            "interface name contains / or : or whitespace characters",
            "",
        ),
        (
            "CNI_IFNAME",
            "a\u{a0}b",
            "interface name contains / or : or whitespace characters",
            "",
        ),
    ] {
        let error = call(&[("CNI_PATH", ""), (key, value)], "").unwrap_err();
        assert_eq!(error, Error::env(message).with_details(details));
    }
}

#[test]
fn variables_are_checked_only_where_they_are_needed() {
    for command in ["GC", "STATUS"] {
        let request = call(
            &[
                ("CNI_COMMAND", command),
                ("CNI_IFNAME", "a/b"),
                ("CNI_CONTAINERID", "/"),
            ],
            CONF,
        )
        .unwrap();
        assert!(request.attachment.is_none());
    }
    let del = call(&[("CNI_COMMAND", "DEL"), ("CNI_NETNS", "")], CONF).unwrap();
    assert_eq!(del.attachment.unwrap().netns, None);
}

#[test]
fn unknown_verb_is_reported_after_errors_of_the_configuration() {
    for command in ["add", "UPDATE"] {
        let unknown = [
            ("CNI_COMMAND", command),
            ("CNI_PATH", ""),
            ("CNI_IFNAME", ""),
        ];
        assert_eq!(failure(&unknown, "").0, 6);
        assert_eq!(failure(&unknown, "{}").0, 7);
        let expected = (4, format!("unknown CNI_COMMAND: {command}"));
        assert_eq!(
            failure(&unknown, r#"{"name":"n","cniVersion":"9"}"#),
            expected
        );
    }
}

#[test]
fn call_without_a_verb_is_not_a_cni_call() {
    assert!(Environment::parse(&|_| None).unwrap().is_none());
    assert_eq!(
        failure(&[("CNI_COMMAND", "")], CONF),
        (4, "required env variables [CNI_COMMAND] missing".to_owned())
    );
}

#[test]
fn verbs_require_a_version_that_has_them() {
    for version in Version::ALL {
        for command in [
            Command::Add,
            Command::Del,
            Command::Check,
            Command::Gc,
            Command::Status,
        ] {
            let stdin = format!(r#"{{"name":"n","cniVersion":"{version}"}}"#);
            let result = call(&[("CNI_COMMAND", command.as_str())], &stdin);
            if command.gate().is_none_or(|verb| version >= verb.since()) {
                assert_eq!(result.unwrap().conf.version, version);
            } else {
                let message = format!("config version does not allow {}", command.as_str());
                assert_eq!(result.unwrap_err(), Error::version(message));
            }
        }
    }
}

#[test]
fn version_is_compared_by_number_for_the_verb_and_by_text_for_support() {
    let check = |version: &str| {
        failure(
            &[("CNI_COMMAND", "CHECK")],
            &format!(r#"{{"name":"n","cniVersion":"{version}"}}"#),
        )
    };
    assert_eq!(check("1.0").1, "incompatible CNI versions");
    assert_eq!(check("0.3").1, "config version does not allow CHECK");
    assert_eq!(check("").1, "config version does not allow CHECK");
    assert_eq!(check("x").0, 6);
    assert_eq!(failure(&[], r#"{"name":"n","cniVersion":"x"}"#).0, 1);
    assert_eq!(failure(&[], r#"{"name":"n","cniVersion":1}"#).0, 6);
}

#[test]
fn a_plugin_refuses_the_versions_it_does_not_support() {
    let env = |key: &str| {
        GOOD.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| (*value).to_owned())
    };
    let stdin = br#"{"name":"n","cniVersion":"0.3.1"}"#;
    let error = Request::parse(&env, stdin, &[Version::V0_4_0, Version::V1_0_0]).unwrap_err();
    assert_eq!(error.kind, Kind::IncompatibleVersion);
    assert_eq!(
        error.details,
        r#"config is "0.3.1", plugin supports ["0.4.0" "1.0.0"]"#
    );
}

#[test]
fn the_netns_check_is_overridden_by_1_or_true() {
    for (value, expected) in [
        ("1", true),
        ("TRUE", true),
        ("0", false),
        ("yes", false),
        ("", false),
    ] {
        assert_eq!(
            call(&[("CNI_NETNS_OVERRIDE", value)], CONF)
                .unwrap()
                .netns_override,
            expected
        );
    }
}
