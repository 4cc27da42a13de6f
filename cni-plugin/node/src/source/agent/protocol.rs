//! Messages between a call and the agent: one line from the call, then lines from the agent.
//!
//! ```text
//!  call:  objects default/web 4f1c-… lan/a lan/b
//!  agent: +                        at once
//!         pod {"metadata":{…}}     as soon as the agent sees this uid
//!         network lan/a {…}
//!         no-network lan/b
//!         end
//! ```

use braid_core::k8s::source::Event;
use braid_core::k8s::{ObjectName, names};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// The agent's socket.
pub const SOCKET: &str = "/run/braid/agent.sock";
/// First line of the agent: it has read the request.
pub const ACKNOWLEDGEMENT: &str = "+\n";
/// Last line of a complete answer.
pub const END: &str = "end\n";
/// Longest request in bytes, without the line's end.
pub const MAX_LINE: usize = 32 << 10;
/// Longest time until the acknowledgement.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(100);
/// Longest time in which the agent waits until it sees a pod. Then it asks the API.
pub const SEEN_WITHIN: Duration = Duration::from_secs(1);
/// Longest time in which the agent asks the API for one answer.
pub const ASKED_WITHIN: Duration = Duration::from_secs(1);

/// Longest uid in bytes. Kubernetes' own have 36.
const MAX_UID: usize = 128;

/// A request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentRequest {
    /// The pod with this uid, these networks, and the networks that the pod's annotation names.
    Objects {
        /// The pod.
        pod: ObjectName,
        /// Its uid; of a static pod, the one in its annotations.
        uid: String,
        /// Networks.
        networks: Vec<ObjectName>,
    },
    /// These networks.
    Networks(Vec<ObjectName>),
    /// An IPAMClaim.
    Claim(ObjectName),
    /// The resource claims with devices of braid of the pod with this uid.
    ResourceClaims {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
    },
    /// Publish a pod's status and events.
    Publish(Publication),
    /// Remove the status of a failed ADD.
    Withdraw(Withdrawal),
}

/// Status and events of a pod, to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// The pod.
    pub pod: ObjectName,
    /// Its uid; of a static pod, the one in its annotations.
    pub uid: String,
    /// Entries for the annotation `network-status`, as JSON. `None` if only events are published.
    pub status: Option<String>,
    /// Value of the annotation that the call read. `status` replaces it.
    pub seen: Option<String>,
    /// Events about the pod, which the agent publishes behind its answer.
    #[serde(default)]
    pub events: Vec<Event>,
    /// True if the call waits until the status is published.
    #[serde(default)]
    pub is_awaited: bool,
}

/// Status of a pod to be removed, because the ADD failed after it was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// The pod.
    pub pod: ObjectName,
    /// Its uid; of a static pod, the one in its annotations.
    pub uid: String,
    /// ID of the container, which is in the entries to remove.
    pub container_id: String,
    /// Value of the annotation before the ADD.
    pub seen: Option<String>,
}

impl AgentRequest {
    /// True if the request has only events. The agent serves it even after the call has closed the
    /// connection.
    pub fn is_report(&self) -> bool {
        matches!(self, Self::Publish(Publication { status: None, .. }))
    }

    /// Parses a line without its end; `None` for anything but a request.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if line.len() > MAX_LINE {
            return None;
        }
        let (verb, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let mut words = rest.split(' ');
        match verb {
            "objects" => Some(Self::Objects {
                pod: object(words.next()?)?,
                uid: words.next().filter(|uid| is_uid(uid))?.to_owned(),
                networks: objects(words)?,
            }),
            "networks" => Some(Self::Networks(objects(words)?)),
            "claim" => Some(Self::Claim(object(rest)?)),
            "resource-claims" => {
                let (pod, uid) = rest.split_once(' ')?;
                Some(Self::ResourceClaims {
                    pod: object(pod)?,
                    uid: Some(uid).filter(|uid| is_uid(uid))?.to_owned(),
                })
            }
            "publish" => {
                let publication: Publication = serde_json::from_str(rest).ok()?;
                let is_valid = is_object(&publication.pod) && is_uid(&publication.uid);
                is_valid.then_some(Self::Publish(publication))
            }
            "withdraw" => {
                let withdrawal: Withdrawal = serde_json::from_str(rest).ok()?;
                let is_valid = is_object(&withdrawal.pod) && is_uid(&withdrawal.uid);
                is_valid.then_some(Self::Withdraw(withdrawal))
            }
            _ => None,
        }
    }

    /// Returns the line with its end; `None` if the agent would refuse it.
    pub fn line(&self) -> Option<String> {
        let mut line = self.to_string();
        if Self::parse(line.as_bytes()).as_ref() != Some(self) {
            return None;
        }
        line.push('\n');
        Some(line)
    }
}

