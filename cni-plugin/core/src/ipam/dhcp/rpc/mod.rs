//! Protocol of the reference daemon: Go's `net/rpc` with gob, after an HTTP handshake, on a Unix
//! socket.
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

/// Opening line of a client.
pub const CONNECT: &[u8] = b"CONNECT /_goRPC_ HTTP/1.0\n\n";
/// Answer of the daemon to [`CONNECT`].
pub const CONNECTED: &[u8] = b"HTTP/1.0 200 Connected to Go RPC\n\n";
/// Acquires a lease, or returns the existing one.
pub const ALLOCATE: &str = "DHCP.Allocate";
/// Releases a lease.
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

/// Arguments of a call: the environment and input of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`, absolute.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// Configuration from standard input.
    pub stdin: Vec<u8>,
}

/// A call received by a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcCall {
    /// Sequence number of the client.
    pub seq: u64,
    /// Method.
    pub method: String,
    /// Arguments.
    pub args: Args,
}

/// Daemon's side of a connection.
#[derive(Debug, Default)]
pub struct Server {
    input: Vec<u8>,
    is_connected: bool,
    /// Sequence number and method of a call whose arguments have not arrived yet.
    request: Option<(u64, String)>,
    decoder: Decoder,
    encoder: Encoder,
}

impl Server {
    /// Processes bytes of the client. Returns its calls, and bytes to send.
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

    /// Encodes the answer to a call: a lease for [`ALLOCATE`], no value for other methods.
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
    /// Encodes a call, to be sent after the daemon's [`CONNECTED`].
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

    /// True after the daemon's [`CONNECTED`].
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Processes bytes of the daemon. Returns the lease or the error once the answer is complete.
    /// The answer to a release has an empty lease.
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
                Some(Ok(())) => return lease_of(&value).map(|lease| Some(Ok(lease))),
            }
        }
        Ok(None)
    }
}

/// Returns the length of an HTTP head with its empty line; `None` if it is incomplete.
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

/// Parses an address. Go stores an IPv4 address in 4 or 16 bytes.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    Some(exact_ip_of(bytes)?.to_canonical())
}

