//! The key `mtu`, checked against the bounds of a link and the minimum of IPv6.

use crate::cni::{Error, IpConfig, Json};
use std::ops::RangeInclusive;

/// Smallest MTU in bytes of a link with IPv6: the kernel disables IPv6 below it (RFC 8200, section
/// 5; `IPV6_MIN_MTU`).
const IPV6_LEAST: u32 = 1280;

/// MTU bounds in bytes for a link of unknown kind: the kernel stores the MTU as a signed number.
pub const ANY: RangeInclusive<u32> = 0..=i32::MAX.unsigned_abs();

/// Reads `mtu` in bytes; 0 and absent mean the kernel's default.
pub fn read(json: &Json) -> Result<Option<i64>, Error> {
    Ok(json.i64("mtu")?.filter(|mtu| *mtu != 0))
}

/// Returns the requested MTU if it is within `bounds`. The error ends with the origin of the
/// bounds, `whose`.
pub fn within(mtu: i64, bounds: &RangeInclusive<u32>, whose: &str) -> Result<u32, Error> {
    if let Ok(mtu) = u32::try_from(mtu)
        && bounds.contains(&mtu)
    {
        return Ok(mtu);
    }
    let (least, most) = (bounds.start(), bounds.end());
    let sentence = format!("\"mtu\": {mtu} is outside {least}-{most}{whose}");
    Err(Error::config(sentence).at_key("mtu"))
}

/// Checks an MTU like [`within`]; `None` if none is requested.
pub fn optional_within(
    mtu: Option<i64>,
    bounds: &RangeInclusive<u32>,
    whose: &str,
) -> Result<Option<u32>, Error> {
    match mtu {
        Some(mtu) => Ok(Some(within(mtu, bounds, whose)?)),
        None => Ok(None),
    }
}

/// Refuses an IPv6 address on a link with an MTU that is too small for it. The kernel's default MTU
/// is large enough.
pub fn refuse_ipv6_below(mtu: Option<u32>, ips: &[IpConfig]) -> Result<(), Error> {
    let six = ips.iter().find(|ip| ip.address.addr().is_ipv6());
    match (six, mtu) {
        (Some(IpConfig { address, .. }), Some(mtu)) if mtu < IPV6_LEAST => {
            Err(Error::config(format!(
                "IPv6 address {address} needs an MTU of {IPV6_LEAST} bytes, the link would have {mtu}"
            )))
        }
        _ => Ok(()),
    }
}
