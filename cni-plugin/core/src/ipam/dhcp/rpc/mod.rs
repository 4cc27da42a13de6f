//! Protocol of the reference DHCP daemon: Go's `net/rpc` with gob encoding on a Unix socket, after
//! an HTTP handshake.
//!
//! ```text
//!  client ─ CONNECT /_goRPC_ ─►                       daemon
//!         ◄─ 200 Connected to Go RPC ─
//!         ─ Request{method, seq}, CmdArgs ─►
//!         ◄─ Response{method, seq, error}, Result ─
//! ```

pub mod gob;

use crate::cni::{Dns, IpConfig, Route};
use crate::ipam::Lease;
use gob::{Decoder, Encoder, Shape, Value};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Request with which a client opens the connection.
pub const CONNECT: &[u8] = b"CONNECT /_goRPC_ HTTP/1.0\n\n";
/// Answer of the daemon to [`CONNECT`].
pub const CONNECTED: &[u8] = b"HTTP/1.0 200 Connected to Go RPC\n\n";
/// Method that acquires a lease, or returns the existing lease.
pub const ALLOCATE: &str = "DHCP.Allocate";
/// Method that releases a lease.
pub const RELEASE: &str = "DHCP.Release";
/// Maximum length of an HTTP head in bytes.
const MOST_HEAD: usize = 16 * 1024;

static REQUEST: Shape = Shape::Struct(
    "Request",
    &[("ServiceMethod", &Shape::Text), ("Seq", &Shape::Uint)],
);
static RESPONSE: Shape = Shape::Struct(
    "Response",
    &[
        ("ServiceMethod", &Shape::Text),
        ("Seq", &Shape::Uint),
        ("Error", &Shape::Text),
    ],
);
static CMD_ARGS: Shape = Shape::Struct(
    "CmdArgs",
    &[
        ("ContainerID", &Shape::Text),
        ("Netns", &Shape::Text),
        ("IfName", &Shape::Text),
        ("Args", &Shape::Text),
        ("Path", &Shape::Text),
        ("NetnsOverride", &Shape::Text),
        ("StdinData", &Shape::Bytes),
    ],
);
static NOTHING: Shape = Shape::Struct("", &[]);
static IP_NET: Shape = Shape::Struct("IPNet", &[("IP", &Shape::Bytes), ("Mask", &Shape::Bytes)]);
static IP_CONFIG: Shape = Shape::Struct(
    "IPConfig",
    &[("Address", &IP_NET), ("Gateway", &Shape::Bytes)],
);
static IP_CONFIGS: Shape = Shape::List(&IP_CONFIG);
static ROUTE: Shape = Shape::Struct(
    "Route",
    &[
        ("Dst", &IP_NET),
        ("GW", &Shape::Bytes),
        ("Priority", &Shape::Int),
        ("Scope", &Shape::Int),
    ],
);
static ROUTES: Shape = Shape::List(&ROUTE);
static RESULT: Shape = Shape::Struct(
    "Result",
    &[
        ("CNIVersion", &Shape::Text),
        ("IPs", &IP_CONFIGS),
        ("Routes", &ROUTES),
    ],
);

/// Arguments of an RPC call: environment and standard input of the calling CNI plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS` as an absolute path.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// Network configuration from standard input.
    pub stdin: Vec<u8>,
}

/// A call received by a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcCall {
    /// Sequence number that the client gave the call.
    pub seq: u64,
    /// Method name, such as [`ALLOCATE`].
    pub method: String,
    /// Arguments.
    pub args: Args,
}

/// Daemon's side of a connection.
#[derive(Debug, Default)]
pub struct Server {
    input: Vec<u8>,
    is_connected: bool,
    /// Sequence number and method of a call that still lacks its arguments.
    request: Option<(u64, String)>,
    decoder: Decoder,
    encoder: Encoder,
}

