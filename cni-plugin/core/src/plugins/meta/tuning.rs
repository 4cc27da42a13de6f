//! `tuning`: sysctls of the container's namespace and attributes of its interface.

use crate::cni::{Error, Json, NetConf};
use crate::ipam::Lease;
use crate::name::{Mac, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::{Legacy, Step};
use crate::plan::thing::link::NetkitMode;
use crate::plan::thing::{Attr, LinkAttr, Sysctl};
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Planned, Plugin, interface, mtu};
use regex_lite::Regex;

/// File with one regular expression per line. If the file exists, every configured sysctl must
/// match one of the expressions.
pub const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";

/// Default of `dataDir`.
const DATA_DIR: &str = "/run/cni/tuning";

/// A `tuning` configuration, with `args.cni` already merged into it.
#[derive(Debug)]
pub struct Tuning {
    /// Sysctls in the configured order.
    sysctls: Vec<(String, String)>,
    attrs: Vec<LinkAttr>,
    /// Directory in which the reference plugin saves old values; braid saves them in its record.
    data_dir: String,
}

impl Tuning {
    /// Reads the configuration. Precedence of the hardware address: config < `CNI_ARGS` <
    /// `runtimeConfig` < `args.cni`.
    pub fn parse(conf: &NetConf, args: &str) -> Result<Self, Error> {
        let json = &conf.json;
        let nothing = Json::Object(Vec::new());
        let over = json.object_in("args", "cni")?.unwrap_or(&nothing);
        let mut sysctls = sysctls(json)?;
        for (key, value) in self::sysctls(over)? {
            sysctls.retain(|(earlier, _)| *earlier != key);
            sysctls.push((key, value));
        }
        let own = interface::mac_of_conf(conf)?;
        let from_args = interface::mac_of_args(args)?;
        let mac = interface::mac_of_cni_args(conf)?
            .or(interface::mac_of_runtime(conf)?)
            .or(from_args)
            .or(own);
        let mut attrs = Vec::new();
        attrs.extend(mac.map(LinkAttr::Mac));
        if over
            .bool("promisc")?
            .map_or_else(|| json.bool_or("promisc", false), Ok)?
        {
            attrs.push(LinkAttr::Promisc(true));
        }
        let mtu = mtu::read(over)?.map_or_else(|| mtu::read(json), |mtu| Ok(Some(mtu)))?;
        if let Some(mtu) = mtu::optional_within(mtu, &mtu::ANY, "")? {
            attrs.push(LinkAttr::Mtu(mtu));
        }
        let all_multi = over
            .bool("allmulti")?
            .map_or_else(|| json.bool("allmulti"), |on| Ok(Some(on)))?;
        attrs.extend(all_multi.map(LinkAttr::AllMulti));
        let len = over
            .u32("txQLen")?
            .map_or_else(|| json.u32("txQLen"), |len| Ok(Some(len)))?;
        attrs.extend(len.map(LinkAttr::TxQueueLen));
        let data_dir = json.text("dataDir")?.unwrap_or(DATA_DIR).to_owned();
        Ok(Self {
            sysctls,
            attrs,
            data_dir,
        })
    }

    /// Refuses an MTU that the link can't have, or that is too small for the link's addresses.
    fn refuse_mtu(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        let mtu = self.attrs.iter().find_map(|attr| {
            if let LinkAttr::Mtu(mtu) = attr {
                Some(*mtu)
            } else {
                None
            }
        });
        let (Some(mtu), Some(fact)) = (mtu, facts.link(&call.pod())) else {
            return Ok(());
        };
        mtu::within(
            mtu.into(),
            &fact.mtus,
            &format!(", the bounds of link {}", call.pod()),
        )?;
        mtu::refuse_ipv6_below(Some(mtu), call.prev.map_or(&[], |prev| &prev.ips))
    }

    /// Refuses a hardware address for a link that can't have one.
    fn refuse_mac(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        let is_without =
            |fact: &LinkFact| fact.kind == "netkit" && fact.mode == Some(NetkitMode::L3.name());
        if let Some(mac) = self.mac()
            && facts.link(&call.pod()).is_some_and(is_without)
        {
            let sentence = "a netkit of mode l3 has no hardware address";
            return Err(Error::config(format!(
                "\"mac\": {mac} can't be set on {}: {sentence}",
                call.pod()
            )));
        }
        Ok(())
    }

    fn refuse_unlisted(&self, facts: &Facts) -> Result<(), Error> {
        let Some(lines) = facts.files.get(ALLOW_LIST) else {
            return Ok(());
        };
        let mut patterns = Vec::new();
        for line in lines.lines() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let pattern = Regex::new(line)
                .map_err(|err| Error::config(format!("{ALLOW_LIST}: {line:?}: {err}")))?;
            patterns.push(pattern);
        }
        for (key, _) in &self.sysctls {
            if !patterns.iter().any(|pattern| pattern.is_match(key)) {
                return Err(Error::config(format!(
                    "Sysctl {key} is not allowed. Only the following sysctls are allowed: {lines:?}"
                )));
            }
        }
        Ok(())
    }
}

