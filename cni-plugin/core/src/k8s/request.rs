//! A pod's requests to a network: the plugins that serve each request, and how the request is
//! passed to them.
//!
//! ```text
//!                  with the capability   without it
//!  ips             runtimeConfig.ips     static, host-local: as if they had it; else CNI_ARGS IP=
//!  mac             runtimeConfig.mac     the interface's type: as if it had it, or an appended `tuning`; else CNI_ARGS MAC=
//!  bandwidth       runtimeConfig         `bandwidth`: as if it had it; else one is appended
//!  portMappings    runtimeConfig         `portmap` of the list: as if it had it; else refused
//!  infiniband-guid runtimeConfig         refused
//! ```
//!
//! Multus passes `IP=` and `MAC=` to all plugins, so external plugins get both in addition to a
//! capability. The result is verified, so that a request which reaches no plugin fails the pod.

use super::nad::Definition;
use super::selection::Selection;
use super::text_at;
use crate::cni::mac_by::MacBy;
use crate::cni::{Error, Json};

/// IPAM plugin types that assign exactly the addresses in `runtimeConfig.ips`.
const TAKE_IPS: [&str; 3] = ["static", "host-local", "whereabouts"];
/// Keys of a rate limit in a plugin's configuration, which override the runtime's values.
const LIMITS: [&str; 4] = ["ingressRate", "ingressBurst", "egressRate", "egressBurst"];

/// Plugin types that braid implements. Plugins of all other types are external programs.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn<'a> {
    /// Types of plugins other than IPAM plugins.
    pub plugins: &'a [&'a str],
    /// Types of IPAM plugins.
    pub ipams: &'a [&'a str],
    /// Returns, for a plugin type, the plugin that sets a requested hardware address.
    pub mac_by: fn(&str) -> MacBy,
}

/// Rules by which a network serves a pod's requests.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// True if each request needs a plugin with the capability for it, as the specification says.
    pub is_strict: bool,
    /// Plugin types that braid implements.
    pub built_in: BuiltIn<'a>,
}

impl BuiltIn<'_> {
    fn is_plugin(self, plugin: &Json) -> bool {
        self.plugins.contains(&kind(plugin))
    }

    /// True if a plugin or an IPAM plugin of the network is an external program.
    fn lacks_any_of(self, definition: &Definition) -> bool {
        definition.plugins().iter().any(|plugin| {
            !self.is_plugin(plugin) || ipam(plugin).is_some_and(|kind| !self.ipams.contains(&kind))
        })
    }
}

/// Handling of a request if no plugin has the capability for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Handling {
    /// Passes the request to the plugins at these indexes, as if they had the capability.
    Grant(Vec<usize>),
    /// Appends a plugin of this type to the list, and passes the request to the new plugin.
    Append(&'static str),
    /// Passes the request to external plugins in `CNI_ARGS`.
    Args,
    /// Refuses the request.
    Refuse,
}

/// Passes a pod's requests to the plugins of its network. Returns the pairs that external plugins
/// get in `CNI_ARGS`. Fails if a request is refused.
pub fn serve(
    selection: &Selection,
    definition: &mut Definition,
    rules: Rules<'_>,
) -> Result<Vec<(&'static str, String)>, Error> {
    let Rules {
        is_strict,
        built_in,
    } = rules;
    for Missing {
        key,
        capability,
        handling,
    } in missing(selection, definition, built_in)
    {
        match handling {
            Handling::Refuse => return Err(refused(key, capability)),
            _ if is_strict => return Err(refused(key, capability)),
            Handling::Grant(plugins) => definition.grant(&plugins, capability)?,
            Handling::Append(kind) => definition.append(kind, capability)?,
            Handling::Args => {}
        }
    }
    let mut args = Vec::new();
    if is_strict || !built_in.lacks_any_of(definition) {
        return Ok(args);
    }
    if let Some(mac) = selection.mac {
        args.push(("MAC", mac.to_string()));
    }
    if !selection.ips.is_empty() {
        args.push(("IP", selection.ips.join(",")));
    }
    Ok(args)
}

