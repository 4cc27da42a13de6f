//! Annotations of a pod that the container runtime passes to the call: containerd, and CRI-O since
//! 1.29, for plugins with the capability [`POD_ANNOTATIONS`].

use super::Pod;
use super::settings::PodRef;
use crate::cni::Json;
use std::collections::BTreeMap;

/// Capability and key in `runtimeConfig`: all annotations of the pod, as they were when its sandbox
/// was created.
pub const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Returns the pod of a call as far as the runtime describes it, with an empty node. `conf` is the
/// configuration that the runtime passed. `None` if the runtime passes no annotations or no uid, or
/// if the annotations are not an object of strings.
pub fn pod(pod_ref: &PodRef, conf: &Json) -> Option<Pod> {
    let uid = pod_ref.uid.clone()?;
    let config = conf.get("runtimeConfig")?;
    // Go's encoder writes null for a map without entries.
    if !config.has(POD_ANNOTATIONS) {
        return None;
    }
    let annotations: BTreeMap<String, String> =
        BTreeMap::from_iter(config.string_map(POD_ANNOTATIONS).ok()?);
    Some(Pod {
        name: pod_ref.name.clone(),
        uid,
        annotations,
        resource_claims: Vec::new(),
        node: String::new(),
        is_over: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(args: &str, conf: &str) -> Option<Vec<(String, String)>> {
        let pod_ref = PodRef::of(args)
            .expect("valid names")
            .expect("a pod's call");
        let conf = Json::parse(conf.as_bytes(), "conf").expect("JSON");
        Some(pod(&pod_ref, &conf)?.annotations.into_iter().collect())
    }

    #[test]
    fn annotations_are_known_if_the_runtime_passes_them_with_a_uid() {
        let args = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_UID=u";
        let key = POD_ANNOTATIONS;
        let some = format!(r#"{{"runtimeConfig":{{"{key}":{{"a":"1","B":""}}}}}}"#);
        let expected = [("B", ""), ("a", "1")].map(|(key, text)| (key.into(), text.into()));
        assert_eq!(annotations(args, &some), Some(expected.to_vec()));
        for empty in ["null", "{}"] {
            let conf = format!(r#"{{"runtimeConfig":{{"{key}":{empty}}}}}"#);
            assert_eq!(annotations(args, &conf), Some(Vec::new()), "{empty}");
        }
        for unknown in [
            "{}".to_owned(),
            r#"{"runtimeConfig":{"portMappings":[]}}"#.to_owned(),
            format!(r#"{{"runtimeConfig":{{"{key}":["a"]}}}}"#),
            format!(r#"{{"runtimeConfig":{{"{key}":{{"a":1}}}}}}"#),
        ] {
            assert_eq!(annotations(args, &unknown), None, "{unknown}");
        }
        let without_uid = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p";
        assert_eq!(annotations(without_uid, &some), None);
    }
}
