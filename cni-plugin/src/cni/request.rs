//! One call of a plugin: its environment and its standard input, checked in the order that runtimes observe.

use super::netconf::{is_identifier, network_name};
use super::version::{Gated, parse_numbers};
use super::{Error, Json, NetConf, Version};
use crate::plan::{IfName, name::IfNameError};
use std::path::PathBuf;

/// The verb of a call.
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

/// Which interface of which container a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: IfName,
    /// `CNI_NETNS`; `None` where it is empty (allowed for DEL).
    pub netns: Option<PathBuf>,
    /// `CNI_ARGS` as written.
    pub args: String,
}

/// A checked call.
#[derive(Debug, Clone)]
pub struct Request {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// The container's interface; `None` for GC and STATUS.
    pub attachment: Option<Attachment>,
    /// `CNI_PATH`, split: where foreign plugins are looked up.
    pub path: Vec<PathBuf>,
    /// `CNI_NETNS_OVERRIDE` is `1` or `true`: the container's namespace may be the plugin's own.
    pub netns_override: bool,
    /// The configuration from standard input.
    pub conf: NetConf,
}

/// The checked environment of a call. It exists before standard input is read, because an error in the environment comes
/// first and VERSION never reads.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The verb; `Err` keeps one that nobody knows, which is reported only after the configuration's own errors.
    verb: Result<Command, String>,
    attachment: Option<Attachment>,
    path: Vec<PathBuf>,
    netns_override: bool,
}

impl Command {
    /// All verbs, as `CNI_COMMAND` writes them.
    const NAMES: [(Self, &str); 6] = [
        (Self::Add, "ADD"),
        (Self::Del, "DEL"),
        (Self::Check, "CHECK"),
        (Self::Gc, "GC"),
        (Self::Status, "STATUS"),
        (Self::Version, "VERSION"),
    ];

    /// The verb in upper case; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, name)| *name == text).map(|(command, _)| *command)
    }

    /// The verb as `CNI_COMMAND` writes it.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(command, _)| *command == self).map_or("", |(_, name)| name)
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
    /// Reads and checks the `CNI_*` variables through `env`; code 4. `None` without a `CNI_COMMAND`: this is no CNI call,
    /// the plugin tells on standard error what it is and succeeds.
    pub fn parse(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        let var = |key: &str| env(key).unwrap_or_default();
        let command = var("CNI_COMMAND");
        if command.is_empty() {
            return Ok(None);
        }
        let verb = Command::parse(&command).ok_or(command);
        let mut missing = Vec::new();
        let attachment = match verb {
            Ok(verb @ (Command::Add | Command::Del | Command::Check)) => attachment(&var, verb, &mut missing)?,
            _ => None,
        };
        let path = var("CNI_PATH");
        if path.is_empty() && verb.as_ref().is_ok_and(|verb| *verb != Command::Version) {
            missing.push("CNI_PATH");
        }
        if !missing.is_empty() {
            return Err(Error::env(format!("required env variables [{}] missing", missing.join(","))));
        }
        let netns_override = var("CNI_NETNS_OVERRIDE");
        Ok(Some(Self {
            verb,
            attachment,
            // An empty element would be the working directory.
            path: path.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect(),
            netns_override: netns_override == "1" || netns_override.eq_ignore_ascii_case("true"),
        }))
    }

    /// The verb; `None` for one that nobody knows, which [`Self::request`] reports.
    pub fn command(&self) -> Option<Command> {
        self.verb.as_ref().ok().copied()
    }

    /// Checks the configuration in `stdin` against this call. Errors come in the reference's order: JSON (6), name (7), verb
    /// (4), the verb's first version and the plugin's `supported` versions (1), then the other shared keys.
    pub fn request(self, stdin: &[u8], supported: &[Version]) -> Result<Request, Error> {
        let conf = match self.verb {
            Ok(Command::Version) => empty_conf(),
            _ => self.conf(stdin, supported)?,
        };
        let command = self.verb.map_err(|verb| unknown_command(&verb))?;
        let Self { attachment, path, netns_override, .. } = self;
        Ok(Request { command, attachment, path, netns_override, conf })
    }

    fn conf(&self, stdin: &[u8], supported: &[Version]) -> Result<NetConf, Error> {
        let json = Json::parse(stdin, "network config")?;
        let name = network_name(&json)?;
        let command = *self.verb.as_ref().map_err(|verb| unknown_command(verb))?;
        let version = json.str_or("cniVersion", "")?;
        check_gate(command, version)?;
        let version = Version::among(version, supported)?;
        NetConf::with_name_and_version(json, name, version)
    }
}

impl Request {
    /// [`Environment::parse`] and [`Environment::request`] in one; a missing `CNI_COMMAND` is an error here (code 4).
    pub fn parse(env: &dyn Fn(&str) -> Option<String>, stdin: &[u8], supported: &[Version]) -> Result<Self, Error> {
        let missing = || Error::env("required env variables [CNI_COMMAND] missing");
        Environment::parse(env)?.ok_or_else(missing)?.request(stdin, supported)
    }
}

/// Adds the names of missing variables to `missing`; a variable of wrong form is an error at once. `None` if any is missing.
fn attachment(
    var: &dyn Fn(&str) -> String,
    verb: Command,
    missing: &mut Vec<&'static str>,
) -> Result<Option<Attachment>, Error> {
    let (container_id, netns, ifname) = (var("CNI_CONTAINERID"), var("CNI_NETNS"), var("CNI_IFNAME"));
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
    if !missing.is_empty() {
        return Ok(None);
    }
    let netns = Some(netns).filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(Some(Attachment { container_id, ifname, netns, args: var("CNI_ARGS") }))
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

/// Refuses a verb that the configuration's version does not have yet (code 1). The version is compared by its numbers and
/// need not be one that exists.
fn check_gate(command: Command, version: &str) -> Result<(), Error> {
    let Some(verb) = command.gate() else { return Ok(()) };
    let version = if version.is_empty() { Version::DEFAULT.as_str() } else { version };
    if parse_numbers(version)? < verb.since().numbers() {
        return Err(Error::version(format!("config version does not allow {verb}")));
    }
    Ok(())
}

/// What VERSION has for a configuration: nothing.
fn empty_conf() -> NetConf {
    NetConf {
        json: Json::object_of([]),
        version: Version::NEWEST,
        name: String::new(),
        plugin: String::new(),
        ipam: String::new(),
        dns: None,
        prev_result: None,
        valid_attachments: None,
    }
}
