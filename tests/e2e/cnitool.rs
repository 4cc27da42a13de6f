//! A sandbox in which cnitool, libcni's command-line program, is the runtime.

use crate::program;
use braid_tests::sandbox::PLUGINS;
use braid_tests::{Call, Ns, Sandbox, Value, json};
use std::fs;
use std::ops::Deref;
use std::path::Path;

/// Folder in which libcni caches attachments.
pub(crate) const CACHE: &str = "/var/lib/cni/results";
/// Folder from which cnitool reads network configurations.
const NETWORKS: &str = "/etc/cni/net.d";

/// Implementation that cnitool runs under the names of the reference plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plugins {
    Braid,
    Reference,
}

/// Form of the plugin list in a conflist.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// A list of plugins with the names of the reference plugins.
    Names,
    /// A single plugin of type `braid`, which contains the list of plugins.
    Braid,
}

/// Returns the configuration of the network `net`: a bridge that is the gateway and masquerades,
/// and `tuning`, which sets the MTU.
pub(crate) fn conflist(form: Form, version: &str) -> Value {
    let bridge = json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}});
    let plugins = json!([bridge, {"type": "tuning", "mtu": 1400}]);
    let plugins = match form {
        Form::Names => plugins,
        Form::Braid => json!([{"type": "braid", "plugins": plugins}]),
    };
    json!({"cniVersion": version, "name": "net", "plugins": plugins})
}

/// A sandbox with one network for cnitool. It dereferences to the sandbox.
pub(crate) struct Node {
    host: Sandbox,
    conflist: Value,
}

impl Node {
    /// Creates a node on which all plugin names start braid.
    pub(crate) fn new(conflist: Value) -> Self {
        let host = Sandbox::new();
        program::offer_braid(&["braid", "bridge", "host-local", "tuning"]);
        fs::create_dir_all(NETWORKS).expect("folder of networks");
        fs::write(
            Path::new(NETWORKS).join("net.conflist"),
            conflist.to_string(),
        )
        .expect("write a conflist");
        Self { host, conflist }
    }

    /// Runs `cnitool verb net <pod>`.
    pub(crate) fn cnitool(&self, plugins: Plugins, verb: &str, pod: &Ns) -> Result<String, String> {
        let path = match plugins {
            Plugins::Braid => Path::new(PLUGINS),
            Plugins::Reference => program::reference(),
        };
        let (path, cnitool, pod) = (path.display(), program::cnitool(), pod.path().display());
        self.host.try_run(&format!(
            "env CNI_PATH={path} {} {verb} net {pod}",
            cnitool.display()
        ))
    }

    /// Runs [`Node::cnitool`] and fails if cnitool fails.
    #[track_caller]
    pub(crate) fn ok(&self, plugins: Plugins, verb: &str, pod: &Ns) {
        self.cnitool(plugins, verb, pod)
            .unwrap_or_else(|err| panic!("cnitool {verb}, {plugins:?}: {err}"));
    }

    /// Attaches `pod` with cnitool and returns its address.
    #[track_caller]
    pub(crate) fn add(&self, plugins: Plugins, pod: &Ns) -> String {
        let answer = self
            .cnitool(plugins, "add", pod)
            .unwrap_or_else(|err| panic!("cnitool add, {plugins:?}: {err}"));
        let result: Value = serde_json::from_str(&answer).expect("a result");
        assert_eq!(
            result["cniVersion"], self.conflist["cniVersion"],
            "{result}"
        );
        result["ips"][0]["address"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    /// Attaches `pod` without libcni, as another runtime would.
    pub(crate) fn add_past_libcni(&self, pod: &Ns) {
        let mut prev = None;
        for call in self.calls(pod) {
            prev = Some(prev.iter().fold(call, Call::prev).add().result());
        }
    }

    /// Runs GC as a runtime that lists only the attachment of `pod`.
    pub(crate) fn gc_all_but(&self, pod: &Ns) {
        for call in self.calls(pod) {
            call.gc(&[(pod.name(), "eth0")]).ok();
        }
    }

    /// Returns a call for `pod` of each plugin in the list.
    fn calls(&self, pod: &Ns) -> Vec<Call> {
        let mut calls = Vec::new();
        for plugin in self.conflist["plugins"].as_array().expect("a list") {
            let mut conf = plugin.clone();
            for key in ["name", "cniVersion"] {
                conf[key] = self.conflist[key].clone();
            }
            calls.push(
                self.host
                    .call(plugin["type"].as_str().expect("a type"), pod, conf),
            );
        }
        calls
    }

    /// Fails if an attachment has left anything, including state of libcni and the reference
    /// plugins.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.host.assert_nothing_left();
        assert_eq!(cached(), 0, "libcni still knows an attachment");
        // Rules for the network's whole subnet belong to the node and may stay.
        let rules = self
            .host
            .run("nft list ruleset")
            .replace("10.1.0.0/24", "net");
        assert!(!rules.contains("10.1.0."), "rules for a container: {rules}");
    }
}

impl Deref for Node {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.host
    }
}

/// Returns the number of attachments in libcni's cache.
pub(crate) fn cached() -> usize {
    fs::read_dir(CACHE).map_or(0, Iterator::count)
}
