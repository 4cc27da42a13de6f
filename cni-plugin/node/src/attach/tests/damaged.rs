//! DEL and GC after a damaged record of one network.

use super::*;
use std::fs;
use std::path::PathBuf;

/// Lease of another interface of the container. A foreign plugin has called the IPAM for it, so no
/// record names it.
fn lease_of_another_plugin(machine: &Model) -> PathBuf {
    let data_dir = braid_core::ipam::host_local::config::DEFAULT_DATA_DIR;
    let folder = machine.root().at(data_dir).join("vf");
    fs::create_dir_all(&folder).expect("a folder");
    let lease = folder.join("10.8.0.2");
    fs::write(&lease, "c1\r\nnet2").expect("written");
    lease
}

/// Cuts the only record of the container.
fn damage(machine: &Model) {
    let folder = machine.root().at(crate::store::record::ROOT).join("c1");
    let mut records = fs::read_dir(folder).expect("records");
    let record = records.next().expect("a record").expect("its entry");
    fs::write(record.path(), "{").expect("damaged");
}

#[test]
fn a_del_or_gc_of_one_network_keeps_the_addresses_of_others() {
    let networks = &containers()[0];
    for is_gc in [false, true] {
        let machine = machine();
        attach(&machine, networks).expect("attached");
        let lease = lease_of_another_plugin(&machine);
        damage(&machine);
        if is_gc {
            collect(&machine, networks, "").expect("collected");
        } else {
            detach(&machine, networks).expect("detached");
        }
        assert_eq!(machine.folders(), 0, "by GC: {is_gc}");
        assert!(lease.exists(), "by GC: {is_gc}");
    }
}
