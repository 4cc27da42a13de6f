//! The configuration of `portmap`.

use super::conditions;
use crate::cni::{Error, Json, NetConf};
use crate::plan::thing::condition::Conditions;
use crate::plan::thing::host_ports::Protocol;
use std::net::IpAddr;

/// Highest bit of a packet mark.
const LAST_MARK_BIT: i64 = 31;

/// A `portmap` configuration.
#[derive(Debug)]
pub struct Portmap {
    pub(super) mappings: Vec<Mapping>,
    /// `snat`, default true: rewrites a source address if replies would otherwise bypass the host.
    pub(super) snat: bool,
    /// `masqAll`, default false: rewrites all source addresses.
    pub(super) masq_all: bool,
    /// The requested backend.
    pub(super) asked: RequestedBackend,
    /// Conditions that a packet must meet to be redirected.
    pub(super) conditions: Conditions,
    /// The reason to refuse an ADD with ports. A DEL is not refused: the reference plugin may have
    /// created the attachment.
    pub(super) refusal: Option<Error>,
}

/// The backend named by `backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedBackend {
    Nftables,
    /// iptables, which braid does not use: nf_tables replaces it.
    Iptables,
    /// eBPF if possible, otherwise nf_tables.
    Ebpf,
}

/// An entry of `portMappings`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) host_port: u16,
    pub(super) container_port: u16,
    pub(super) protocol: Protocol,
    pub(super) host_ip: Option<IpAddr>,
}

impl Portmap {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let runtime = json.object("runtimeConfig")?;
        let mappings = match runtime {
            Some(runtime) => runtime
                .each_object("portMappings", Mapping::parse)
                .map_err(|e| e.at_key("runtimeConfig"))?,
            None => Vec::new(),
        };
        let (snat, masq_all) = (json.bool_or("snat", true)?, json.bool_or("masqAll", false)?);
        let asked = match json.str_or("backend", "")? {
            "iptables" => RequestedBackend::Iptables,
            "ebpf" => RequestedBackend::Ebpf,
            _ => RequestedBackend::Nftables,
        };
        let conditions = refuse_backend(json).and_then(|()| conditions_of(json));
        let refusal = conditions.as_ref().err().cloned();
        Ok(Self {
            mappings,
            snat,
            masq_all,
            asked,
            conditions: conditions.unwrap_or_default(),
            refusal,
        })
    }
}

/// Refuses an unknown `backend`, and bad values of keys that only one backend uses.
fn refuse_backend(json: &Json) -> Result<(), Error> {
    match json.str_or("backend", "")? {
        "" | "auto" | "nftables" | "ebpf" | "iptables" => {}
        backend => return Err(Error::config(format!("unrecognized backend {backend:?}"))),
    }
    // braid marks no packet, so every valid bit and chain is accepted.
    let bit = json.i64("markMasqBit")?;
    if bit.is_some() && json.str("externalSetMarkChain")?.is_some() {
        return Err(Error::config(
            "Cannot specify externalSetMarkChain and markMasqBit",
        ));
    }
    if let Some(bit) = bit
        && !(0..=LAST_MARK_BIT).contains(&bit)
    {
        return Err(Error::config(format!(
            "MasqMarkBit must be between 0 and 31: \"markMasqBit\" is {bit}"
        )));
    }
    Ok(())
}

fn conditions_of(json: &Json) -> Result<Conditions, Error> {
    let parsed = |key: &str, is_v4| {
        let words = json.strings(key)?;
        conditions::parse(&words, is_v4)
            .map_err(|why| Error::config(format!("{key:?}: {:?}: {why}", words.join(" "))))
    };
    Ok(Conditions {
        v4: parsed("conditionsV4", true)?,
        v6: parsed("conditionsV6", false)?,
    })
}

impl Mapping {
    fn parse(json: &Json) -> Result<Self, Error> {
        let port = |key: &str, name: &str| {
            let number = json.i64(key)?.unwrap_or(0);
            match u16::try_from(number) {
                Ok(port) if port > 0 => Ok(port),
                _ => {
                    let sentence = format!("Invalid {name} port number: {number}");
                    Err(Error::config(sentence).at_key(key))
                }
            }
        };
        let protocol = json.str_or("protocol", "tcp")?;
        let host_ip = json.text("hostIP")?;
        Ok(Self {
            container_port: port("containerPort", "container")?,
            host_port: port("hostPort", "host")?,
            protocol: Protocol::parse(protocol).ok_or_else(|| {
                Error::config(format!(
                    "\"protocol\": {protocol:?} is not \"tcp\", \"udp\" or \"sctp\""
                ))
                .at_key("protocol")
            })?,
            host_ip: match host_ip {
                Some(text) => Some(host_addr(text)?),
                None => None,
            },
        })
    }
}

fn host_addr(text: &str) -> Result<IpAddr, Error> {
    text.parse().map_err(|err| {
        Error::config(format!("\"hostIP\": bad address {text:?}: {err}")).at_key("hostIP")
    })
}
