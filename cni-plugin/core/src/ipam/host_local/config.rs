//! Configuration of the `host-local` IPAM plugin: the ranges and the requested addresses.

use crate::cni::address::{parse_cidr, parse_ip};
use crate::cni::{CniArgs, Error, Json, NetConf, Route, Version};
use crate::ipam::range::{RangeSet, RangeSpec};
use std::net::IpAddr;
use std::path::PathBuf;

/// Default of `dataDir`, the directory of the leases.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// Maximum length of a file name in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// Validated configuration of the `host-local` IPAM plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLocalConfig {
    /// Network name, also the name of the directory in `data_dir` with the network's leases.
    pub network: String,
    /// `dataDir`; default [`DEFAULT_DATA_DIR`].
    pub data_dir: PathBuf,
    /// Range sets in this order: `runtimeConfig.ipRanges`, the single range in `ipam`, then
    /// `ranges`. An attachment gets one address from each set. The index of a set is also the
    /// number of the set on disk.
    pub ranges: Vec<RangeSet>,
    /// `routes`, copied into the result.
    pub routes: Vec<Route>,
    /// `resolvConf`: file with the DNS settings for the result.
    pub resolv_conf: Option<PathBuf>,
    /// Addresses requested by `CNI_ARGS`, `args.cni.ips` and `runtimeConfig.ips`, without
    /// duplicates.
    pub requested: Vec<IpAddr>,
}

impl HostLocalConfig {
    /// Parses `ipam`, and the addresses that the runtime requests in `conf` and in `CNI_ARGS`.
    pub fn parse(conf: &NetConf, cni_args: &str) -> Result<Self, Error> {
        if conf.name.len() > MAX_NAME_BYTES {
            let len = conf.name.len();
            return Err(Error::config(format!(
                "network name has {len} bytes, but a directory name has at most {MAX_NAME_BYTES}"
            ))
            .at_key("name"));
        }
        let ipam = ipam_of(conf)?;
        let runtime = conf.json.object("runtimeConfig")?.unwrap_or(&Json::Null);
        Ok(Self {
            ranges: range_sets(ipam, runtime, conf.version, needs_gateway(&conf.json)?)?,
            routes: ipam.each_object("routes", Route::parse).map_err(in_ipam)?,
            resolv_conf: path(ipam, "resolvConf").map_err(in_ipam)?,
            requested: requested(&conf.json, runtime, cni_args)?,
            ..Self::parse_for_release(conf)?
        })
    }

    /// Parses only the location of the leases, which is enough to release a lease.
    pub fn parse_for_release(conf: &NetConf) -> Result<Self, Error> {
        if matches!(conf.name.as_str(), "" | "." | "..") || conf.name.contains(['/', '\0']) {
            return Err(Error::config(format!(
                "network name {:?} is not a valid directory name",
                conf.name
            )));
        }
        let data_dir = path(ipam_of(conf)?, "dataDir")
            .map_err(in_ipam)?
            .unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR));
        let (ranges, routes, requested) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self {
            network: conf.name.clone(),
            data_dir,
            ranges,
            routes,
            resolv_conf: None,
            requested,
        })
    }

    /// Returns the directory with the network's leases.
    pub fn path(&self) -> PathBuf {
        self.data_dir.join(&self.network)
    }
}

fn in_ipam(error: Error) -> Error {
    error.at_key("ipam")
}

fn ipam_of(conf: &NetConf) -> Result<&Json, Error> {
    conf.json
        .object("ipam")?
        .ok_or_else(|| Error::config("IPAM config missing 'ipam' key"))
}

fn path(ipam: &Json, key: &str) -> Result<Option<PathBuf>, Error> {
    match ipam.str(key)? {
        None | Some("") => Ok(None),
        Some(path) => Ok(Some(PathBuf::from(path))),
    }
}

/// True if the calling plugin assigns the gateway address to a link on the node.
fn needs_gateway(conf: &Json) -> Result<bool, Error> {
    Ok(match conf.str_or("type", "")? {
        "ptp" | "veth" | "netkit" => true,
        "bridge" => conf.bool_or("isGateway", false)? || conf.bool_or("isDefaultGateway", false)?,
        _ => false,
    })
}

