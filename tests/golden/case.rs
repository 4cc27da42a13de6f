//! A golden case: a configuration, the IPAM's result, and the state of the host.

use braid_core::cni::{AddResult, Json, NetConf, Version};
use braid_core::ipam::Lease;
use braid_core::name::{IfName, Mac, Ns};
use braid_core::plan::facts::RouteFact;
use braid_core::plan::facts::{AddrFact, LinkFact};
use braid_core::plan::queue_fallback::ASKED;
use braid_core::plan::step::render;
use braid_core::plan::thing::LinkRef;
use braid_core::plan::thing::moved::{Device, DeviceFact};
use braid_core::plan::undo::undo;
use braid_core::plan::{Facts, Feature, Need};
use braid_core::plugins::meta::flannel;
use braid_core::plugins::{self, Call, Plugin};
use serde_json::{Map, Value};
use std::path::Path;

/// A golden case, as written in its file. All keys except `conf` are optional.
///
/// - `conf`: the configuration.
/// - `args`: `CNI_ARGS`.
/// - `ifname`: `eth0` by default.
/// - `prev`: the `prevResult`.
/// - `lease`: the IPAM's result.
/// - `lacks`: features that the kernel lacks.
/// - `host`, `pod`: links by name. Their indexes are 2, 3 and so on; `peer` is the peer's index.
/// - `files`: contents of files by path, such as flanneld's file.
/// - `sysctl`: the objects `host` and `pod`, each with values by key.
/// - `default`: link of the default route, for `host` and `pod`.
/// - `device`: name of the host link that any requested device has.
/// - `driver`: userspace driver of the device, if it has no link.
/// - `routes`: routes of the container, each with its link as `dev`.
pub(crate) struct Case(Value);

impl Case {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        Self(serde_json::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display())))
    }

    /// Returns the text of the golden file: the plan of ADD, the plans of DEL with and without a
    /// record, and the result. For a case that is refused, returns the error.
    pub(crate) fn text(&self) -> String {
        let conf = NetConf::parse(self.0["conf"].to_string().as_bytes()).unwrap();
        if conf.plugin == flannel::FLANNEL {
            return self.flannel(&conf).unwrap_or_else(|error| refused(&error));
        }
        self.text_of(&conf)
    }

    /// Returns the configuration that `flannel` generates, and the golden text of two plugins: the
    /// one that the generated configuration names, and `flannel` itself.
    fn flannel(&self, conf: &NetConf) -> Result<String, braid_core::cni::Error> {
        let file = flannel::subnet_file(conf)?;
        let made = flannel::delegate(
            conf,
            &file,
            self.0["files"][&file].as_str().unwrap_or_default(),
        )?;
        let pretty = made.clone().sorted().pretty();
        let parts = [
            NetConf::from_json(made.clone())?,
            flannel::with_made(conf, &made),
        ]
        .map(|conf| self.text_of(&conf));
        Ok(format!("# made\n{pretty}\n\n{}", parts.join("\n")))
    }

    fn text_of(&self, conf: &NetConf) -> String {
        let plugin = match plugins::parse(conf, self.0["args"].as_str().unwrap_or_default()) {
            Ok(plugin) => plugin.expect("a type of braid's own"),
            Err(error) => return refused(&error),
        };
        let prev = self.result("prev");
        let ifname = name(self.0["ifname"].as_str().unwrap_or("eth0"));
        let call = Call::new(&conf.name, "4f1c", &ifname, "/run/netns/pod", prev.as_ref());
        let mut facts = self.facts();
        facts.devices.extend(
            plugin
                .needs(&call)
                .into_iter()
                .filter_map(|need| self.device(need)),
        );
        self.planned(plugin.as_ref(), &call, &facts, conf.version)
            .unwrap_or_else(|error| refused(&error))
    }

    fn planned(
        &self,
        plugin: &dyn Plugin,
        call: &Call<'_>,
        facts: &Facts,
        version: Version,
    ) -> Result<String, braid_core::cni::Error> {
        plugin.refuse(call, facts)?;
        let lease = self.result("lease").map(|given| Lease {
            ips: given.ips,
            routes: given.routes,
            dns: given.dns,
        });
        let planned = plugin.plan(call, facts, lease)?;
        let warnings: Vec<String> = planned
            .warnings
            .iter()
            .map(|warning| format!("# warning: {warning}\n"))
            .collect();
        Ok(format!(
            "{}# ADD\n{}\n# DEL\n{}\n# DEL without a record\n{}\n# result\n{}\n",
            warnings.concat(),
            render(&planned.steps),
            render(&undo(&planned.steps)),
            render(&plugin.teardown_without_record(call)),
            planned.result.to_stdout(version)?,
        ))
    }

    /// Returns the device that `need` requests, with the fact that the case has about it. `None`
    /// for other needs.
    fn device(&self, need: Need) -> Option<(Device, DeviceFact)> {
        let Need::Device(device) = need else {
            return None;
        };
        let fact = match (self.0["device"].as_str(), self.0["driver"].as_str()) {
            (Some(link), _) => DeviceFact::Link(name(link)),
            (None, Some(driver)) => DeviceFact::Userspace(driver.to_owned()),
            (None, None) => DeviceFact::Missing("it is not there".to_owned()),
        };
        Some((device, fact))
    }

    fn result(&self, key: &str) -> Option<AddResult> {
        let given = self.0.get(key)?;
        let json = Json::parse(given.to_string().as_bytes(), key).unwrap();
        Some(AddResult::parse(&json, Version::NEWEST).unwrap())
    }

    fn facts(&self) -> Facts {
        let lacks: Vec<&str> = self.0["lacks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let said = |feature: &Feature| {
            lacks
                .contains(&feature.name())
                .then(|| "not here".to_owned())
        };
        let features = ASKED
            .iter()
            .chain(&[Feature::CgroupBpf, Feature::Netkit, Feature::NetkitL2])
            .map(|feature| (*feature, said(feature)))
            .collect();
        let mut facts = Facts {
            boot_id: "a boot".to_owned(),
            netns: Some(7),
            features,
            ..Facts::default()
        };
        let files = self.entries(&["files"]).into_iter();
        facts
            .files
            .extend(files.map(|(path, text)| (path, text.as_str().unwrap().to_owned())));
        for (ns, key) in [(Ns::Host, "host"), (Ns::Pod, "pod")] {
            for (at, (link, given)) in self.entries(&[key]).into_iter().enumerate() {
                let link = LinkRef {
                    ns,
                    name: name(&link),
                };
                facts.addrs.insert(link.clone(), addrs(&given));
                facts.links.insert(link, self::link(at, &given));
            }
            if let Some(link) = self.0["default"][key].as_str() {
                facts.default_links.insert(ns, name(link));
            }
            for (sysctl, value) in self.entries(&["sysctl", key]) {
                facts
                    .sysctls
                    .insert((ns, sysctl), value.as_str().unwrap().to_owned());
            }
        }
        let routes: Vec<RouteFact> = self.0["routes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|given| route(given, &facts))
            .collect();
        facts.routes.insert(Ns::Pod, routes);
        let vrfs = facts
            .links
            .iter()
            .filter_map(|(at, link)| Some((at.name.clone(), link.vrf_table?)));
        facts.vrfs = vrfs.collect();
        facts
    }

    fn entries(&self, path: &[&str]) -> Map<String, Value> {
        let found = path.iter().fold(&self.0, |at, key| &at[*key]);
        found.as_object().cloned().unwrap_or_default()
    }
}

