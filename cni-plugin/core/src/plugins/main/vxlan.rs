//! `vxlan`: an interface in a layer 2 network that UDP carries between hosts.

use crate::cni::{Dns, Error, Json, NetConf};
use crate::ipam::Lease;
use crate::name::{LinkName, Ns};
use crate::plan::facts::LinkFact;
use crate::plan::step::Step;
use crate::plan::thing::link::{ETHERNET_MTUS, Vxlan};
use crate::plan::thing::{Link, LinkKind, LinkRef};
use crate::plan::{Facts, Feature, Need};
use crate::plugins::interface::{self, Dad};
use crate::plugins::{Addresses, Call, Linked, Planned, Plugin, ThroughLink, mtu};
use std::net::IpAddr;

/// UDP port that IANA assigned to VXLAN. The kernel's default, 8472, is older than the assignment.
const PORT: i64 = 4789;
const MAX_ID: i64 = 0xff_ffff;

/// A `vxlan` configuration.
#[derive(Debug)]
pub struct VxlanConf {
    /// The link. Its `dev` stays `None` here; a plan sets it.
    vxlan: Vxlan,
    /// Underlay link on the host, by name or alternative name.
    dev: Option<LinkName>,
    mtu: Option<i64>,
    dns: Option<Dns>,
}

impl VxlanConf {
    /// Reads the configuration.
    pub fn parse(conf: &NetConf) -> Result<Self, Error> {
        let json = &conf.json;
        let id = number(json, "id", 1, MAX_ID)?.ok_or_else(|| {
            Error::config(format!("\"id\": vxlan needs a VNI between 1 and {MAX_ID}"))
        })?;
        let port = number(json, "port", 1, i64::from(u16::MAX))?.unwrap_or(PORT);
        let ttl = number(json, "ttl", 1, i64::from(u8::MAX))?;
        let dev = interface::link_name(json, "dev")?;
        let remote = remote(json, dev.is_some())?;
        let local = local(json, remote, dev.is_some())?;
        let vxlan = Vxlan {
            id: u32::try_from(id).unwrap_or_default(),
            dev: None,
            remote,
            local,
            port: u16::try_from(port).unwrap_or_default(),
            ttl: ttl.and_then(|ttl| u8::try_from(ttl).ok()),
            learning: json.bool_or("learning", true)?,
        };
        Ok(Self {
            vxlan,
            dev,
            mtu: mtu::read(json)?,
            dns: conf.dns.clone(),
        })
    }

    fn need(&self) -> Option<Need> {
        let dev = self.dev.clone();
        dev.map(|name| Need::NamedLink(Ns::Host, name))
    }

    /// Returns the underlay's primary name and its fact; `None` if no underlay is configured.
    fn underlay<'a>(&self, facts: &'a Facts) -> Result<Option<(LinkRef, &'a LinkFact)>, Error> {
        let Some(name) = &self.dev else {
            return Ok(None);
        };
        if let Some(at) = facts.place_of(Ns::Host, name)
            && let Some(fact) = facts.link(&at)
        {
            return Ok(Some((at, fact)));
        }
        let name = name.as_str();
        Err(Error::internal(format!(
            "failed to lookup dev {name:?}: no such link in host"
        )))
    }

    /// Returns the requested MTU. If no MTU is requested, returns the largest MTU that the underlay
    /// can carry in one packet. Without an underlay, returns `None` instead, which means the
    /// kernel's default.
    fn mtu(&self, facts: &Facts, lease: Option<&Lease>) -> Result<Option<u32>, Error> {
        let overhead = self.vxlan.overhead();
        let (bounds, whose, most) = match self.underlay(facts)? {
            None => (ETHERNET_MTUS, String::new(), None),
            Some((at, fact)) => {
                let most = self.vxlan.most(fact.mtu);
                let name = at.name.as_str();
                let whose = format!(", the MTU of dev {name:?} less {overhead}");
                (*ETHERNET_MTUS.start()..=most, whose, Some(most))
            }
        };
        let wanted = self.mtu.or(most.map(i64::from));
        let mtu = mtu::optional_within(wanted, &bounds, &whose)?;
        mtu::refuse_ipv6_below(mtu, lease.map_or(&[], |lease| &lease.ips))?;
        Ok(mtu)
    }
}

/// Reads a number from `least` to `most` under `key`; `None` if absent.
fn number(json: &Json, key: &str, least: i64, most: i64) -> Result<Option<i64>, Error> {
    match json.i64(key)? {
        Some(wrong) if !(least..=most).contains(&wrong) => Err(Error::config(format!(
            "{key:?}: {wrong} is outside {least}-{most}"
        ))),
        number => Ok(number),
    }
}

fn address(json: &Json, key: &str) -> Result<Option<IpAddr>, Error> {
    let Some(text) = json.text(key)? else {
        return Ok(None);
    };
    match text.parse::<IpAddr>() {
        Ok(ip) if !ip.is_unspecified() => Ok(Some(ip)),
        _ => Err(Error::config(format!(
            "{key:?}: {text:?} is not an IP address"
        ))),
    }
}

