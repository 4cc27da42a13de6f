//! Result of an ADD, parsed from its three JSON layouts; the module `layout` writes them.

use super::bounds::shortened;
use super::version::Family;
use super::{Error, Json, Version};
use ipnet::IpNet;
use std::net::IpAddr;

/// Result of an ADD, with the fields of the newest version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddResult {
    /// Interfaces that were created or used, on the host and in the container.
    pub interfaces: Vec<Interface>,
    /// Assigned addresses.
    pub ips: Vec<IpConfig>,
    /// Routes added in the container.
    pub routes: Vec<Route>,
    /// Name resolution for the container.
    pub dns: Dns,
}

/// One network interface of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Hardware address; empty if the interface has none.
    pub mac: String,
    /// MTU in bytes (since CNI 1.1.0).
    pub mtu: Option<u32>,
    /// Path of the network namespace; empty on the host.
    pub sandbox: String,
    /// Path of a socket file for the interface (since CNI 1.1.0); empty if none.
    pub socket_path: String,
    /// PCI address of the device (since CNI 1.1.0); empty if none.
    pub pci_id: String,
}

/// One address of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// Address with its prefix; host bits are kept.
    pub address: IpNet,
    /// Gateway of the address's subnet.
    pub gateway: Option<IpAddr>,
    /// Index in [`AddResult::interfaces`] of the interface with this address.
    pub interface: Option<usize>,
}

/// One route of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination; host bits are kept.
    pub dst: IpNet,
    /// Next hop. If unset, the gateway of the result's address is the next hop.
    pub gw: Option<IpAddr>,
    /// MTU along the path in bytes; 0 means unset.
    pub mtu: u32,
    /// Maximal segment size to advertise in bytes; 0 means unset.
    pub advmss: u32,
    /// Route metric, where the lowest is preferred; 0 means unset.
    pub priority: u32,
    /// Routing table; if unset, main (254).
    pub table: Option<u32>,
    /// Kernel number of the route scope: 0 universe, 200 site, 253 link, 254 host.
    pub scope: Option<u8>,
}

/// Name resolution in a configuration or a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers in priority order.
    pub nameservers: Vec<String>,
    /// Local domain for short names.
    pub domain: String,
    /// Search domains in priority order.
    pub search: Vec<String>,
    /// Resolver options.
    pub options: Vec<String>,
}

impl AddResult {
    /// Parses a result of any version and converts it to the newest. A result without `cniVersion`
    /// has version `default`, and `null` is an empty result. Errors: code 6 for a wrong type, 1 for
    /// an unknown version.
    pub fn parse(json: &Json, default: Version) -> Result<Self, Error> {
        json.expect_object("result")?;
        let family = result_version(json, default)?.family();
        let dns = json.nested("dns", Dns::parse)?.unwrap_or_default();
        if family == Family::V02x {
            return Self::parse_02x(json, dns);
        }
        Ok(Self {
            interfaces: json.each_object("interfaces", |item| Interface::parse(item, family))?,
            ips: json.each_object("ips", IpConfig::parse)?,
            routes: json.each_object("routes", Route::parse)?,
            dns,
        })
    }

    fn parse_02x(json: &Json, dns: Dns) -> Result<Self, Error> {
        let mut result = Self {
            dns,
            ..Self::default()
        };
        for key in ["ip4", "ip6"] {
            let read = |json: &Json| {
                Ok((
                    IpConfig::parse_keyed(json, "ip")?,
                    json.each_object("routes", Route::parse)?,
                ))
            };
            let Some((mut ip, routes)) = json.nested(key, read)? else {
                continue;
            };
            ip.interface = None;
            result.ips.push(ip);
            for route in routes {
                result.routes.push(Route {
                    gw: route.gw,
                    ..Route::to(route.dst)
                });
            }
        }
        Ok(result)
    }
}

/// Returns the result's `cniVersion`, or `default` if absent.
pub(super) fn result_version(json: &Json, default: Version) -> Result<Version, Error> {
    let text = json.str_or("cniVersion", "")?;
    match Version::parse(text) {
        _ if text.is_empty() => Ok(default),
        Some(version) => Ok(version),
        None => Err(Error::version(format!(
            "unsupported CNI result version {:?}",
            shortened(text)
        ))),
    }
}

impl Interface {
    fn parse(json: &Json, family: Family) -> Result<Self, Error> {
        let mut interface = Self {
            name: json.string("name")?,
            mac: json.string("mac")?,
            sandbox: json.string("sandbox")?,
            ..Self::default()
        };
        if family == Family::V10x {
            interface.mtu = json.u32("mtu")?.filter(|mtu| *mtu != 0);
            interface.socket_path = json.string("socketPath")?;
            interface.pci_id = json.string("pciID")?;
        }
        Ok(interface)
    }
}

impl IpConfig {
    fn parse(json: &Json) -> Result<Self, Error> {
        Self::parse_keyed(json, "address")
    }

