//! Flannel's configuration `net-conf.json`.

use crate::cluster::flannel::Family;
use braid_core::cni::{Error, Json};
use ipnet::IpNet;

/// Default VXLAN network identifier.
pub(super) const DEFAULT_ID: u32 = 1;
/// Default UDP port: the kernel's.
const DEFAULT_PORT: u16 = 8472;

/// The parts of the configuration that the agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetConf {
    /// Range of all IPv4 pods; `None` if IPv4 is disabled.
    pub(super) v4: Option<IpNet>,
    /// Range of all IPv6 pods; `None` if IPv6 is disabled.
    pub(super) v6: Option<IpNet>,
    pub(super) backend: Backend,
}

/// Traffic between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backend {
    /// VXLAN.
    Vxlan(Vxlan),
    /// Routes through the addresses of other nodes.
    HostGw,
}

/// Settings of VXLAN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vxlan {
    /// VXLAN network identifier.
    pub(super) id: u32,
    /// UDP port; `None` accepts that of an existing link.
    pub(super) port: Option<u16>,
    /// MTU of the underlay in bytes; `None` is the uplink's.
    pub(super) mtu: Option<u32>,
    /// True if nodes on a shared link are reached directly.
    pub(super) is_direct: bool,
}

impl Vxlan {
    /// Returns the port of a new link.
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }
}

impl Backend {
    /// Returns the value of the annotation `backend-type`.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Vxlan(_) => "vxlan",
            Self::HostGw => "host-gw",
        }
    }
}

impl NetConf {
    /// Parses the text of `net-conf.json`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parsed = Json::parse(text.as_bytes(), "net-conf.json").and_then(|json| of(&json));
        parsed.unwrap_or_else(|err| Err(err.to_string()))
    }

    /// Returns the range of all pods of a family.
    pub(super) fn network(&self, family: Family) -> Option<IpNet> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

/// Returns the configuration. The inner error is a value that the agent does not support.
fn of(json: &Json) -> Result<Result<NetConf, String>, Error> {
    let network = |enabled: bool, key: &str| -> Result<Result<Option<IpNet>, String>, Error> {
        let text = json.text(key)?.filter(|_| enabled);
        Ok(text.map(|text| range(key, text)).transpose())
    };
    let v4 = network(json.bool_or("EnableIPv4", true)?, "Network")?;
    let v6 = network(json.bool_or("EnableIPv6", false)?, "IPv6Network")?;
    let backend = match json.object("Backend")? {
        Some(backend) => backend_of(backend)?,
        None => Err("there is no Backend".to_owned()),
    };
    Ok((|| {
        let (v4, v6, backend) = (v4?, v6?, backend?);
        if v4.is_none() && v6.is_none() {
            return Err("there is no Network".to_owned());
        }
        Ok(NetConf { v4, v6, backend })
    })())
}

fn range(key: &str, text: &str) -> Result<IpNet, String> {
    let parsed: Result<IpNet, _> = text.parse();
    let parsed = parsed.map_err(|err| format!("{key} {text:?}: {err}"))?;
    Ok(parsed.trunc())
}

fn backend_of(json: &Json) -> Result<Result<Backend, String>, Error> {
    let kind = json.text("Type")?.unwrap_or_default();
    if kind == "host-gw" {
        return Ok(Ok(Backend::HostGw));
    }
    if kind != "vxlan" {
        let why = format!("Backend.Type {kind:?} is not vxlan or host-gw");
        return Ok(Err(why));
    }
    for key in ["GBP", "Learning"] {
        if json.bool_or(key, false)? {
            return Ok(Err(format!("Backend.{key} is not supported")));
        }
    }
    let port = json.u32("Port")?.unwrap_or_default();
    let Ok(port) = u16::try_from(port) else {
        return Ok(Err(format!("Backend.Port {port} is not a port")));
    };
    let id = json.u32("VNI")?.unwrap_or(DEFAULT_ID);
    if id > 0xFF_FFFF {
        return Ok(Err(format!("Backend.VNI {id} has more than 24 bits")));
    }
    Ok(Ok(Backend::Vxlan(Vxlan {
        id,
        port: Some(port).filter(|port| *port != 0),
        mtu: json.u32("MTU")?.filter(|mtu| *mtu != 0),
        is_direct: json.bool_or("DirectRouting", false)?,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_conf_has_flannels_defaults_and_its_keys_in_any_case() {
        let plain = r#"{"Network": "10.244.0.0/16", "EnableNFTables": false,
            "Backend": {"Type": "vxlan"}}"#;
        let vxlan = |id, port, mtu, is_direct| {
            Backend::Vxlan(Vxlan {
                id,
                port,
                mtu,
                is_direct,
            })
        };
        let v4 = "10.244.0.0/16".parse().ok();
        let expected = NetConf {
            v4,
            v6: None,
            backend: vxlan(1, None, None, false),
        };
        assert_eq!(NetConf::parse(plain), Ok(expected));
        let full = r#"{"network": "10.244.7.0/16", "IPv6Network": "fd00::/56",
            "EnableIPv6": true, "backend": {"type": "vxlan", "vni": 4096, "port": 4789,
            "MTU": 1400, "directRouting": true}}"#;
        let expected = NetConf {
            v4,
            v6: "fd00::/56".parse().ok(),
            backend: vxlan(4096, Some(4789), Some(1400), true),
        };
        assert_eq!(NetConf::parse(full), Ok(expected));
    }

    #[test]
    fn a_configuration_that_the_agent_cannot_serve_is_refused_with_its_key() {
        for (text, words) in [
            ("{", "invalid JSON"),
            (r#"{"Network": "10.0.0.0/8"}"#, "no Backend"),
            (
                r#"{"Network": "10.0.0.0/8", "Backend": {"Type": "udp"}}"#,
                "\"udp\" is not vxlan or host-gw",
            ),
            (
                r#"{"Network": "x", "Backend": {"Type": "host-gw"}}"#,
                "Network \"x\": ",
            ),
            (
                r#"{"EnableIPv4": false, "Backend": {"Type": "host-gw"}}"#,
                "no Network",
            ),
            (
                r#"{"Network": "10.0.0.0/8", "Backend": {"Type": "vxlan", "Learning": true}}"#,
                "Backend.Learning",
            ),
        ] {
            let err = NetConf::parse(text).expect_err(text);
            assert!(err.contains(words), "{err}");
        }
    }
}
