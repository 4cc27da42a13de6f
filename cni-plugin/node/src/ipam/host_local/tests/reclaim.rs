//! Leases of the dead come back when a range is full, those of the living never.

use super::*;

/// Fills the /29 with `a` to `e`.
fn full(bed: &Bed) -> Config {
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
fn an_empty_lease_file_is_taken_back_when_the_range_is_full_and_not_before() {
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
fn leases_whose_namespace_is_gone_are_taken_back() {
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
fn a_lease_of_an_earlier_boot_is_taken_back_unless_its_owner_is_alive() {
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
fn without_a_clock_nothing_counts_as_old() {
    let mut bed = Bed::new();
    let config = full(&bed);
    age(&bed, "10.1.2.4", Duration::from_hours(2));
    bed.clock.since_boot = None;
    assert_eq!(bed.add(&config, "f"), Err(FULL.to_owned()));
}

#[test]
fn an_administrators_note_is_never_taken_back() {
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
fn a_full_set_leaves_the_dead_of_other_ranges_alone() {
    let mut bed = Bed::new();
    let config = full(&bed);
    bed.write("10.9.9.9", "x\r\neth0");
    bed.netns = Netns::Gone;
    bed.add(&config, "f").unwrap();
    assert_eq!(bed.read("10.9.9.9").as_deref(), Some("x\r\neth0"));
}

#[test]
fn a_requested_address_and_an_owners_own_are_taken_back_from_the_dead() {
    let mut bed = Bed::new();
    let config = full(&bed);
    let asked = Config {
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
