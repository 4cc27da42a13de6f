//! Test bench of the probes: it uses a feature in a temporary network namespace.

use super::how::{Extra, How};
use crate::Cause;
use crate::effect::link::parse;
use crate::effect::redirect;
use crate::sys::netlink::{CREATE, EXCL, KernelError, Socket};
use crate::sys::rtnl::link::{NewKind, NewLink, new_link};
use crate::sys::rtnl::tc::{self, CLSACT, NEWQDISC, NEWTFILTER};
use crate::sys::rtnl::{self, link};
use crate::sys::sysctl;
use crate::sys::tap::{Options, Tap};
use braid_core::name::{IfName, Mac, Ns};
use braid_core::plan::facts::LinkFact;
use netlink_packet_route::link::NetkitMode;
use nix::errno::Errno;

const PARENT_NAME: &str = "probe0";

/// The socket of the temporary namespace, and the index of the parent link for other links.
pub(super) struct Bench {
    socket: Result<Socket, KernelError>,
    parent: Option<u32>,
    made: u32,
}

impl Bench {
    pub(super) fn new() -> Self {
        let mut bench = Self {
            socket: Socket::route(),
            parent: None,
            made: 0,
        };
        for kind in ["veth", "dummy", "bridge"] {
            if bench.new_link(kind, PARENT_NAME, Extra::None).is_ok()
                && let Ok(fact) = bench.link(PARENT_NAME)
            {
                bench.parent = Some(fact.index);
                break;
            }
        }
        bench
    }

    /// Uses a feature in the way that `how` describes. Returns the kernel's error if that fails.
    pub(super) fn ask(&mut self, how: &How) -> Result<(), Cause> {
        self.made += 1;
        let name = format!("probe{}", self.made);
        match how {
            How::Link(kind, extra) => match self.new_link(kind, &name, *extra) {
                // EBUSY: the kind is known, but macvlan and ipvlan cannot share a parent.
                Err(err) if err.is(&[Errno::EBUSY]) => Ok(()),
                other => other,
            },
            How::Netkit(mode) => self.new_netkit(&name, *mode),
            How::Filtering => {
                self.new_bridge(&name)?;
                if self.link(&name)?.vlan_filtering {
                    Ok(())
                } else {
                    Err(Cause::Lacking("vlan_filtering stays 0".to_owned()))
                }
            }
            How::Qdisc(kind, parent) => self.tc(NEWQDISC, kind, *parent, 0),
            How::Classifier(kind) => {
                // The qdisc may already exist.
                let _ = self.tc(NEWQDISC, "clsact", CLSACT, 0);
                self.tc(NEWTFILTER, kind, tc::INGRESS, 1 << 16 | tc::ALL_PROTOCOLS)
            }
            How::Redirect => {
                let index = self.parent()?;
                let _ = self.tc(NEWQDISC, "clsact", CLSACT, 0);
                self.socket()?.call(NEWTFILTER, CREATE, |out| {
                    redirect::request(Ns::Host, index, index, out);
                })?;
                Ok(())
            }
            How::Sysctl(key) => match sysctl::read(key)? {
                Some(_) => Ok(()),
                None => Err(Cause::Lacking(format!("no sysctl {key}"))),
            },
            How::Nft(send) => Ok(send(&mut Socket::netfilter()?)?),
            How::Tap => new_tap(&name),
            How::Bpf(ask) => ask(),
        }
    }

    fn socket(&mut self) -> Result<&mut Socket, KernelError> {
        self.socket.as_mut().map_err(|err| err.clone())
    }

    fn parent(&self) -> Result<u32, Cause> {
        self.parent
            .ok_or_else(|| Cause::Refused("no link for the probe".to_owned()))
    }

    fn link(&mut self, name: &str) -> Result<LinkFact, KernelError> {
        let name = IfName::parse(name).or(Err(Errno::EINVAL))?;
        let messages = self
            .socket()?
            .call(rtnl::GETLINK, 0, |out| link::by_name(&name, out))?;
        for message in &messages {
            if let Some((_, fact)) = parse(&message.body) {
                return Ok(fact);
            }
        }
        Err(Errno::ENODEV.into())
    }