fn range_sets(
    ipam: &Json,
    runtime: &Json,
    version: Version,
    needs_gateway: bool,
) -> Result<Vec<RangeSet>, Error> {
    let in_runtime = |error: Error| error.context("runtimeConfig").at_key("runtimeConfig");
    let in_ipam = |error: Error| in_ipam(error.context("ipam"));
    let mut specs = RangeSpec::parse_sets(runtime, "ipRanges").map_err(in_runtime)?;
    let of_runtime = specs.len();
    let single = RangeSpec::parse(ipam).map_err(in_ipam)?;
    if single.subnet.is_some() {
        specs.push(vec![single]);
    }
    let before_ranges = specs.len();
    specs.extend(RangeSpec::parse_sets(ipam, "ranges").map_err(in_ipam)?);
    if specs.is_empty() {
        return Err(Error::config("no IP ranges specified").at_key("ipam"));
    }
    if needs_gateway {
        specs = specs
            .into_iter()
            .map(|set| set.into_iter().map(RangeSpec::with_gateway).collect())
            .collect();
    }
    let mut sets = Vec::with_capacity(specs.len());
    for (number, specs) in specs.iter().enumerate() {
        let set = RangeSet::new(specs).map_err(|e| {
            let error = Error::config(format!("invalid range set {number}: {e}"));
            match number.checked_sub(before_ranges) {
                Some(index) => error.at_index(index).at_key("ranges").at_key("ipam"),
                None if number < of_runtime => error.at_key("ipRanges").at_key("runtimeConfig"),
                None => error.at_key("subnet").at_key("ipam"),
            }
        })?;
        sets.push(set);
    }
    one_per_family(version, sets.iter().map(RangeSet::is_ipv4))?;
    for (i, a) in sets.iter().enumerate() {
        if let Some(j) = (i + 1..sets.len()).find(|&j| a.overlaps(&sets[j])) {
            return Err(Error::config(format!(
                "range set {i} overlaps with {j}: {a} and {}",
                sets[j]
            ))
            .at_key("ipam"));
        }
    }
    Ok(sets)
}

/// Refuses several addresses of one family for CNI versions before 0.3.0, because a result of these
/// versions has at most one address per family.
pub fn one_per_family(version: Version, is_ipv4: impl Iterator<Item = bool>) -> Result<(), Error> {
    let (v4, v6): (Vec<bool>, Vec<bool>) = is_ipv4.partition(|v4| *v4);
    if version < Version::V0_3_0 && (v4.len() > 1 || v6.len() > 1) {
        return Err(Error::config(format!(
            "CNI version {version} does not support more than 1 address per family, got {} IPv4 and {} IPv6",
            v4.len(),
            v6.len()
        )));
    }
    Ok(())
}