impl Display for AgentRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let each = |f: &mut Formatter<'_>, names: &[ObjectName]| {
            names.iter().try_for_each(|name| write!(f, " {name}"))
        };
        match self {
            Self::Objects { pod, uid, networks } => {
                write!(f, "objects {pod} {uid}")?;
                each(f, networks)
            }
            Self::Networks(networks) => {
                f.write_str("networks")?;
                each(f, networks)
            }
            Self::Claim(claim) => write!(f, "claim {claim}"),
            Self::ResourceClaims { pod, uid } => write!(f, "resource-claims {pod} {uid}"),
            Self::Publish(publication) => write!(f, "publish {}", json(publication)),
            Self::Withdraw(withdrawal) => write!(f, "withdraw {}", json(withdrawal)),
        }
    }
}

/// A line of an answer. Objects are JSON in the format of the API server, with only the fields that
/// calls read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerLine<'a> {
    /// The pod.
    Pod(&'a str),
    /// The API has no such pod.
    NoPod,
    /// A network.
    Network(ObjectName, &'a str),
    /// The API has no such network.
    NoNetwork(ObjectName),
    /// The claim.
    Claim(&'a str),
    /// The API has no such claim.
    NoClaim,
    /// The pod's resource claims, as a list of [`braid_core::dra::claim::Claim`].
    ResourceClaims(&'a str),
    /// The status is published, or withdrawn.
    Published,
    /// The reason why the agent does not know the rest.
    Unknown(&'a str),
}

impl<'a> AnswerLine<'a> {
    /// Parses a line without its end; `None` for anything else.
    pub fn parse(line: &'a str) -> Option<Self> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("pod", json) => Some(Self::Pod(json)),
            ("no-pod", "") => Some(Self::NoPod),
            ("network", rest) => {
                let (name, json) = rest.split_once(' ')?;
                Some(Self::Network(object(name)?, json))
            }
            ("no-network", name) => Some(Self::NoNetwork(object(name)?)),
            ("claim", json) => Some(Self::Claim(json)),
            ("no-claim", "") => Some(Self::NoClaim),
            ("resource-claims", json) => Some(Self::ResourceClaims(json)),
            ("published", "") => Some(Self::Published),
            ("unknown", why) => Some(Self::Unknown(why)),
            _ => None,
        }
    }
}

impl Display for AnswerLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(json) => writeln!(f, "pod {json}"),
            Self::NoPod => writeln!(f, "no-pod"),
            Self::Network(name, json) => writeln!(f, "network {name} {json}"),
            Self::NoNetwork(name) => writeln!(f, "no-network {name}"),
            Self::Claim(json) => writeln!(f, "claim {json}"),
            Self::NoClaim => writeln!(f, "no-claim"),
            Self::ResourceClaims(json) => writeln!(f, "resource-claims {json}"),
            Self::Published => writeln!(f, "published"),
            Self::Unknown(why) => writeln!(f, "unknown {}", why.replace(char::is_control, " ")),
        }
    }
}

/// Texts and names always become JSON; the agent refuses an empty text.
fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

fn object(text: &str) -> Option<ObjectName> {
    let (namespace, name) = text.split_once('/')?;
    let object = ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    is_object(&object).then_some(object)
}

fn objects<'t>(words: impl Iterator<Item = &'t str>) -> Option<Vec<ObjectName>> {
    words.map(object).collect()
}

fn is_object(name: &ObjectName) -> bool {
    names::is_namespace(&name.namespace) && names::is_object(&name.name)
}

