//! JSON layouts of an ADD result, one for each family of CNI versions.
//!
//! Fields have the same order as in the reference plugins' output, so the texts are equal.

use super::version::Family;
use super::{AddResult, Dns, Error, Interface, IpConfig, Json, Route, Version};
use std::net::IpAddr;

impl AddResult {
    /// Checks that `version` can represent this result: 0.1.0 and 0.2.0 need at least one address.
    pub fn convertible(&self, version: Version) -> Result<(), Error> {
        if version.family() == Family::V02x && self.ips.is_empty() {
            return Err(Error::internal("cannot convert: no valid IP addresses")
                .with_details(format!("a result of version {version} needs at least one")));
        }
        Ok(())
    }

    /// Returns the result in the JSON layout of `version`. Fields that this version lacks are
    /// dropped.
    pub fn to_json(&self, version: Version) -> Result<Json, Error> {
        self.convertible(version)?;
        let mut json = Json::object_of([("cniVersion", version.as_str().into())]);
        if version.family() == Family::V02x {
            self.write_02x(&mut json);
        } else {
            self.write_lists(&mut json, version.family());
        }
        // The reference converts its 1.x types to a map, which Go prints sorted.
        Ok(if version.family() == Family::V10x {
            json.sorted()
        } else {
            json
        })
    }

    /// Returns the text of [`Self::to_json`], indented by 4 spaces, without a newline at the end.
    pub fn to_stdout(&self, version: Version) -> Result<String, Error> {
        Ok(self.to_json(version)?.pretty())
    }

    fn write_02x(&self, json: &mut Json) {
        for (key, v4) in [("ip4", true), ("ip6", false)] {
            let Some(ip) = self.ips.iter().find(|ip| ip.address.addr().is_ipv4() == v4) else {
                continue;
            };
            let mut object = Json::object_of([("ip", ip.address.to_string().into())]);
            set_addr(&mut object, "gateway", ip.gateway);
            let mut routes = Vec::new();
            for route in &self.routes {
                if route.dst.addr().is_ipv4() == v4 {
                    let plain = Route {
                        gw: route.gw,
                        ..Route::to(route.dst)
                    };
                    routes.push(plain.to_json());
                }
            }
            set_list(&mut object, "routes", routes);
            json.set(key, object);
        }
        json.set("dns", self.dns.to_json());
    }

    fn write_lists(&self, json: &mut Json, family: Family) {
        set_list(
            json,
            "interfaces",
            self.interfaces
                .iter()
                .map(|interface| interface.to_json(family)),
        );
        set_list(json, "ips", self.ips.iter().map(|ip| ip.to_json(family)));
        set_list(json, "routes", self.routes.iter().map(Route::to_json));
        if family == Family::V04x || !self.dns.is_empty() {
            json.set("dns", self.dns.to_json());
        }
    }
}

impl Interface {
    fn to_json(&self, family: Family) -> Json {
        let mut json = Json::object_of([("name", self.name.as_str().into())]);
        set_text(&mut json, "mac", &self.mac);
        set_text(&mut json, "sandbox", &self.sandbox);
        if family == Family::V10x {
            set_some(&mut json, "mtu", self.mtu.filter(|mtu| *mtu != 0));
            set_text(&mut json, "socketPath", &self.socket_path);
            set_text(&mut json, "pciID", &self.pci_id);
        }
        json
    }
}

impl IpConfig {
    fn to_json(&self, family: Family) -> Json {
        let mut json = Json::object_of([]);
        if family == Family::V04x {
            json.set(
                "version",
                if self.address.addr().is_ipv4() {
                    "4"
                } else {
                    "6"
                },
            );
        }
        if let Some(index) = self.interface {
            json.set("interface", index as u64);
        }
        json.set("address", self.address.to_string());
        set_addr(&mut json, "gateway", self.gateway);
        json
    }
}

impl Route {
    /// Returns the route as JSON, without unset fields.
    pub fn to_json(&self) -> Json {
        let mut json = Json::object_of([("dst", self.dst.to_string().into())]);
        let set = |value: u32| (value != 0).then_some(value);
        set_addr(&mut json, "gw", self.gw);
        set_some(&mut json, "mtu", set(self.mtu));
        set_some(&mut json, "advmss", set(self.advmss));
        set_some(&mut json, "priority", set(self.priority));
        set_some(&mut json, "table", self.table);
        set_some(&mut json, "scope", self.scope.map(u32::from));
        json
    }
}

impl Dns {
    /// Returns the name resolution as JSON, without unset fields.
    pub fn to_json(&self) -> Json {
        let mut json = Json::object_of([]);
        set_texts(&mut json, "nameservers", &self.nameservers);
        set_text(&mut json, "domain", &self.domain);
        set_texts(&mut json, "search", &self.search);
        set_texts(&mut json, "options", &self.options);
        json
    }
}

fn set_some(json: &mut Json, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        json.set(key, value);
    }
}

fn set_text(json: &mut Json, key: &str, text: &str) {
    if !text.is_empty() {
        json.set(key, text);
    }
}

fn set_texts(json: &mut Json, key: &str, texts: &[String]) {
    set_list(json, key, texts.iter().map(|text| text.as_str().into()));
}

fn set_addr(json: &mut Json, key: &str, addr: Option<IpAddr>) {
    if let Some(addr) = addr {
        json.set(key, addr.to_string());
    }
}

