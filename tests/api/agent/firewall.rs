//! Firewalls of the node that drop forwarded packets by policy, as Docker and ufw set them up.

use super::node::configure;
use super::{CONFLIST, Pair, attach, await_true, is_ready, serde_json_of};
use crate::World;
use braid_tests::Ns;
use std::fs;

const PROGRAMS: [&str; 2] = ["iptables-nft", "ip6tables-nft"];

/// Returns the addresses of the other node's pods.
fn peers(net: u8) -> [String; 2] {
    [format!("10.{net}.2.5"), format!("fd00:{net}:2::5")]
}

/// Creates two nodes with ranges of both families, `10.<net>.0.0/16` and `fd00:<net>::/32`. The first
/// one drops.
fn dropping(test: &str, net: u8) -> Option<Pair> {
    let world = World::new(test)?;
    let other = world
        .sandbox
        .outside("other", "192.0.2.1/24", "192.0.2.2/24");
    let host = world.sandbox.host();
    host.run("ip addr add fd99::1/64 dev other nodad");
    other.run("ip addr add fd99::2/64 dev other nodad");
    for peer in peers(net) {
        other.run(&format!("ip addr add {peer} dev lo nodad"));
    }
    other.run(&format!("ip route add 10.{net}.1.0/24 via 192.0.2.1"));
    other.run(&format!("ip route add fd00:{net}:1::/64 via fd99::1"));
    for program in PROGRAMS {
        host.run(&format!("{program} -P FORWARD DROP"));
        host.run(&format!(
            "{program} -A FORWARD -i absent -m comment --comment others -j DROP"
        ));
    }
    add_chain(host, "inet guard");
    let ranges = [1, 2].map(|node| {
        [
            format!("10.{net}.{node}.0/24"),
            format!("fd00:{net}:{node}::/64"),
        ]
    });
    let [own, others] = ranges
        .each_ref()
        .map(|both| both.each_ref().map(String::as_str));
    let nodes: [(&[&str], &[&str]); 2] = [
        (&own, &["192.0.2.1", "fd99::1"]),
        (&others, &["192.0.2.2", "fd99::2"]),
    ];
    Some(Pair::in_world(world, other, nodes))
}

/// Adds a table with a chain that drops by policy.
fn add_chain(host: &Ns, table: &str) {
    let rules = format!(
        "table {table} {{\n\
         chain forward {{ type filter hook forward priority 5; policy drop; }}\n\
         }}\n"
    );
    fs::write("/run/chain.nft", rules).expect("rules");
    host.run("nft -f /run/chain.nft");
}

/// Lists the rules of iptables in the chain FORWARD.
fn listed(host: &Ns, program: &str) -> Vec<String> {
    let printed = host.run(&format!("{program} -S FORWARD"));
    let rules = printed.lines().filter(|line| line.starts_with("-A"));
    rules.map(str::to_owned).collect()
}

/// True if both rules for the range are in the list.
fn accepts(rules: &[String], range: &str) -> bool {
    [("-s", "from"), ("-d", "to")].iter().all(|(option, word)| {
        rules.contains(&format!(
            "-A FORWARD {option} {range} -m comment --comment \"braid pods {word} {range}\" -j ACCEPT"
        ))
    })
}

/// Deletes the agent's rules in the chains of iptables.
fn delete_rules(host: &Ns) {
    for program in PROGRAMS {
        for (number, rule) in listed(host, program).iter().enumerate().rev() {
            if rule.contains("braid pods") {
                host.run(&format!("{program} -D FORWARD {}", number + 1));
            }
        }
    }
}