    fn new_link(&mut self, kind: &str, name: &str, extra: Extra) -> Result<(), Cause> {
        let (needs_parent, number) = match extra {
            Extra::None => (false, None),
            Extra::Parent => (true, None),
            Extra::Number(number) => (false, Some(number)),
            Extra::ParentAndNumber(number) => (true, Some(number)),
        };
        let parent = if needs_parent {
            Some(self.parent()?)
        } else {
            None
        };
        let data = match number {
            Some(number) => attribute(1, number),
            None => Vec::new(),
        };
        Ok(self.make(kind, name, parent, &data)?)
    }

    /// Creates a netkit pair with the same request as an ADD.
    fn new_netkit(&mut self, name: &str, mode: NetkitMode) -> Result<(), Cause> {
        let mac = |last| (mode == NetkitMode::L2).then_some(Mac([2, 0, 0, 0, 0, last]));
        let name = IfName::parse(name).or(Err(Errno::EINVAL))?;
        let new = NewLink {
            name: Some(&name),
            mac: mac(1),
            ..NewLink::default()
        };
        let kind = NewKind::Netkit(
            NewLink {
                mac: mac(2),
                ..NewLink::default()
            },
            mode,
        );
        self.socket()?.call(rtnl::NEWLINK, CREATE | EXCL, |out| {
            new_link(&new, &kind, out);
        })?;
        Ok(())
    }

    fn new_bridge(&mut self, name: &str) -> Result<(), KernelError> {
        const IFLA_BR_VLAN_FILTERING: u16 = 7;
        self.make(
            "bridge",
            name,
            None,
            &attribute(IFLA_BR_VLAN_FILTERING, &[1]),
        )
    }

    /// Sends `RTM_NEWLINK`: `struct ifinfomsg`, then name, parent, kind and the kind's data.
    fn make(
        &mut self,
        kind: &str,
        name: &str,
        parent: Option<u32>,
        data: &[u8],
    ) -> Result<(), KernelError> {
        let (ifname, link, link_info, info_kind, info_data) = (3, 5, 18, 1, 2);
        let mut info = attribute(info_kind, kind.as_bytes());
        info.extend(attribute(info_data, data));
        let mut body = vec![0; 16];
        body.extend(attribute(ifname, &[name.as_bytes(), &[0]].concat()));
        if let Some(index) = parent {
            body.extend(attribute(link, &index.to_ne_bytes()));
        }
        body.extend(attribute(link_info, &info));
        self.socket()?
            .call(rtnl::NEWLINK, CREATE | EXCL, |out| out.extend(body))?;
        Ok(())
    }

    /// Sends `struct tcmsg` and the kind. EINVAL is a success: the kernel knows the kind, which
    /// requires options. For an unknown kind it returns ENOENT.
    fn tc(&mut self, message: u16, kind: &str, parent: u32, info: u32) -> Result<(), Cause> {
        let index = self.parent()?;
        let mut body = vec![0; 4];
        for number in [index, 0, parent, info] {
            body.extend(number.to_ne_bytes());
        }
        body.extend(attribute(1, &[kind.as_bytes(), &[0]].concat()));
        match self.socket()?.call(message, CREATE, |out| out.extend(body)) {
            Err(err) if err.errno == Errno::EINVAL => Ok(()),
            Err(err) => Err(err.into()),
            Ok(_) => Ok(()),
        }
    }
}

fn new_tap(name: &str) -> Result<(), Cause> {
    let name = IfName::parse(name).or(Err(Errno::EINVAL))?;
    match Tap::make(&name, &Options::default()).map_err(Cause::from) {
        Ok(_) => Ok(()),
        // The device file exists, but not its driver.
        Err(cause) if cause.is(&[Errno::ENODEV, Errno::ENXIO]) => {
            Err(Cause::Lacking(cause.to_string()))
        }
        Err(cause) => Err(cause),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_is_padded_but_its_length_is_not() {
        assert_eq!(
            attribute(7, &[1]),
            [&5u16.to_ne_bytes()[..], &7u16.to_ne_bytes(), &[1, 0, 0, 0]].concat()
        );
    }
}
