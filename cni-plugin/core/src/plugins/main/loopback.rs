//! `loopback`: sets the container's `lo` up, regardless of `CNI_IFNAME`.

use crate::cni::{AddResult, Error, Interface, IpConfig};
use crate::ipam::Lease;
use crate::name::{IfName, Ns};
use crate::plan::step::Step;
use crate::plan::thing::{LinkAttr, LinkRef};
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Planned, Plugin};
use ipnet::IpNet;
use std::net::{Ipv4Addr, Ipv6Addr};

const DISABLE_IPV6: &str = "net/ipv6/conf/lo/disable_ipv6";

/// A `loopback` configuration, which has no keys.
#[derive(Debug)]
pub struct Loopback;

fn lo() -> Result<LinkRef, Error> {
    IfName::parse("lo")
        .map(LinkRef::pod)
        .map_err(|err| Error::internal(err.to_string()))
}

fn set_up(at: LinkRef, up: bool) -> Step {
    Step::Set {
        at,
        to: LinkAttr::Up(up),
        from: LinkAttr::Up(!up),
    }
}

/// Returns the addresses that the kernel adds to `lo` when it comes up.
fn addresses(with_ipv6: bool) -> Vec<IpConfig> {
    let v4 = IpNet::new(Ipv4Addr::LOCALHOST.into(), 8).ok();
    let v6 = IpNet::new(Ipv6Addr::LOCALHOST.into(), 128)
        .ok()
        .filter(|_| with_ipv6);
    let ip_config = |address| IpConfig {
        address,
        gateway: None,
        interface: Some(0),
    };
    v4.into_iter().chain(v6).map(ip_config).collect()
}

impl Plugin for Loopback {
    fn needs(&self, _call: &Call<'_>) -> Vec<Need> {
        vec![Need::Sysctl(Ns::Pod, DISABLE_IPV6.to_owned())]
    }

    fn plan(
        &self,
        call: &Call<'_>,
        facts: &Facts,
        _lease: Option<Lease>,
    ) -> Result<Planned, Error> {
        let steps = vec![set_up(lo()?, true)];
        let result = call.prev.cloned().unwrap_or_else(|| AddResult {
            interfaces: vec![Interface {
                name: "lo".to_owned(),
                mac: "00:00:00:00:00:00".to_owned(),
                sandbox: call.sandbox.to_owned(),
                ..Interface::default()
            }],
            ips: addresses(facts.sysctl_is(Ns::Pod, DISABLE_IPV6, "0")),
            ..AddResult::default()
        });
        Ok(Planned {
            steps,
            result,
            warnings: Vec::new(),
        })
    }

    fn teardown_without_record(&self, _call: &Call<'_>) -> Vec<Step> {
        lo().map(|lo| vec![set_up(lo, false)]).unwrap_or_default()
    }
}
