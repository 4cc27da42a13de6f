//! Changed host ports of a running container. Ports that stay are not touched, so their connections
//! last.

use crate::plan::step::Step;
use crate::plan::thing::host_ports::{HostPort, Target};
use crate::plan::thing::{HostPorts, Thing};
use crate::plugins::{Adjustment, Planned};

/// Returns the change from the recorded steps `present` to the plan of an ADD.
pub(super) fn adjusted(planned: Planned, present: &[Step]) -> Adjustment {
    let (from, to) = (ports(present), ports(&planned.steps));
    if let (Some(from), Some(to)) = (from, to)
        && !is_alike(from, to)
    {
        let del = Step::del(from.clone());
        return Adjustment {
            steps: [vec![del], planned.steps.clone()].concat(),
            after: planned.steps,
            result: planned.result,
            warnings: planned.warnings,
        };
    }
    let mut steps = Vec::new();
    if let Some(from) = from {
        let gone = without(from, to);
        if !gone.ports.is_empty() {
            // A container port that is still the target of a kept port would go as well.
            let again = to.map(|to| beside(to, from, &gone));
            steps.push(Step::del(gone));
            let again = again.filter(|again| !again.ports.is_empty());
            steps.extend(again.map(Step::ensure));
        }
    }
    for step in &planned.steps {
        let Some(to) = host_ports(step) else {
            steps.push(step.clone());
            continue;
        };
        let new = without(to, from);
        if new.ports.is_empty() {
            continue;
        }
        // First, so that a rollback restores them after it has deleted the new ones.
        let kept = from.map(|from| beside(to, from, &new));
        steps.extend(kept.filter(|kept| !kept.ports.is_empty()).map(Step::ensure));
        steps.push(Step::add(new));
    }
    Adjustment {
        steps,
        after: planned.steps,
        result: planned.result,
        warnings: planned.warnings,
    }
}

/// True if ports of both are forwarded in the same way.
fn is_alike(from: &HostPorts, to: &HostPorts) -> bool {
    let is_same = |target: &Target| {
        let mut others = to.targets.iter().filter(|other| other.addr == target.addr);
        others.all(|other| other == target)
    };
    from.backend == to.backend
        && from.loopback == to.loopback
        && from.conditions == to.conditions
        && from.targets.is_empty() == to.targets.is_empty()
        && from.targets.iter().all(is_same)
}

/// Returns the host ports of recorded steps, if any.
pub(super) fn ports(steps: &[Step]) -> Option<&HostPorts> {
    steps.iter().find_map(host_ports)
}

fn host_ports(step: &Step) -> Option<&HostPorts> {
    let Step::Add(Thing::HostPorts(ports)) = step else {
        return None;
    };
    Some(ports)
}

/// Returns what `all` has and `other` has not.
fn without(all: &HostPorts, other: Option<&HostPorts>) -> HostPorts {
    let mut left = all.clone();
    if let Some(other) = other {
        left.ports.retain(|port| !other.ports.contains(port));
        left.targets
            .retain(|target| !other.targets.contains(target));
    }
    left
}

/// Returns the ports that are in both `to` and `from`, and lead to a container port of `others`.
fn beside(to: &HostPorts, from: &HostPorts, others: &HostPorts) -> HostPorts {
    let target = |port: &HostPort| (port.to, port.at.protocol);
    let targets: Vec<_> = others.ports.iter().map(target).collect();
    let is_beside = |port: &&HostPort| from.ports.contains(port) && targets.contains(&target(port));
    HostPorts {
        ports: to.ports.iter().filter(is_beside).copied().collect(),
        targets: Vec::new(),
        ..to.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::thing::host_ports::{HostEndpoint, Protocol};

    fn step(ports: &[(u16, u16)]) -> Step {
        let port = |(host, container): &(u16, u16)| HostPort {
            at: HostEndpoint {
                addr: [0; 4].into(),
                protocol: Protocol::Tcp,
                port: *host,
                conditional: false,
            },
            to: ([10, 1, 0, 5], *container).into(),
        };
        Step::add(HostPorts {
            ports: ports.iter().map(port).collect(),
            owner: "net c eth0".to_owned(),
            ..HostPorts::default()
        })
    }

    /// Returns the steps as `-8080 =8081 +8082`.
    fn change(from: &[(u16, u16)], to: &[(u16, u16)]) -> String {
        let planned = Planned {
            steps: vec![step(to)],
            ..Planned::default()
        };
        let mut words = Vec::new();
        for step in adjusted(planned, &[step(from)]).steps {
            let (sign, all) = if let Step::Del(Thing::HostPorts(all)) = &step {
                ('-', all)
            } else if let Step::Ensure(Thing::HostPorts(all)) = &step {
                ('=', all)
            } else {
                ('+', host_ports(&step).expect("host ports"))
            };
            words.extend(
                all.ports
                    .iter()
                    .map(|port| format!("{sign}{}", port.at.port)),
            );
        }
        words.join(" ")
    }

    #[test]
    fn ports_that_share_a_container_port_with_changed_ones_are_ensured() {
        for (from, to, expected) in [
            (&[(8080, 80)][..], &[(8080, 80)][..], ""),
            (&[(8080, 80)], &[(8080, 80), (8443, 443)], "+8443"),
            (&[(8080, 80), (8443, 443)], &[(8443, 443)], "-8080"),
            (&[(8080, 80)], &[(8080, 81)], "-8080 +8080"),
            // The deletion of one takes what both need.
            (&[(8080, 80), (8081, 80)], &[(8081, 80)], "-8080 =8081"),
            (&[(8080, 80)], &[(8080, 80), (8081, 80)], "=8080 +8081"),
        ] {
            assert_eq!(change(from, to), expected, "{from:?} to {to:?}");
        }
    }
}
