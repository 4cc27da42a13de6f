//! Changed host ports of a running container. Ports that stay are not touched, so their connections
//! last.

use crate::plan::step::Step;
use crate::plan::thing::host_ports::{HostPort, Target};
use crate::plan::thing::{HostPorts, Thing};
use crate::plugins::{Adjustment, Planned};

/// Returns the change from the recorded steps `present` to what an ADD would plan now.
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
        if !new.ports.is_empty() {
            steps.push(Step::add(new));
        }
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

fn ports(steps: &[Step]) -> Option<&HostPorts> {
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

/// Returns the ports of `to` that were in `from`, and lead to a container port of `gone`.
fn beside(to: &HostPorts, from: &HostPorts, gone: &HostPorts) -> HostPorts {
    let target = |port: &HostPort| (port.to, port.at.protocol);
    let targets: Vec<_> = gone.ports.iter().map(target).collect();
    let is_beside = |port: &&HostPort| from.ports.contains(port) && targets.contains(&target(port));
    HostPorts {
        ports: to.ports.iter().filter(is_beside).copied().collect(),
        targets: Vec::new(),
        ..to.clone()
    }
}
