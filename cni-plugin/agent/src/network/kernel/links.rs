//! The VXLAN link, its addresses, and the uplink.

use super::{ADD, Kernel, errno, family_of};
use crate::error::Error;
use crate::network::changes::{Change, Command};
use crate::network::vxlan::{Found, Settings, Vxlan};
use braid_core::name::Mac;
use braid_node::sys::sysctl;
use ipnet::IpNet;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The link of the node's own address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// The node's own address on the link.
    pub address: IpAddr,
    /// Networks of its addresses.
    pub networks: Vec<IpNet>,
    /// Networks of other links.
    pub others: Vec<IpNet>,
}

/// Networks of a node's links.
#[derive(Debug, PartialEq, Eq)]
struct Networks {
    /// Index of the uplink.
    link: u32,
    /// The node's own address on it.
    address: IpAddr,
    of_link: Vec<IpNet>,
    /// Networks of other links, except for single addresses (/32, /128).
    of_others: Vec<IpNet>,
}

impl Kernel {
    /// Reads the link with the name of the VXLAN link.
    pub(super) async fn vxlan(&self) -> Result<Option<Found>, Error> {
        let name = self.vxlan_name.get();
        let mut request = LinkMessage::default();
        request.attributes = vec![LinkAttribute::IfName(name.to_string())];
        let request = RouteNetlinkMessage::GetLink(request);
        let found = match self.exchange(request, 0).await {
            Ok(answer) => match answer.messages.first() {
                Some(RouteNetlinkMessage::NewLink(message)) => Some(parse(message)),
                _ => None,
            },
            Err(failure) if failure.errno == errno::ENODEV => None,
            Err(failure) => return Err(failure.during(format_args!("read link {name}"))),
        };
        let own = found.as_ref().filter(|link| !link.is_foreign());
        self.vxlan_index.set(own.map(|link| link.index));
        Ok(found)
    }

    /// Carries out a change of the VXLAN link itself.
    pub(super) async fn change_link(&self, command: Command<'_>) -> Result<(), Error> {
        if let Change::Create(link) = command.change {
            return self.create(command, *link).await;
        }
        let Some(index) = self.vxlan_index.get() else {
            let why = format!("there is no link {}", command.link);
            return Err(Error::new(command, why));
        };
        let mut message = LinkMessage::default();
        message.header.index = index;
        match command.change {
            Change::SetMac(mac) => {
                message.attributes = vec![LinkAttribute::Address(mac.0.to_vec())];
            }
            Change::SetMtu(mtu) => message.attributes = vec![LinkAttribute::Mtu(*mtu)],
            Change::DeleteLink => {
                self.vxlan_index.set(None);
                let request = RouteNetlinkMessage::DelLink(message);
                return self.done(command, request, 0).await;
            }
            Change::SetUp
            | Change::Create(_)
            | Change::Add(_)
            | Change::Replace(_)
            | Change::Delete(_)
            | Change::HandOver(_) => set_up(&mut message),
        }
        self.done(command, RouteNetlinkMessage::SetLink(message), 0)
            .await
    }

    /// Creates the link. The kernel sets `addr_gen_mode` only on an existing link, and it makes the
    /// link-local address as soon as the link comes up. Flannel's links have such an address.
    async fn create(&self, command: Command<'_>, link: Vxlan) -> Result<(), Error> {
        let request = RouteNetlinkMessage::NewLink(creation(link));
        self.done(command, request, ADD).await?;
        let index = self.vxlan().await?.map_or(0, |found| found.index);
        let mut message = LinkMessage::default();
        message.header.index = index;
        // A kernel without IPv6 refuses the attribute.
        if has_ipv6() && !link.name.is_flannels() {
            let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
            let spec = vec![AfSpecUnspec::Inet6(vec![mode])];
            message.attributes = vec![LinkAttribute::AfSpecUnspec(spec)];
            let request = RouteNetlinkMessage::SetLink(message.clone());
            self.done(command, request, 0).await?;
            message.attributes.clear();
        }
        set_up(&mut message);
        self.done(command, RouteNetlinkMessage::SetLink(message), 0)
            .await
    }