#[test]
fn pods_are_accepted_where_others_drop_and_removal_leaves_the_ruleset_as_it_was() {
    let Some(pair) = dropping("agent-firewall", 112) else {
        return;
    };
    let peers = peers(112);
    let host = pair.world.sandbox.host();
    let before = host.run("nft -j list ruleset");
    let agent = pair.start();
    await_true("readiness", is_ready);
    let (pod, call) = attach(&pair);
    assert!(peers.iter().all(|peer| pod.can_ping(peer)));
    for (program, range) in PROGRAMS.iter().zip(["10.112.1.0/24", "fd00:112:1::/64"]) {
        let rules = listed(host, program);
        assert!(accepts(&rules, range), "{rules:?}");
        assert!(rules[0].contains("others"), "{rules:?}");
    }
    let (v4, v6) = (listed(host, PROGRAMS[0]), listed(host, PROGRAMS[1]));
    assert!(accepts(&v4, "10.112.2.0/24") && accepts(&v6, "fd00:112:2::/64"));
    // Nodes of other tests lead to comparisons.
    agent.signal("STOP");
    delete_rules(host);
    assert!(peers.iter().all(|peer| pod.cannot_ping(peer)));
    agent.signal("CONT");
    // A change of the configuration leads to a comparison.
    configure(&pair, "mtu: 1400");
    assert!(peers.iter().all(|peer| pod.can_ping(peer)));
    // Ranges follow the nodes.
    pair.create_node("agent-firewall-c", "10.112.3.0/24", "192.0.2.3");
    await_true("rules for both nodes", || {
        accepts(&listed(host, PROGRAMS[0]), "10.112.2.0/23")
    });
    pair.delete_node("agent-firewall-c");
    await_true("rules for one node", || {
        accepts(&listed(host, PROGRAMS[0]), "10.112.2.0/24")
    });
    call.del().ok();
    agent.stop();
    assert_ne!(host.run("nft -j list ruleset"), before);
    let removal = pair.start_with(&["--remove"]);
    await_true("removal", is_ready);
    removal.stop();
    assert_eq!(host.run("nft -j list ruleset"), before);
}

#[test]
fn a_chain_that_comes_later_is_handled_as_long_as_it_drops() {
    let Some(pair) = dropping("agent-firewall-late", 113) else {
        return;
    };
    let [peer, _] = peers(113);
    let host = pair.world.sandbox.host();
    let agent = pair.start();
    await_true("readiness", is_ready);
    let (pod, call) = attach(&pair);
    assert!(pod.can_ping(&peer));
    agent.signal("STOP");
    add_chain(host, "ip late");
    assert!(pod.cannot_ping(&peer));
    agent.signal("CONT");
    configure(&pair, "mtu: 1401");
    assert!(pod.can_ping(&peer));
    let rules = || host.run("nft list chain ip late forward");
    assert!(
        rules().contains("comment \"braid pods to 10.113.1.0/24\""),
        "{}",
        rules()
    );
    host.run("nft add chain ip late forward { policy accept ; }");
    configure(&pair, "mtu: 1402");
    await_true("no rules", || !rules().contains("braid"));
    call.del().ok();
}

#[test]
fn rules_that_iptables_restored_are_still_the_agents() {
    let Some(pair) = dropping("agent-firewall-save", 114) else {
        return;
    };
    let host = pair.world.sandbox.host();
    let _agent = pair.start();
    await_true("readiness", is_ready);
    for program in PROGRAMS {
        let saved = host.run(&format!("{program}-save"));
        fs::write("/run/saved", saved).expect("a file");
        host.run(&format!("{program}-restore /run/saved"));
    }
    let handles = || {
        let chains = ["ip", "ip6"];
        chains.map(|family| host.run(&format!("nft -a list chain {family} filter FORWARD")))
    };
    // Nodes of other tests change the rules as well.
    let is_kept = (1401..1431).any(|mtu| {
        let before = handles();
        configure(&pair, &format!("mtu: {mtu}"));
        await_true("the MTU", || {
            serde_json_of(CONFLIST)["plugins"][0]["plugins"][0]["mtu"] == mtu
        });
        handles() == before
    });
    assert!(is_kept);
    for program in PROGRAMS {
        let rules = listed(host, program);
        let own = rules.iter().filter(|rule| rule.contains("braid pods from"));
        let unique: std::collections::BTreeSet<_> = own.clone().collect();
        assert_eq!(own.count(), unique.len(), "{rules:?}");
    }
}

#[test]
fn pods_are_accepted_before_a_rule_of_iptables_that_rejects_all_others() {
    let Some(pair) = dropping("agent-firewall-reject", 115) else {
        return;
    };
    let peers = peers(115);
    let host = pair.world.sandbox.host();
    for program in PROGRAMS {
        host.run(&format!("{program} -P FORWARD ACCEPT"));
        host.run(&format!("{program} -A FORWARD -j REJECT"));
    }
    let before = host.run("nft -j list ruleset");
    let agent = pair.start();
    await_true("readiness", is_ready);
    let (pod, call) = attach(&pair);
    assert!(peers.iter().all(|peer| pod.can_ping(peer)));
    for program in PROGRAMS {
        let rules = listed(host, program);
        let last = rules.last().expect("rules");
        assert!(last.contains("REJECT"), "{rules:?}");
    }
    call.del().ok();
    agent.stop();
    let removal = pair.start_with(&["--remove"]);
    await_true("removal", is_ready);
    removal.stop();
    assert_eq!(host.run("nft -j list ruleset"), before);
}
