//! Leases of claims: returned to each container that uses the claim, and freed when the claim is
//! deleted.

use super::*;
use crate::ipam::host_local::claimed;

const OWNER: &str = "ipamclaim-u1";
const BOTH: &str = r#""ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"fd00::/125"}]]"#;

fn claim(addresses: &[&str]) -> Claim {
    Claim {
        owner: OWNER.to_owned(),
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
    }
}

fn add(bed: &Bed, config: &HostLocalConfig, addresses: &[&str]) -> Result<String, String> {
    let lease =
        bed.run(|host| config.reserve_claimed(&claim(addresses), &owner("a", "net1"), host));
    addresses_of(lease)
}

fn free(bed: &Bed, config: &HostLocalConfig, uids: &[&str]) -> Vec<String> {
    let uids = uids.iter().map(ToString::to_string).collect();
    let owners = claimed::owners(&config.path()).unwrap();
    let freed = bed
        .run(|host| claimed::free(&config.path(), &owners, &uids, host))
        .unwrap();
    freed.iter().map(IpAddr::to_string).collect()
}

#[test]
fn claim_gets_its_addresses_or_free_ones_and_keeps_them() {
    let bed = Bed::new();
    let config = bed.config(BOTH, "");
    assert_eq!(
        add(&bed, &config, &["10.1.2.5"]),
        ok("10.1.2.5/29 fd00::2/125")
    );
    assert_eq!(bed.read("10.1.2.5").as_deref(), Some(OWNER));
    for addresses in [&[][..], &["fd00::2", "10.1.2.5"]] {
        assert_eq!(add(&bed, &config, addresses), ok("10.1.2.5/29 fd00::2/125"));
    }
    let owner = claimed::owner("net", OWNER);
    assert!(bed.run(|host| config.check(&owner, None, host)).is_ok());
    assert_eq!(
        bed.add(&config, "a"),
        ok("10.1.2.6/29 fd00::3/125"),
        "containers have their own"
    );
}

#[test]
fn address_of_another_owner_is_refused_and_the_claims_leases_stay() {
    let bed = Bed::new();
    let config = bed.config(BOTH, "");
    bed.write("10.1.2.3", "b\r\neth0");
    assert_eq!(
        add(&bed, &config, &["10.1.2.4"]),
        ok("10.1.2.4/29 fd00::2/125")
    );
    let err = add(&bed, &config, &["fd00::5", "10.1.2.3"]).unwrap_err();
    assert!(err.contains("10.1.2.3 is not available"), "{err}");
    let err = add(&bed, &config, &["10.9.0.1"]).unwrap_err();
    assert!(err.contains("10.9.0.1"), "{err}");
    assert_eq!(add(&bed, &config, &[]), ok("10.1.2.4/29 fd00::2/125"));
    assert!(bed.read("fd00::5").is_none());
}

#[test]
fn claims_lease_survives_del_gc_a_full_range_and_a_reboot() {
    let mut bed = Bed::new();
    let config = bed.small();
    assert_eq!(add(&bed, &config, &[]), ok("10.1.2.2/29"));
    assert_eq!(bed.del(&config, "a"), [""; 0]);
    assert_eq!(
        bed.run(|host| config.gc(Kept::Listed(&[]), host)).unwrap(),
        [] as [IpAddr; 0]
    );
    (bed.netns, bed.clock.now) = (Netns::Gone, SystemTime::now() + Duration::from_hours(9));
    (bed.clock.since_boot, bed.clock.run_born) =
        (Some(Duration::from_secs(1)), Some(bed.clock.now));
    assert_eq!(bed.run(|host| reclaim(&config.path(), host)).unwrap(), []);
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some(OWNER));
}

#[test]
fn claims_lease_is_freed_when_the_claim_is_deleted() {
    let bed = Bed::new();
    let config = bed.config(BOTH, "");
    assert!(claimed::owners(&config.path()).unwrap().is_empty());
    add(&bed, &config, &[]).unwrap();
    bed.add(&config, "a").unwrap();
    bed.write("10.1.2.4", "ipamclaim-u2");
    assert_eq!(free(&bed, &config, &["u1", "u2"]), [""; 0]);
    let mut freed = free(&bed, &config, &["u2"]);
    freed.sort();
    assert_eq!(freed, ["10.1.2.2", "fd00::2"]);
    assert_eq!(bed.read("10.1.2.4").as_deref(), Some("ipamclaim-u2"));
    assert_eq!(bed.read("10.1.2.3").as_deref(), Some("a\r\neth0"));
    assert_eq!(
        add(&bed, &config, &["10.1.2.2"]),
        ok("10.1.2.2/29 fd00::4/125")
    );
}