    /// Deletes the bridge `name` unless it has ports. A link of another kind stays.
    pub async fn delete_unused_bridge(&self, name: &str) -> Result<(), Error> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut links = Vec::new();
        for found in self.list("links", request).await? {
            if let RouteNetlinkMessage::NewLink(message) = found {
                links.push(message);
            }
        }
        let Some(index) = unused_bridge(name, &links) else {
            return Ok(());
        };
        let mut message = LinkMessage::default();
        message.header.index = index;
        let request = RouteNetlinkMessage::DelLink(message);
        match self.exchange(request, NLM_F_ACK).await {
            Err(failure) if failure.errno != errno::ENODEV => {
                Err(failure.during(format_args!("delete bridge {name}")))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn done(
        &self,
        command: Command<'_>,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), Error> {
        match self.exchange(request, NLM_F_ACK | flags).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.during(command)),
        }
    }

    /// Lists the addresses of the agent's form on a link: one address with global scope.
    pub(super) async fn addresses(&self, link: u32) -> Result<BTreeSet<IpAddr>, Error> {
        let mut request = AddressMessage::default();
        request.header.index = link;
        let mut addresses = BTreeSet::new();
        let request = RouteNetlinkMessage::GetAddress(request);
        for found in self.list("addresses", request).await? {
            let RouteNetlinkMessage::NewAddress(message) = found else {
                continue;
            };
            let header = &message.header;
            let is_ours = header.index == link && header.scope == AddressScope::Universe;
            let own = own_address(&message.attributes);
            let full = |address: &IpAddr| header.prefix_len == full_length(*address);
            addresses.extend(own.filter(|address| is_ours && full(address)));
        }
        Ok(addresses)
    }

    /// Returns the link that has the first of the addresses that any link has; `None` if no link
    /// has one.
    pub async fn uplink(&self, own: &[IpAddr]) -> Result<Option<Uplink>, Error> {
        let mut present = Vec::new();
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for found in self.list("addresses", request).await? {
            let RouteNetlinkMessage::NewAddress(message) = found else {
                continue;
            };
            if let Some(address) = own_address(&message.attributes)
                && let Ok(address) = IpNet::new(address, message.header.prefix_len)
            {
                present.push((message.header.index, address));
            }
        }
        match networks(own, &present) {
            Some(networks) => self.link(networks).await.map(Some),
            None => Ok(None),
        }
    }

    async fn link(&self, networks: Networks) -> Result<Uplink, Error> {
        let Networks {
            link,
            address,
            of_link,
            of_others,
        } = networks;
        let doing = format!("read link {link}");
        let mut request = LinkMessage::default();
        request.header.index = link;
        let request = RouteNetlinkMessage::GetLink(request);
        let answer = self.exchange(request, 0).await;
        let answer = answer.map_err(|failure| failure.during(&doing))?;
        let (mut name, mut mtu) = (None, None);
        if let Some(RouteNetlinkMessage::NewLink(message)) = answer.messages.first() {
            for attribute in &message.attributes {
                if let LinkAttribute::Mtu(found) = attribute {
                    mtu = Some(*found);
                } else if let LinkAttribute::IfName(found) = attribute {
                    name = Some(found.clone());
                }
            }
        }
        match (name, mtu) {
            (Some(name), Some(mtu)) => Ok(Uplink {
                index: link,
                name,
                mtu,
                address,
                networks: of_link,
                others: of_others,
            }),
            _ => Err(Error::new(&doing, "the kernel reports no name or MTU")),
        }
    }
}

/// Returns the link with the first of the addresses `own` that is present, and all networks. A node
/// lists its main address first.
fn networks(own: &[IpAddr], present: &[(u32, IpNet)]) -> Option<Networks> {
    let mut by_address: BTreeMap<IpAddr, u32> = BTreeMap::new();
    for (link, address) in present {
        by_address.entry(address.addr()).or_insert(*link);
    }
    let address = *own
        .iter()
        .find(|address| by_address.contains_key(address))?;
    let link = *by_address.get(&address)?;
    let (mut of_link, mut of_others) = (Vec::new(), Vec::new());
    for (other, address) in present {
        if *other == link {
            of_link.push(address.trunc());
        } else if address.prefix_len() < address.max_prefix_len() {
            of_others.push(address.trunc());
        }
    }
    Some(Networks {
        link,
        address,
        of_link,
        of_others,
    })
}

fn has_ipv6() -> bool {
    sysctl::read("net/ipv6/conf/all/forwarding").is_ok_and(|value| value.is_some())
}