impl Server {
    /// Processes bytes received from the client. Returns the complete calls, and bytes to send to
    /// the client.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(Vec<RpcCall>, Vec<u8>), String> {
        self.input.extend_from_slice(bytes);
        let (mut calls, mut out) = (Vec::new(), Vec::new());
        if !self.is_connected {
            let Some(len) = head(&self.input)? else {
                return Ok((calls, out));
            };
            if !self.input.starts_with(b"CONNECT /_goRPC_ ") {
                return Err("the client did not send CONNECT /_goRPC_".to_owned());
            }
            self.input.drain(..len);
            self.is_connected = true;
            out.extend_from_slice(CONNECTED);
        }
        while let Some(value) = self.next()? {
            match self.request.take() {
                None => {
                    let seq = value.number("Seq").unwrap_or_default().unsigned_abs();
                    self.request = Some((seq, value.text("ServiceMethod").to_owned()));
                }
                Some((seq, method)) => calls.push(RpcCall {
                    seq,
                    method,
                    args: args_of(&value),
                }),
            }
        }
        Ok((calls, out))
    }

    fn next(&mut self) -> Result<Option<Value>, String> {
        let (value, used) = self.decoder.next(&self.input)?;
        self.input.drain(..used);
        Ok(value)
    }

    /// Encodes the answer to a call: a lease for [`ALLOCATE`], an empty value for other methods and
    /// for errors.
    pub fn answer(
        &mut self,
        seq: u64,
        method: &str,
        said: Result<Option<&Lease>, &str>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let error = said.err().unwrap_or_default();
        let text = |text: &str| Value::Text(text.to_owned());
        let response = [
            ("ServiceMethod", text(method)),
            ("Seq", Value::Uint(seq)),
            ("Error", text(error)),
        ];
        self.encoder.push(&RESPONSE, &fields(response), &mut out);
        match said {
            Ok(Some(lease)) => self.encoder.push(&RESULT, &result_of(lease), &mut out),
            Ok(None) | Err(_) => self
                .encoder
                .push(&NOTHING, &Value::Struct(Vec::new()), &mut out),
        }
        out
    }
}

/// Client's side of a connection, for one call.
#[derive(Debug, Default)]
pub struct Client {
    input: Vec<u8>,
    is_connected: bool,
    response: Option<Result<(), String>>,
    decoder: Decoder,
}

impl Client {
    /// Encodes a call, to be sent once the daemon has sent [`CONNECTED`].
    pub fn call(method: &str, args: &Args) -> Vec<u8> {
        let (mut out, mut encoder) = (Vec::new(), Encoder::default());
        let text = |text: &str| Value::Text(text.to_owned());
        encoder.push(
            &REQUEST,
            &fields([("ServiceMethod", text(method)), ("Seq", Value::Uint(0))]),
            &mut out,
        );
        let Args {
            container_id,
            netns,
            ifname,
            args,
            stdin,
        } = args;
        let args = [
            ("ContainerID", text(container_id)),
            ("Netns", text(netns)),
            ("IfName", text(ifname)),
            ("Args", text(args)),
            ("StdinData", Value::Bytes(stdin.clone())),
        ];
        encoder.push(&CMD_ARGS, &fields(args), &mut out);
        out
    }

    fn next(&mut self) -> Result<Option<Value>, String> {
        let (value, used) = self.decoder.next(&self.input)?;
        self.input.drain(..used);
        Ok(value)
    }

    /// True if the daemon has sent [`CONNECTED`].
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Processes bytes received from the daemon. Returns `None` until the answer is complete, then
    /// the lease or the daemon's error. The answer to [`RELEASE`] gives an empty lease.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Option<Result<Lease, String>>, String> {
        self.input.extend_from_slice(bytes);
        if !self.is_connected {
            let Some(len) = head(&self.input)? else {
                return Ok(None);
            };
            let status = String::from_utf8_lossy(&self.input[..len])
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            if !status.ends_with(" 200 Connected to Go RPC") {
                return Err(format!("unexpected HTTP response: {status}"));
            }
            self.input.drain(..len);
            self.is_connected = true;
        }
        while let Some(value) = self.next()? {
            match self.response.take() {
                None => {
                    let error = value.text("Error");
                    self.response = Some(if error.is_empty() {
                        Ok(())
                    } else {
                        Err(error.to_owned())
                    });
                }
                Some(Err(error)) => return Ok(Some(Err(error))),
                Some(Ok(())) => return Ok(Some(Ok(lease_of(&value)?))),
            }
        }
        Ok(None)
    }
}