/// A request for which no plugin of the network has the capability.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Key of the request in the annotation.
    pub key: &'static str,
    /// Missing capability.
    pub capability: &'static str,
    /// Handling of the request.
    pub handling: Handling,
}

/// Returns the requests of a selection for which no plugin has the capability.
pub fn missing(
    selection: &Selection,
    definition: &Definition,
    built_in: BuiltIn<'_>,
) -> Vec<Missing> {
    let mut missing = Vec::new();
    for (capability, key, _) in selection.runtime_config() {
        if !definition.has(capability) {
            missing.push(Missing {
                key,
                capability,
                handling: handling(capability, definition, built_in),
            });
        }
    }
    missing
}

fn handling(capability: &str, definition: &Definition, built_in: BuiltIn<'_>) -> Handling {
    let of_type = |name: &str| places(definition, |plugin| kind(plugin) == name);
    let of_mac = |how| places(definition, |plugin| (built_in.mac_by)(kind(plugin)) == how);
    let or_args = || {
        if built_in.lacks_any_of(definition) {
            Handling::Args
        } else {
            Handling::Refuse
        }
    };
    match capability {
        "ips" => {
            let takes = |plugin: &Json| {
                kind(plugin) == "flannel"
                    || built_in.is_plugin(plugin)
                        && ipam(plugin).is_some_and(|ipam| TAKE_IPS.contains(&ipam))
            };
            grant(places(definition, takes)).unwrap_or_else(or_args)
        }
        "mac" => match grant(of_mac(MacBy::Itself)) {
            Some(handling) => handling,
            None if of_mac(MacBy::Tuning).is_empty() => or_args(),
            None => Handling::Append("tuning"),
        },
        "bandwidth" => match of_type("bandwidth") {
            all if all.is_empty() => Handling::Append("bandwidth"),
            all if all.iter().any(|at| has_limit(definition, *at)) => Handling::Refuse,
            all => Handling::Grant(all),
        },
        "portMappings" => grant(of_type("portmap")).unwrap_or(Handling::Refuse),
        _ => Handling::Refuse,
    }
}

fn grant(places: Vec<usize>) -> Option<Handling> {
    if places.is_empty() {
        None
    } else {
        Some(Handling::Grant(places))
    }
}

fn places(definition: &Definition, is_it: impl Fn(&Json) -> bool) -> Vec<usize> {
    let mut places = Vec::new();
    for (index, plugin) in definition.plugins().iter().enumerate() {
        if is_it(plugin) {
            places.push(index);
        }
    }
    places
}

fn kind(plugin: &Json) -> &str {
    text_at(plugin, "type").unwrap_or_default()
}
fn ipam(plugin: &Json) -> Option<&str> {
    let kind = text_at(plugin.get("ipam")?, "type")?;
    if kind.is_empty() { None } else { Some(kind) }
}
/// True if the configuration of the plugin at index `at` has a rate limit, which a pod can't
/// change.
fn has_limit(definition: &Definition, at: usize) -> bool {
    definition
        .plugins()
        .get(at)
        .is_some_and(|plugin| LIMITS.iter().any(|key| plugin.get(key).is_some()))
}

fn refused(key: &str, capability: &str) -> Error {
    Error::config(format!(
        "{key:?}: no plugin of the network has the capability {capability:?}"
    ))
}

