//! Stale leases are freed when a range is full. Leases of running containers are not.

use super::*;

/// Fills the /29 with `a` to `e`.
fn full(bed: &Bed) -> HostLocalConfig {
    let config = bed.small();
    for id in ["a", "b", "c", "d", "e"] {
        bed.add(&config, id).unwrap();
    }
    config
}

fn age(bed: &Bed, name: &str, by: Duration) {
    let file = fs::File::options()
        .write(true)
        .open(bed.dir.path().join("data/net").join(name))
        .unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

#[test]
fn empty_lease_file_is_freed_only_when_the_range_is_full() {
    let bed = Bed::new();
    let config = bed.small();
    bed.write("10.1.2.2", "");
    bed.write("10.1.2.3", "\0\0\0\0");
    for (id, ip) in [("a", 4), ("b", 5), ("c", 6), ("d", 2), ("e", 3)] {
        assert_eq!(bed.add(&config, id), Ok(format!("10.1.2.{ip}/29")));
    }
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
}

#[test]
fn leases_with_a_gone_netns_are_freed() {
    let mut bed = Bed::new();
    let config = full(&bed);
    bed.netns = Netns::Gone;
    assert_eq!(bed.add(&config, "f"), ok("10.1.2.2/29"));
    assert_eq!(bed.names(), ["10.1.2.2", "last_reserved_ip.0", "lock"]);
    assert_eq!(bed.read("10.1.2.2").as_deref(), Some("f\r\neth0"));
    bed.netns = Netns::Alive;
    assert_eq!(bed.add(&config, "a"), ok("10.1.2.3/29"));
}

#[test]
fn lease_of_an_earlier_boot_is_freed_unless_its_owner_is_alive() {
    let mut bed = Bed::new();
    let config = full(&bed);
    age(&bed, "10.1.2.4", Duration::from_hours(2));
    bed.netns = Netns::Alive;
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
    bed.netns = Netns::Unknown;
    assert_eq!(bed.add(&config, "f"), ok("10.1.2.4/29"));
    assert_eq!(bed.add(&config, "g"), Err(FULL.to_owned()));
}

#[test]
fn no_lease_is_old_without_a_clock() {
    let mut bed = Bed::new();
    let config = full(&bed);
    age(&bed, "10.1.2.4", Duration::from_hours(2));
    bed.clock.since_boot = None;
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
}

#[test]
fn administrators_note_is_never_freed() {
    let mut bed = Bed::new();
    let config = full(&bed);
    bed.write("10.1.2.4", "kept for the printer");
    age(&bed, "10.1.2.4", Duration::from_hours(2));
    bed.netns = Netns::Gone;
    bed.add(&config, "f").unwrap();
    assert_eq!(
        bed.read("10.1.2.4").as_deref(),
        Some("kept for the printer")
    );
}

#[test]
fn full_set_frees_no_stale_lease_of_other_sets() {
    let mut bed = Bed::new();
    let config = full(&bed);
    bed.write("10.9.9.9", "x\r\neth0");
    bed.netns = Netns::Gone;
    bed.add(&config, "f").unwrap();
    assert_eq!(bed.read("10.9.9.9").as_deref(), Some("x\r\neth0"));
}

#[test]
fn stale_lease_of_a_requested_or_own_address_is_freed() {
    let mut bed = Bed::new();
    let config = full(&bed);
    let asked = HostLocalConfig {
        requested: vec!["10.1.2.3".parse().unwrap()],
        ..config.clone()
    };
    assert!(
        bed.add(&asked, "f")
            .unwrap_err()
            .contains("requested IP address 10.1.2.3 is not available")
    );
    bed.netns = Netns::Gone;
    assert_eq!(bed.add(&asked, "f"), ok("10.1.2.3/29"));
    assert_eq!(
        bed.add(&config, "a"),
        ok("10.1.2.2/29"),
        "its own old address was the only free one"
    );
}
