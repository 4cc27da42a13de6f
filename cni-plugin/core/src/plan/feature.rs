//! Kernel features that attachments require, under the kernel's names.

/// A feature that a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "the kernel's words, as in ip-link(8), tc(8) and nft(8)"
)]
pub enum Feature {
    Veth,
    Bridge,
    VlanFiltering,
    Macvlan,
    Ipvlan,
    Vlan,
    Dummy,
    Tun,
    Ifb,
    Vxlan,
    Vrf,
    Netkit,
    NetkitL2,
    Ipv6,
    NfTables,
    Masquerade,
    HostPorts,
    Forwarding,
    MacCheck,
    Conntrack,
    Clsact,
    ClsBpf,
    Fq,
    Htb,
    Tbf,
    FqCodel,
    Mirred,
    Bpf,
    CgroupBpf,
    PacketGuard,
    XskBind,
}

impl Feature {
    /// Returns the feature's name, for which an administrator would search.
    pub fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Bridge => "bridge",
            Self::VlanFiltering => "bridge vlan_filtering",
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::Vlan => "vlan",
            Self::Dummy => "dummy",
            Self::Tun => "tun",
            Self::Ifb => "ifb",
            Self::Vxlan => "vxlan",
            Self::Vrf => "vrf",
            Self::Netkit => "netkit",
            Self::NetkitL2 => "netkit l2",
            Self::Ipv6 => "ipv6",
            Self::NfTables => "nf_tables",
            Self::Masquerade => "nf_tables masquerade",
            Self::HostPorts => "nf_tables dnat",
            Self::Forwarding => "nf_tables ct",
            Self::MacCheck => "nf_tables bridge",
            Self::Conntrack => "conntrack",
            Self::Clsact => "clsact",
            Self::ClsBpf => "cls_bpf",
            Self::Fq => "fq",
            Self::Htb => "htb",
            Self::Tbf => "tbf",
            Self::FqCodel => "fq_codel",
            Self::Mirred => "act_mirred",
            Self::Bpf => "bpf",
            Self::CgroupBpf => "cgroup_bpf",
            Self::PacketGuard => "nf_tables egress",
            Self::XskBind => "bpf_lsm",
        }
    }
}
