//! `flannel`: generates the configuration of a delegate plugin from flanneld's file about this
//! node.
//!
//! The reference plugin saves this configuration in a file for its DEL. braid writes the file too,
//! so each of the two plugins can detach attachments of the other.

use crate::cni::address::parse_cidr;
use crate::cni::{Error, Json, NetConf};
use crate::ipam::Lease;
use crate::plan::step::Step;
use crate::plan::thing::Note;
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Planned, Plugin};
use ipnet::IpNet;

/// CNI `type` of this plugin.
pub const FLANNEL: &str = "flannel";
/// Default of `subnetFile`, flanneld's file.
pub const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Default of `dataDir`, the folder of the generated configurations.
const DATA_DIR: &str = "/var/lib/cni/flannel";
/// Key under which the configuration of [`Flannel`] holds the generated configuration.
const MADE: &str = "made";

/// A `flannel` configuration. The plugin itself only writes the delegate's generated configuration
/// to a file.
#[derive(Debug)]
pub struct Flannel {
    data_dir: String,
    made: Option<String>,
}

impl Flannel {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let made = conf
            .json
            .object(MADE)?
            .map(|made| made.clone().sorted().to_string());
        Ok(Self {
            data_dir: key(&conf.json, "dataDir", DATA_DIR)?,
            made,
        })
    }

    fn note(&self, call: &Call<'_>, text: String) -> Note {
        Note {
            path: note_path(&self.data_dir, &call.owner.container_id),
            text,
        }
    }
}

/// Returns the path of flanneld's file.
pub fn subnet_file(conf: &NetConf) -> Result<String, Error> {
    key(&conf.json, "subnetFile", SUBNET_FILE)
}

/// Returns the path of the file with a container's generated configuration.
pub fn data_file(conf: &NetConf, container_id: &str) -> Result<String, Error> {
    Ok(note_path(
        &key(&conf.json, "dataDir", DATA_DIR)?,
        container_id,
    ))
}

/// Returns `conf` with the delegate's generated configuration `made` added, for [`Flannel::parse`].
#[must_use]
pub fn with_made(conf: &NetConf, made: &Json) -> NetConf {
    let mut json = Json::clone(&conf.json);
    json.set(MADE, made.clone());
    NetConf {
        json: json.into(),
        ..conf.clone()
    }
}

fn key(json: &Json, key: &str, default: &str) -> Result<String, Error> {
    Ok(json.text(key)?.unwrap_or(default).to_owned())
}

fn note_path(data_dir: &str, container_id: &str) -> String {
    format!("{data_dir}/{container_id}")
}

/// Generates the delegate's configuration from the keys `delegate` and `ipam`, and from `text`, the
/// content of flanneld's `file`.
pub fn delegate(conf: &NetConf, file: &str, text: &str) -> Result<Json, Error> {
    let mut made = bare_delegate(conf)?;
    let subnet = Subnet::parse(text).map_err(|err| Error::internal(format!("{file}: {err}")))?;
    if !made.has("ipMasq") {
        made.set("ipMasq", !subnet.is_masqueraded);
    }
    if !made.has("mtu") {
        made.set("mtu", subnet.mtu);
    }
    let mut ipam = ipam(conf)?;
    let mut routes = ipam.list("routes")?.unwrap_or_default().to_vec();
    if let Some(wrong) = routes
        .iter()
        .find(|route| !matches!(route, Json::Object(_)))
    {
        return Err(wrong
            .mismatch("an object")
            .context("failed to parse ipam.routes"));
    }
    for net in &subnet.networks {
        routes.push(Json::object_of([("dst", net.to_string().into())]));
    }
    let mut ranges = Vec::new();
    for net in &subnet.subnets {
        let range = Json::object_of([("subnet", net.to_string().into())]);
        ranges.push(Json::Array(vec![range]));
    }
    ipam.set("ranges", ranges);
    ipam.set("routes", routes);
    made.set("ipam", ipam);
    Ok(made)
}

/// Generates the delegate's configuration for DEL, without flanneld's file. The configuration names
/// the IPAM, but not the node's subnets.
pub fn delegate_for_release(conf: &NetConf) -> Result<Json, Error> {
    let mut made = bare_delegate(conf)?;
    made.set("ipam", ipam(conf)?);
    Ok(made)
}

