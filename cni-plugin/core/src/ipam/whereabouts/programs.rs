//! Programs of Whereabouts in the cluster: its plugin's `DaemonSet`, its controller, its reconciler.

use serde::Deserialize;

/// Part of the names of Whereabouts' containers and images, of all its distributions.
const WORD: &str = "whereabouts";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
}

/// Of a `DaemonSet` and a Deployment, or, with `jobTemplate`, of a `CronJob`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    template: Template,
    job_template: JobTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
    image: String,
}

/// Returns the programs of Whereabouts in a list of objects of a kind: kind, namespace, name and the
/// container's image.
pub fn of_whereabouts(kind: &str, list: &[u8]) -> serde_json::Result<Vec<String>> {
    let mut found = Vec::new();
    for Object { metadata, spec } in serde_json::from_slice::<Vec<Object>>(list)? {
        let pods = [spec.template.spec, spec.job_template.spec.template.spec];
        let containers = pods
            .iter()
            .flat_map(|pod| pod.containers.iter().chain(&pod.init_containers));
        let is_its = |one: &&Container| is_its(&one.name) || is_its(&one.image);
        if let Some(container) = containers.into_iter().find(is_its) {
            let Metadata { namespace, name } = metadata;
            found.push(format!("{kind} {namespace}/{name} ({})", container.image));
        }
    }
    Ok(found)
}

fn is_its(text: &str) -> bool {
    text.to_lowercase().contains(WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn programs_are_found_by_container_or_image_also_inside_multus() {
        let pod = |key: &str, name: &str, image: &str| {
            json!({"spec": {key: [
            {"name": "a", "image": "example.org/a:1"}, {"name": name, "image": image}]}})
        };
        let object = |name: &str, spec| json!({"metadata": {"namespace": "net", "name": name}, "spec": spec});
        let list = json!([
            object(
                "one",
                json!({"template": pod("containers", "c", "ghcr.io/k8snetworkplumbingwg/Whereabouts:v0.9")})
            ),
            object(
                "two",
                json!({"template": pod("initContainers", "whereabouts-cni-bincopy", "quay.io/x@sha256:1")})
            ),
            object(
                "three",
                json!({"jobTemplate": {"spec": {"template": pod("containers", "whereabouts", "i")}}})
            ),
            object(
                "other",
                json!({"template": pod("containers", "braid", "braid:1")})
            ),
            object("none", json!({})),
        ]);
        let found = of_whereabouts("DaemonSet", list.to_string().as_bytes()).unwrap();
        let expected = [
            "DaemonSet net/one (ghcr.io/k8snetworkplumbingwg/Whereabouts:v0.9)",
            "DaemonSet net/two (quay.io/x@sha256:1)",
            "DaemonSet net/three (i)",
        ];
        assert_eq!(found, expected);
    }
}