/// Parses an address or a mask, without conversion of an IPv4 address in 16 bytes.
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
    let ip = |ip: &Value| {
        let address = net_of(ip.get("Address"))?;
        Ok(IpConfig {
            address,
            gateway: ip_of(ip.bytes("Gateway")),
            interface: None,
        })
    };
    let number = |route: &Value, name| {
        let number = route.number(name)?;
        u32::try_from(number).ok()
    };
    let route = |route: &Value| {
        Ok(Route {
            dst: net_of(route.get("Dst"))?,
            gw: ip_of(route.bytes("GW")),
            mtu: number(route, "MTU").unwrap_or_default(),
            advmss: number(route, "AdvMSS").unwrap_or_default(),
            priority: number(route, "Priority").unwrap_or_default(),
            table: number(route, "Table"),
            scope: number(route, "Scope").and_then(|scope| u8::try_from(scope).ok()),
        })
    };
    Ok(Lease {
        ips: value
            .items("IPs")
            .iter()
            .map(ip)
            .collect::<Result<_, String>>()?,
        routes: value
            .items("Routes")
            .iter()
            .map(route)
            .collect::<Result<_, String>>()?,
        dns: Dns::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a Go 1.26 client with the reference's types: two calls on one connection.
    const CLIENT: &str = "2e7f030101075265717565737401ff80000102010d536572766963654d6574686f64010c000103536571010600000012ff80\
        010d444843502e416c6c6f63617465006cff8103010107436d644172677301ff82000107010b436f6e7461696e6572494401\
        0c0001054e65746e73010c00010649664e616d65010c00010441726773010c00010450617468010c00010d4e65746e734f76\
        657272696465010c000109537464696e44617461010a0000003eff82010434663163010c2f72756e2f6e65746e732f610104\
        6574683001034b3d56010c2f6f70742f636e692f62696e020c7b226e616d65223a226e227d0013ff80010c444843502e5265\
        6c6561736501010009ff8201043466316300";
    /// Bytes of a Go 1.26 daemon with the reference's types: a lease, an empty answer, an error.
    const DAEMON: &str = "3aff8303010108526573706f6e736501ff84000103010d536572766963654d6574686f64010c000103536571010600010545\
        72726f72010c00000012ff84010d444843502e416c6c6f636174650051ff8503010106526573756c7401ff86000105010a43\
        4e4956657273696f6e010c00010a496e746572666163657301ff8a00010349507301ff90000106526f7574657301ff940001\
        03444e5301ff9600000024ff89020101155b5d2a74797065733130302e496e7465726661636501ff8a0001ff8800004aff87\
        030102ff8800010601044e616d65010c0001034d6163010c0001034d7475010400010753616e64626f78010c00010a536f63\
        6b657450617468010c0001055063694944010c00000023ff8f020101145b5d2a74797065733130302e4950436f6e66696701\
        ff900001ff8c000033ff8b030102ff8c0001030109496e7465726661636501040001074164647265737301ff8e0001074761\
        7465776179010a00000023ff8d0301010549504e657401ff8e00010201024950010a0001044d61736b010a0000001dff9302\
        01010e5b5d2a74797065732e526f75746501ff940001ff92000050ff91030102ff92000107010344737401ff8e0001024757\
        010a0001034d545501040001064164764d535301040001085072696f7269747901040001055461626c65010400010553636f\
        7065010400000046ff9503010103444e5301ff96000104010b4e616d657365727665727301ff98000106446f6d61696e010c\
        00010653656172636801ff980001074f7074696f6e7301ff9800000016ff97020101085b5d737472696e6701ff9800010c00\
        006eff860105312e312e3002010201040a0100070104ffffff000001040a0100010001020101040000000001040000000000\
        011000000000000000000000ffff0a01000103ffc8000101040a0100070104ffffff0000011000000000000000000000ffff\
        0000000005fe01fa0001000013ff84010c444843502e52656c656173650101000aff99030102ff9a00000003ff9a0023ff84\
        010d444843502e416c6c6f636174650102010d6e6f206d6f72652074726965730003ff9a00";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn lease() -> Lease {
        let route = |dst: &str, gw: Option<&str>, priority, scope| Route {
            dst: dst.parse().unwrap(),
            gw: gw.map(|gw| gw.parse().unwrap()),
            priority,
            scope,
            ..Route::to("0.0.0.0/0".parse().unwrap())
        };
        let ip = IpConfig {
            address: "10.1.0.7/24".parse().unwrap(),
            gateway: "10.1.0.1".parse().ok(),
            interface: None,
        };
        let routes = vec![
            route("0.0.0.0/0", Some("10.1.0.1"), 100, None),
            route("10.1.0.7/24", Some("0.0.0.0"), 0, Some(253)),
        ];
        Lease {
            ips: vec![ip],
            routes,
            dns: Dns::default(),
        }
    }

    #[test]
    fn calls_of_a_go_client_are_read() {
        let mut server = Server::default();
        let stream = [CONNECT, &bytes(CLIENT)].concat();
        let (mut calls, mut greeting) = (Vec::new(), Vec::new());
        for piece in stream.chunks(7) {
            let (more, out) = server.read(piece).expect("a good stream");
            calls.extend(more);
            greeting.extend(out);
        }
        assert_eq!(greeting, CONNECTED);
        let args = Args {
            container_id: "4f1c".into(),
            netns: "/run/netns/a".into(),
            ifname: "eth0".into(),
            args: "K=V".into(),
            stdin: br#"{"name":"n"}"#.to_vec(),
        };
        let released = Args {
            container_id: "4f1c".into(),
            ..Args::default()
        };
        let expected = [
            RpcCall {
                seq: 0,
                method: ALLOCATE.into(),
                args,
            },
            RpcCall {
                seq: 1,
                method: RELEASE.into(),
                args: released,
            },
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn the_answer_of_a_go_daemon_is_read() {
        let mut client = Client::default();
        let stream = [CONNECTED, &bytes(DAEMON)].concat();
        let mut answer = None;
        for piece in stream.chunks(11) {
            answer = answer.or(client.read(piece).expect("a good stream"));
        }
        assert_eq!(answer, Some(Ok(lease())));
    }

    #[test]
    fn own_daemon_and_own_client_interoperate() {
        let args = Args {
            container_id: "4f1c".into(),
            netns: "/n".into(),
            stdin: vec![0, 255],
            ..Args::default()
        };
        let mut server = Server::default();
        assert_eq!(server.read(CONNECT), Ok((Vec::new(), CONNECTED.to_vec())));
        let (calls, _) = server
            .read(&Client::call(ALLOCATE, &args))
            .expect("a good stream");
        assert_eq!(
            calls,
            [RpcCall {
                seq: 0,
                method: ALLOCATE.into(),
                args
            }]
        );
        for (said, expected) in [
            (Ok(Some(&lease())), Ok(lease())),
            (Ok(None), Ok(Lease::default())),
            (Err("no"), Err("no".to_owned())),
        ] {
            let mut server = Server::default();
            let mut client = Client::default();
            assert_eq!(client.read(CONNECTED), Ok(None));
            assert_eq!(
                client.read(&server.answer(0, ALLOCATE, said)),
                Ok(Some(expected))
            );
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        assert!(Server::default().read(b"GET / HTTP/1.1\r\n\r\n").is_err());
        assert!(Server::default().read(&vec![b'x'; MOST_HEAD + 1]).is_err());
        assert!(
            Client::default()
                .read(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .is_err()
        );
    }
}
