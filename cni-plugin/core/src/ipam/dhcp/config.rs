//! Configuration of the `dhcp` IPAM plugin: the object `ipam`.

use super::{v4, v6};
use crate::cni::{Error, Json, NetConf, Owner};
use crate::name::Mac;
use std::path::PathBuf;
use std::rc::Rc;

/// Default of `daemonSocketPath`, the Unix socket of the DHCP daemon.
pub const SOCKET: &str = "/run/cni/dhcp.sock";

/// Validated configuration of the `dhcp` IPAM plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct DhcpConfig {
    /// `daemonSocketPath`: Unix socket of the DHCP daemon; default [`SOCKET`].
    pub socket: PathBuf,
    /// `ipFamilies`: `IPv4` (default), `IPv6`, or both.
    pub families: Families,
    /// `priority`: metric of all routes; 0 means unset.
    pub priority: u32,
    /// `provide`: DHCPv4 options to send, in order. A later option replaces an earlier one with the
    /// same code.
    pub provide: Vec<(u8, Vec<u8>)>,
    /// Codes of the requested DHCPv4 options: the options in `request`, and the default options. An
    /// item with `skipDefault` removes the default options.
    pub request: Vec<u8>,
    /// The network configuration as received, which is sent to the daemon.
    pub json: Rc<Json>,
}

/// A set of address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    /// True for IPv4, through DHCPv4.
    pub v4: bool,
    /// True for IPv6, through DHCPv6.
    pub v6: bool,
}

impl Families {
    /// IPv4 only, the default as in the reference plugin.
    pub const V4: Self = Self {
        v4: true,
        v6: false,
    };

    fn parse(ipam: &Json) -> Result<Self, Error> {
        let mut families = Self {
            v4: false,
            v6: false,
        };
        for (index, family) in ipam.strings("ipFamilies")?.iter().enumerate() {
            match family.as_str() {
                "IPv4" => families.v4 = true,
                "IPv6" => families.v6 = true,
                _ => {
                    return Err(Error::config(format!(
                        "\"ipFamilies\": {family:?} is neither IPv4 nor IPv6"
                    ))
                    .at_index(index)
                    .at_key("ipFamilies"));
                }
            }
        }
        Ok(if families.v4 || families.v6 {
            families
        } else {
            Self::V4
        })
    }
}

impl DhcpConfig {
    /// Parses `ipam`. An option with `fromArg` takes its value from `cni_args`.
    pub fn parse(conf: &NetConf, cni_args: &str) -> Result<Self, Error> {
        let ipam = conf
            .json
            .object("ipam")?
            .ok_or_else(|| Error::config("IPAM config missing 'ipam' key"))?;
        Self::parse_ipam(ipam, conf, cni_args).map_err(|e| e.at_key("ipam"))
    }

    fn parse_ipam(ipam: &Json, conf: &NetConf, cni_args: &str) -> Result<Self, Error> {
        let socket = ipam.str_or("daemonSocketPath", "")?;
        let priority = ipam.i64("priority")?.unwrap_or_default();
        let no_metric = || {
            Error::config(format!(
                "\"priority\": {priority} is outside 0-{}",
                u32::MAX
            ))
            .at_key("priority")
        };
        Ok(Self {
            socket: if socket.is_empty() { SOCKET } else { socket }.into(),
            families: Families::parse(ipam)?,
            priority: u32::try_from(priority).map_err(|_outside| no_metric())?,
            provide: provided(ipam, cni_args)?,
            request: requested(ipam)?,
            json: Rc::clone(&conf.json),
        })
    }

    /// Parses the configuration for DEL, which only needs the daemon's socket.
    pub fn parse_for_release(conf: &NetConf) -> Result<Self, Error> {
        let socket = conf
            .json
            .get("ipam")
            .and_then(|ipam| ipam.str("daemonSocketPath").ok()?);
        Ok(Self {
            socket: socket
                .filter(|socket| !socket.is_empty())
                .unwrap_or(SOCKET)
                .into(),
            families: Families::V4,
            priority: 0,
            provide: Vec::new(),
            request: Vec::new(),
            json: Rc::clone(&conf.json),
        })
    }