fn name(text: &str) -> IfName {
    IfName::parse(text).unwrap()
}

fn link(at: usize, given: &Value) -> LinkFact {
    let mac = given["mac"]
        .as_str()
        .map(|text| Mac::parse(text).expect("a hardware address"));
    let mtu = given["mtu"]
        .as_u64()
        .map_or(1500, |mtu| u32::try_from(mtu).unwrap());
    let mut fact = LinkFact::planned(given["kind"].as_str().unwrap_or("veth"), mac, mtu, true);
    fact.up = given["up"] != false;
    fact.index = u32::try_from(at).unwrap() + 2;
    let modes = ["bridge", "l2", "l3", "l3s"];
    fact.mode = given["mode"]
        .as_str()
        .and_then(|mode| modes.into_iter().find(|known| *known == mode));
    fact.parent = given["peer"]
        .as_u64()
        .map(|peer| u32::try_from(peer).unwrap());
    fact.vrf_table = given["table"]
        .as_u64()
        .map(|table| u32::try_from(table).unwrap());
    fact.vlan_filtering = given["vlan_filtering"] == true;
    fact
}

fn route(given: &Value, facts: &Facts) -> RouteFact {
    let text = |key: &str| given[key].as_str().map(|text| text.parse().unwrap());
    let number = |key: &str| {
        given[key]
            .as_u64()
            .map(|number| u32::try_from(number).unwrap())
    };
    RouteFact {
        dst: given["dst"].as_str().unwrap().parse().unwrap(),
        gw: text("gw"),
        src: text("src"),
        link: Some(facts.links[&LinkRef::pod(name(given["dev"].as_str().unwrap()))].index),
        table: number("table").unwrap_or(254),
        scope: given["scope"]
            .as_u64()
            .map_or(0, |scope| u8::try_from(scope).unwrap()),
        from_router: false,
        priority: number("metric"),
        mtu: None,
        advmss: None,
        onlink: false,
        request: Vec::new(),
    }
}

fn addrs(given: &Value) -> Vec<AddrFact> {
    let texts = given["addrs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    texts
        .map(|text| AddrFact {
            net: text.parse().unwrap(),
            tentative: false,
            dad_failed: false,
            scope: 0,
        })
        .collect()
}

fn refused(error: &braid_core::cni::Error) -> String {
    format!("# refused with code {}\n{error}\n", error.kind.code())
}