/// Appends pairs to `runtime`, the runtime's `CNI_ARGS`. Adds `IgnoreUnknown=1`, so that plugins
/// ignore pairs that they do not know.
pub fn args(runtime: &str, more: &[(&str, String)]) -> String {
    if more.is_empty() {
        return runtime.to_owned();
    }
    let mut pairs: Vec<String> = runtime
        .split(';')
        .filter(|pair| !pair.is_empty())
        .map(str::to_owned)
        .collect();
    let ignores = |pair: &String| {
        pair.split_once('=').is_some_and(|(key, value)| {
            key == "IgnoreUnknown" && (value == "1" || value.eq_ignore_ascii_case("true"))
        })
    };
    if !pairs.iter().any(ignores) {
        pairs.push("IgnoreUnknown=1".to_owned());
    }
    for (key, value) in more {
        pairs.push(format!("{key}={value}"));
    }
    pairs.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::configuration;
    use crate::k8s::selection::Item;
    use crate::plugins;

    const BUILT_IN: BuiltIn<'_> = BuiltIn {
        plugins: plugins::TYPES,
        ipams: configuration::TYPES,
        mac_by: plugins::mac_by,
    };

    fn rules(is_strict: bool) -> Rules<'static> {
        Rules {
            is_strict,
            built_in: BUILT_IN,
        }
    }

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    fn selection(keys: &str) -> Selection {
        let json = json(&format!(r#"{{"name":"n",{keys}}}"#));
        Selection::parse(
            &Item {
                annotation: "test",
                number: 1,
                json: &json,
            },
            "ns",
        )
        .unwrap()
    }

    fn list(plugins: &str) -> Definition {
        Definition::parse(
            json(&format!(
                r#"{{"name":"n","cniVersion":"1.0.0","plugins":[{plugins}]}}"#
            )),
            "n",
        )
        .unwrap()
    }

    const IPS: &str = r#""ips":["10.0.0.5/24","fd00::5"]"#;
    const MAC: &str = r#""mac":"02:00:00:00:00:01""#;
    const RATE: &str = r#""bandwidth":{"ingressRate":1000}"#;
    const PORTS: &str = r#""portMappings":[{"hostPort":1,"containerPort":2}]"#;

    #[test]
    fn request_without_capability_reaches_each_plugin_that_can_serve_it() {
        let (host_local, fixed) = (
            r#""ipam":{"type":"host-local"}"#,
            r#""ipam":{"type":"static"}"#,
        );
        let (dhcp, other) = (
            r#""ipam":{"type":"dhcp"}"#,
            r#""ipam":{"type":"calico-ipam"}"#,
        );
        for (keys, plugins, way) in [
            (
                IPS,
                format!(r#"{{"type":"ptp",{host_local}}}"#),
                Handling::Grant(vec![0]),
            ),
            (
                IPS,
                format!(r#"{{"type":"t"}},{{"type":"vlan",{fixed}}}"#),
                Handling::Grant(vec![1]),
            ),
            (
                IPS,
                r#"{"type":"flannel"}"#.to_owned(),
                Handling::Grant(vec![0]),
            ),
            (
                IPS,
                format!(r#"{{"type":"sriov",{host_local}}}"#),
                Handling::Args,
            ),
            (
                IPS,
                format!(r#"{{"type":"bridge",{other}}}"#),
                Handling::Args,
            ),
            (
                IPS,
                format!(r#"{{"type":"bridge",{dhcp}}}"#),
                Handling::Refuse,
            ),
            (IPS, r#"{"type":"bridge"}"#.to_owned(), Handling::Refuse),
            (
                MAC,
                r#"{"type":"bridge"},{"type":"tuning"}"#.to_owned(),
                Handling::Grant(vec![0, 1]),
            ),
            (
                MAC,
                r#"{"type":"host-device"},{"type":"tuning"}"#.to_owned(),
                Handling::Grant(vec![1]),
            ),
            (
                MAC,
                r#"{"type":"vlan"}"#.to_owned(),
                Handling::Append("tuning"),
            ),
            (MAC, r#"{"type":"sriov"}"#.to_owned(), Handling::Args),
            (MAC, r#"{"type":"ipvlan"}"#.to_owned(), Handling::Refuse),
            (
                RATE,
                r#"{"type":"ptp"}"#.to_owned(),
                Handling::Append("bandwidth"),
            ),
            (
                RATE,
                r#"{"type":"ptp"},{"type":"bandwidth"}"#.to_owned(),
                Handling::Grant(vec![1]),
            ),
            (
                RATE,
                r#"{"type":"ptp"},{"type":"bandwidth","egressRate":5}"#.to_owned(),
                Handling::Refuse,
            ),
            (
                PORTS,
                r#"{"type":"ptp"},{"type":"portmap"}"#.to_owned(),
                Handling::Grant(vec![1]),
            ),
            (PORTS, r#"{"type":"t"}"#.to_owned(), Handling::Refuse),
            (
                r#""infiniband-guid":"24:8a:07:03:00:8d:ae:2e""#,
                r#"{"type":"t"}"#.to_owned(),
                Handling::Refuse,
            ),
        ] {
            let ways: Vec<Handling> = missing(&selection(keys), &list(&plugins), BUILT_IN)
                .into_iter()
                .map(|one| one.handling)
                .collect();
            assert_eq!(ways, std::slice::from_ref(&way), "{keys} {plugins}");
            let (mut served, mut strict) = (list(&plugins), list(&plugins));
            assert_eq!(
                serve(&selection(keys), &mut served, rules(false)).is_ok(),
                way != Handling::Refuse,
                "{keys} {plugins}"
            );
            assert!(serve(&selection(keys), &mut strict, rules(true)).is_err());
            if matches!(way, Handling::Grant(_) | Handling::Append(_)) {
                assert_eq!(missing(&selection(keys), &served, BUILT_IN), []);
            }
        }
    }

    #[test]
    fn single_plugin_becomes_a_list_if_another_is_appended() {
        let mut single = Definition::parse(
            json(r#"{"name":"n","type":"vlan","cniVersion":"1.0.0"}"#),
            "n",
        )
        .unwrap();
        serve(
            &selection(&format!("{MAC},{RATE}")),
            &mut single,
            rules(false),
        )
        .unwrap();
        assert_eq!(
            single.types().collect::<Vec<_>>(),
            ["vlan", "tuning", "bandwidth"]
        );
        let conf = single
            .conf(&json(r#"{"mac":"02:00:00:00:00:01"}"#))
            .unwrap();
        assert_eq!(conf.get("type").unwrap().as_str(), Some("braid"));
    }

    #[test]
    fn external_plugins_get_the_request_in_cni_args_beside_a_capability() {
        let both = selection(&format!("{IPS},{MAC}"));
        for (plugins, is_strict, expected) in [
            (
                r#"{"type":"t"}"#,
                false,
                &[("MAC", "02:00:00:00:00:01"), ("IP", "10.0.0.5/24,fd00::5")][..],
            ),
            (
                r#"{"type":"t","capabilities":{"ips":true,"mac":true}}"#,
                false,
                &[("MAC", "02:00:00:00:00:01"), ("IP", "10.0.0.5/24,fd00::5")],
            ),
            (
                r#"{"type":"t","capabilities":{"ips":true,"mac":true}}"#,
                true,
                &[],
            ),
            (r#"{"type":"bridge","ipam":{"type":"static"}}"#, false, &[]),
        ] {
            let args = serve(&both, &mut list(plugins), rules(is_strict)).unwrap();
            let args: Vec<(&str, &str)> = args
                .iter()
                .map(|(key, value)| (*key, value.as_str()))
                .collect();
            assert_eq!(args, expected, "{plugins}");
        }
    }

    #[test]
    fn runtime_arguments_precede_the_arguments_of_the_pod() {
        let more = [("MAC", "m".to_owned()), ("IP", "a,b".to_owned())];
        for (runtime, expected) in [
            ("", "IgnoreUnknown=1;MAC=m;IP=a,b"),
            (
                "IgnoreUnknown=true;K=v=w;",
                "IgnoreUnknown=true;K=v=w;MAC=m;IP=a,b",
            ),
            ("K=v", "K=v;IgnoreUnknown=1;MAC=m;IP=a,b"),
        ] {
            assert_eq!(args(runtime, &more), expected);
        }
        assert_eq!(args("K=v;", &[]), "K=v;", "as it is");
    }
}