    /// Returns this configuration limited to IPv4; `None` if IPv4 is not configured.
    pub fn without_ipv6(&self) -> Option<Self> {
        let mut json = Json::clone(&self.json);
        let mut ipam = json.get("ipam").cloned().unwrap_or(Json::Null);
        ipam.remove("ipFamilies");
        json.set("ipam", ipam);
        self.families.v4.then(|| Self {
            families: Families::V4,
            json: json.into(),
            ..self.clone()
        })
    }

    /// Returns the identity of `owner`, a container interface, as a DHCPv4 client.
    pub fn v4(&self, owner: &Owner, mac: Mac, broadcast: bool) -> v4::Identity {
        let id = client_id(owner).into_bytes();
        let mut options = vec![(v4::CLIENT_ID, [vec![0], id].concat())];
        for (code, value) in &self.provide {
            options.retain(|(other, _)| other != code);
            options.push((*code, value.clone()));
        }
        v4::Identity {
            mac,
            options,
            request: self.request.clone(),
            broadcast,
        }
    }

    /// Returns the identity of `owner`, a container interface, as a DHCPv6 client.
    pub fn v6(owner: &Owner) -> v6::Identity {
        v6::Identity::of(&client_id(owner))
    }
}

/// Returns the client id of `owner`, a container interface, for DHCP servers. It has at most 254
/// bytes and is the same as in the reference plugin.
pub fn client_id(owner: &Owner) -> String {
    let mut id = format!("{}/{}/{}", owner.container_id, owner.network, owner.ifname);
    while id.len() > 254 {
        id.pop();
    }
    id
}

/// Returns the code of an option from its name in `dhcp-options(5)` or its number.
fn code(option: &str) -> Result<u8, Error> {
    Ok(match option {
        "dhcp-client-identifier" => v4::CLIENT_ID,
        "subnet-mask" => v4::SUBNET_MASK,
        "routers" => v4::ROUTERS,
        "host-name" => v4::HOST_NAME,
        "user-class" => v4::USER_CLASS,
        "vendor-class-identifier" => v4::VENDOR_CLASS,
        number => number.parse().map_err(|err| {
            Error::config(format!("Can not parse option {option:?}"))
                .with_details(format!("{err}"))
                .at_key("option")
        })?,
    })
}

fn provided(ipam: &Json, cni_args: &str) -> Result<Vec<(u8, Vec<u8>)>, Error> {
    let mut options = Vec::new();
    for_each(ipam, "provide", |item| {
        options.extend(provided_by(item, cni_args)?);
        Ok(())
    })?;
    Ok(options)
}

/// Calls `read` with each item of the list `key`. Error messages are the same as in the reference
/// plugin, without the item's number.
fn for_each(
    ipam: &Json,
    key: &str,
    mut read: impl FnMut(&Json) -> Result<(), Error>,
) -> Result<(), Error> {
    for (index, item) in ipam.list(key)?.unwrap_or_default().iter().enumerate() {
        read(item).map_err(|e| e.at_index(index).at_key(key))?;
    }
    Ok(())
}

/// Returns the options, as code and value, of one item of `provide`.
fn provided_by(item: &Json, cni_args: &str) -> Result<Vec<(u8, Vec<u8>)>, Error> {
    let mut options = Vec::new();
    let (option, value, arg) = (
        item.str_or("option", "")?,
        item.str_or("value", "")?,
        item.str_or("fromArg", "")?,
    );
    let code = code(option)?;
    // As lenient as the reference: an item without `=` is skipped, and the last of several
    // equal names is used.
    let mut from_arg = None;
    for pair in cni_args.split(';') {
        if let Some((name, value)) = pair.split_once('=')
            && name == arg
        {
            from_arg = Some(value);
        }
    }
    let mut values = Vec::with_capacity(2);
    if !value.is_empty() {
        values.push(value);
    }
    values.extend(from_arg);
    for value in values {
        if value.len() > 255 {
            return Err(
                Error::config(format!("value too long for option {option:?}: {value:?}"))
                    .at_key("value"),
            );
        }
        options.push((code, value.as_bytes().to_vec()));
    }
    Ok(options)
}