    fn parse_keyed(json: &Json, address_key: &str) -> Result<Self, Error> {
        let address = json
            .cidr(address_key)?
            .ok_or_else(|| Error::decode(format!("{address_key:?} is missing")))?;
        // A negative index means no interface.
        let interface = json
            .i64("interface")?
            .and_then(|index| usize::try_from(index).ok());
        Ok(Self {
            address,
            gateway: json.ip("gateway")?,
            interface,
        })
    }
}

impl Route {
    /// Returns a route to `dst` with no other field set.
    pub fn to(dst: IpNet) -> Self {
        Self {
            dst,
            gw: None,
            mtu: 0,
            advmss: 0,
            priority: 0,
            table: None,
            scope: None,
        }
    }

    /// Returns the next hop, if any. An address of all zeros is not a next hop: DHCP servers use it
    /// for on-link routes.
    pub fn next_hop(&self) -> Option<IpAddr> {
        self.gw.filter(|gw| !gw.is_unspecified())
    }

    /// Parses one route of a result or of an IPAM configuration; errors have code 6.
    pub fn parse(json: &Json) -> Result<Self, Error> {
        json.expect_object("route")?;
        Ok(Self {
            dst: json
                .cidr("dst")?
                .ok_or_else(|| Error::decode("\"dst\" is missing"))?,
            gw: json.ip("gw")?,
            mtu: json.u32("mtu")?.unwrap_or(0),
            advmss: json.u32("advmss")?.unwrap_or(0),
            priority: json.u32("priority")?.unwrap_or(0),
            table: json.u32("table")?,
            scope: json.u8("scope")?,
        })
    }
}

impl Dns {
    /// Parses `nameservers`, `domain`, `search` and `options`; errors have code 6.
    pub fn parse(json: &Json) -> Result<Self, Error> {
        Ok(Self {
            nameservers: json.strings("nameservers")?,
            domain: json.string("domain")?,
            search: json.strings("search")?,
            options: json.strings("options")?,
        })
    }

    /// True if no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AddResult, Error> {
        AddResult::parse(&Json::parse(text.as_bytes(), "test")?, Version::V1_0_0)
    }

    #[test]
    fn null_and_an_empty_object_are_an_empty_result() {
        for text in ["null", "{}", r#"{"ips":null,"interfaces":[],"dns":{}}"#] {
            assert_eq!(parse(text), Ok(AddResult::default()), "{text}");
        }
    }

    #[test]
    fn a_wrong_field_is_named_with_its_path_and_value() {
        for (text, message) in [
            (
                r#"{"ips":[{"address":"10.0.0.1"}]}"#,
                r#"ips[0]: "address": invalid CIDR address: "10.0.0.1""#,
            ),
            (
                r#"{"ips":[{"address":"10.0.0.1/8","gateway":"x"}]}"#,
                r#"ips[0]: "gateway": invalid IP address: "x""#,
            ),
            (r#"{"ips":[{}]}"#, r#"ips[0]: "address" is missing"#),
            (r#"{"ips":[3]}"#, "ips[0]: expected an object, got 3"),
            (
                r#"{"routes":[{"dst":"::/0","scope":256}]}"#,
                "expected a whole number from 0 to 255, got 256",
            ),
            (
                r#"{"interfaces":[{"name":"a"},{"name":[]}]}"#,
                r#"interfaces[1]: "name": expected a string, got []"#,
            ),
            (
                r#"{"dns":{"search":"a"}}"#,
                r#"dns: "search": expected a list, got "a""#,
            ),
            ("[]", "result: expected an object, got []"),
            (
                r#"{"cniVersion":"0.2.0","ip4":{}}"#,
                r#"ip4: "ip" is missing"#,
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.msg.contains(message), "{text}: {}", error.msg);
            assert_eq!(error.kind, crate::cni::Kind::Decode);
        }
    }

    #[test]
    fn own_version_overrides_the_default_and_an_unknown_one_is_refused() {
        let result =
            parse(r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8"},"ips":"not read"}"#).unwrap();
        assert_eq!(result.ips.len(), 1);
        let error = parse(r#"{"cniVersion":"1.2.0"}"#).unwrap_err();
        assert_eq!(
            error,
            Error::version("unsupported CNI result version \"1.2.0\"")
        );
    }

    #[test]
    fn an_index_below_zero_is_none() {
        let result = parse(r#"{"ips":[{"address":"10.0.0.1/8","interface":-1}]}"#).unwrap();
        assert_eq!(result.ips[0].interface, None);
        assert!(parse(r#"{"ips":[{"address":"10.0.0.1/8","interface":0.5}]}"#).is_err());
    }

    #[test]
    fn an_empty_gateway_is_none() {
        let result =
            parse(r#"{"ips":[{"address":"10.0.0.1/8","gateway":"","interface":0}]}"#).unwrap();
        assert_eq!(
            (result.ips[0].gateway, result.ips[0].interface),
            (None, Some(0))
        );
    }
}