fn requested(json: &Json, runtime: &Json, cni_args: &str) -> Result<Vec<IpAddr>, Error> {
    let args = CniArgs::parse(cni_args, &["IP"])?;
    let mut all: Vec<(&str, String)> = Vec::new();
    if let Some(list) = args.get("IP") {
        for text in list.split(',') {
            all.push(("CNI_ARGS IP", text.trim().to_owned()));
        }
    }
    for text in args_ips(json)? {
        all.push(("args.cni.ips", text));
    }
    let of_runtime = runtime.strings("ips");
    for text in of_runtime.map_err(|e| e.at_key("runtimeConfig"))? {
        all.push(("runtimeConfig.ips", text));
    }
    let mut ips = Vec::with_capacity(all.len());
    for (place, text) in all {
        // A prefix is allowed and ignored, because the range has one.
        let ip = if text.contains('/') {
            parse_cidr(&text).map(|net| net.addr())
        } else {
            parse_ip(&text)
        };
        let ip = ip.map_err(|e| e.context(place).at_keys(place))?;
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    Ok(ips)
}

/// Returns the addresses in `args.cni.ips` as strings; empty if absent.
pub fn args_ips(json: &Json) -> Result<Vec<String>, Error> {
    let ips = json.nested("args", |args| args.nested("cni", |cni| cni.strings("ips")))?;
    Ok(ips.flatten().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &str, cni_args: &str) -> Result<HostLocalConfig, Error> {
        HostLocalConfig::parse(&NetConf::parse(config.as_bytes())?, cni_args)
    }

    fn sets(config: &HostLocalConfig) -> Vec<String> {
        config.ranges.iter().map(RangeSet::to_string).collect()
    }

    fn refused(ipam: &str) -> String {
        parse(
            &format!(r#"{{"name":"n","cniVersion":"0.2.0","ipam":{ipam}}}"#),
            "",
        )
        .unwrap_err()
        .msg
    }

    #[test]
    fn range_sets_are_in_the_order_runtime_single_list() {
        let config = parse(
            r#"{"name":"n","cniVersion":"1.0.0","RuntimeConfig":{"ipRanges":[[{"subnet":"10.3.0.0/30"}]]},
                "ipam":{"subnet":"10.1.0.0/30","dataDir":"/d","resolvConf":"/r","routes":[{"dst":"0.0.0.0/0"}],
                "ranges":[[{"subnet":"10.2.0.0/30"},{"subnet":"10.2.1.0/30"}],[{"subnet":"2001:db8::/126"}]]}}"#,
            "",
        )
        .unwrap();
        let expected = [
            "10.3.0.1-10.3.0.2",
            "10.1.0.1-10.1.0.2",
            "10.2.0.1-10.2.0.2,10.2.1.1-10.2.1.2",
            "2001:db8::1-2001:db8::3",
        ];
        assert_eq!(sets(&config), expected);
        assert_eq!(
            (config.path(), config.resolv_conf),
            ("/d/n".into(), Some("/r".into()))
        );
        assert_eq!(config.routes, [Route::to("0.0.0.0/0".parse().unwrap())]);
    }

    #[test]
    fn one_of_two_addresses_is_the_gateway_if_the_node_needs_it() {
        for (plugin, gateway) in [
            (r#""type":"macvlan""#, None),
            (r#""type":"bridge""#, None),
            (r#""type":"bridge","isGateway":true"#, Some("10.1.0.0")),
            (
                r#""type":"bridge","isDefaultGateway":true"#,
                Some("10.1.0.0"),
            ),
            (r#""type":"ptp""#, Some("10.1.0.0")),
        ] {
            let config = parse(
                &format!(r#"{{"name":"n",{plugin},"ipam":{{"subnet":"10.1.0.0/31"}}}}"#),
                "",
            )
            .unwrap();
            assert_eq!(
                config.ranges[0].ranges()[0].gateway(),
                gateway.map(|ip| ip.parse().unwrap()),
                "{plugin}"
            );
        }
    }

    #[test]
    fn a_range_without_subnet_beside_a_list_is_ignored() {
        let config = parse(
            r#"{"name":"n","ipam":{"rangeStart":"10.9.9.9","ranges":[[{"subnet":"10.2.0.0/30"}]]}}"#,
            "",
        );
        let config = config.unwrap();
        assert_eq!(sets(&config), ["10.2.0.1-10.2.0.2"]);
        assert_eq!(config.data_dir, PathBuf::from(DEFAULT_DATA_DIR));
    }

    #[test]
    fn requested_addresses_are_the_union_of_three_sources_without_prefix() {
        let config = parse(
            r#"{"name":"n","args":{"cni":{"ips":["10.1.0.3","10.1.0.2/8"]}},"runtimeConfig":{"ips":["2001:DB8::5/64"]},
                "ipam":{"subnet":"10.1.0.0/24"}}"#,
            "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.0.2",
        );
        let expected: Vec<IpAddr> = ["10.1.0.2", "10.1.0.3", "2001:db8::5"]
            .map(|ip| ip.parse().unwrap())
            .to_vec();
        assert_eq!(config.unwrap().requested, expected);
        let both = parse(
            r#"{"name":"n","ipam":{"subnet":"10.1.0.0/24"}}"#,
            "IP=10.1.0.2/24, 10.1.0.3,2001:db8::5",
        );
        assert_eq!(
            both.unwrap().requested,
            expected,
            "a list, as Multus writes it"
        );
    }

    #[test]
    fn invalid_request_error_has_source_and_value() {
        let config =
            |rest: &str| format!(r#"{{"name":"n","ipam":{{"subnet":"10.1.0.0/24"}}{rest}}}"#);
        let error = parse(&config(""), "IP=10.1.0").unwrap_err().msg;
        assert!(
            error.starts_with(r#"CNI_ARGS IP: invalid IP address: "10.1.0""#),
            "{error}"
        );
        let error = parse(&config(r#","args":{"cni":{"ips":["x/1"]}}"#), "")
            .unwrap_err()
            .msg;
        assert_eq!(error, r#"args.cni.ips: invalid CIDR address: "x/1""#);
        assert_eq!(
            parse(&config(""), "MAC=aa").unwrap_err().msg,
            r#"ARGS: unknown args ["MAC=aa"]"#
        );
    }

    #[test]
    fn invalid_ranges_are_refused_with_the_reference_plugins_messages() {
        let no_ipam = parse(r#"{"name":"n"}"#, "").unwrap_err();
        assert_eq!(
            (no_ipam.kind, no_ipam.msg.as_str()),
            (
                crate::cni::Kind::InvalidConfig,
                "IPAM config missing 'ipam' key"
            )
        );
        assert_eq!(refused("{}"), "no IP ranges specified");
        assert_eq!(refused(r#"{"ranges":[]}"#), "no IP ranges specified");
        assert_eq!(
            refused(r#"{"ranges":[[]]}"#),
            "invalid range set 0: empty range set"
        );
        assert_eq!(
            refused(r#"{"subnet":"10.1.0.0/24","ranges":[[{"subnet":"10.2.0.1/32"}]]}"#),
            "invalid range set 1: Network 10.2.0.1/32 too small to allocate from"
        );
        assert_eq!(
            refused(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.2.0.0/24"}]]}"#),
            "CNI version 0.2.0 does not support more than 1 address per family, got 2 IPv4 and 0 IPv6"
        );
        assert_eq!(
            refused(r#"{"ranges":[7]}"#),
            "ipam: ranges[0]: expected a list of ranges, got 7"
        );
        assert_eq!(
            refused(r#"{"subnet":"10.1.0.0"}"#),
            r#"ipam: "subnet": invalid CIDR address: "10.1.0.0""#
        );
    }

    #[test]
    fn range_sets_may_not_overlap() {
        let config = r#"{"name":"n","cniVersion":"0.3.1","ipam":{"ranges":
            [[{"subnet":"10.2.0.0/24"}],[{"subnet":"10.1.0.0/30"}],[{"subnet":"10.2.0.0/25"}]]}}"#;
        let error = parse(config, "").unwrap_err().msg;
        assert_eq!(
            error,
            "range set 0 overlaps with 2: 10.2.0.1-10.2.0.254 and 10.2.0.1-10.2.0.126"
        );
    }
}