fn requested(ipam: &Json) -> Result<Vec<u8>, Error> {
    let mut codes: Vec<u8> = Vec::new();
    let mut add = |code: u8| {
        if !codes.contains(&code) {
            codes.push(code);
        }
    };
    let mut is_default = true;
    for_each(ipam, "request", |item| {
        is_default &= !item.bool_or("skipDefault", false)?;
        match item.str_or("option", "")? {
            "" => {}
            option => add(code(option)?),
        }
        Ok(())
    })?;
    if is_default {
        [v4::ROUTERS, v4::SUBNET_MASK].into_iter().for_each(add);
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(ipam: &str, args: &str) -> Result<DhcpConfig, Error> {
        let conf = format!(r#"{{"name":"n","type":"macvlan","ipam":{{"type":"dhcp",{ipam}}}}}"#);
        DhcpConfig::parse(&NetConf::parse(conf.as_bytes())?, args)
    }

    #[test]
    fn without_keys_it_is_the_reference_configuration() {
        let config = parse(r#""priority":null"#, "").expect("parsed");
        assert_eq!(config.socket, PathBuf::from("/run/cni/dhcp.sock"));
        assert_eq!((config.families, config.priority), (Families::V4, 0));
        assert_eq!((config.provide, config.request), (Vec::new(), vec![3, 1]));
    }

    #[test]
    fn options_have_names_or_numbers_and_take_values_of_cni_args() {
        let provide = r#""provide":[{"option":"host-name","value":"a","fromArg":"K8S_POD_NAME"},
            {"option":"60","value":"braid"},{"option":"user-class","fromArg":"MISSING"}]"#;
        let config = parse(provide, "x;K8S_POD_NAME=web=1;K8S_POD_NAME=web").expect("parsed");
        assert_eq!(
            config.provide,
            [
                (12, b"a".to_vec()),
                (12, b"web".to_vec()),
                (60, b"braid".to_vec())
            ]
        );
        let owner = Owner::new("n", "4f1c", "eth0");
        let options = config.v4(&owner, Mac([0; 6]), false).options;
        let id = [&[0][..], b"4f1c/n/eth0"].concat();
        assert_eq!(
            options,
            [(61, id), (12, b"web".to_vec()), (60, b"braid".to_vec())]
        );
        let own = parse(
            r#""provide":[{"option":"dhcp-client-identifier","value":"me"}]"#,
            "",
        )
        .expect("parsed");
        assert_eq!(
            own.v4(&owner, Mac([0; 6]), false).options,
            [(61, b"me".to_vec())]
        );
    }

    #[test]
    fn requests_are_added_to_the_defaults_unless_skipped() {
        let request = |items: &str| {
            parse(&format!(r#""request":[{items}]"#), "").map(|config| config.request)
        };
        assert_eq!(
            request(r#"{"option":"121"},{"option":"routers"}"#).expect("parsed"),
            [121, 3, 1]
        );
        assert_eq!(
            request(r#"{"option":"121"},{"skipDefault":true}"#).expect("parsed"),
            [121]
        );
        assert_eq!(request(r#"{"skipDefault":true}"#).expect("parsed"), [0; 0]);
        for bad in [r#"{"option":"nothing"}"#, r#"{"option":"256"}"#] {
            assert!(
                request(bad).is_err_and(|err| err.msg.starts_with("Can not parse option")),
                "{bad}"
            );
        }
    }

    #[test]
    fn families_are_ipv4_ipv6_or_both() {
        let families = |list: &str| parse(&format!(r#""ipFamilies":{list}"#), "");
        let both = families(r#"["IPv6","IPv4"]"#).expect("parsed");
        assert_eq!(both.families, Families { v4: true, v6: true });
        let less = both.without_ipv6().expect("IPv4 is left");
        let read = DhcpConfig::parse(
            &NetConf::from_json(Json::clone(&less.json)).expect("a configuration"),
            "",
        );
        assert_eq!(
            read.expect("parsed").families,
            Families::V4,
            "the daemon reads the same"
        );
        assert_eq!(
            families(r#"["IPv6"]"#).expect("parsed").without_ipv6(),
            None
        );
        assert!(families(r#"["ipx"]"#).is_err());
    }

    #[test]
    fn a_client_id_has_at_most_254_bytes() {
        assert_eq!(
            client_id(&Owner::new("n", &"ü".repeat(200), "eth0")).len(),
            254
        );
    }

    #[test]
    fn a_long_value_and_a_negative_metric_are_refused() {
        assert!(
            parse(
                &format!(
                    r#""provide":[{{"option":"12","value":"{}"}}]"#,
                    "x".repeat(256)
                ),
                ""
            )
            .is_err()
        );
        assert!(parse(r#""priority":-1"#, "").is_err());
    }
}
