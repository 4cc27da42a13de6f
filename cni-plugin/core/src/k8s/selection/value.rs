//! Values of single keys of a selection: port mappings, rate limits, names of interfaces.

use crate::cni::Json;
use crate::cni::bounds::shortened;
use crate::name::IfName;
use std::net::IpAddr;

/// Default burst, as the time in milliseconds that it takes at the full rate.
const BURST_MS: u64 = 10;
/// Minimum of the default burst, in bits.
const LEAST_BURST: u64 = 8 * 64 * 1024;
/// Maximum of the default burst, in bits. The reference plugin refuses a burst of 4 GiB or more.
const MOST_BURST: u64 = 8 * (u32::MAX as u64 - 2);

/// A port of the node that is forwarded to a port of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// Port of the node.
    pub host_port: u16,
    /// Port of the pod.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: &'static str,
    /// Address of the node; `None` means any address.
    pub host_ip: Option<IpAddr>,
}

/// Rate limits by direction, seen from the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bandwidth {
    /// Limit of the traffic towards the pod, if any.
    pub ingress: Option<Limit>,
    /// Limit of the traffic from the pod, if any.
    pub egress: Option<Limit>,
}

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Rate in bits per second, not 0.
    pub rate: u64,
    /// Burst in bits, not 0; `None` selects a default.
    pub burst: Option<u64>,
}

impl Limit {
    /// Returns the burst, or a default derived from the rate.
    pub fn burst_or_default(self) -> u64 {
        self.burst
            .unwrap_or_else(|| (self.rate / 1000 * BURST_MS).clamp(LEAST_BURST, MOST_BURST))
    }
}

impl PortMapping {
    pub(super) fn to_json(&self) -> Json {
        let mut json = Json::object_of([
            ("hostPort", u32::from(self.host_port).into()),
            ("containerPort", u32::from(self.container_port).into()),
            ("protocol", self.protocol.into()),
        ]);
        if let Some(host) = self.host_ip {
            json.set("hostIP", host.to_string());
        }
        json
    }
}

impl Bandwidth {
    pub(super) fn to_json(&self) -> Json {
        let mut json = Json::object_of([]);
        if let Some(limit) = self.ingress {
            json.set("ingressRate", limit.rate);
            json.set("ingressBurst", limit.burst_or_default());
        }
        if let Some(limit) = self.egress {
            json.set("egressRate", limit.rate);
            json.set("egressBurst", limit.burst_or_default());
        }
        json
    }
}

/// Parses an interface name that a pod requests. Refuses names with a special meaning in the
/// kernel.
pub fn interface_name(text: &str) -> Result<IfName, String> {
    let name = IfName::parse(text).map_err(|error| error.to_string())?;
    match text {
        // The kernel would treat the name as a pattern and replace `%d` by a number.
        _ if text.contains('%') => Err("interface name contains %".to_owned()),
        // Sysctls of these names apply to all interfaces and to new ones.
        "all" | "default" => Err("interface name is reserved by the kernel".to_owned()),
        _ => Ok(name),
    }
}

pub(super) fn port_mapping(json: &Json) -> Result<PortMapping, String> {
    if !matches!(json, Json::Object(_)) {
        return Err("not an object".to_owned());
    }
    let protocol = json.str_or("protocol", "tcp").map_err(|error| error.msg)?;
    let known = ["tcp", "udp", "sctp"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(protocol));
    Ok(PortMapping {
        host_port: port(json, "hostPort")?,
        container_port: port(json, "containerPort")?,
        protocol: known
            .ok_or_else(|| format!("protocol {:?} is not TCP, UDP or SCTP", shortened(protocol)))?,
        host_ip: json.ip("hostIP").map_err(|error| error.msg)?,
    })
}

fn port(json: &Json, key: &str) -> Result<u16, String> {
    if let Ok(Some(number)) = json.i64(key)
        && let Ok(port) = u16::try_from(number)
        && port != 0
    {
        return Ok(port);
    }
    let given = json
        .get(key)
        .map_or("nothing".to_owned(), |value| shortened(&value.to_string()));
    Err(format!("{key:?} is {given}, not a port from 1 to 65535"))
}

pub(super) fn limit(json: &Json, rate_key: &str, burst_key: &str) -> Result<Option<Limit>, String> {
    let number = |key: &str| match json.u64(key) {
        Ok(Some(0)) => Err(format!("{key:?} is 0")),
        Ok(number) => Ok(number),
        Err(error) => Err(error.msg),
    };
    match (number(rate_key)?, number(burst_key)?) {
        (Some(rate), burst) => Ok(Some(Limit { rate, burst })),
        (None, Some(_)) => Err(format!("{burst_key:?} without {rate_key:?}")),
        (None, None) => Ok(None),
    }
}

/// Parses an `infiniband-guid`: eight hexadecimal bytes, grouped like a hardware address. Returns
/// the bytes separated by colons; `None` if they are invalid.
pub(super) fn guid(text: &str) -> Option<String> {
    let (separator, digits) = match text.as_bytes().get(2)? {
        b':' => (':', 2),
        b'-' => ('-', 2),
        _ => ('.', 4),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let is_group =
        |group: &str| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    if groups.len() * digits != 16 || !groups.iter().all(|group| is_group(group)) {
        return None;
    }
    let hex = groups.concat().to_ascii_lowercase();
    let pairs: Vec<&str> = (0..8)
        .filter_map(|at| hex.get(at * 2..at * 2 + 2))
        .collect();
    Some(pairs.join(":"))
}
