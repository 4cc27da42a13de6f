//! Configuration of the IPAM plugin `whereabouts`.

use super::journal::Place;
use super::names;
use super::numbers;
use super::range::{PoolRange, usable};
use crate::cni::address::parse_ip;
use crate::cni::{CniArgs, Dns, Error, IpConfig, Json, NetConf, Route};
use crate::ipam::Lease;
use crate::ipam::host_local::config::{args_ips, one_per_family};
use ipnet::IpNet;
use std::net::IpAddr;
use std::path::PathBuf;

/// Longest name of a network in bytes: an object name has 253, and a range 43 at most.
const NETWORK_MAX: usize = 200;

/// Validated configuration of the IPAM plugin `whereabouts`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WhereaboutsConfig {
    /// Ranges in order: `range`, then `ipRanges`. An attachment gets one address from each, or one
    /// from the first with a free address (`is_first`).
    pub ranges: Vec<PoolRange>,
    /// `"allocation": "first"`.
    pub is_first: bool,
    /// Addresses that the pod requests from the ranges.
    pub requested: Vec<IpAddr>,
    /// `addresses`, and addresses in `CNI_ARGS` outside the ranges. No pool has them.
    pub fixed: Vec<IpConfig>,
    /// `routes`, copied into the result.
    pub routes: Vec<Route>,
    /// `dns`, copied into the result.
    pub dns: Dns,
    /// `network_name`; empty for the unnamed network. Networks of different names are separate
    /// address spaces.
    pub network_name: String,
    /// `enable_overlapping_ranges`; default true. Each address then has a reservation, so that ranges
    /// that overlap share no address.
    pub has_reservations: bool,
    /// `probe`: addresses are used only if no other host on the link of the container has them.
    pub probes: bool,
    /// Name of the `NodeSlicePool`, if `node_slice_size` is set: a node then assigns addresses of its
    /// own part of the range alone.
    pub slices: Option<String>,
    /// `kubernetes.kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace and name of the pod, from `CNI_ARGS`.
    pub pod: Option<(String, String)>,
}

impl WhereaboutsConfig {
    /// Parses `ipam`, with the keys of a flat file merged into it, and the requests of the pod.
    pub fn parse(conf: &NetConf, cni_args: &str) -> Result<Self, Error> {
        let ipam = ipam_of(conf)?;
        let ranges = ranges(ipam).map_err(in_ipam)?;
        one_per_family(
            conf.version,
            ranges.iter().map(|range| range.first.is_ipv4()),
        )?;
        let args = CniArgs::parse(
            cni_args,
            &["IP", "GATEWAY", "K8S_POD_NAME", "K8S_POD_NAMESPACE"],
        )?;
        let runtime = conf.json.object("runtimeConfig")?.unwrap_or(&Json::Null);
        let mut wanted = args_ips(&conf.json)?;
        wanted.extend(
            runtime
                .strings("ips")
                .map_err(|err| err.at_key("runtimeConfig"))?,
        );
        let (mut requested, mut fixed) = (Vec::new(), Vec::new());
        for text in wanted {
            let address = address_alone(&text)?;
            if !ranges.iter().any(|range| range.contains(address)) {
                let why = format!(
                    "requested address {address} is in no range, or is a gateway or excluded"
                );
                return Err(Error::config(why));
            }
            requested.push(address);
        }
        let configured = ipam.each_object("addresses", fixed_address);
        for ip in configured
            .map_err(in_ipam)?
            .into_iter()
            .chain(added(&args)?)
        {
            let address = ip.address.addr();
            if ranges.iter().any(|range| range.contains(address)) {
                requested.push(address);
            } else {
                fixed.push(ip);
            }
        }
        requested.dedup();
        Ok(Self {
            ranges,
            is_first: is_first(ipam).map_err(in_ipam)?,
            requested,
            fixed,
            routes: ipam.each_object("routes", Route::parse).map_err(in_ipam)?,
            dns: ipam
                .nested("dns", Dns::parse)
                .map_err(in_ipam)?
                .unwrap_or_default(),
            probes: ipam.bool_or("probe", false).map_err(in_ipam)?,
            pod: pod(&args),
            ..Self::parse_for_release(conf)?
        })
    }

