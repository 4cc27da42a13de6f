//! Handling of requested addresses, and the errors of an ADD that gets no address. A dry run uses
//! both as well.

use braid_core::cni::Error;
use braid_core::ipam::range::RangeSet;
use std::net::IpAddr;

/// Adds the number of the range set to an error.
pub(super) fn in_set(number: usize, error: Error) -> Error {
    error.context(format_args!("failed to allocate for range {number}"))
}

/// Returns the message for a range set without a free address.
pub(super) fn exhausted(set: &RangeSet) -> String {
    format!("no IP addresses available in range set: {set}")
}

/// Returns the error for a requested address that is already leased.
pub(super) fn leased(set: &RangeSet, ip: IpAddr) -> Error {
    Error::no_free_address(format!(
        "requested IP address {ip} is not available in range set {set}"
    ))
}

/// Returns an error if a requested address is the gateway of its range.
pub(super) fn refuse_gateway(set: &RangeSet, ip: IpAddr) -> Result<(), Error> {
    match set.range_for(ip) {
        Some(range) if range.gateway() == Some(ip) => Err(Error::internal(format!(
            "requested ip {ip} is subnet's gateway"
        ))),
        _ => Ok(()),
    }
}

/// Returns an error if `requested` is not empty after each range set took an address from it. The
/// remaining addresses are in no range set, or are a second address in one set.
pub(super) fn refuse_rest(requested: &[IpAddr]) -> Result<(), Error> {
    if requested.is_empty() {
        return Ok(());
    }
    let rest: Vec<String> = requested.iter().map(IpAddr::to_string).collect();
    Err(Error::internal(format!(
        "failed to allocate all requested IPs: {}",
        rest.join(" ")
    )))
}

/// Removes the first requested address that is in `set`, and returns it; `None` if there is none.
pub(super) fn take_request(requested: &mut Vec<IpAddr>, set: &RangeSet) -> Option<IpAddr> {
    let is_in_set = |ip: &IpAddr| set.range_for(*ip).is_some();
    let place = requested.iter().position(is_in_set)?;
    Some(requested.remove(place))
}
