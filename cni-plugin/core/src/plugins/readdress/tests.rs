use super::*;
use crate::name::IfName;
use crate::plan::facts::{LinkFact, RouteFact};

fn name(text: &str) -> IfName {
    IfName::parse(text).expect("a name")
}

fn at() -> LinkRef {
    LinkRef::pod(name("eth0"))
}

fn ip(address: &str, gateway: &str) -> IpConfig {
    IpConfig {
        address: address.parse().expect("a net"),
        gateway: gateway.parse().ok(),
        interface: None,
    }
}

fn link(index: u32, master: Option<u32>) -> LinkFact {
    LinkFact {
        index,
        master,
        ..LinkFact::planned("macvlan", None, 1500, true)
    }
}

/// Parses a route through `eth0`: `<dst> <gateway or -> <source or -> <table>`.
fn route(text: &str) -> RouteFact {
    let [dst, gw, src, table] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    RouteFact {
        dst: dst.parse().expect("a net"),
        gw: gw.parse().ok(),
        src: src.parse().ok(),
        link: Some(2),
        table: table.parse().expect("a number"),
        scope: 0,
        from_router: false,
        priority: None,
        mtu: None,
        advmss: None,
        onlink: false,
        request: Vec::new(),
    }
}

fn facts(routes: &[&str], rules: &[(&str, u32)]) -> Facts {
    let mut facts = Facts::default();
    facts.links.insert(at(), link(2, None));
    facts
        .routes
        .insert(Ns::Pod, routes.iter().map(|text| route(text)).collect());
    let rule = |(from, table): &(&str, u32)| {
        let of = Packets::From(from.parse().expect("a net"));
        Rule {
            ns: Ns::Pod,
            of,
            table: *table,
            iif: None,
            suppress: None,
            priority: Some(32765),
        }
    };
    facts
        .rules
        .insert(Ns::Pod, rules.iter().map(rule).collect());
    facts
}

/// Returns the steps as commands, without attributes and sysctls of the link.
fn commands(steps: &[Step]) -> Vec<String> {
    let is_own = |text: &String| !text.contains("sysctl") && !text.contains("ip link");
    let text = |step: &Step| step.to_string().trim_start_matches("pod  ").to_owned();
    steps.iter().map(text).filter(is_own).collect()
}

/// Returns the steps that delete 10.3.0.7, and the steps that add 10.9.0.8.
fn change(facts: &Facts) -> [Vec<String>; 2] {
    let default = [cni::Route::to("0.0.0.0/0".parse().expect("a net"))];
    let lost = Routing::of(&at(), &ip("10.3.0.7/16", "10.3.0.1"), &default, facts);
    let left = commands(&lost.leave(&at()));
    let arrived = arrive(
        &at(),
        &[ip("10.9.0.8/24", "10.9.0.1")],
        &default,
        &[lost],
        facts,
    );
    [left, commands(&arrived)]
}

#[test]
fn without_another_plugin_the_routes_are_in_the_main_table() {
    let facts = facts(
        &["10.3.0.0/16 - 10.3.0.7 254", "0.0.0.0/0 10.3.0.1 - 254"],
        &[],
    );
    let [left, arrived] = change(&facts);
    assert_eq!(
        left,
        [
            "ip route del 0.0.0.0/0 via 10.3.0.1 dev eth0",
            "ip addr del 10.3.0.7/16 dev eth0"
        ]
    );
    assert_eq!(
        arrived,
        [
            "ip addr add 10.9.0.8/24 dev eth0 brd +",
            "ip route prepend 0.0.0.0/0 via 10.9.0.1 dev eth0"
        ]
    );
}

#[test]
fn table_and_rule_of_an_address_move_to_the_next_address() {
    let routes = [
        "10.3.0.0/16 - 10.3.0.7 100",
        "0.0.0.0/0 10.3.0.1 - 100",
        "10.4.0.0/16 10.3.0.9 - 100",
    ];
    let [left, arrived] = change(&facts(
        &routes,
        &[("10.3.0.7/32", 100), ("10.3.0.5/32", 101)],
    ));
    assert_eq!(
        left,
        [
            "ip rule del from 10.3.0.7/32 table 100 priority 32765",
            "ip route del 10.3.0.0/16 dev eth0 src 10.3.0.7 table 100",
            "ip route del 0.0.0.0/0 via 10.3.0.1 dev eth0 table 100",
            "ip addr del 10.3.0.7/16 dev eth0",
        ]
    );
    assert_eq!(
        arrived,
        [
            "ip addr add 10.9.0.8/24 dev eth0 brd + noprefixroute",
            "ip route prepend 10.9.0.0/24 dev eth0 src 10.9.0.8 table 100",
            "ip route prepend 0.0.0.0/0 via 10.9.0.1 dev eth0 table 100",
            "ip rule add from 10.9.0.8/32 table 100 priority 32765",
        ]
    );
}

#[test]
fn a_network_route_in_both_tables_is_restored_in_both() {
    let routes = ["10.3.0.0/16 - 10.3.0.7 254", "10.3.0.0/16 - 10.3.0.7 100"];
    let [_, arrived] = change(&facts(&routes, &[("10.3.0.7/32", 100)]));
    let first = [
        "ip addr add 10.9.0.8/24 dev eth0 brd +",
        "ip route prepend 10.9.0.0/24 dev eth0 src 10.9.0.8 table 100",
    ];
    assert_eq!(arrived[..2], first);
}

#[test]
fn routes_of_a_vrf_member_use_its_table_though_none_remains() {
    let mut facts = facts(&[], &[]);
    facts.links.insert(at(), link(2, Some(5)));
    for (vrf, index, table) in [("red", 4, 7), ("blue", 5, 8)] {
        facts
            .links
            .insert(LinkRef::pod(name(vrf)), link(index, None));
        facts.vrfs.insert(name(vrf), table);
    }
    let [left, arrived] = change(&facts);
    assert_eq!(left, ["ip addr del 10.3.0.7/16 dev eth0"]);
    assert_eq!(
        arrived,
        [
            "ip addr add 10.9.0.8/24 dev eth0 brd +",
            "ip route prepend 0.0.0.0/0 via 10.9.0.1 dev eth0 table 8"
        ]
    );
}

#[test]
fn an_address_of_the_other_family_is_left_alone() {
    let facts = facts(&[], &[]);
    let lost = Routing::of(&at(), &ip("10.3.0.7/16", ""), &[], &facts);
    let both = [ip("10.9.0.8/24", ""), ip("fd00::7/128", "")];
    let steps = commands(&arrive(&at(), &both, &[], &[lost], &facts));
    assert_eq!(steps, ["ip addr add 10.9.0.8/24 dev eth0 brd +"]);
    assert_eq!(
        commands(&arrive(&at(), &both, &[], &[], &facts)).len(),
        2,
        "nothing is known of those before"
    );
}
