//! The `static` IPAM plugin: addresses from the configuration or the runtime. The plugin stores
//! nothing.

use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::{AddResult, CniArgs, Dns, Error, IpConfig, Json, NetConf, Route};
use crate::ipam::Lease;
use crate::ipam::host_local::config::{args_ips, one_per_family};
use ipnet::IpNet;

/// Validated configuration of the `static` IPAM plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticConfig {
    /// Addresses in order, possibly none. Host bits are kept, and `interface` is unset.
    pub addresses: Vec<IpConfig>,
    /// `routes`, copied into the result.
    pub routes: Vec<Route>,
    /// `dns`, copied into the result.
    pub dns: Dns,
}

impl StaticConfig {
    /// Parses `ipam` and its overrides. Addresses in `CNI_ARGS` are added to the configured
    /// addresses. `args.cni.ips` replaces all these addresses, and `runtimeConfig.ips` takes
    /// precedence over `args.cni.ips`.
    pub fn parse(conf: &NetConf, cni_args: &str) -> Result<Self, Error> {
        let ipam = conf
            .json
            .object("ipam")?
            .ok_or_else(|| Error::config("IPAM config missing 'ipam' key"))?;
        let from_args = addresses_of_cni_args(cni_args)?;
        let runtime = conf.json.object("runtimeConfig")?.unwrap_or(&Json::Null);
        let mut override_ips = args_ips(&conf.json)?;
        let runtime_ips = runtime
            .strings("ips")
            .map_err(|e| e.at_key("runtimeConfig"))?;
        if !runtime_ips.is_empty() {
            override_ips = runtime_ips;
        }
        let addresses = if override_ips.is_empty() {
            let mut addresses = ipam.each_object("addresses", configured).map_err(in_ipam)?;
            addresses.extend(from_args);
            addresses
        } else {
            override_ips
                .iter()
                .map(|text| cidr("an entry in the 'ips' field is NOT", text))
                .collect::<Result<_, _>>()?
        };
        one_per_family(
            conf.version,
            addresses.iter().map(|ip| ip.address.addr().is_ipv4()),
        )?;
        Ok(Self {
            addresses,
            routes: ipam.each_object("routes", Route::parse).map_err(in_ipam)?,
            dns: ipam
                .nested("dns", Dns::parse)
                .map_err(in_ipam)?
                .unwrap_or_default(),
        })
    }

    /// Returns an empty configuration, because DEL has nothing to release.
    pub fn parse_for_release(_conf: &NetConf) -> Result<Self, Error> {
        Ok(Self::default())
    }

    /// Returns the lease, which is the same for each attachment.
    pub fn lease(&self) -> Lease {
        Lease {
            ips: self.addresses.clone(),
            routes: self.routes.clone(),
            dns: self.dns.clone(),
        }
    }

    /// Checks that each configured address with a gateway has the same gateway in `prev_result`.
    /// Ignores addresses that are not in `prev_result`.
    pub fn check_gateways(
        &self,
        prev_result: Option<&AddResult>,
        ifname: &str,
    ) -> Result<(), Error> {
        let prev = prev_result.ok_or_else(|| Error::config("Required prevResult missing"))?;
        for ours in self.addresses.iter().filter(|ours| ours.gateway.is_some()) {
            let ip = ours.address.addr();
            if let Some(theirs) = prev.ips.iter().find(|theirs| theirs.address.addr() == ip)
                && theirs.gateway != ours.gateway
            {
                let text = |gateway: Option<std::net::IpAddr>| {
                    gateway.map_or("none".to_owned(), |g| g.to_string())
                };
                let (want, got) = (text(ours.gateway), text(theirs.gateway));
                return Err(Error::internal(format!(
                    "static: Failed to match addr {ip} on interface {ifname}: its gateway is {got}, not {want}"
                )));
            }
        }
        Ok(())
    }
}

fn configured(item: &Json) -> Result<IpConfig, Error> {
    let gateway = item.ip("gateway")?;
    let text = item.str_or("address", "")?;
    let address = cidr("the 'address' field is expected to be", text);
    Ok(IpConfig {
        gateway,
        ..address.map_err(|e| e.at_key("address"))?
    })
}