fn sysctls(json: &Json) -> Result<Vec<(String, String)>, Error> {
    let all = json.string_map("sysctl")?;
    for (at, (key, _)) in all.iter().enumerate() {
        if all[..at].iter().any(|(earlier, _)| earlier == key) {
            return Err(
                Error::config(format!("duplicated sysctl keys are not allowed: {key:?}"))
                    .at_key(key)
                    .at_key("sysctl"),
            );
        }
    }
    Ok(all)
}

/// Converts a sysctl key to its path below `/proc/sys`. Refuses keys outside `net/`, which do not
/// belong to the container's network namespace.
fn path(key: &str, ifname: &str) -> Result<String, Error> {
    let slashed = key.replace('.', "/");
    let path = slashed.replacen("IFNAME", ifname, 1);
    let clean = !path.contains('\0') && path.split('/').all(|part| !part.is_empty());
    if clean && path.starts_with("net/") {
        Ok(path)
    } else {
        Err(Error::config(format!("invalid net sysctl key: {key:?}")))
    }
}

/// Returns the present value of the attribute, which DEL restores; `None` if it is unknown.
fn present(fact: &LinkFact, attr: &LinkAttr) -> Option<LinkAttr> {
    Some(match attr {
        LinkAttr::Mac(_) => LinkAttr::Mac(fact.mac?),
        LinkAttr::Promisc(_) => LinkAttr::Promisc(fact.promisc),
        LinkAttr::Mtu(_) => LinkAttr::Mtu(fact.mtu),
        LinkAttr::AllMulti(_) => LinkAttr::AllMulti(fact.all_multi),
        LinkAttr::TxQueueLen(_) => LinkAttr::TxQueueLen(fact.tx_queue_len),
        LinkAttr::Up(_)
        | LinkAttr::Alias(_)
        | LinkAttr::Announce(_)
        | LinkAttr::Hairpin(_)
        | LinkAttr::Isolated(_)
        | LinkAttr::GsoMaxSize(_)
        | LinkAttr::ArpNotify(_) => return None,
    })
}

impl Plugin for Tuning {
    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        if !self.attrs.is_empty() {
            needs.push(Need::Link(call.pod()));
        }
        if !self.sysctls.is_empty() {
            needs.push(Need::File(ALLOW_LIST.to_owned()));
        }
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.refuse_unlisted(facts)?;
        self.refuse_mtu(call, facts)?;
        self.refuse_mac(call, facts)?;
        for (key, _) in &self.sysctls {
            path(key, call.ifname.as_str())?;
        }
        Ok(())
    }

    fn mac(&self) -> Option<Mac> {
        self.attrs.iter().find_map(|attr| {
            if let LinkAttr::Mac(mac) = attr {
                Some(*mac)
            } else {
                None
            }
        })
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let prev = call
            .prev
            .ok_or_else(|| Error::config("Required prevResult missing"))?;
        let mut steps = Vec::new();
        for (key, value) in &self.sysctls {
            let key = path(key, call.ifname.as_str())?;
            steps.push(Step::add(Sysctl {
                ns: Ns::Pod,
                key,
                value: value.clone(),
                optional: false,
            }));
        }
        if !self.attrs.is_empty() {
            let name = call.ifname.as_str();
            let fact = facts.link(&call.pod());
            let fact = fact.ok_or_else(|| {
                Error::internal(format!(
                    "interface {name:?} does not exist in the container"
                ))
            })?;
            for attr in &self.attrs {
                let (at, to) = (call.pod(), attr.clone());
                steps.push(match present(fact, attr) {
                    Some(from) => Step::Set { at, to, from },
                    None => Step::add(Attr { at, to }),
                });
            }
        }
        let mut result = prev.clone();
        if let Some(mac) = self.mac() {
            for interface in &mut result.interfaces {
                if interface.name == call.ifname.as_str() {
                    interface.mac = mac.to_string();
                }
            }
        }
        Ok(Planned {
            steps,
            result,
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        if self.attrs.is_empty() {
            return Vec::new();
        }
        let file = format!(
            "{}/{}_{}.json",
            self.data_dir, call.owner.container_id, call.ifname
        );
        vec![Step::Legacy(Legacy::Tuning {
            at: call.pod(),
            file,
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn only_net_sysctls_are_accepted() {
        assert_eq!(
            path("net.ipv4.conf.IFNAME.arp_filter", "eth0").as_deref(),
            Ok("net/ipv4/conf/eth0/arp_filter")
        );
        assert_eq!(
            path("net/core/somaxconn", "eth0").as_deref(),
            Ok("net/core/somaxconn")
        );
        for bad in [
            "kernel.hostname",
            "net/../kernel/hostname",
            "/net/core/somaxconn",
            "net",
            "",
            "net.\0x",
        ] {
            assert!(path(bad, "eth0").is_err(), "{bad:?}");
        }
    }
}
