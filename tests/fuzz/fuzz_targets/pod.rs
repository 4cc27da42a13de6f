//! Any text as an annotation, a network's configuration, a status, device information or a cache
//! file of Multus. Accepted text has only names that cannot become paths.
#![no_main]

use braid_core::cni::{FaultPlace, Json};
use braid_core::k8s::nad::Definition;
use braid_core::k8s::on_disk::{DiskFile, of_disk};
use braid_core::k8s::settings::PodRef;
use braid_core::k8s::{annotation, device_info, multus_cache, status};
use braid_core::lint;
use libfuzzer_sys::fuzz_target;

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != ".."
}

fuzz_target!(|text: &str| {
    if let Ok(selections) = annotation::networks(text, "pods") {
        assert!(selections.len() <= annotation::MAX_ITEMS);
        for selection in selections {
            assert!(is_plain(&selection.object.namespace) && is_plain(&selection.object.name));
            assert!(selection.ipam_claim.as_deref().is_none_or(is_plain));
            selection.runtime_config();
        }
    }
    let _ = annotation::default_network(text, "pods");
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    assert!(
        lint::networks(text, "pods")
            .iter()
            .all(|finding| match finding.place {
                FaultPlace::Position { line, .. } => (1..=lines).contains(&line),
                FaultPlace::Path(_) => true,
            })
    );
    if let Ok(Some(pod)) = PodRef::of(text) {
        assert!(is_plain(&pod.name.namespace) && is_plain(&pod.name.name));
    }
    if let Ok(definition) =
        Json::parse(text.as_bytes(), "conf").and_then(|json| Definition::parse(json, "a"))
    {
        assert!(is_plain(definition.name()) && definition.types().all(is_plain));
        let conf = definition
            .conf(&Json::Null)
            .expect("what was read can be called");
        assert!(Definition::parse(conf, "a").is_ok());
    }
    let file = |name: &str| DiskFile {
        name: name.to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    let (list, plugins) = ([file("a.conflist")], [file("b.conf")]);
    if let Ok(found) = of_disk("a", &list) {
        assert!(found.folder().ok().flatten().is_none_or(is_plain));
        let _ = found.definition(&plugins);
    }
    let written = status::rewrite(
        Some(text),
        Some("[]"),
        vec![Json::object_of([("name", "a".into())])],
    );
    assert!(
        matches!(Json::parse(written.as_bytes(), "own status"), Ok(Json::Array(entries)) if !entries.is_empty())
    );
    let _ = device_info::parse(text.as_bytes());
    for delegate in multus_cache::delegates(text.as_bytes(), "eth0")
        .into_iter()
        .flatten()
        .flatten()
    {
        assert!(is_plain(delegate.definition.name()));
    }
    let _ = multus_cache::cached_add(text.as_bytes(), "n", "c", "eth0");
    assert!(
        multus_cache::cached_delegate(text.as_bytes(), "c")
            .is_none_or(|one| is_plain(one.definition.name()))
    );
});