    /// Parses the keys that name the API server and the pools, which is enough to release addresses.
    /// Ranges with an error are none: their addresses are in journals.
    pub fn parse_for_release(conf: &NetConf) -> Result<Self, Error> {
        let ipam = ipam_of(conf)?;
        let name = network_name(ipam).map_err(in_ipam)?;
        let kubeconfig = match ipam.object("kubernetes").map_err(in_ipam)? {
            Some(kubernetes) => kubernetes
                .text("kubeconfig")
                .map_err(|err| in_ipam(err.at_key("kubernetes")))?,
            None => None,
        };
        Ok(Self {
            ranges: ranges(ipam).unwrap_or_default(),
            slices: slices(ipam, &conf.name, &name).map_err(in_ipam)?,
            network_name: name,
            has_reservations: ipam
                .bool_or("enable_overlapping_ranges", true)
                .map_err(in_ipam)?,
            kubeconfig: kubeconfig.map(PathBuf::from),
            ..Self::default()
        })
    }
}

impl WhereaboutsConfig {
    /// True if a range has its addresses in this pool.
    pub fn has_pool(&self, place: &Place) -> bool {
        let mut ranges = self.ranges.iter();
        place.network == self.network_name && ranges.any(|range| range.net.contains(&place.net))
    }

    /// True if the pool is the one from which this range gives out addresses. A pool that
    /// overlaps has other entries for the same addresses.
    pub fn gives_out_of(&self, range: &PoolRange, place: &Place) -> bool {
        let whole = names::pool(&self.network_name, place.net);
        let is_its = if self.slices.is_some() {
            range.net.contains(&place.net) && place.name != whole
        } else {
            range.net == place.net && place.name == whole
        };
        let has_reservations = place.has_reservations == self.has_reservations;
        is_its && has_reservations && place.network == self.network_name
    }

    /// Returns the lease of addresses of the ranges.
    pub fn lease(&self, mut ips: Vec<IpConfig>) -> Lease {
        ips.extend(self.fixed.iter().cloned());
        Lease {
            ips,
            routes: self.routes.clone(),
            dns: self.dns.clone(),
        }
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

fn network_name(ipam: &Json) -> Result<String, Error> {
    let name = ipam.string("network_name")?;
    let is_valid = name.len() <= NETWORK_MAX
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
        })
        && !name.starts_with(['-', '.']);
    if is_valid {
        return Ok(name);
    }
    let why = format!("network_name {name:?} is no start of an object name");
    Err(Error::config(why).at_key("network_name"))
}

fn is_first(ipam: &Json) -> Result<bool, Error> {
    match ipam.str_or("allocation", "")? {
        "" | "each" => Ok(false),
        "first" => Ok(true),
        other => {
            let why = format!("allocation {other:?} is neither \"each\" nor \"first\"");
            Err(Error::config(why).at_key("allocation"))
        }
    }
}

/// Returns the name of the `NodeSlicePool`, which Whereabouts' controller divides into nodes' parts.
fn slices(ipam: &Json, conf: &str, network: &str) -> Result<Option<String>, Error> {
    let is_set = ipam.text("node_slice_size")?.is_some();
    let name = if network.is_empty() { conf } else { network };
    Ok(is_set.then(|| name.to_owned()))
}

/// Parses `range` with its keys, and `ipRanges`.
fn ranges(ipam: &Json) -> Result<Vec<PoolRange>, Error> {
    let gateway = match ipam.text("gateway")? {
        Some(text) => Some(numbers::ip(text).map_err(|err| err.at_key("gateway"))?),
        None => None,
    };
    let mut ranges = Vec::new();
    if ipam.text("range")?.is_some() {
        ranges.push(range(ipam, gateway, false)?);
    }
    ranges.extend(ipam.each_object("ipRanges", |item| range(item, gateway, true))?);
    if ranges.is_empty() {
        return Err(Error::config("neither range nor ipRanges has a range"));
    }
    Ok(ranges)
}