/// Generates the delegate's configuration without `ipam` and without keys from flanneld's file.
fn bare_delegate(conf: &NetConf) -> Result<Json, Error> {
    let mut made = conf
        .json
        .object("delegate")?
        .cloned()
        .unwrap_or_else(|| Json::object_of([]));
    match made.get("type") {
        None | Some(Json::String(_)) => {}
        Some(_) => {
            return Err(Error::config(
                "'delegate' dictionary, if present, must have (string) 'type' field",
            )
            .at_key("type")
            .at_key("delegate"));
        }
    }
    if let Some(key) = ["name", "ipam"].into_iter().find(|key| made.has(key)) {
        let sentence =
            format!("'delegate' dictionary must not have '{key}' field, it'll be set by flannel");
        return Err(Error::config(sentence).at_key(key).at_key("delegate"));
    }
    if let Some(runtime) = conf.json.get("runtimeConfig") {
        made.set("runtimeConfig", runtime.clone());
    }
    made.set("name", conf.name.as_str());
    if !made.has("type") {
        made.set("type", "bridge");
    }
    let kind = made.string("type")?;
    if [FLANNEL, "braid"].contains(&kind.as_str()) {
        return Err(Error::config(format!(
            "\"delegate\": type {kind:?} does not create an interface"
        ))
        .at_key("type")
        .at_key("delegate"));
    }
    if kind == "bridge" && !made.has("isGateway") {
        made.set("isGateway", true);
    }
    if conf.json.has("cniVersion") {
        made.set("cniVersion", conf.version.as_str());
    }
    Ok(made)
}

fn ipam(conf: &NetConf) -> Result<Json, Error> {
    let mut ipam = conf
        .json
        .object("ipam")?
        .cloned()
        .unwrap_or_else(|| Json::object_of([]));
    if !ipam.has("type") {
        ipam.set("type", "host-local");
    }
    Ok(ipam)
}

/// Content of flanneld's file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Subnet {
    /// Networks of the cluster, IPv4 before IPv6.
    pub networks: Vec<IpNet>,
    /// Subnets of this node.
    pub subnets: Vec<IpNet>,
    /// MTU of pods in bytes.
    pub mtu: u32,
    /// True if flanneld masquerades.
    pub is_masqueraded: bool,
}

impl Subnet {
    /// Reads lines of `KEY=value`; keys that are not flannel's are ignored.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            // The last line of a key is used.
            for line in text.lines().rev() {
                if let Some((name, value)) = line.split_once('=')
                    && name == key
                {
                    return Some(value);
                }
            }
            None
        };
        let [mut networks, mut subnets] = [Vec::new(), Vec::new()];
        for key in ["FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK"] {
            let Some(nets) = value(key) else { continue };
            for net in nets.split(',') {
                let net = network(key, net)?;
                if !networks.contains(&net) {
                    networks.push(net);
                }
            }
        }
        for key in ["FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"] {
            if let Some(net) = value(key) {
                subnets.push(network(key, net)?);
            }
        }
        let mut missing = Vec::new();
        if networks.is_empty() {
            missing.extend(["FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK"]);
        }
        if subnets.is_empty() {
            missing.extend(["FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"]);
        }
        let (mtu, masq) = (value("FLANNEL_MTU"), value("FLANNEL_IPMASQ"));
        missing.extend(mtu.is_none().then_some("FLANNEL_MTU"));
        missing.extend(masq.is_none().then_some("FLANNEL_IPMASQ"));
        if !missing.is_empty() {
            return Err(format!("is missing {}", missing.join(", ")));
        }
        let mtu = mtu.unwrap_or_default();
        let mtu = mtu
            .parse()
            .map_err(|err| format!("FLANNEL_MTU {mtu:?} is not a number of bytes: {err}"))?;
        Ok(Self {
            networks,
            subnets,
            mtu,
            is_masqueraded: masq == Some("true"),
        })
    }
}

fn network(key: &str, text: &str) -> Result<IpNet, String> {
    let net = parse_cidr(text).map_err(|err| format!("{key}: {}", err.msg))?;
    Ok(net.trunc())
}

impl Plugin for Flannel {
    fn needs(&self, _call: &Call<'_>) -> Vec<Need> {
        Vec::new()
    }

