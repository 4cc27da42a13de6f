//! Ports of the host that lead to pods, a hundred to each.

use crate::conflist::Conflist;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::ops::Range;

/// The first port.
pub(crate) const FIRST: u16 = 10_000;
/// The port in the pods.
pub(crate) const CONTAINER_PORT: u16 = 80;
/// Ports of each pod, at most.
const EACH: u16 = 100;
const CAPABILITY: &str = "portMappings";

/// The ports of one pod after the other.
pub(crate) fn chunks(ports: Range<u16>) -> impl Iterator<Item = Range<u16>> {
    let end = ports.end;
    ports
        .step_by(EACH.into())
        .map(move |start| start..end.min(start + EACH))
}

/// The list for a pod that is attached with these ports.
pub(crate) fn lead(conflist: &Conflist, mappings: Vec<Value>) -> Result<Conflist> {
    if !conflist.declares(CAPABILITY) {
        bail!("no plugin of the list has the capability \"{CAPABILITY}\"");
    }
    Ok(conflist.with_capability(CAPABILITY, &mappings.into()))
}

pub(crate) fn tcp(port: u16) -> Value {
    mapping(port, "tcp")
}

pub(crate) fn mapping(port: u16, protocol: &str) -> Value {
    json!({"hostPort": port, "containerPort": CONTAINER_PORT, "protocol": protocol})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_one_pod_s() {
        assert_eq!(
            chunks(10_000..10_250).collect::<Vec<_>>(),
            [10_000..10_100, 10_100..10_200, 10_200..10_250]
        );
        assert_eq!(chunks(10_000..10_000).count(), 0);
    }
}
