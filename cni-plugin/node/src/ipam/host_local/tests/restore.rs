//! Deleted lease files are restored if the host's records list them.

use super::*;
use crate::ipam::liveness::Recorded;

/// Returns a host with a record of 10.1.2.2 for `a`, and no call in progress.
fn recorded() -> Bed {
    let recorded = Recorded {
        ip: "10.1.2.2".parse().unwrap(),
        owner: owner("a", "eth0"),
        is_idle: true,
    };
    Bed {
        recorded: vec![recorded],
        ..Bed::new()
    }
}

#[test]
fn deleted_lease_is_restored_and_its_address_not_assigned_again() {
    let bed = recorded();
    let config = bed.small();
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29"));
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("a\r\neth0"));
    let asked = HostLocalConfig {
        requested: vec!["10.1.2.2".parse().unwrap()],
        ..config.clone()
    };
    fs::remove_file(bed.dir.path().join("data/net/10.1.2.2")).unwrap();
    assert!(
        bed.add(&asked, "c")
            .unwrap_err()
            .contains("requested IP address 10.1.2.2 is not available")
    );
    assert_eq!(
        bed.run(|host| config.peek(host)).unwrap().ips[0]
            .address
            .to_string(),
        "10.1.2.4/29"
    );
    assert_eq!(bed.del(&config, "a"), ["10.1.2.2"]);
}

#[test]
fn dry_run_skips_recorded_addresses_and_writes_nothing() {
    let bed = recorded();
    assert_eq!(
        bed.run(|host| bed.small().peek(host)).unwrap().ips[0]
            .address
            .to_string(),
        "10.1.2.3/29"
    );
    assert!(!bed.dir.path().join("data").exists());
}

#[test]
fn check_and_status_restore_no_lease() {
    let bed = recorded();
    let config = bed.small();
    bed.write("lock", "");
    assert!(
        bed.run(|host| config.check(&owner("a", "eth0"), None, host))
            .is_err()
    );
    assert_eq!(bed.run(|host| full(&config, host)), Ok(None));
    assert_eq!(bed.names(), ["lock"]);
}

#[test]
fn existing_lease_of_another_owner_stays() {
    let bed = recorded();
    bed.write("10.1.2.2", "x\r\neth0");
    bed.add(&bed.small(), "b").unwrap();
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("x\r\neth0"));
}

#[test]
fn lease_of_a_running_call_is_avoided_and_restored_later() {
    let mut bed = recorded();
    bed.recorded[0].is_idle = false;
    let config = bed.small();
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29"));
    let asked = HostLocalConfig {
        requested: vec!["10.1.2.2".parse().unwrap()],
        ..config.clone()
    };
    assert!(
        bed.add(&asked, "c")
            .unwrap_err()
            .contains("requested IP address 10.1.2.2 is not available")
    );
    for id in ["c", "d", "e"] {
        bed.add(&config, id).unwrap();
    }
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
    assert_eq!(bed.read("10.1.2.2"), None, "it may be on its way out");
    bed.recorded[0].is_idle = true;
    bed.del(&config, "b");
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("a\r\neth0"));
    bed.recorded.clear();
    assert_eq!(bed.del(&config, "a"), ["10.1.2.2"]);
}

#[test]
fn records_are_read_only_after_a_foreign_change() {
    let bed = recorded();
    let config = bed.small();
    for id in ["b", "c"] {
        bed.add(&config, id).unwrap();
    }
    bed.del(&config, "b");
    bed.add(&config, "d").unwrap();
    assert_eq!(
        bed.asked.load(Ordering::Relaxed),
        1,
        "when the directory was new"
    );
    bed.write("10.1.2.200", "x");
    bed.add(&config, "e").unwrap();
    assert_eq!(bed.asked.load(Ordering::Relaxed), 2);
}