fn set_list(json: &mut Json, key: &str, items: impl IntoIterator<Item = Json>) {
    let items: Vec<Json> = items.into_iter().collect();
    if !items.is_empty() {
        json.set(key, items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    /// A result with every field, in the layout of 1.1.0.
    const FULL: &str = r#"{
        "cniVersion": "1.1.0",
        "dns": {"domain": "d.example", "nameservers": ["10.1.0.1"], "options": ["ndots:5"], "search": ["d.example"]},
        "interfaces": [
            {"mac": "00:11:22:33:44:55", "mtu": 1400, "name": "br0"},
            {"name": "eth0", "pciID": "0000:00:1f.6", "sandbox": "/run/netns/a", "socketPath": "/run/s"}
        ],
        "ips": [
            {"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0},
            {"address": "2001:db8::3/64", "interface": 1},
            {"address": "10.9.0.1/32"}
        ],
        "routes": [
            {"advmss": 1300, "dst": "0.0.0.0/0", "gw": "10.1.2.1", "mtu": 1400, "priority": 5, "scope": 0, "table": 100},
            {"dst": "2001:db8:1::/48"}
        ]
    }"#;

    const FULL_04X: &str = r#"{
        "cniVersion": "VERSION",
        "interfaces": [{"name": "br0", "mac": "00:11:22:33:44:55"}, {"name": "eth0", "sandbox": "/run/netns/a"}],
        "ips": [
            {"version": "4", "interface": 0, "address": "10.1.2.3/24", "gateway": "10.1.2.1"},
            {"version": "6", "interface": 1, "address": "2001:db8::3/64"},
            {"version": "4", "address": "10.9.0.1/32"}
        ],
        "routes": [
            {"dst": "0.0.0.0/0", "gw": "10.1.2.1", "mtu": 1400, "advmss": 1300, "priority": 5, "table": 100, "scope": 0},
            {"dst": "2001:db8:1::/48"}
        ],
        "dns": {"nameservers": ["10.1.0.1"], "domain": "d.example", "search": ["d.example"], "options": ["ndots:5"]}
    }"#;

    const FULL_02X: &str = r#"{
        "cniVersion": "VERSION",
        "ip4": {"ip": "10.1.2.3/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}]},
        "ip6": {"ip": "2001:db8::3/64", "routes": [{"dst": "2001:db8:1::/48"}]},
        "dns": {"nameservers": ["10.1.0.1"], "domain": "d.example", "search": ["d.example"], "options": ["ndots:5"]}
    }"#;

    fn full() -> AddResult {
        AddResult::parse(&json(FULL), Version::DEFAULT).unwrap()
    }

    #[test]
    fn each_family_has_its_layout() {
        for version in Version::ALL {
            let golden = match version.family() {
                Family::V02x => FULL_02X.replace("VERSION", version.as_str()),
                Family::V04x => FULL_04X.replace("VERSION", version.as_str()),
                Family::V10x => FULL.replace("1.1.0", version.as_str()),
            };
            assert_eq!(full().to_json(version), Ok(json(&golden)));
        }
    }

    #[test]
    fn result_is_read_back_with_the_fields_of_its_version() {
        for version in Version::ALL {
            let written = full().to_json(version).unwrap();
            let read = AddResult::parse(&written, Version::DEFAULT).unwrap();
            assert_eq!(read.to_json(version).unwrap(), written, "{version}");
        }
        assert_eq!(
            AddResult::parse(&full().to_json(Version::V1_1_0).unwrap(), Version::DEFAULT),
            Ok(full())
        );
    }

    #[test]
    fn empty_result_has_dns_only_before_1_0_0() {
        let text = |version| {
            AddResult::default()
                .to_json(version)
                .map(|json| json.to_string())
        };
        for version in Version::ALL {
            match version.family() {
                Family::V02x => assert_eq!(
                    text(version).unwrap_err().msg,
                    "cannot convert: no valid IP addresses"
                ),
                Family::V04x => assert_eq!(
                    text(version),
                    Ok(format!(r#"{{"cniVersion":"{version}","dns":{{}}}}"#))
                ),
                Family::V10x => assert_eq!(
                    text(version),
                    Ok(format!(r#"{{"cniVersion":"{version}"}}"#))
                ),
            }
            assert_eq!(
                AddResult::default().convertible(version).is_ok(),
                text(version).is_ok()
            );
        }
    }

    #[test]
    fn routes_of_a_family_without_address_are_dropped_before_0_3_0() {
        let result = json(
            r#"{"cniVersion":"1.0.0","ips":[{"address":"::1/128"}],"routes":[{"dst":"0.0.0.0/0"}]}"#,
        );
        let result = AddResult::parse(&result, Version::DEFAULT).unwrap();
        let text = result.to_json(Version::V0_2_0).unwrap().to_string();
        assert_eq!(
            text,
            r#"{"cniVersion":"0.2.0","ip6":{"ip":"::1/128"},"dns":{}}"#
        );
    }

    #[test]
    fn the_old_layout_is_read_ip4_first_with_its_routes() {
        let old = json(
            r#"{"ip6":{"ip":"2001:db8::3/64"},"ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"10.9.9.9/8","mtu":9}]}}"#,
        );
        let text = AddResult::parse(&old, Version::V0_1_0)
            .unwrap()
            .to_json(Version::V1_0_0)
            .unwrap()
            .to_string();
        assert_eq!(
            text,
            r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"2001:db8::3/64"}],"routes":[{"dst":"10.9.9.9/8"}]}"#
        );
    }

    #[test]
    fn standard_output_is_indented_by_four_spaces() {
        let text = AddResult::default().to_stdout(Version::V1_1_0).unwrap();
        assert_eq!(text, "{\n    \"cniVersion\": \"1.1.0\"\n}");
    }
}
