//! Networks that a pod requests in its annotations, and the handling of invalid annotations.

use super::annotation::{Invalid, default_network, networks};
use super::selection::Selection;
use super::settings::{InvalidAnnotation, Settings};
use super::source::{Event, Severity};
use super::{DEFAULT_NETWORK, NETWORKS, Pod};
use crate::cni::Error;

/// Networks that a pod requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestedNetworks {
    /// Network that replaces the cluster's default network.
    pub default: Option<Selection>,
    /// Additional networks, in the order of the annotation.
    pub networks: Vec<Selection>,
    /// Invalid annotations, treated as absent.
    pub invalid: Vec<Invalid>,
}

impl RequestedNetworks {
    /// Parses the annotations [`DEFAULT_NETWORK`] and [`NETWORKS`] of a pod.
    pub fn of(pod: &Pod, settings: &Settings) -> Self {
        let mut asked = Self::default();
        if let Some(text) = pod.annotations.get(DEFAULT_NETWORK) {
            match default_network(text, &settings.multus_namespace) {
                Ok(selection) => asked.default = selection,
                Err(invalid) => asked.invalid.push(invalid),
            }
        }
        if let Some(text) = pod.annotations.get(NETWORKS) {
            match networks(text, &pod.name.namespace) {
                Ok(selections) => asked.networks = selections,
                Err(invalid) => asked.invalid.push(invalid),
            }
        }
        asked
    }

    /// Returns a warning event for each invalid annotation, to be reported even if the pod does not
    /// start.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.invalid.iter().map(|invalid| Event {
            severity: Severity::Warning,
            reason: "InvalidAnnotation".into(),
            message: invalid.to_string(),
            trace: None,
        })
    }

    /// Fails if an annotation is invalid and `settings.invalid_annotation` is `Fail`.
    pub fn refuse_invalid(&self, settings: &Settings) -> Result<(), Error> {
        match (settings.invalid_annotation, self.invalid.first()) {
            (InvalidAnnotation::Fail, Some(invalid)) => Err(invalid.clone().into()),
            (InvalidAnnotation::Ignore, _) | (_, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NetConf;
    use crate::k8s::ObjectName;

    fn settings(keys: &str) -> Settings {
        let text = format!(r#"{{"name":"pods","type":"braid","clusterNetwork":"c"{keys}}}"#);
        Settings::of(&NetConf::parse(text.as_bytes()).unwrap())
            .unwrap()
            .unwrap()
    }

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        Pod {
            name: ObjectName {
                namespace: "ns".to_owned(),
                name: "p".to_owned(),
            },
            uid: "u".to_owned(),
            annotations: annotations
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            resource_claims: Vec::new(),
            node: String::new(),
            is_over: false,
        }
    }

    #[test]
    fn pod_without_annotations_requests_nothing() {
        assert_eq!(
            RequestedNetworks::of(&pod(&[("other", "x")]), &settings("")),
            RequestedNetworks::default()
        );
        assert_eq!(
            RequestedNetworks::of(
                &pod(&[(NETWORKS, ""), (DEFAULT_NETWORK, "")]),
                &settings("")
            ),
            RequestedNetworks::default()
        );
    }

    // Conformance: S2
    #[test]
    fn names_without_namespace_use_the_pods_or_multus_namespace() {
        let asked = RequestedNetworks::of(
            &pod(&[(NETWORKS, "a"), (DEFAULT_NETWORK, "d")]),
            &settings(r#","multusNamespace":"m""#),
        );
        assert_eq!(asked.networks[0].object.to_string(), "ns/a");
        assert_eq!(asked.default.unwrap().object.to_string(), "m/d");
    }

    // Conformance: S8
    #[test]
    fn an_invalid_annotation_fails_the_pod_or_is_ignored_as_a_whole() {
        let bad = pod(&[
            (NETWORKS, r#"[{"name":"good"},{"name":"a","mac":"zz"}]"#),
            (DEFAULT_NETWORK, "d"),
        ]);
        for (keys, starts) in [
            ("", false),
            (r#","invalidAnnotation":"fail""#, false),
            (r#","invalidAnnotation":"ignore""#, true),
        ] {
            let settings = settings(keys);
            let asked = RequestedNetworks::of(&bad, &settings);
            assert_eq!((asked.networks.len(), asked.default.is_some()), (0, true));
            assert_eq!(asked.refuse_invalid(&settings).is_ok(), starts, "{keys}");
            let events: Vec<Event> = asked.events().collect();
            let message = r#"k8s.v1.cni.cncf.io/networks: item 2: mac "zz": not six bytes, as in 02:00:00:00:00:01"#;
            assert_eq!(
                (events.len(), events[0].severity, events[0].message.as_str()),
                (1, Severity::Warning, message)
            );
        }
    }

    #[test]
    fn event_fits_the_limit_of_kubernetes() {
        let long = "é".repeat(200_000);
        let keys = [
            "name",
            "mac",
            "ips",
            "portMappings",
            "default-route",
            "bandwidth",
            "interface",
        ];
        let values = [
            format!("\"{long}\""),
            format!("[\"{long}\"]"),
            format!("{{\"{long}\":\"{long}\"}}"),
        ];
        for (key, value) in keys
            .iter()
            .flat_map(|key| values.iter().map(move |value| (key, value)))
        {
            let text = format!(r#"[{{"name":"a","{key}":{value}}}]"#);
            let asked = RequestedNetworks::of(
                &pod(&[(NETWORKS, &text), (DEFAULT_NETWORK, &long)]),
                &settings(""),
            );
            assert!(
                asked.events().count() == 2
                    && asked.events().all(|event| event.message.len() < 1024),
                "{key}"
            );
        }
    }
}
