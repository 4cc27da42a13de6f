//! Whereabouts' flat file: defaults of a node for all networks.

use crate::cni::Json;

/// Paths of the flat file after `configuration_path`, in this order.
pub const PATHS: [&str; 3] = [
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
];

/// The flat file's value of this key is not used: only that of the network's configuration counts.
const INLINE_ONLY: [&str; 2] = ["enable_overlapping_ranges", "type"];
/// Objects whose keys are filled one by one.
const OBJECTS: [&str; 2] = ["kubernetes", "dns"];

/// Adds the keys of the flat file that `ipam` lacks, or that are empty there.
pub fn merge(ipam: &mut Json, flat: &Json) {
    for (key, value) in flat.fields() {
        let is_named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(key));
        if is_named(&INLINE_ONLY) {
            continue;
        }
        match ipam.get(key).cloned() {
            Some(mut inner) if is_named(&OBJECTS) && !is_empty(&inner) => {
                merge(&mut inner, value);
                ipam.set(key, inner);
            }
            Some(inline) if !is_empty(&inline) => {}
            _ => ipam.set(key, value.clone()),
        }
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(is) => !is,
        Json::Number(number) => number.as_i128() == Some(0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").unwrap()
    }

    #[test]
    fn empty_keys_are_filled_and_objects_key_by_key() {
        let mut ipam = json(
            r#"{"type": "whereabouts", "range": "10.0.0.0/24", "exclude": [], "gateway": "",
                "kubernetes": {"k8s_api_root": "a"}}"#,
        );
        let flat = json(
            r#"{"type": "other", "range": "10.1.0.0/24", "exclude": ["10.0.0.9"], "Gateway": "10.0.0.1",
                "kubernetes": {"kubeconfig": "/k", "k8s_api_root": "b"}, "log_level": "debug",
                "enable_overlapping_ranges": true}"#,
        );
        merge(&mut ipam, &flat);
        assert_eq!(ipam.str("range"), Ok(Some("10.0.0.0/24")));
        assert_eq!(ipam.strings("exclude"), Ok(vec!["10.0.0.9".to_owned()]));
        assert_eq!(ipam.str("gateway"), Ok(Some("10.0.0.1")));
        assert_eq!(ipam.str("type"), Ok(Some("whereabouts")));
        let kubernetes = ipam.object("kubernetes").unwrap().unwrap();
        assert_eq!(kubernetes.str("kubeconfig"), Ok(Some("/k")));
        assert_eq!(kubernetes.str("k8s_api_root"), Ok(Some("a")));
        assert!(!ipam.has("enable_overlapping_ranges"));
        assert_eq!(ipam.str("log_level"), Ok(Some("debug")));
    }
}