/// Parses a range. Beside `range`, Whereabouts ignores ends that are no addresses; in `ipRanges`
/// (`is_strict`) they are errors. Ends outside the network are ignored in both.
fn range(json: &Json, common: Option<IpAddr>, is_strict: bool) -> Result<PoolRange, Error> {
    let text = json.str_or("range", "")?;
    let (net, ends) = network(text).map_err(|err| err.at_key("range"))?;
    let (mut first, mut last) = usable(net);
    let end = |key: &str| -> Result<Option<IpAddr>, Error> {
        let Some(text) = json.text(key)? else {
            return Ok(None);
        };
        match (numbers::ip(text), is_strict) {
            (Ok(address), false) => Ok(Some(address)),
            (Err(_), false) => Ok(None),
            (_, true) => parse_ip(text).map(Some).map_err(|err| err.at_key(key)),
        }
    };
    let is_usable = |address: &IpAddr| (first..=last).contains(address);
    let (start, stop) = (end("range_start")?, end("range_end")?);
    // Ends in the text of the range replace the keys.
    let start = ends.map(|(start, _)| start).or(start).filter(is_usable);
    let stop = ends.map(|(_, stop)| stop).or(stop).filter(is_usable);
    first = start.unwrap_or(first);
    last = stop.filter(|stop| *stop >= first).unwrap_or(last);
    let gateway = match json.text("gateway")?.filter(|_| is_strict) {
        Some(text) => Some(numbers::ip(text).map_err(|err| err.at_key("gateway"))?),
        None => common.filter(|gateway| gateway.is_ipv4() == first.is_ipv4()),
    };
    let exclude = json.each("exclude", |item| {
        let text = item.as_str().ok_or_else(|| item.mismatch("a string"))?;
        numbers::net_or_ip(text)
    })?;
    Ok(PoolRange {
        net,
        prefix_len: net.prefix_len(),
        first,
        last,
        exclude,
        gateway,
    })
}

/// Parses `net/length` or `first-last/length`. Returns the network, and the ends of the second form.
fn network(text: &str) -> Result<(IpNet, Option<(IpAddr, IpAddr)>), Error> {
    let Some((first, last)) = text.split_once('-') else {
        return Ok((numbers::net(text)?.trunc(), None));
    };
    let (first, last) = (numbers::ip(first)?, numbers::net(last)?);
    if !last.trunc().contains(&first) {
        let why = format!("range {text:?}: {first} is not in {}", last.trunc());
        return Err(Error::config(why));
    }
    Ok((last.trunc(), Some((first, last.addr()))))
}

fn address_alone(text: &str) -> Result<IpAddr, Error> {
    if text.contains('/') {
        return numbers::net(text).map(|net| net.addr());
    }
    numbers::ip(text)
}

fn fixed_address(item: &Json) -> Result<IpConfig, Error> {
    let text = item.str_or("address", "")?;
    let gateway = match item.text("gateway")? {
        Some(text) => Some(numbers::ip(text).map_err(|err| err.at_key("gateway"))?),
        None => None,
    };
    Ok(IpConfig {
        address: numbers::net(text).map_err(|err| err.at_key("address"))?,
        gateway,
        interface: None,
    })
}

/// Parses `IP` and `GATEWAY` in `CNI_ARGS`. A gateway is that of each address whose network has it.
fn added(args: &CniArgs) -> Result<Vec<IpConfig>, Error> {
    let mut all = Vec::new();
    for text in args.get("IP").into_iter().flat_map(|list| list.split(',')) {
        all.push(IpConfig {
            address: numbers::net(text).map_err(|err| err.context("CNI_ARGS IP"))?,
            gateway: None,
            interface: None,
        });
    }
    let gateways = args.get("GATEWAY").into_iter();
    for text in gateways.flat_map(|list| list.split(',')) {
        let gateway = numbers::ip(text).map_err(|err| err.context("CNI_ARGS GATEWAY"))?;
        for ip in &mut all {
            if ip.address.contains(&gateway) {
                ip.gateway = Some(gateway);
            }
        }
    }
    Ok(all)
}

