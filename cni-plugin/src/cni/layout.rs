//! The JSON layouts of a result, one for each family of versions.
//!
//! Fields are in the order of the reference plugins' output, so that both print the same text.

use super::version::Family;
use super::{AddResult, Dns, Error, Interface, IpConfig, Json, Route, Version};

impl AddResult {
    /// Whether `version` can say this result: 0.1.0 and 0.2.0 can't without an address.
    pub fn convertible(&self, version: Version) -> Result<(), Error> {
        if version.family() == Family::V02x && self.ips.is_empty() {
            return Err(Error::internal("cannot convert: no valid IP addresses")
                .with_details(format!("a result of version {version} needs at least one")));
        }
        Ok(())
    }

    /// The result as `version` writes it; what it can't say is left out.
    pub fn to_json(&self, version: Version) -> Result<Json, Error> {
        self.convertible(version)?;
        let mut json = Json::object_of([("cniVersion", version.as_str().into())]);
        if version.family() == Family::V02x {
            self.write_02x(&mut json);
        } else {
            self.write_lists(&mut json, version.family());
        }
        // The reference's 1.x types pass through a map, which Go prints sorted.
        Ok(if version.family() == Family::V10x { json.sorted() } else { json })
    }

    /// [`Self::to_json`] as it is printed: indented by 4 spaces, without a newline at the end.
    pub fn to_stdout(&self, version: Version) -> Result<String, Error> {
        Ok(self.to_json(version)?.pretty())
    }

    fn write_02x(&self, json: &mut Json) {
        for (key, v4) in [("ip4", true), ("ip6", false)] {
            let Some(ip) = self.ips.iter().find(|ip| ip.address.addr().is_ipv4() == v4) else { continue };
            let mut object = Json::object_of([("ip", ip.address.to_string().into())]);
            set_some(&mut object, "gateway", ip.gateway.map(|gateway| gateway.to_string()));
            let routes = self.routes.iter().filter(|route| route.dst.addr().is_ipv4() == v4);
            set_list(
                &mut object,
                "routes",
                routes.map(|route| Route { gw: route.gw, ..Route::to(route.dst) }.to_json()),
            );
            json.set(key, object);
        }
        json.set("dns", self.dns.to_json());
    }

    fn write_lists(&self, json: &mut Json, family: Family) {
        set_list(json, "interfaces", self.interfaces.iter().map(|interface| interface.to_json(family)));
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
            json.set("version", if self.address.addr().is_ipv4() { "4" } else { "6" });
        }
        set_some(&mut json, "interface", self.interface.map(|index| index as u64));
        json.set("address", self.address.to_string());
        set_some(&mut json, "gateway", self.gateway.map(|gateway| gateway.to_string()));
        json
    }
}

impl Route {
    /// The route with the fields that are set.
    pub fn to_json(&self) -> Json {
        let mut json = Json::object_of([("dst", self.dst.to_string().into())]);
        let set = |value: u32| (value != 0).then_some(value);
        set_some(&mut json, "gw", self.gw.map(|gw| gw.to_string()));
        set_some(&mut json, "mtu", set(self.mtu));
        set_some(&mut json, "advmss", set(self.advmss));
        set_some(&mut json, "priority", set(self.priority));
        set_some(&mut json, "table", self.table);
        set_some(&mut json, "scope", self.scope.map(u32::from));
        json
    }
}

impl Dns {
    /// The fields that are set.
    pub fn to_json(&self) -> Json {
        let mut json = Json::object_of([]);
        let texts = |list: &[String]| list.iter().map(|text| text.as_str().into()).collect::<Vec<Json>>();
        set_list(&mut json, "nameservers", texts(&self.nameservers));
        set_text(&mut json, "domain", &self.domain);
        set_list(&mut json, "search", texts(&self.search));
        set_list(&mut json, "options", texts(&self.options));
        json
    }
}

fn set_some(json: &mut Json, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        json.set(key, value);
    }
}

fn set_text(json: &mut Json, key: &str, text: &str) {
    set_some(json, key, Some(text).filter(|text| !text.is_empty()));
}

fn set_list(json: &mut Json, key: &str, items: impl IntoIterator<Item = Json>) {
    let items: Vec<Json> = items.into_iter().collect();
    set_some(json, key, Some(items).filter(|items| !items.is_empty()));
}
