//! Host ports forwarded to pods, a hundred to each.

use crate::conflist::Conflist;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::ops::Range;

/// First host port that is forwarded.
pub(crate) const FIRST: u16 = 10_000;
/// Port in the pods.
pub(crate) const CONTAINER_PORT: u16 = 80;
/// Maximum number of ports per pod.
const EACH: u16 = 100;
const CAPABILITY: &str = "portMappings";

/// Splits the ports into one range per pod.
pub(crate) fn chunks(ports: Range<u16>) -> impl Iterator<Item = Range<u16>> {
    let end = ports.end;
    ports
        .step_by(EACH.into())
        .map(move |start| start..end.min(start + EACH))
}

/// Returns the conflist for a pod with these port mappings. Fails if no plugin supports port
/// mappings.
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
    fn each_port_belongs_to_one_pod() {
        assert_eq!(
            chunks(10_000..10_250).collect::<Vec<_>>(),
            [10_000..10_100, 10_100..10_200, 10_200..10_250]
        );
        assert_eq!(chunks(10_000..10_000).count(), 0);
    }
}