/// Returns the index of the bridge `name`; `None` if there is none, or if it has ports.
fn unused_bridge(name: &str, links: &[LinkMessage]) -> Option<u32> {
    let has = |link: &LinkMessage, wanted: &LinkAttribute| link.attributes.contains(wanted);
    let is_named = |link: &&LinkMessage| has(link, &LinkAttribute::IfName(name.to_owned()));
    let bridge = links.iter().find(is_named)?;
    let is_bridge = bridge.attributes.iter().any(|attribute| {
        matches!(attribute, LinkAttribute::LinkInfo(infos)
            if infos.contains(&LinkInfo::Kind(InfoKind::Bridge)))
    });
    let index = bridge.header.index;
    let has_port = links
        .iter()
        .any(|link| has(link, &LinkAttribute::Controller(index)));
    (is_bridge && !has_port).then_some(index)
}

fn creation(link: Vxlan) -> LinkMessage {
    let Settings {
        id,
        port,
        local,
        underlay,
    } = link.settings;
    let mut data = vec![
        InfoVxlan::Id(id),
        match local {
            IpAddr::V4(local) => InfoVxlan::Local(local),
            IpAddr::V6(local) => InfoVxlan::Local6(local),
        },
        InfoVxlan::Port(port),
        InfoVxlan::Learning(false),
        // IPv6 packets without a checksum are dropped unless both ends agree (RFC 6935).
        InfoVxlan::UDPCsum(true),
        InfoVxlan::UDPZeroCsumTX(false),
        InfoVxlan::UDPZeroCsumRX(false),
    ];
    data.extend(underlay.map(InfoVxlan::Link));
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(link.name.to_string()),
        LinkAttribute::Address(link.mac.0.to_vec()),
        LinkAttribute::Mtu(link.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vxlan),
            LinkInfo::Data(InfoData::Vxlan(data)),
        ]),
    ];
    message
}

fn set_up(message: &mut LinkMessage) {
    message.header.flags |= LinkFlags::Up;
    message.header.change_mask |= LinkFlags::Up;
}

fn parse(message: &LinkMessage) -> Found {
    let mut found = Found {
        index: message.header.index,
        kind: String::new(),
        settings: None,
        mac: None,
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
    };
    for attribute in &message.attributes {
        if let LinkAttribute::Address(bytes) = attribute {
            found.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac);
        } else if let LinkAttribute::Mtu(mtu) = attribute {
            found.mtu = *mtu;
        } else if let LinkAttribute::LinkInfo(infos) = attribute {
            for info in infos {
                if let LinkInfo::Kind(kind) = info {
                    found.kind = kind.to_string();
                } else if let LinkInfo::Data(InfoData::Vxlan(data)) = info {
                    found.settings = settings(data);
                }
            }
        }
    }
    found
}

/// Returns the settings of a VXLAN link; `None` if it has options that the agent does not use.
fn settings(data: &[InfoVxlan]) -> Option<Settings> {
    let (mut id, mut port, mut local, mut underlay) = (None, None, None, None);
    for info in data {
        if let InfoVxlan::Id(found) = info {
            id = Some(*found);
        } else if let InfoVxlan::Port(found) = info {
            port = Some(*found);
        } else if let InfoVxlan::Local(found) = info {
            local = Some(IpAddr::V4(*found));
        } else if let InfoVxlan::Local6(found) = info {
            local = Some(IpAddr::V6(*found));
        } else if let InfoVxlan::Link(found) = info {
            // The kernel reports a link that was deleted as 0.
            underlay = Some(*found).filter(|index| *index != 0);
        } else if matches!(
            info,
            InfoVxlan::Learning(true)
                | InfoVxlan::CollectMetadata(true)
                | InfoVxlan::Vnifilter(true)
                | InfoVxlan::Proxy(true)
                | InfoVxlan::UDPZeroCsumTX(true)
                | InfoVxlan::Gbp
                | InfoVxlan::Gpe
                | InfoVxlan::Group(_)
                | InfoVxlan::Group6(_)
        ) {
            return None;
        }
    }
    Some(Settings {
        id: id?,
        port: port?,
        local: local?,
        underlay,
    })
}

/// Returns the message of an address of the VXLAN link. Duplicate address detection would delay it,
/// and no packet of it leaves the link.
pub(super) fn address(address: IpAddr, link: u32) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(address);
    message.header.prefix_len = full_length(address);
    message.header.index = link;
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