fn is_uid(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_UID).contains(&text.len()) && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ObjectName {
        object(text).expect("a name")
    }

    #[test]
    fn each_request_is_read_back_from_its_line() {
        let requests = [
            AgentRequest::Objects {
                pod: name("default/web"),
                uid: "4f1c-22".into(),
                networks: vec![name("lan/a"), name("lan/b.c")],
            },
            AgentRequest::Objects {
                pod: name("default/web"),
                uid: "u".into(),
                networks: Vec::new(),
            },
            AgentRequest::Networks(vec![name("lan/a")]),
            AgentRequest::Claim(name("default/ip")),
            AgentRequest::ResourceClaims {
                pod: name("default/web"),
                uid: "4f1c-22".into(),
            },
            AgentRequest::Publish(Publication {
                pod: name("default/web"),
                uid: "u".into(),
                status: Some("[\n{\"a\": \"é\"}]".into()),
                seen: Some("\u{1}".into()),
                events: vec![braid_core::k8s::interface_event::added(
                    "eth0",
                    &[],
                    "lan/\n",
                )],
                is_awaited: true,
            }),
            AgentRequest::Withdraw(Withdrawal {
                pod: name("default/web"),
                uid: "u".into(),
                container_id: "4a".into(),
                seen: None,
            }),
        ];
        for request in requests {
            let line = request.line().expect("a line");
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            let parsed = AgentRequest::parse(line.trim_end().as_bytes());
            assert_eq!(parsed, Some(request));
        }
    }

    #[test]
    fn anything_but_a_request_is_refused() {
        let long = format!("networks lan/{}", "a".repeat(MAX_LINE));
        let lines: [&[u8]; 19] = [
            b"",
            b" ",
            b"\0\xff\xfe",
            b"GET / HTTP/1.1",
            b"objects",
            b"objects default/web",
            b"objects default/web  lan/a",
            b"objects web u",
            b"objects default/web ../../etc",
            b"objects ../x/web u",
            b"networks lan/../x",
            b"networks lan/a\0",
            b"claim lan/a lan/b",
            b"resource-claims lan/a",
            b"resource-claims lan/a u v",
            b"publish {",
            br#"publish {"pod":{"namespace":"a/b","name":"c"},"uid":"u","status":"[]"}"#,
            br#"withdraw {"pod":{"namespace":"a","name":"c"},"uid":"","container_id":"4a"}"#,
            long.as_bytes(),
        ];
        for line in lines {
            let text = String::from_utf8_lossy(line);
            assert_eq!(AgentRequest::parse(line), None, "{text:?}");
        }
        // Every prefix of a request is refused, or is a request of its own.
        let whole = b"objects default/web 4f1c lan/a";
        for len in 0..b"objects default/web ".len() {
            assert_eq!(AgentRequest::parse(&whole[..len]), None, "{len}");
        }
    }

    #[test]
    fn a_request_that_the_agent_would_refuse_has_no_line() {
        let objects = |uid: &str| AgentRequest::Objects {
            pod: name("default/web"),
            uid: uid.to_owned(),
            networks: Vec::new(),
        };
        for uid in ["", "a b", "a\nb"] {
            assert_eq!(objects(uid).line(), None, "{uid:?}");
        }
        let many = vec![name("namespace/network"); 2000];
        assert_eq!(AgentRequest::Networks(many).line(), None);
    }

    #[test]
    fn each_line_of_an_answer_is_read_back_and_anything_else_is_refused() {
        let lines = [
            AnswerLine::Pod("{}"),
            AnswerLine::NoPod,
            AnswerLine::Network(name("lan/a"), r#"{"a": "b c"}"#),
            AnswerLine::NoNetwork(name("lan/a")),
            AnswerLine::Claim("{}"),
            AnswerLine::NoClaim,
            AnswerLine::ResourceClaims("[]"),
            AnswerLine::Published,
            AnswerLine::Unknown("get pod: no connection"),
        ];
        for line in lines {
            let text = line.to_string();
            assert_eq!(AnswerLine::parse(text.trim_end()), Some(line), "{text}");
        }
        for text in [
            "",
            "network",
            "network lan/a",
            "no-network x",
            "no-pod x",
            "x",
        ] {
            assert_eq!(AnswerLine::parse(text), None, "{text}");
        }
        let two = AnswerLine::Unknown("a\nend").to_string();
        assert_eq!(two, "unknown a end\n");
    }
}
