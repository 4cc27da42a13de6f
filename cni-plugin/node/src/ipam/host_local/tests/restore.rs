//! Leases whose files were taken away come back where the host's records know of them.

use super::*;
use crate::ipam::liveness::Recorded;

/// A host whose records say that `a` has 10.1.2.2, and no call is busy with it.
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
fn a_lease_that_was_taken_away_is_written_again_and_its_address_is_given_to_nobody_else() {
    let bed = recorded();
    let config = bed.small();
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29"));
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("a\r\neth0"));
    let asked = Config {
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
fn a_dry_run_shows_no_address_that_the_records_know_of_and_writes_nothing() {
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
fn check_and_status_mend_nothing() {
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
fn another_owners_lease_of_that_address_stays() {
    let bed = recorded();
    bed.write("10.1.2.2", "x\r\neth0");
    bed.add(&bed.small(), "b").unwrap();
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("x\r\neth0"));
}

#[test]
fn what_a_call_is_busy_with_is_given_to_nobody_and_written_when_that_is_over() {
    let mut bed = recorded();
    bed.recorded[0].is_idle = false;
    let config = bed.small();
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29"));
    let asked = Config {
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
fn the_records_are_asked_only_where_somebody_else_changed_the_leases() {
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