fn in_ipam(error: Error) -> Error {
    error.at_key("ipam")
}

/// Parses `IP` and `GATEWAY` in `CNI_ARGS`, which are comma-separated lists. A gateway applies to
/// every address in `IP` with a subnet that contains the gateway.
fn addresses_of_cni_args(cni_args: &str) -> Result<Vec<IpConfig>, Error> {
    let args = CniArgs::parse(cni_args, &["IP", "GATEWAY"])?;
    let mut addresses = Vec::new();
    if let Some(list) = args.get("IP") {
        for text in list.split(',') {
            addresses.push(cidr("the 'ip' field is expected to be", text.trim())?);
        }
    }
    let Some(gateways) = args.get("GATEWAY") else {
        return Ok(addresses);
    };
    for text in gateways.split(',') {
        let text = text.trim();
        let gateway = parse_ip(text).map_err(|e| {
            Error::config(format!("invalid gateway address: {text}")).with_details(e.msg)
        })?;
        for ip in &mut addresses {
            if ip.address.contains(&gateway) {
                ip.gateway = Some(gateway);
            }
        }
    }
    Ok(addresses)
}

/// Parses an address with its prefix length. The error is `<what> in CIDR notation, got: '<text>'`.
fn cidr(what: &str, text: &str) -> Result<IpConfig, Error> {
    let address: IpNet = parse_cidr(text).map_err(|e| {
        Error::config(format!("{what} in CIDR notation, got: '{text}'")).with_details(e.msg)
    })?;
    Ok(IpConfig {
        address,
        gateway: None,
        interface: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &str, cni_args: &str) -> Result<StaticConfig, Error> {
        StaticConfig::parse(&NetConf::parse(config.as_bytes())?, cni_args)
    }

    fn ip(address: &str, gateway: Option<&str>) -> IpConfig {
        IpConfig {
            address: address.parse().unwrap(),
            gateway: gateway.map(|g| g.parse().unwrap()),
            interface: None,
        }
    }

    const TWO: &str = r#"{"name":"n","cniVersion":"0.3.1","ipam":{"type":"static",
        "addresses":[{"address":"10.10.0.1/24","gateway":"10.10.0.254"},{"address":"3ffe:ffff:0:01ff::1/64"}],
        "routes":[{"dst":"0.0.0.0/0","gw":"10.10.0.254"},{"dst":"0.0.0.0/0","gw":"10.10.0.253"},
                  {"dst":"3ffe:ffff:0:01ff::1/64"}],
        "dns":{"nameservers":["10.0.0.1"],"domain":"d","search":["s"],"options":["o"]}}}"#;

    #[test]
    fn addresses_routes_and_dns_are_kept_as_written() {
        let config = parse(TWO, "").unwrap();
        assert_eq!(
            config.addresses,
            [
                ip("10.10.0.1/24", Some("10.10.0.254")),
                ip("3ffe:ffff:0:1ff::1/64", None)
            ]
        );
        let gateways: Vec<_> = config
            .routes
            .iter()
            .map(|r| (r.dst.to_string(), r.gw.map(|g| g.to_string())))
            .collect();
        let route = |dst: &str, gw: Option<&str>| (dst.to_owned(), gw.map(str::to_owned));
        let expected = [
            route("0.0.0.0/0", Some("10.10.0.254")),
            route("0.0.0.0/0", Some("10.10.0.253")),
            route("3ffe:ffff:0:1ff::1/64", None),
        ];
        assert_eq!(gateways, expected);
        assert_eq!(
            (config.dns.nameservers, config.dns.domain),
            (vec!["10.0.0.1".to_owned()], "d".to_owned())
        );
    }

    #[test]
    fn gateway_of_cni_args_applies_to_addresses_of_cni_args_in_its_subnet() {
        let args = "IP=10.10.0.1/24,11.11.0.1/24;GATEWAY=10.10.0.254";
        let config = parse(
            r#"{"name":"n","cniVersion":"0.3.1","ipam":{"addresses":[{"address":"10.10.0.9/24"}]}}"#,
            args,
        );
        let expected = [
            ip("10.10.0.9/24", None),
            ip("10.10.0.1/24", Some("10.10.0.254")),
            ip("11.11.0.1/24", None),
        ];
        assert_eq!(config.unwrap().addresses, expected);
    }

    #[test]
    fn args_replace_cni_args_and_runtime_config_replaces_both() {
        let config = |runtime: &str| {
            format!(
                r#"{{"name":"n","cniVersion":"1.0.0","args":{{"cni":{{"ips":["10.2.0.1/24"]}}}},{runtime}
                    "ipam":{{"addresses":[{{"address":"never read"}}]}}}}"#
            )
        };
        let args = "IP=10.1.0.1/24;GATEWAY=10.1.0.254";
        assert_eq!(
            parse(&config(""), args).unwrap().addresses,
            [ip("10.2.0.1/24", None)]
        );
        let both = parse(
            &config(r#""RuntimeConfig":{"ips":["10.3.0.1/24","2001:db8::1/64"]},"#),
            args,
        )
        .unwrap();
        assert_eq!(
            both.addresses,
            [ip("10.3.0.1/24", None), ip("2001:db8::1/64", None)]
        );
    }

    #[test]
    fn invalid_addresses_are_refused_with_the_reference_plugins_messages() {
        let base = r#"{"name":"n","ipam":{}}"#;
        let refused = |config: &str, args: &str| parse(config, args).unwrap_err().msg;
        assert_eq!(
            refused(r#"{"name":"n"}"#, ""),
            "IPAM config missing 'ipam' key"
        );
        assert_eq!(
            refused(
                r#"{"name":"n","ipam":{"addresses":[{"address":"10.0.0.1"}]}}"#,
                ""
            ),
            "addresses[0]: the 'address' field is expected to be in CIDR notation, got: '10.0.0.1'"
        );
        assert_eq!(
            refused(base, "IP=10.0.0.1"),
            "the 'ip' field is expected to be in CIDR notation, got: '10.0.0.1'"
        );
        assert_eq!(
            refused(
                r#"{"name":"n","ipam":{},"runtimeConfig":{"ips":["10.0.0.1"]}}"#,
                ""
            ),
            "an entry in the 'ips' field is NOT in CIDR notation, got: '10.0.0.1'"
        );
        assert_eq!(
            refused(base, "IP=10.0.0.1/8;GATEWAY=x"),
            "invalid gateway address: x"
        );
        assert_eq!(
            refused(base, "IP=10.0.0.1/8,10.0.0.2/8"),
            "CNI version 0.1.0 does not support more than 1 address per family, got 2 IPv4 and 0 IPv6"
        );
    }

    #[test]
    fn no_address_at_all_is_legal() {
        assert_eq!(
            parse(r#"{"name":"n","ipam":{}}"#, "").unwrap(),
            StaticConfig::default()
        );
    }

    #[test]
    fn check_compares_the_gateways_of_present_addresses() {
        let config = parse(TWO, "").unwrap();
        let prev = |ips: Vec<IpConfig>| AddResult {
            ips,
            ..AddResult::default()
        };
        assert_eq!(
            config.check_gateways(None, "eth0").unwrap_err().msg,
            "Required prevResult missing"
        );
        assert_eq!(config.check_gateways(Some(&prev(vec![])), "eth0"), Ok(()));
        assert_eq!(
            config.check_gateways(
                Some(&prev(vec![ip("10.10.0.1/24", Some("10.10.0.254"))])),
                "eth0"
            ),
            Ok(())
        );
        let error = config
            .check_gateways(Some(&prev(vec![ip("10.10.0.1/24", None)])), "eth0")
            .unwrap_err()
            .msg;
        assert_eq!(
            error,
            "static: Failed to match addr 10.10.0.1 on interface eth0: its gateway is none, not 10.10.0.254"
        );
    }
}