/// Reads `group` or `remote`.
fn remote(json: &Json, has_dev: bool) -> Result<Option<IpAddr>, Error> {
    let (group, remote) = (address(json, "group")?, address(json, "remote")?);
    if let Some(ip) = group
        && !ip.is_multicast()
    {
        return Err(Error::config(format!(
            "\"group\": {ip} is not a multicast address; a unicast peer is \"remote\""
        )));
    }
    if let Some(ip) = remote
        && ip.is_multicast()
    {
        return Err(Error::config(format!(
            "\"remote\": {ip} is a multicast address; that is \"group\""
        )));
    }
    if group.is_some() && remote.is_some() {
        let text = "\"group\", \"remote\": a vxlan has one of them";
        return Err(Error::config(text));
    }
    let ip = group.or(remote);
    if let Some(ip) = ip {
        needs_dev(ip, has_dev)?;
    }
    Ok(ip)
}

/// Refuses a multicast or link-local address if no underlay link is configured. The kernel would
/// return EINVAL (v6.12 `drivers/net/vxlan/vxlan_core.c`, `vxlan_config_validate()`).
fn needs_dev(ip: IpAddr, has_dev: bool) -> Result<(), Error> {
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if !has_dev && (ip.is_multicast() || is_link_local) {
        return Err(Error::config(format!(
            "\"dev\": {ip} needs an underlay link"
        )));
    }
    Ok(())
}

/// Reads `local`.
fn local(json: &Json, remote: Option<IpAddr>, has_dev: bool) -> Result<Option<IpAddr>, Error> {
    let Some(ip) = address(json, "local")? else {
        return Ok(None);
    };
    if ip.is_multicast() {
        return Err(Error::config(format!(
            "\"local\": {ip} is a multicast address"
        )));
    }
    needs_dev(ip, has_dev)?;
    if let Some(remote) = remote
        && remote.is_ipv4() != ip.is_ipv4()
    {
        return Err(Error::config(format!(
            "\"local\": {ip} is not of the address family of {remote}"
        )));
    }
    Ok(Some(ip))
}

impl Plugin for VxlanConf {
    fn addresses(&self) -> Addresses {
        Addresses::Optional
    }

    fn needs(&self, call: &Call<'_>) -> Vec<Need> {
        let mut needs: Vec<Need> = self.need().into_iter().collect();
        needs.push(Need::Link(call.pod()));
        needs
    }

    fn refuse(&self, call: &Call<'_>, facts: &Facts) -> Result<(), Error> {
        self.mtu(facts, None)?;
        interface::refuse_taken(call, facts)
    }

    fn plan(&self, call: &Call<'_>, facts: &Facts, lease: Option<Lease>) -> Result<Planned, Error> {
        self.complete(call, facts, self.plan_link(call, facts)?, lease)
    }

    fn through_link(&self) -> Result<&dyn ThroughLink, &'static str> {
        Ok(self)
    }

    fn teardown_without_record(&self, call: &Call<'_>) -> Vec<Step> {
        vec![Step::del(Link::any(call.pod()))]
    }

    fn kind(&self) -> Option<&'static str> {
        Some("vxlan")
    }

    fn features(&self) -> Vec<Feature> {
        vec![Feature::Vxlan]
    }

    /// Returns the need for the underlay, because every ADD requires a configured underlay.
    fn status_needs(&self) -> Vec<Need> {
        self.need().into_iter().collect()
    }

    fn status(&self, facts: &Facts) -> Result<Option<String>, Error> {
        match self.underlay(facts) {
            Ok(_) => Ok(None),
            Err(err) => Err(Error::not_available(err.msg)),
        }
    }
}

impl ThroughLink for VxlanConf {
    fn plan_link(&self, call: &Call<'_>, facts: &Facts) -> Result<Linked, Error> {
        let mac = call.pod_mac();
        let underlay = self.underlay(facts)?;
        let made = vec![Step::add(Link {
            at: call.pod(),
            mac: Some(mac),
            mtu: self.mtu(facts, None)?,
            up: false,
            master: None,
            kind: LinkKind::Vxlan(Vxlan {
                dev: underlay.map(|(at, _)| at),
                ..self.vxlan.clone()
            }),
        })];
        Ok(Linked::new(call, mac.to_string(), made))
    }

    fn complete(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        linked: Linked,
        lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        self.mtu(facts, lease.as_ref())?;
        let leased = lease.as_ref().map(|lease| lease.dns.clone());
        let dns = self.dns.clone().or(leased).unwrap_or_default();
        let mut planned = linked.attached(call, lease, Dad::On)?;
        let settled = interface::settle(&call.pod(), &planned.result.ips, Dad::On);
        planned.steps.extend(settled);
        planned.result.dns = dns;
        Ok(planned)
    }
}