/// Returns the length of an HTTP head, including the empty line at the end; `None` if the head is
/// incomplete.
fn head(input: &[u8]) -> Result<Option<usize>, String> {
    let end = |mark: &[u8]| {
        let start = input.windows(mark.len()).position(|it| it == mark)?;
        Some(start + mark.len())
    };
    let first = match (end(b"\n\n"), end(b"\r\n\r\n")) {
        (Some(bare), Some(full)) => Some(bare.min(full)),
        (bare, full) => bare.or(full),
    };
    match first {
        None if input.len() > MOST_HEAD => Err("the HTTP head is too long".to_owned()),
        found => Ok(found),
    }
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Struct(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

fn args_of(value: &Value) -> Args {
    let text = |name| value.text(name).to_owned();
    Args {
        container_id: text("ContainerID"),
        netns: text("Netns"),
        ifname: text("IfName"),
        args: text("Args"),
        stdin: value.bytes("StdinData").to_vec(),
    }
}

fn result_of(lease: &Lease) -> Value {
    let ip = |ip: &IpConfig| {
        fields([
            ("Address", net(&ip.address)),
            (
                "Gateway",
                Value::Bytes(ip.gateway.map(octets).unwrap_or_default()),
            ),
        ])
    };
    let route = |route: &Route| {
        // A Go client fills in a missing gateway, but not one of all zeros.
        let gw = route.gw.or(route.scope.map(|_| unspecified(&route.dst)));
        fields([
            ("Dst", net(&route.dst)),
            ("GW", Value::Bytes(gw.map(octets).unwrap_or_default())),
            ("Priority", Value::Int(route.priority.into())),
            ("Scope", Value::Int(route.scope.unwrap_or_default().into())),
        ])
    };
    fields([
        ("CNIVersion", Value::Text("1.1.0".to_owned())),
        ("IPs", Value::List(lease.ips.iter().map(ip).collect())),
        (
            "Routes",
            Value::List(lease.routes.iter().map(route).collect()),
        ),
    ])
}

fn unspecified(net: &IpNet) -> IpAddr {
    if net.addr().is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

fn net(net: &IpNet) -> Value {
    fields([
        ("IP", Value::Bytes(octets(net.addr()))),
        ("Mask", Value::Bytes(octets(net.netmask()))),
    ])
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Parses an address. Go stores an IPv4 address in 4 or 16 bytes, and both give an IPv4 address.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    Some(exact_ip_of(bytes)?.to_canonical())
}

/// Parses an address or a mask: IPv4 from 4 bytes, IPv6 from 16 bytes.
fn exact_ip_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(bytes).ok()?;
    Some(v6.into())
}
fn net_of(value: Option<&Value>) -> Result<IpNet, String> {
    let wrong = || format!("the daemon's result has {value:?} for an address");
    let value = value.ok_or_else(wrong)?;
    let ip = ip_of(value.bytes("IP")).ok_or_else(wrong)?;
    let mask = value.bytes("Mask");
    let mask = if ip.is_ipv4() && mask.len() == 16 {
        &mask[12..]
    } else {
        mask
    };
    let mask = exact_ip_of(mask).ok_or_else(wrong)?;
    IpNet::with_netmask(ip, mask).map_err(|_mixed| wrong())
}

fn lease_of(value: &Value) -> Result<Lease, String> {
    let mut ips = Vec::new();
    for ip in value.items("IPs") {
        ips.push(IpConfig {
            address: net_of(ip.get("Address"))?,
            gateway: ip_of(ip.bytes("Gateway")),
            interface: None,
        });
    }
    let mut routes = Vec::new();
    for route in value.items("Routes") {
        routes.push(route_of(route)?);
    }
    Ok(Lease {
        ips,
        routes,
        dns: Dns::default(),
    })
}

fn route_of(value: &Value) -> Result<Route, String> {
    let number = |name| u32::try_from(value.number(name)?).ok();
    Ok(Route {
        dst: net_of(value.get("Dst"))?,
        gw: ip_of(value.bytes("GW")),
        mtu: number("MTU").unwrap_or_default(),
        advmss: number("AdvMSS").unwrap_or_default(),
        priority: number("Priority").unwrap_or_default(),
        table: number("Table"),
        scope: number("Scope").and_then(|scope| u8::try_from(scope).ok()),
    })
}

#[cfg(test)]
mod tests;
