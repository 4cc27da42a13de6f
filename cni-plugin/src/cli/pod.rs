//! A pod in manifest files, converted to the call that a runtime would make for it in a cluster.

pub(super) mod claims;
mod links;

use super::conf;
use super::manifests;
use super::output;
use braid_core::cni::{Attachment, Command, Error, Json, NetConf, Request};
use braid_core::dra::allocation::NamedLink;
use braid_core::k8s::settings::{Settings, key_of_pods};
use braid_core::k8s::{NETWORK_STATUS, ObjectName, Pod};
use braid_node::apply::host::{Host, Machine, This};
use braid_node::attach::chain::BRAID;
use braid_node::attach::invocation::Invocation;
use braid_node::attach::pods::{self, Publisher};
use braid_node::source::manifests::Manifests;
use claims::ClaimsOfPod;
use clap::Args;
use std::path::PathBuf;

/// Networks to attach: some configurations, or the networks of a pod.
#[derive(Debug, Args)]
pub(super) struct Networks {
    /// Configurations of a plugin or a list of plugins, one file for each network; `-` for standard
    /// input; with -f at most one file, for the default network (by default a separate bridge)
    #[arg(required_unless_present = "files")]
    conf: Vec<PathBuf>,
    /// Manifests of a pod and its networks, in YAML or JSON
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The pod, if the manifests have several
    #[arg(long, value_name = "[NAMESPACE/]NAME", requires = "files")]
    pod: Option<String>,
    /// Link for a request of the pod's resource claims, or for all requests, in place of the
    /// scheduler's choice; may be given several times
    #[arg(long = "device", value_name = "[REQUEST=]LINK", requires = "files")]
    devices: Vec<String>,
}

/// A pod in a simulated cluster, which has the objects of manifest files.
#[derive(Debug)]
pub(super) struct InCluster {
    publisher: Publisher,
    cluster: Manifests,
    /// Sentences about the pod's resource claims.
    pub(super) notes: Vec<String>,
}

impl Networks {
    /// Returns the call that attaches the networks. With manifests, also returns the pod in its
    /// simulated cluster.
    pub(super) fn call(
        &self,
        attachment: &Attachment,
        machine: &dyn Machine,
    ) -> Result<(Invocation, Option<InCluster>), Error> {
        if self.files.is_empty() {
            return Ok((conf::call(&self.conf, attachment)?, None));
        }
        let (pod, cluster, notes) = self.cluster(machine)?;
        let default = match self.conf.as_slice() {
            [] => built_in(&attachment.container_id)?,
            [file] => conf::read(file)?,
            [_, ..] => {
                return Err(Error::config(
                    "with -f, at most one configuration is allowed, for the default network",
                ));
            }
        };
        let conf = NetConf::from_json(of_pods(&default))?;
        let settings = Settings::of(&conf)?
            .ok_or_else(|| Error::internal("the generated configuration does not attach pods"))?;
        let ObjectName { namespace, name } = &pod.name;
        let more = if attachment.args.is_empty() {
            String::new()
        } else {
            format!(";{}", attachment.args)
        };
        let args =
            format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}{more}");
        let attachment = Some(Attachment {
            args,
            ..attachment.clone()
        });
        let request = Request {
            command: Command::Add,
            attachment,
            path: conf::plugin_path(),
            netns_override: false,
            conf,
        };
        let (call, publisher) = pods::call(&request, &settings, machine, &cluster)?;
        let in_cluster = InCluster {
            publisher,
            cluster,
            notes,
        };
        Ok((call, Some(in_cluster)))
    }

    /// Returns the chosen pod and a simulated cluster with the objects of the files. The pod's claims are
    /// allocated; sentences are about their requests.
    fn cluster(&self, machine: &dyn Machine) -> Result<(Pod, Manifests, Vec<String>), Error> {
        let (mut objects, documents) = manifests::read(&self.files)?;
        let pod = self.chosen(&objects.pods)?.clone();
        let links = self.links(machine)?;
        let found = claims::of_pod(&pod, &documents, &links)?;
        found.refuse_host_network()?;
        let ClaimsOfPod { claims, notes, .. } = found;
        objects.resource_claims = claims;
        Ok((pod, Manifests::new(objects), notes))
    }

    fn links(&self, machine: &dyn Machine) -> Result<Vec<NamedLink>, Error> {
        if self.devices.is_empty() {
            return Ok(Vec::new());
        }
        let links = machine.links().map_err(Error::from)?;
        let devices = self.devices.iter();
        devices.map(|text| links::parse(text, &links)).collect()
    }

    fn chosen<'a>(&self, pods: &'a [Pod]) -> Result<&'a Pod, Error> {
        let all: Vec<&Pod> = pods.iter().collect();
        let mut found = all.clone();
        if let Some(name) = &self.pod {
            found.retain(|pod| *name == pod.name.name || *name == pod.name.to_string());
        }
        let names = |pods: &[&Pod]| {
            let names: Vec<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
            names.join(", ")
        };
        match found.as_slice() {
            [pod] => Ok(pod),
            [] if pods.is_empty() => Err(Error::config("no pod in these files")),
            [] => Err(Error::config(format!(
                "no such pod; the files have {}",
                names(&all)
            ))),
            several => Err(Error::config(format!(
                "--pod is required: the files have {}",
                names(several)
            ))),
        }
    }
}

