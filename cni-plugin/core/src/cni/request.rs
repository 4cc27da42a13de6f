//! One call of a plugin: environment and standard input, checked in the order that runtimes expect.

use super::netconf::{is_identifier, network_name, prev_result};
use super::version::{Gated, parse_numbers};
use super::{Error, Json, NetConf, Owner, Version};
use crate::name::{IfName, IfNameError};
use std::path::PathBuf;

/// Verb of a CNI call (`CNI_COMMAND`).
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

/// Container and interface of a CNI call, with namespace and arguments.
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
    /// Returns the owner that marks the kernel objects of this attachment to `network`.
    pub fn owner(&self, network: &str) -> Owner {
        Owner::new(network, &self.container_id, self.ifname.as_str())
    }
}

/// A validated CNI call.
#[derive(Debug, Clone)]
pub struct Request {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// Container and interface; `None` for GC, STATUS and VERSION.
    pub attachment: Option<Attachment>,
    /// Folders in `CNI_PATH`: the search path for external plugins.
    pub path: Vec<PathBuf>,
    /// True if the container's namespace may be the namespace that the plugin runs in:
    /// `CNI_NETNS_OVERRIDE` is `1` or `true`.
    pub netns_override: bool,
    /// Configuration from standard input.
    pub conf: NetConf,
}

/// Validated environment of a CNI call. It is parsed before standard input, because an error in the
/// environment is reported first and VERSION reads no input.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Verb; `Err` for an unknown verb. Invalid JSON and an invalid network name are reported
    /// before an unknown verb.
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
        for (command, name) in Self::NAMES {
            if name == text {
                return Some(command);
            }
        }
        None
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
    /// Parses the `CNI_*` variables from `env`; errors have code 4. `None` if `CNI_COMMAND` is
    /// missing. Without this variable the call is not a CNI call: the plugin prints its versions to
    /// standard error and succeeds.
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
            path: folders(&path),
            netns_override: netns_override == "1" || netns_override.eq_ignore_ascii_case("true"),
        }))
    }

    /// Returns the verb; `None` for an unknown verb, which [`Self::request`] reports.
    pub fn command(&self) -> Option<Command> {
        self.verb.as_ref().ok().copied()
    }

    /// Returns the folders in `CNI_PATH`.
    pub fn path(&self) -> &[PathBuf] {
        &self.path
    }

    /// Validates the configuration in `stdin` for this call. Errors are found in the reference
    /// plugins' order: JSON (code 6), name (7), verb (4), version (1), then the other common keys.
    /// The version must have the verb and be in `supported`.
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

/// Splits `CNI_PATH` into folders.
fn folders(path: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for folder in path.split(':') {
        // An empty element would mean the working directory.
        if !folder.is_empty() {
            folders.push(PathBuf::from(folder));
        }
    }
    folders
}

/// Parses container, interface and namespace. If variables are missing, adds their names to
/// `missing` and returns `None`. A malformed variable is an error immediately.
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
    let netns = if netns.is_empty() {
        None
    } else {
        Some(PathBuf::from(netns))
    };
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

/// Returns an error (code 1) if the configuration's version lacks the verb. Versions are compared
/// by number, so a version that does not exist is accepted here.
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

/// Returns an empty configuration, because VERSION reads none.
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
mod tests;