fn full_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the address of the link itself. For a link with a peer, `IFA_ADDRESS` is the peer's and
/// `IFA_LOCAL` the own one; IPv6 has only the first without a peer.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let mut own = None;
    for attribute in attributes {
        if let AddressAttribute::Local(address) = attribute {
            return Some(*address);
        }
        if let AddressAttribute::Address(address) = attribute {
            own = Some(*address);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::vxlan::{Name, mac};

    #[test]
    fn the_own_address_of_a_link_with_a_peer_is_not_the_peers() {
        let [own, peer] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"));
        let both = [
            AddressAttribute::Address(peer),
            AddressAttribute::Local(own),
        ];
        assert_eq!(own_address(&both), Some(own));
        assert_eq!(own_address(&[AddressAttribute::Address(own)]), Some(own));
    }

    #[test]
    fn the_uplink_is_the_link_of_the_first_address_that_is_present() {
        let own = ["192.0.2.1", "198.51.100.1"].map(|text| text.parse().expect("an address"));
        let present = [
            (1, "127.0.0.1/8"),
            (2, "198.51.100.1/24"),
            (3, "192.0.2.1/24"),
            (3, "fd99::1/64"),
            (4, "10.244.1.1/32"),
        ]
        .map(|(link, text)| (link, text.parse().expect("an address")));
        let found = networks(&own, &present).expect("a link");
        let texts =
            |networks: &[IpNet]| -> Vec<String> { networks.iter().map(IpNet::to_string).collect() };
        assert_eq!(found.link, 3);
        assert_eq!(texts(&found.of_link), ["192.0.2.0/24", "fd99::/64"]);
        assert_eq!(
            texts(&found.of_others),
            ["127.0.0.0/8", "198.51.100.0/24"],
            "a single address is no network"
        );
        let link = |present| networks(&own, present).map(|found| found.link);
        assert_eq!(link(&present[..4]), Some(3));
        assert_eq!(link(&present[..2]), Some(2));
        assert_eq!(link(&present[..1]), None);
    }

    #[test]
    fn the_link_survives_the_way_to_the_kernels_message_and_back() {
        for (local, name, underlay) in [
            ("192.0.2.1", Name::Braid, None),
            ("fd99::1", Name::FlannelV6(4626), Some(3)),
        ] {
            let settings = Settings {
                id: 4626,
                port: 4789,
                local: local.parse().expect("an address"),
                underlay,
            };
            let link = Vxlan {
                name,
                settings,
                mac: mac("a"),
                mtu: 1450,
            };
            let found = parse(&creation(link));
            assert_eq!(found.settings, Some(settings));
            assert_eq!((found.mac, found.mtu), (Some(link.mac), 1450));
            assert!(!found.is_up && !found.is_foreign());
        }
    }

    #[test]
    fn a_bridge_is_unused_without_ports() {
        let link = |name: &str, index, more: Vec<LinkAttribute>| {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
            message.attributes.extend(more);
            message
        };
        let of_kind = |kind| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
        let bridge = || link("braid0", 7, vec![of_kind(InfoKind::Bridge)]);
        let other = link("veth1", 8, vec![LinkAttribute::Controller(6)]);
        let port = link("veth2", 9, vec![LinkAttribute::Controller(7)]);
        let unused = |links: &[LinkMessage]| unused_bridge("braid0", links);
        assert_eq!(unused(&[bridge(), other.clone()]), Some(7));
        assert_eq!(unused(&[bridge(), other.clone(), port]), None);
        assert_eq!(unused(&[other]), None);
        let vlan = link("braid0", 7, vec![of_kind(InfoKind::Vlan)]);
        assert_eq!(unused(&[vlan]), None);
    }

    #[test]
    fn a_vxlan_link_that_learns_or_has_a_group_is_not_usable() {
        let group = "239.0.0.1".parse().expect("an address");
        let data = vec![
            InfoVxlan::Id(1),
            InfoVxlan::Port(4789),
            InfoVxlan::Local("192.0.2.1".parse().expect("an address")),
        ];
        assert!(settings(&data).is_some());
        for other in [InfoVxlan::Learning(true), InfoVxlan::Group(group)] {
            let mut data = data.clone();
            data.push(other);
            assert_eq!(settings(&data), None);
        }
    }
}