fn pod(args: &CniArgs) -> Option<(String, String)> {
    let text = |key| args.get(key).map(str::to_owned);
    Some((text("K8S_POD_NAMESPACE")?, text("K8S_POD_NAME")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(ipam: &str, more: &str, cni_args: &str) -> Result<WhereaboutsConfig, Error> {
        let text = format!(r#"{{"name":"n","cniVersion":"1.0.0"{more},"ipam":{ipam}}}"#);
        WhereaboutsConfig::parse(&NetConf::parse(text.as_bytes())?, cni_args)
    }

    fn ends(ipam: &str) -> Vec<String> {
        let config = parse(ipam, "", "").unwrap_or_else(|err| panic!("{ipam}: {err}"));
        let text = |range: &PoolRange| format!("{} {}-{}", range.net, range.first, range.last);
        config.ranges.iter().map(text).collect()
    }

    fn free(range: &PoolRange, taken: &[&str]) -> Option<String> {
        let taken: Vec<IpAddr> = taken.iter().map(|ip| ip.parse().unwrap()).collect();
        range
            .free(|ip| taken.contains(&ip))
            .next()
            .map(|ip| ip.to_string())
    }

    #[test]
    fn ranges_are_read_as_whereabouts_reads_them() {
        for (ipam, expected) in [
            (
                r#"{"range":"10.0.0.7/24"}"#,
                "10.0.0.0/24 10.0.0.1-10.0.0.254",
            ),
            (
                r#"{"range":"010.0.0.0/24"}"#,
                "10.0.0.0/24 10.0.0.1-10.0.0.254",
            ),
            (
                r#"{"range":"fd00::/64"}"#,
                "fd00::/64 fd00::1-fd00::ffff:ffff:ffff:fffe",
            ),
            (
                r#"{"range":"10.0.0.5-10.0.0.9/24"}"#,
                "10.0.0.0/24 10.0.0.5-10.0.0.9",
            ),
            (
                r#"{"range":"10.0.0.0/24","range_start":"10.0.0.010","range_end":"10.0.0.20"}"#,
                "10.0.0.0/24 10.0.0.10-10.0.0.20",
            ),
            // Ends that are no addresses, outside, or in the wrong order are ignored.
            (
                r#"{"range":"10.0.0.0/24","range_start":"x","range_end":"10.0.1.1"}"#,
                "10.0.0.0/24 10.0.0.1-10.0.0.254",
            ),
            (
                r#"{"range":"10.0.0.0/24","range_start":"10.0.0.9","range_end":"10.0.0.5"}"#,
                "10.0.0.0/24 10.0.0.9-10.0.0.254",
            ),
            (
                r#"{"range":"10.0.0.0/31"}"#,
                "10.0.0.0/31 10.0.0.0-10.0.0.1",
            ),
            (r#"{"range":"fd00::/127"}"#, "fd00::/127 fd00::-fd00::1"),
            (
                r#"{"range":"10.0.0.4/32"}"#,
                "10.0.0.4/32 10.0.0.4-10.0.0.4",
            ),
        ] {
            assert_eq!(ends(ipam), [expected], "{ipam}");
        }
        let both = r#"{"range":"10.0.0.0/24","ipRanges":[{"range":"fd00::/120"},{"range":"10.1.0.0/24"}]}"#;
        assert_eq!(ends(both).len(), 3);
    }

    #[test]
    fn wrong_values_are_refused_with_their_key() {
        for (ipam, words) in [
            ("{}", "neither range nor ipRanges"),
            (r#"{"range":"10.0.0.0"}"#, "invalid CIDR"),
            (
                r#"{"range":"10.0.1.1-10.0.0.9/24"}"#,
                "10.0.1.1 is not in 10.0.0.0/24",
            ),
            (
                r#"{"ipRanges":[{"range":"10.0.0.0/24","range_start":"010.0.0.9"}]}"#,
                "invalid IP",
            ),
            (r#"{"range":"10.0.0.0/24","exclude":["x"]}"#, "invalid IP"),
            (r#"{"range":"10.0.0.0/24","gateway":"x"}"#, "invalid IP"),
            (
                r#"{"range":"10.0.0.0/24","network_name":"../x"}"#,
                "network_name",
            ),
            (
                r#"{"range":"10.0.0.0/24","allocation":"last"}"#,
                "allocation",
            ),
            (r#"{"range":"10.0.0.0/24","probe":1}"#, "probe"),
        ] {
            let err = parse(ipam, "", "").unwrap_err();
            assert!(err.msg.contains(words), "{ipam}: {err}");
        }
        let ips = r#","runtimeConfig":{"ips":["10.9.0.1"]}"#;
        let err = parse(r#"{"range":"10.0.0.0/24"}"#, ips, "").unwrap_err();
        assert!(err.msg.contains("10.9.0.1 is in no range"), "{err}");
    }

    #[test]
    fn neither_the_gateway_nor_an_excluded_address_is_free() {
        let config = parse(
            r#"{"range":"10.0.0.0/28","gateway":"10.0.0.1","exclude":["10.0.0.2","10.0.0.5/30"],
                "ipRanges":[{"range":"fd00::/120","gateway":"fd00::2"}]}"#,
            "",
            "",
        );
        let ranges = config.unwrap().ranges;
        assert_eq!(free(&ranges[0], &[]).as_deref(), Some("10.0.0.3"));
        assert_eq!(free(&ranges[0], &["10.0.0.3"]).as_deref(), Some("10.0.0.8"));
        assert_eq!(free(&ranges[1], &[]).as_deref(), Some("fd00::1"));
        assert_eq!(free(&ranges[1], &["fd00::1"]).as_deref(), Some("fd00::3"));
        assert_eq!(ranges[0].capacity(), 8);
        assert_eq!(ranges[1].capacity(), 253);
        let all = parse(r#"{"range":"10.0.0.0/30"}"#, "", "").unwrap();
        assert_eq!(free(&all.ranges[0], &["10.0.0.1", "10.0.0.2"]), None);
        let huge = parse(r#"{"range":"fd00::/64","exclude":["fd00::/66"]}"#, "", "").unwrap();
        let first = free(&huge.ranges[0], &[]);
        assert_eq!(first.as_deref(), Some("fd00::4000:0:0:0"));
    }

    #[test]
    fn a_slice_keeps_the_ends_and_the_exclusions_of_its_range() {
        let ipam = r#"{"range":"10.0.0.0/24","range_start":"10.0.0.20","node_slice_size":"/28",
            "exclude":["10.0.0.33"]}"#;
        let config = parse(ipam, "", "").unwrap();
        assert_eq!(config.slices.as_deref(), Some("n"));
        let slice = |net: &str| config.ranges[0].slice(net.parse().unwrap());
        let ends = |net: &str| slice(net).map(|it| format!("{}-{}", it.first, it.last));
        assert_eq!(ends("10.0.0.16/28").as_deref(), Some("10.0.0.20-10.0.0.30"));
        assert_eq!(ends("10.0.0.0/28"), None);
        assert_eq!(ends("10.0.1.0/28"), None);
        let second = slice("10.0.0.32/28").unwrap();
        assert_eq!(free(&second, &[]).as_deref(), Some("10.0.0.34"));
        assert_eq!(second.prefix_len, 24);
        let named = r#"{"range":"10.0.0.0/24","node_slice_size":"/28","network_name":"lan"}"#;
        let named = parse(named, "", "").unwrap();
        assert_eq!(named.slices.as_deref(), Some("lan"));
    }

    #[test]
    fn requests_are_addresses_of_a_range_or_fixed_ones() {
        let config = parse(
            r#"{"range":"10.0.0.0/24","addresses":[{"address":"192.0.2.5/24","gateway":"192.0.2.1"}]}"#,
            r#","args":{"cni":{"ips":["10.0.0.7/24"]}}"#,
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=p;IP=198.51.100.5/24,10.0.0.9/24;GATEWAY=198.51.100.1",
        )
        .unwrap();
        let requested: Vec<String> = config.requested.iter().map(ToString::to_string).collect();
        assert_eq!(requested, ["10.0.0.7", "10.0.0.9"]);
        let text = |ip: &IpConfig| format!("{} {:?}", ip.address, ip.gateway);
        let fixed: Vec<String> = config.fixed.iter().map(text).collect();
        assert_eq!(
            fixed,
            [
                "192.0.2.5/24 Some(192.0.2.1)",
                "198.51.100.5/24 Some(198.51.100.1)"
            ]
        );
        assert_eq!(config.pod, Some(("a".to_owned(), "p".to_owned())));
        assert!(config.has_reservations && !config.is_first && !config.probes);
    }

    #[test]
    fn a_range_gives_out_addresses_of_its_own_pool_alone() {
        let place = |name: &str, net: &str, has_reservations| Place {
            name: name.to_owned(),
            net: net.parse().unwrap(),
            network: String::new(),
            has_reservations,
            kubeconfig: PathBuf::new(),
        };
        let own = place("10.0.0.0-16", "10.0.0.0/16", true);
        let inner = place("10.0.0.0-24", "10.0.0.0/24", true);
        let open = place("10.0.0.0-16", "10.0.0.0/16", false);
        let slice = place("n1-10.0.0.0-24", "10.0.0.0/24", true);
        let config = parse(r#"{"range":"10.0.0.0/16"}"#, "", "").unwrap();
        let gives = |config: &WhereaboutsConfig| {
            let range = &config.ranges[0];
            [&own, &inner, &open, &slice].map(|place| config.gives_out_of(range, place))
        };
        assert_eq!(gives(&config), [true, false, false, false]);
        let sliced = WhereaboutsConfig {
            slices: Some("lan".to_owned()),
            ..config
        };
        assert_eq!(gives(&sliced), [false, false, false, true]);
    }
}
