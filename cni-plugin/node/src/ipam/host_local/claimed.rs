//! Leases of IPAM claims (Kubernetes objects). They outlive the containers that use them, and are
//! freed when the claim is deleted.

use super::store::Holder;
use super::{Book, HostLocalConfig, freed_unless};
use crate::ipam::host::Host;
use braid_core::cni::{Error, Owner};
use braid_core::ipam::{Claim, Lease};
use braid_core::k8s::ipam_claim::{is_released, uid_of_owner};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

/// Reserves the claim's addresses, and the next address of each range set in which the claim has no
/// address.
pub(super) fn reserve(
    config: &HostLocalConfig,
    claim: &Claim,
    host: Host<'_>,
) -> Result<Lease, Error> {
    let mut config = config.clone();
    if !claim.addresses.is_empty() {
        config.requested.clone_from(&claim.addresses);
    }
    super::reserve(&config, &owner(&config.network, &claim.owner), true, host)
}

/// Returns the owner of a claim's leases. `claim` is the text `ipamclaim-<uid>`, which takes the
/// place of the container id. There is no interface.
pub fn owner(network: &str, claim: &str) -> Owner {
    Owner::new(network, claim, "")
}

/// Returns the claims that own leases in the data directory at `path`.
pub fn owners(path: &Path) -> Result<BTreeSet<String>, Error> {
    let mut owners = BTreeSet::new();
    for lease in super::read_leases(path)? {
        if let Holder::Key(text) = lease.holder
            && uid_of_owner(&text).is_some()
        {
            owners.insert(text);
        }
    }
    Ok(owners)
}

/// Releases the addresses of the claims in `owners`, except claims with a uid in `uids`. Returns
/// the released addresses.
pub fn free(
    path: &Path,
    owners: &BTreeSet<String>,
    uids: &BTreeSet<String>,
    host: Host<'_>,
) -> Result<Vec<IpAddr>, Error> {
    let released: Vec<&String> = owners
        .iter()
        .filter(|owner| is_released(owner, uids))
        .collect();
    if released.is_empty() {
        return Ok(Vec::new());
    }
    let Some(mut book) = Book::open(path, host)? else {
        return Ok(Vec::new());
    };
    let (mut freed, mut errors) = (Vec::new(), Vec::new());
    for owner in released {
        for ip in book.owned_by(owner)? {
            match book.free(ip) {
                Ok(()) => freed.push(ip),
                Err(err) => errors.push(err),
            }
        }
    }
    errors.extend(book.rescan().err());
    freed_unless(errors, freed)
}
