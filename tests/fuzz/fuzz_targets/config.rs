//! Any bytes as standard input of a CNI request: no panic, and each accepted request has only names
//! that cannot become paths.
#![no_main]

use braid_core::cni::{Injected, NetConf, NetConfList, Request, Version};
use braid_core::plugins::meta::flannel::delegate;
use braid_node::attach::chain::Chain;
use libfuzzer_sys::fuzz_target;

fn is_plain(name: &str) -> bool {
    !name.contains(['/', '\0']) && name != "." && name != ".."
}

fuzz_target!(|stdin: &[u8]| {
    for command in ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "other"] {
        let env = |key: &str| {
            let value = match key {
                "CNI_COMMAND" => command,
                "CNI_CONTAINERID" => "c1",
                "CNI_NETNS" => "/run/netns/c1",
                "CNI_IFNAME" => "eth0",
                "CNI_PATH" => "/opt/cni/bin",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let Ok(request) = Request::parse(&env, stdin, &Version::ALL) else {
            continue;
        };
        assert!(
            [&request.conf.name, &request.conf.plugin, &request.conf.ipam]
                .into_iter()
                .all(|name| is_plain(name))
        );
        if let Ok(Some(list)) = NetConfList::from_braid(&request.conf) {
            complete(&list);
        }
        // The keys of each plugin and of its IPAM are parsed here.
        for face in [request.conf.plugin.as_str(), "braid"] {
            if let Ok(chain) = Chain::parse(face, request.conf.clone(), "", &request.path) {
                assert!(is_plain(chain.network()) && !chain.items.is_empty());
                assert!(chain.items.iter().all(|item| is_plain(&item.conf.plugin)));
            }
        }
    }
    if let Ok(list) = NetConfList::parse(stdin) {
        complete(&list);
    }
    // The same bytes as the file that flanneld writes.
    if let (Ok(text), Ok(conf)) = (str::from_utf8(stdin), NetConf::parse(br#"{"name":"n"}"#))
        && let Ok(made) = delegate(&conf, "subnet.env", text)
    {
        assert!(NetConf::from_json(made).is_ok_and(|made| made.plugin == "bridge"));
    }
});

fn complete(list: &NetConfList) {
    assert!(is_plain(&list.name) && !list.plugins.is_empty());
    for index in 0..list.plugins.len() {
        if let Ok(conf) = list.plugin_conf(index, &Injected::default()) {
            assert!(is_plain(&conf.plugin) && !conf.plugin.is_empty());
            assert_eq!((&conf.name, conf.version), (&list.name, list.version));
        }
    }
}