/// Returns a configuration that attaches pods. This is `conf` if `conf` attaches pods. Otherwise it
/// is a new configuration with `conf` as the default network.
fn of_pods(conf: &NetConf) -> Json {
    let mut json = (*conf.json).clone();
    if key_of_pods(&json).is_none() {
        json = Json::object_of([
            ("cniVersion", conf.version.as_str().into()),
            ("name", conf.name.as_str().into()),
            ("type", BRAID.into()),
            ("delegates", vec![json].into()),
        ]);
    }
    // Objects are read only with a kubeconfig. Its value is not used here.
    json.set("kubeconfig", "of the manifests");
    json
}

/// Returns the bridge of a container's built-in default network.
pub(super) fn bridge_of(container_id: &str) -> String {
    let word = container_id.rsplit('-').next().unwrap_or_default();
    format!("try-{}", word.get(..8).unwrap_or("0"))
}

/// Returns the built-in default network: a bridge on the host for this container alone.
fn built_in(container_id: &str) -> Result<NetConf, Error> {
    let bridge = bridge_of(container_id);
    let text = format!(
        r#"{{"cniVersion": "1.1.0", "name": "default", "type": "bridge", "bridge": "{bridge}",
        "capabilities": {{"mac": true, "ips": true}},
        "ipam": {{"type": "static", "addresses": [{{"address": "10.88.255.2/24", "gateway": "10.88.255.1"}}],
                  "routes": [{{"dst": "0.0.0.0/0"}}]}}}}"#
    );
    NetConf::parse(text.as_bytes())
}

impl InCluster {
    /// Publishes the results of the call in the simulated cluster.
    pub(super) fn publish(
        &mut self,
        attached: &[pods::AttachedNetwork<'_>],
        mut host: Option<&mut (dyn Host + 'static)>,
    ) -> Result<(), Error> {
        let machine = This::new(output::log());
        self.publisher.verify(
            attached,
            (host.as_deref_mut(), Some(&mut self.cluster)),
            &machine,
        )?;
        self.publisher
            .publish(attached, None, (host, Some(&mut self.cluster)), &machine);
        Ok(())
    }

    /// Formats the notes, and the published events and statuses.
    pub(super) fn shown(&self) -> String {
        let written = self.cluster.written();
        let mut lines = Vec::new();
        for note in &self.notes {
            lines.push(format!("{note}\n"));
        }
        for event in &written.events {
            lines.push(format!("event {}: {}\n", event.reason, event.message));
        }
        for (key, value) in &written.annotations {
            if key == NETWORK_STATUS {
                lines.push(format!("{key}\n{value}\n"));
            }
        }
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_network_is_a_delegate_unless_it_attaches_pods_itself() {
        let conf = |text: &str| NetConf::parse(text.as_bytes()).expect("a configuration");
        let plugin = of_pods(&conf(r#"{"cniVersion":"1.0.0","name":"n","type":"ptp"}"#));
        let delegates = r#""delegates":[{"cniVersion":"1.0.0","name":"n","type":"ptp"}]"#;
        let text = format!(
            r#"{{"cniVersion":"1.0.0","name":"n","type":"braid",{delegates},"kubeconfig":"of the manifests"}}"#
        );
        assert_eq!(plugin.to_string(), text);
        let pods = of_pods(&conf(
            r#"{"name":"n","type":"braid","clusterNetwork":"x","kubeconfig":"/k"}"#,
        ));
        assert!(
            pods.get("delegates").is_none() && pods.get("clusterNetwork").is_some(),
            "{pods}"
        );
    }

    #[test]
    fn bridge_name_has_the_word_of_its_sandbox() {
        assert_eq!(bridge_of("braid-try-1a2b3c4d"), "try-1a2b3c4d");
        assert_eq!(bridge_of("x"), "try-0");
        assert!(built_in("braid-try-1a2b3c4d").is_ok());
    }
}
