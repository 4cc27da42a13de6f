//! Tests that the index is only a cache: after any damage or foreign change, the files decide.

use super::*;
use std::path::PathBuf;

impl Bed {
    fn index_dir(&self) -> PathBuf {
        fs::read_dir(self.dir.path().join("state"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
    }

    fn index_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.index_dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }

    /// Runs `damage` and restores the index's modification time, so that it stays sealed.
    fn damage(&self, damage: impl FnOnce(&[PathBuf])) {
        let dir = fs::File::open(self.index_dir()).unwrap();
        let stamp = dir.metadata().unwrap().modified().unwrap();
        damage(&self.index_files());
        dir.set_modified(stamp).unwrap();
    }

    fn is_sealed(&self) -> bool {
        let data = self.dir.path().join("data/net");
        let changed = fs::metadata(&data).unwrap().modified().unwrap();
        crate::ipam::host_local::index::Index::open(&self.dir.path().join("state"), &data)
            .unwrap()
            .is_sealed(changed)
            .unwrap()
    }
}

#[test]
fn every_call_leaves_the_index_sealed() {
    let bed = Bed::new();
    let config = bed.small();
    bed.add(&config, "a").unwrap();
    assert!(bed.is_sealed());
    assert_eq!(bed.index_files().len(), 2);
    bed.del(&config, "a");
    assert!(bed.is_sealed());
    assert_eq!(
        bed.index_files().len(),
        1,
        "the owner's link is gone, the bitmap stays"
    );
    bed.write("10.1.2.3", "x");
    assert!(!bed.is_sealed());
    bed.del(&config, "b");
    assert!(bed.is_sealed());
}

#[test]
fn change_in_the_same_tick_breaks_the_seal() {
    let bed = Bed::new();
    let config = bed.small();
    // Far more iterations than ticks, so most of them are in the tick of the previous call.
    for _ in 0..200 {
        bed.add(&config, "a").unwrap();
        bed.write("10.1.2.200", "x");
        assert!(!bed.is_sealed());
        fs::remove_file(bed.dir.path().join("data/net/10.1.2.200")).unwrap();
        assert_eq!(bed.del(&config, "a").len(), 1);
    }
}

#[test]
fn foreign_leases_are_neither_assigned_again_nor_lost() {
    let bed = Bed::new();
    let config = bed.small();
    bed.add(&config, "a").unwrap();
    bed.write("10.1.2.3", "b\r\neth0");
    assert_eq!(bed.add(&config, "c"), ok("10.1.2.4/29"));
    assert!(
        bed.add(&config, "b")
            .unwrap_err()
            .contains("duplicate allocation")
    );
    assert_eq!(bed.del(&config, "b"), ["10.1.2.3"]);
}

#[test]
fn leases_removed_by_another_program_are_free_again() {
    let bed = Bed::new();
    let config = bed.small();
    for id in ["a", "b", "c", "d", "e"] {
        bed.add(&config, id).unwrap();
    }
    fs::remove_file(bed.dir.path().join("data/net/10.1.2.4")).unwrap();
    assert_eq!(bed.add(&config, "c"), ok("10.1.2.4/29"));
}

#[test]
fn deleted_index_is_rebuilt_and_an_unusable_one_is_ignored() {
    let bed = Bed::new();
    let config = bed.small();
    bed.add(&config, "a").unwrap();
    fs::remove_dir_all(bed.dir.path().join("state")).unwrap();
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29"));
    assert!(bed.is_sealed());
    fs::remove_dir_all(bed.dir.path().join("state")).unwrap();
    fs::write(bed.dir.path().join("state"), "a file").unwrap();
    assert_eq!(bed.add(&config, "c"), ok("10.1.2.4/29"));
    assert!(
        bed.add(&config, "a")
            .unwrap_err()
            .contains("duplicate allocation")
    );
    assert_eq!(bed.del(&config, "a"), ["10.1.2.2"]);
    assert_eq!(bed.add(&config, "d"), ok("10.1.2.5/29"));
}

#[test]
fn unwritable_index_fails_no_call() {
    let bed = Bed::new();
    let config = bed.config(
        r#""ranges":[[{"subnet":"10.1.2.0/29"}],[{"subnet":"2001:db8::/64"}]]"#,
        "",
    );
    bed.add(&config, "a").unwrap();
    // A directory in place of a bitmap cannot be read as one, nor unlinked as a file.
    bed.damage(|files| {
        for file in files {
            fs::remove_file(file).unwrap();
            fs::create_dir(file).unwrap();
        }
    });
    assert_eq!(bed.add(&config, "b"), ok("10.1.2.3/29 2001:db8::3/64"));
    assert!(
        bed.add(&config, "b")
            .unwrap_err()
            .contains("duplicate allocation")
    );
    assert_eq!(bed.del(&config, "a"), ["10.1.2.2", "2001:db8::2"]);
    assert!(!bed.is_sealed());
}

#[test]
fn wrong_bits_neither_assign_a_leased_address_nor_hide_a_free_one() {
    for lie in [0x00, 0xff] {
        let bed = Bed::new();
        let config = bed.small();
        for id in ["a", "b", "c"] {
            bed.add(&config, id).unwrap();
        }
        bed.del(&config, "a");
        fs::write(
            bed.dir.path().join("data/net/last_reserved_ip.0"),
            "10.1.2.2",
        )
        .unwrap();
        bed.damage(|files| fs::write(&files[0], vec![lie; 4096 * 512]).unwrap());
        assert_eq!(bed.add(&config, "d"), ok("10.1.2.5/29"), "{lie:#x}");
        assert!(bed.is_sealed());
    }
}

#[test]
fn wrong_owner_link_is_detected_by_the_lease_file() {
    let bed = Bed::new();
    let config = bed.small();
    bed.add(&config, "a").unwrap();
    bed.add(&config, "b").unwrap();
    // The two symlinks are swapped.
    bed.damage(|files| {
        let (one, two) = (&files[1], &files[2]);
        let (to_one, to_two) = (fs::read_link(one).unwrap(), fs::read_link(two).unwrap());
        fs::remove_file(one).unwrap();
        fs::remove_file(two).unwrap();
        std::os::unix::fs::symlink(to_two, one).unwrap();
        std::os::unix::fs::symlink(to_one, two).unwrap();
    });
    assert!(
        bed.add(&config, "a")
            .unwrap_err()
            .contains("10.1.2.2 has been allocated to a")
    );
    assert_eq!(bed.del(&config, "b"), ["10.1.2.3"]);
}

#[test]
fn owner_with_more_addresses_than_a_link_can_list_is_found() {
    let bed = Bed::new();
    let config = bed.config(r#""subnet":"2001:db8::/64""#, "");
    for i in 0..300 {
        bed.write(
            &format!("2001:db8:1234:5678:9abc:def0:1234:{i:x}"),
            "a\r\neth0",
        );
    }
    bed.run(|host| config.check(&owner("a", "eth0"), None, host))
        .unwrap();
    assert_eq!(bed.del(&config, "a").len(), 300);
    assert_eq!(bed.names(), ["lock"]);
}

#[test]
fn a_range_across_two_bitmap_files_is_filled_to_the_end() {
    let bed = Bed::new();
    let config = bed.config(
        r#""subnet":"10.0.0.0/7","rangeStart":"10.255.255.254","rangeEnd":"11.0.0.1","gateway":"11.0.0.0""#,
        "",
    );
    for (id, ip) in [
        ("a", "10.255.255.254/7"),
        ("b", "10.255.255.255/7"),
        ("c", "11.0.0.1/7"),
    ] {
        assert_eq!(bed.add(&config, id), ok(ip));
    }
    assert!(
        bed.add(&config, "d")
            .unwrap_err()
            .contains("no IP addresses available")
    );
    assert_eq!(bed.del(&config, "b"), ["10.255.255.255"]);
    assert_eq!(bed.add(&config, "d"), ok("10.255.255.255/7"));
}

#[test]
fn each_network_and_data_directory_has_its_own_index() {
    let bed = Bed::new();
    let config = bed.small();
    let other = HostLocalConfig {
        network: "other".to_owned(),
        ..config.clone()
    };
    assert_eq!(bed.add(&config, "a"), ok("10.1.2.2/29"));
    assert_eq!(bed.add(&other, "a"), ok("10.1.2.2/29"));
    assert_eq!(
        fs::read_dir(bed.dir.path().join("state")).unwrap().count(),
        2
    );
}
