//! Any bytes as the kubelet's answer about devices of pods. From an accepted answer, each network
//! gets a separate device. The name of the device's information file cannot become a path.
#![no_main]

use braid_client::kubelet;
use braid_core::k8s::device_info::{Asked, assign, dp_file};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

fuzz_target!(|answer: &[u8]| {
    for devices in kubelet::read(answer)
        .into_iter()
        .map(|given| given.by_resource)
    {
        // One network for each distinct device of each resource, and one network without a
        // resource.
        let of = |resource| Asked {
            resource: Some(resource),
            former: None,
        };
        let mut asked = vec![Asked::default()];
        for (resource, ids) in &devices {
            let ids: BTreeSet<&String> = ids.iter().collect();
            asked.extend(ids.iter().map(|_| of(resource.as_str())));
            for id in ids {
                assert!(dp_file(resource, id).map_or(true, |name| !name.contains(['/', '\0'])));
            }
        }
        let given = assign(&asked, &devices, &[]).expect("enough for all");
        let pairs: BTreeSet<_> = asked
            .iter()
            .map(|one| one.resource)
            .zip(&given)
            .skip(1)
            .collect();
        assert_eq!((pairs.len(), &given[0]), (asked.len() - 1, &None));
        if let Some((resource, _)) = devices.first_key_value() {
            asked.push(of(resource));
            assert!(assign(&asked, &devices, &[]).is_err());
        }
    }
});
