//! One call of a plugin: environment and standard input, checked in the order that runtimes expect.

use super::netconf::{is_identifier, network_name, prev_result};
use super::version::{Gated, parse_numbers};
use super::{Error, Json, NetConf, Owner, Version};
use crate::name::{IfName, IfNameError};
use std::path::PathBuf;

/// Verb of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each arm is the verb it is named for")]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// Interface and container of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
    /// `CNI_NETNS`; `None` if empty (allowed for DEL).
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS` as written.
    pub args: String,
}

impl Attachment {
    /// Returns the owner of the attachment's objects in this network.
    pub fn owner(&self, network: &str) -> Owner {
        Owner::new(network, &self.container_id, self.ifname.as_str())
    }
}

/// A validated call.
#[derive(Debug, Clone)]
pub struct Request {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// Interface of the container; `None` for GC and STATUS.
    pub attachment: Option<Attachment>,
    /// `CNI_PATH`, split: search path for external plugins.
    pub path: Vec<PathBuf>,
    /// True if `CNI_NETNS_OVERRIDE` is `1` or `true`: the container's namespace may be the plugin's
    /// own.
    pub netns_override: bool,
    /// Configuration from standard input.
    pub conf: NetConf,
}

/// Validated environment of a call. It is parsed before standard input, because an error in the
/// environment is reported first and VERSION reads no input.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Verb; `Err` holds an unknown verb, which is reported only after errors in the configuration.
    verb: Result<Command, String>,
    attachment: Option<Attachment>,
    path: Vec<PathBuf>,
    netns_override: bool,
}

impl Command {
    /// Verbs as written in `CNI_COMMAND`.
    const NAMES: [(Self, &str); 6] = [
        (Self::Add, "ADD"),
        (Self::Del, "DEL"),
        (Self::Check, "CHECK"),
        (Self::Gc, "GC"),
        (Self::Status, "STATUS"),
        (Self::Version, "VERSION"),
    ];

    /// Parses a verb in upper case; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(command, _)| *command)
    }

    /// Returns the verb as written in `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(command, _)| *command == self)
            .map_or("", |(_, name)| name)
    }

    fn gate(self) -> Option<Gated> {
        match self {
            Self::Check => Some(Gated::Check),
            Self::Gc => Some(Gated::Gc),
            Self::Status => Some(Gated::Status),
            Self::Add | Self::Del | Self::Version => None,
        }
    }
}

impl Environment {
    /// Parses the `CNI_*` variables from `env`; errors have code 4. `None` without `CNI_COMMAND`:
    /// this is not a CNI call, and the plugin prints its versions to standard error and succeeds.
    pub fn parse(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let var = |key: &str| env(key).unwrap_or_default();
        let command = var("CNI_COMMAND");
        if command.is_empty() {
            return Ok(None);
        }
        let verb = Command::parse(&command).ok_or(command);
        let mut missing = Vec::new();
        let attachment = match verb {
            Ok(verb @ (Command::Add | Command::Del | Command::Check)) => {
                attachment(&var, verb, &mut missing)?
            }
            _ => None,
        };
        let path = var("CNI_PATH");
        if path.is_empty() && verb.as_ref().is_ok_and(|verb| *verb != Command::Version) {
            missing.push("CNI_PATH");
        }
        if !missing.is_empty() {
            return Err(Error::env(format!(
                "required env variables [{}] missing",
                missing.join(",")
            )));
        }
        let netns_override = var("CNI_NETNS_OVERRIDE");
        Ok(Some(Self {
            verb,
            attachment,
            // An empty element would mean the working directory.
            path: path
                .split(':')
                .filter(|folder| !folder.is_empty())
                .map(PathBuf::from)
                .collect(),
            netns_override: netns_override == "1" || netns_override.eq_ignore_ascii_case("true"),
        }))
    }

    /// Returns the verb; `None` for an unknown one, which [`Self::request`] reports.
    pub fn command(&self) -> Option<Command> {
        self.verb.as_ref().ok().copied()
    }

    /// Returns `CNI_PATH`, split.
    pub fn path(&self) -> &[PathBuf] {
        &self.path
    }

    /// Validates the configuration in `stdin` for this call. Errors have the reference's order:
    /// JSON (6), name (7), verb (4), the verb's first version and the plugin's `supported` versions
    /// (1), then the other common keys.
    pub fn request(self, stdin: &[u8], supported: &[Version]) -> Result<Request, Error> {
        let conf = match self.verb {
            Ok(Command::Version) => empty_conf(),
            _ => self.conf(stdin, supported)?,
        };
        let command = self.verb.map_err(|verb| unknown_command(&verb))?;
        let Self {
            attachment,
            path,
            netns_override,
            ..
        } = self;
        Ok(Request {
            command,
            attachment,
            path,
            netns_override,
            conf,
        })
    }