    fn plan(
        &self,
        call: &Call<'_>,
        _facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let made = self
            .made
            .clone()
            .ok_or_else(|| Error::internal("no configuration was made for flannel"))?;
        let result = call.prev.cloned().unwrap_or_default();
        Ok(Planned {
            steps: vec![Step::add(self.note(call, made))],
            result,
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(self.note(call, String::new()))]
    }

    /// False: a container can be attached although the file is missing.
    fn is_reconstructible(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENV: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";

    fn made(conf: &str, env: &str) -> Result<String, Error> {
        let conf = NetConf::parse(
            format!(r#"{{"name":"cni-flannel","type":"flannel"{conf}}}"#).as_bytes(),
        )?;
        delegate(&conf, "subnet.env", env).map(|made| made.sorted().to_string())
    }

    #[test]
    fn a_bridge_gets_the_nodes_subnet_and_a_route_to_all_others() {
        let expected = concat!(
            r#"{"ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}]],"routes":[{"dst":"10.1.0.0/16"}],"#,
            r#""type":"host-local"},"isGateway":true,"mtu":1472,"name":"cni-flannel","type":"bridge"}"#
        );
        assert_eq!(made("", ENV).as_deref(), Ok(expected));
    }

    #[test]
    fn both_families_and_several_networks_are_read() {
        let six = "FLANNEL_IPV6_NETWORK=fc00::/48\nFLANNEL_IPV6_SUBNET=fc00::1/64\n";
        let two = ENV.replace("10.1.0.0/16", "10.1.0.0/16,192.168.0.0/16,10.1.0.0/16");
        let made = made("", &(two + six)).unwrap();
        let ranges = r#""ranges":[[{"subnet":"10.1.17.0/24"}],[{"subnet":"fc00::/64"}]]"#;
        let routes =
            r#""routes":[{"dst":"10.1.0.0/16"},{"dst":"192.168.0.0/16"},{"dst":"fc00::/48"}]"#;
        assert!(made.contains(ranges) && made.contains(routes), "{made}");
    }

    #[test]
    fn configured_keys_are_kept() {
        let conf = concat!(
            r#","cniVersion":"1.0.0","delegate":{"type":"ipvlan","master":"eth0","mtu":1400,"ipMasq":true},"#,
            r#""ipam":{"type":"my-ipam","unknown":1,"routes":[{"dst":"10.96.0.0/12","gw":"10.1.17.20"}]},"#,
            r#""runtimeConfig":{"mac":"c2:00:00:00:00:01"}"#
        );
        let expected = concat!(
            r#"{"cniVersion":"1.0.0","ipMasq":true,"ipam":{"ranges":[[{"subnet":"10.1.17.0/24"}]],"#,
            r#""routes":[{"dst":"10.96.0.0/12","gw":"10.1.17.20"},{"dst":"10.1.0.0/16"}],"type":"my-ipam","unknown":1},"#,
            r#""master":"eth0","mtu":1400,"name":"cni-flannel","runtimeConfig":{"mac":"c2:00:00:00:00:01"},"type":"ipvlan"}"#
        );
        assert_eq!(made(conf, ENV).as_deref(), Ok(expected));
    }

    #[test]
    fn the_plugin_masquerades_unless_flannel_does() {
        for (text, is_plugins) in [("true", false), ("false", true), ("yes", true)] {
            let made = made("", &ENV.replace("=true", &format!("={text}"))).unwrap();
            assert!(
                made.contains(&format!("\"ipMasq\":{is_plugins}")),
                "{text}: {made}"
            );
        }
    }

    #[test]
    fn a_refusal_names_the_key() {
        for (conf, env, word) in [
            (
                "",
                "",
                "subnet.env: is missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET",
            ),
            (
                "",
                "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24",
                "is missing FLANNEL_MTU, FLANNEL_IPMASQ",
            ),
            ("", "FLANNEL_NETWORK=x", "FLANNEL_NETWORK: invalid CIDR"),
            (
                r#","delegate":{"type":1}"#,
                ENV,
                "must have (string) 'type' field",
            ),
            (
                r#","delegate":{"name":"n"}"#,
                ENV,
                "must not have 'name' field",
            ),
            (
                r#","delegate":{"ipam":{}}"#,
                ENV,
                "must not have 'ipam' field",
            ),
            (r#","delegate":{"type":"flannel"}"#, ENV, "\"flannel\""),
            (r#","ipam":{"routes":[1]}"#, ENV, "ipam.routes"),
        ] {
            let error = made(conf, env).unwrap_err();
            assert!(error.msg.contains(word), "{word:?} is not in {error:?}");
        }
    }
}
