//! The configuration in use: the last valid one, and the fault of a later one.

use crate::cluster::config::{Config, Kind, Overrides};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;
use std::fmt::Display;

/// Key of the `ConfigMap`.
const KEY: &str = "config.yaml";

/// The configuration in use.
#[derive(Debug)]
pub struct Configuration {
    /// Place of the text, for messages.
    origin: String,
    overrides: Overrides,
    /// Returns the reason why this node cannot have a default network of this type.
    refusal: fn(Kind) -> Option<String>,
    /// Text of a list that is still arriving.
    arriving: Option<String>,
    valid: Option<Config>,
    fault: Option<String>,
}

impl Configuration {
    /// Returns the configuration at `origin`, which was not read yet. `refusal` returns the reason
    /// why this node cannot have a default network of this type.
    pub fn new(origin: String, overrides: Overrides, refusal: fn(Kind) -> Option<String>) -> Self {
        Self {
            origin,
            overrides,
            refusal,
            arriving: None,
            valid: None,
            fault: None,
        }
    }

    /// Updates the configuration. Returns true if it differs, also in its fault.
    pub fn update(&mut self, event: &Event<ConfigMap>) -> bool {
        match event {
            Event::Init => {
                self.arriving = None;
                false
            }
            Event::InitApply(object) => {
                self.arriving = text(object);
                false
            }
            Event::InitDone => {
                let arrived = self.arriving.take();
                self.read(arrived.as_deref())
            }
            Event::Apply(object) => self.read(text(object).as_deref()),
            Event::Delete(_) => self.read(None),
        }
    }

    /// Reads a text. Without one, each key has its default. A wrong text leaves the last valid
    /// configuration in use.
    pub fn read(&mut self, text: Option<&str>) -> bool {
        match Config::parse(text.unwrap_or_default(), &self.overrides) {
            Ok(config) => {
                if let Some(why) = (self.refusal)(config.kind) {
                    return self.refuse(format_args!("type: {why}"));
                }
                let is_changed = self.valid.as_ref() != Some(&config) || self.fault.is_some();
                self.valid = Some(config);
                self.fault = None;
                is_changed
            }
            Err(err) => self.refuse(err),
        }
    }

    /// Reports that the configuration cannot be read.
    pub fn refuse(&mut self, why: impl Display) -> bool {
        let fault = format!("{}: {why}", self.origin);
        let is_changed = self.fault.as_ref() != Some(&fault);
        self.fault = Some(fault);
        is_changed
    }

    /// Returns the configuration in use; `None` if there never was a valid one.
    pub fn valid(&self) -> Option<&Config> {
        self.valid.as_ref()
    }

    /// Returns the fault of the present text.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

fn text(object: &ConfigMap) -> Option<String> {
    object.data.as_ref()?.get(KEY).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::config::Mode;
    use serde_json::json;

    fn object(text: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "braid"}, "data": {KEY: text}}))
            .expect("an object")
    }

    fn configuration() -> Configuration {
        let refusal = |kind| (kind == Kind::Netkit).then(|| "no netkit here".to_owned());
        let origin = "ConfigMap kube-system/braid".into();
        Configuration::new(origin, Overrides::default(), refusal)
    }

    #[test]
    fn a_type_that_the_node_cannot_have_leaves_the_last_valid_configuration() {
        let mut configuration = configuration();
        configuration.read(Some("type: bridge"));
        assert!(configuration.read(Some("type: netkit")));
        assert_eq!(
            configuration.fault(),
            Some("ConfigMap kube-system/braid: type: no netkit here")
        );
        let kind = configuration.valid().map(|config| config.kind);
        assert_eq!(kind, Some(Kind::Bridge));
    }

    fn mode(configuration: &Configuration) -> Option<Mode> {
        Some(configuration.valid()?.mode)
    }

    #[test]
    fn an_absent_object_has_the_defaults() {
        let mut configuration = configuration();
        assert_eq!(configuration.valid(), None);
        assert!(!configuration.update(&Event::Init));
        assert!(configuration.update(&Event::InitDone));
        assert_eq!(configuration.valid(), Some(&Config::default()));
        let other: ConfigMap = serde_json::from_value(json!({"data": {"other": ""}})).expect("one");
        assert!(!configuration.update(&Event::Apply(other)));
    }

    #[test]
    fn a_wrong_configuration_is_reported_and_the_last_valid_one_is_kept() {
        let mut configuration = configuration();
        configuration.update(&Event::Init);
        configuration.update(&Event::InitApply(object("mode: direct")));
        assert!(configuration.update(&Event::InitDone));
        assert!(configuration.update(&Event::Apply(object("mode: fast"))));
        assert!(!configuration.update(&Event::Apply(object("mode: fast"))));
        assert_eq!(mode(&configuration), Some(Mode::Direct));
        let fault = configuration.fault().expect("a fault");
        let start = "ConfigMap kube-system/braid: read config.yaml: mode: unknown variant `fast`";
        assert!(fault.starts_with(start), "{fault}");
        assert!(configuration.update(&Event::Apply(object("mode: direct"))));
        assert_eq!(configuration.fault(), None);
        assert!(configuration.update(&Event::Delete(object(""))));
        assert_eq!(mode(&configuration), Some(Mode::Auto));
    }
}