    fn conf(&self, stdin: &[u8], supported: &[Version]) -> Result<NetConf, Error> {
        let json = Json::parse(stdin, "network config")?;
        let name = network_name(&json)?;
        let command = *self.verb.as_ref().map_err(|verb| unknown_command(verb))?;
        let version = json.str_or("cniVersion", "")?;
        check_gate(command, version)?;
        let version = Version::among(version, supported)?;
        // An unreadable result must not prevent the deletion of a container.
        let prev = |json: &Json, version| match prev_result(json, version) {
            Err(_) if command == Command::Del => Ok(None),
            read => read,
        };
        NetConf::with_name_and_version(json, name, version, prev)
    }
}

impl Request {
    /// Calls [`Environment::parse`] and [`Environment::request`]. A missing `CNI_COMMAND` is an
    /// error here (code 4).
    pub fn parse(
        env: &dyn Fn(&str) -> Option<String>,
        stdin: &[u8],
        supported: &[Version],
    ) -> Result<Self, Error> {
        let missing = || Error::env("required env variables [CNI_COMMAND] missing");
        Environment::parse(env)?
            .ok_or_else(missing)?
            .request(stdin, supported)
    }
}

/// Parses the attachment. Adds the names of missing variables to `missing` and then returns `None`;
/// a malformed variable is an error immediately.
fn attachment(
    var: &dyn Fn(&str) -> String,
    verb: Command,
    missing: &mut Vec<&'static str>,
) -> Result<Option<Attachment>, Error> {
    let (container_id, netns, ifname) =
        (var("CNI_CONTAINERID"), var("CNI_NETNS"), var("CNI_IFNAME"));
    if container_id.is_empty() {
        missing.push("CNI_CONTAINERID");
    } else if !is_identifier(&container_id) {
        return Err(Error::env("invalid characters in containerID").with_details(container_id));
    }
    if netns.is_empty() && verb != Command::Del {
        missing.push("CNI_NETNS");
    } else if netns.contains('\0') {
        return Err(Error::env("CNI_NETNS contains a NUL byte"));
    }
    if ifname.is_empty() {
        missing.push("CNI_IFNAME");
        return Ok(None);
    }
    let ifname = IfName::parse(&ifname).map_err(ifname_error)?;
    if verb == Command::Add && ifname.as_str().contains('%') {
        let details = "the kernel would treat it as a pattern and choose a number";
        return Err(Error::env("interface name contains %").with_details(details));
    }
    if !missing.is_empty() {
        return Ok(None);
    }
    let netns = Some(netns)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    Ok(Some(Attachment {
        container_id,
        ifname,
        netns,
        args: var("CNI_ARGS"),
    }))
}

fn ifname_error(error: IfNameError) -> Error {
    let details = match error {
        IfNameError::TooLong => "interface name should be less than 16 characters",
        IfNameError::Empty | IfNameError::Dots | IfNameError::BadCharacter => "",
    };
    Error::env(error.to_string()).with_details(details)
}

fn unknown_command(command: &str) -> Error {
    Error::env(format!("unknown CNI_COMMAND: {command}"))
}

/// Refuses a verb that is newer than the configuration's version (code 1). Versions are compared by
/// number, and the version need not exist.
fn check_gate(command: Command, version: &str) -> Result<(), Error> {
    let Some(verb) = command.gate() else {
        return Ok(());
    };
    let version = if version.is_empty() {
        Version::DEFAULT.as_str()
    } else {
        version
    };
    if parse_numbers(version)? < verb.since().numbers() {
        return Err(Error::version(format!(
            "config version does not allow {verb}"
        )));
    }
    Ok(())
}

/// Returns the configuration of VERSION, which is empty.
fn empty_conf() -> NetConf {
    NetConf {
        json: Json::object_of([]).into(),
        version: Version::NEWEST,
        name: String::new(),
        plugin: String::new(),
        ipam: String::new(),
        dns: None,
        prev_result: None,
        valid_attachments: None,
    }
}

#[cfg(test)]
mod tests {
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
            let all = GOOD.iter().chain(changes);
            all.rev()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| (*value).to_owned())
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
        for (command, missing) in [
            ("ADD", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
            ("CHECK", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"),
            ("DEL", "CNI_CONTAINERID,CNI_IFNAME,CNI_PATH"),
            ("GC", "CNI_PATH"),
            ("STATUS", "CNI_PATH"),
        ] {
            let changes: Vec<_> = unset
                .into_iter()
                .chain([("CNI_COMMAND", command)])
                .collect();
            let expected = (4, format!("required env variables [{missing}] missing"));
            assert_eq!(failure(&changes, "not read"), expected);
        }
        let version: Vec<_> = unset
            .into_iter()
            .chain([("CNI_COMMAND", "VERSION")])
            .collect();
        assert_eq!(
            call(&version, "not read").unwrap().command,
            Command::Version
        );
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
}
