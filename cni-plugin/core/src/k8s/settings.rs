//! Settings for attaching pods to networks: keys in a configuration of type `braid`. Most of them
//! are keys of Multus.

use super::status::Form;
use super::{ObjectName, Pod, names};
use crate::cni::bounds::shortened;
use crate::cni::{Error, Json, NetConf};
use std::path::PathBuf;

/// Default folder of network configurations, as in Multus.
const CONF_DIR: &str = "/etc/cni/multus/net.d";
/// Default folder of Multus' files about the pods that Multus attached.
const CNI_DIR: &str = "/var/lib/cni/multus";
/// Default folder of the kubelet.
const KUBELET: &str = "/var/lib/kubelet";
/// Namespace of the cluster's own pods and networks.
const SYSTEM: &str = "kube-system";

/// Settings for attaching pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `kubeconfig`: file with address and credentials of the Kubernetes API. Without it, pod
    /// annotations are not read, and networks come only from this configuration and from files.
    pub kubeconfig: Option<PathBuf>,
    /// `invalidAnnotation`: `fail` (default) or `ignore`.
    pub invalid_annotation: InvalidAnnotation,
    /// Default network: `clusterNetwork`, the first of `delegates`, or braid's own `plugins` or
    /// `network`.
    pub default_network: Origin,
    /// Further networks of each pod: the `delegates` after the first one.
    pub more_networks: Vec<Origin>,
    /// Networks of each pod outside the system namespaces: `defaultNetworks`.
    pub default_networks: Vec<Origin>,
    /// `systemNamespaces`, default `["kube-system"]`: namespaces of pods that do not get
    /// `defaultNetworks`.
    pub system_namespaces: Vec<String>,
    /// `multusNamespace`, default `kube-system`: namespace of the networks that these settings
    /// name.
    pub multus_namespace: String,
    /// `confDir`, default `/etc/cni/multus/net.d`: folder of network configurations.
    pub conf_dir: PathBuf,
    /// `cniDir`, default `/var/lib/cni/multus`: folder in which Multus recorded the networks of the
    /// pods that it attached.
    pub cni_dir: PathBuf,
    /// `binDir`: folder searched for plugins before `CNI_PATH`.
    pub bin_dir: Option<PathBuf>,
    /// `readinessindicatorfile`: file that exists once the default network is ready.
    pub readiness_file: Option<PathBuf>,
    /// `routesFile`: file that the agent writes once the routes of this boot are set.
    pub routes_file: Option<PathBuf>,
    /// `kubeletRootDir`, default `/var/lib/kubelet`: folder of the kubelet, with its socket for the
    /// devices of pods.
    pub kubelet_root_dir: PathBuf,
    /// `auxiliaryCNIChainName`: folder beside the default network's file. The plugins in this
    /// folder run after all networks of the pod.
    pub auxiliary_chain: Option<String>,
    /// `statusPrefixLength`: addresses in the status include their prefix length; default false, as
    /// consumers expect. `statusGateway`: the status also has Multus' key `gateway`, which is not
    /// in the specification; default true.
    pub status: Form,
    /// `requireCapabilities`, default false: a request of a pod fails unless a plugin of the
    /// network has the capability for it.
    pub require_capabilities: bool,
    /// `globalNamespaces`, default `default`: namespaces with networks that all pods may use.
    /// `None` if `namespaceIsolation` is off, so that pods may use all networks.
    isolation: Option<Vec<String>>,
}

/// Treatment of a pod with an invalid annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidAnnotation {
    /// The pod does not start.
    Fail,
    /// The invalid annotation is treated as absent.
    Ignore,
}

/// Source of a network's configuration.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// The configuration itself.
    Inline(Json),
    /// Name of a network. It is looked up in this order: a NetworkAttachmentDefinition in
    /// `multusNamespace`, a network in `confDir`, a folder, a file.
    Named(String),
    /// A NetworkAttachmentDefinition.
    Nad(ObjectName),
}

impl Settings {
    /// Parses the settings in a configuration; `None` if it is a plain network that does not attach
    /// pods.
    pub fn of(conf: &NetConf) -> Result<Option<Self>, Error> {
        let json = &conf.json;
        if key_of_pods(json).is_none() {
            return Ok(None);
        }
        let (default_network, more_networks) = inline_networks(json)?;
        Ok(Some(Self {
            kubeconfig: path(json, "kubeconfig")?,
            invalid_annotation: invalid_annotation(json)?,
            default_network,
            more_networks,
            default_networks: json
                .strings("defaultNetworks")?
                .into_iter()
                .map(Origin::Named)
                .collect(),
            system_namespaces: system_namespaces(json)?,
            multus_namespace: namespace(json, "multusNamespace")?,
            conf_dir: path(json, "confDir")?.unwrap_or_else(|| PathBuf::from(CONF_DIR)),
            cni_dir: path(json, "cniDir")?.unwrap_or_else(|| PathBuf::from(CNI_DIR)),
            bin_dir: path(json, "binDir")?,
            readiness_file: path(json, "readinessindicatorfile")?,
            routes_file: path(json, "routesFile")?,
            kubelet_root_dir: path(json, "kubeletRootDir")?.unwrap_or_else(|| KUBELET.into()),
            auxiliary_chain: chain_name(json)?,
            status: Form {
                with_prefix: json.bool_or("statusPrefixLength", false)?,
                with_gateway: json.bool_or("statusGateway", true)?,
            },
            require_capabilities: json.bool_or("requireCapabilities", false)?,
            isolation: if json.bool_or("namespaceIsolation", false)? {
                Some(global_namespaces(json)?)
            } else {
                None
            },
        }))
    }

    /// Refuses the network `object` if pods of `namespace` may not use it. A pod's default network
    /// may also be in `multusNamespace`, because an administrator has put it there for this
    /// purpose.
    pub fn allow(
        &self,
        namespace: &str,
        object: &ObjectName,
        is_default: bool,
    ) -> Result<(), Error> {
        let Some(global) = &self.isolation else {
            return Ok(());
        };
        let in_cluster = is_default && object.namespace == self.multus_namespace;
        if object.namespace == namespace || in_cluster || global.contains(&object.namespace) {
            return Ok(());
        }
        let mut allowed = vec![shortened(namespace)];
        if is_default {
            allowed.push(shortened(&self.multus_namespace));
        }
        for name in global {
            allowed.push(shortened(name));
        }
        Err(Error::config(format!(
            "network {object}: namespaceIsolation allows pods in {namespace} only networks in {}",
            allowed.join(", ")
        )))
    }

    /// Returns the folders to search for plugins: `binDir`, then `CNI_PATH`.
    pub fn path(&self, cni_path: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut path = Vec::from_iter(self.bin_dir.clone());
        path.extend(cni_path);
        path
    }

    /// True if pods of this namespace do not get `defaultNetworks`.
    pub fn is_system(&self, namespace: &str) -> bool {
        self.system_namespaces
            .iter()
            .any(|system| system == namespace)
    }
}

/// Returns the key that makes the configuration attach pods to networks, if any.
pub fn key_of_pods(json: &Json) -> Option<&'static str> {
    ["kubeconfig", "clusterNetwork", "delegates"]
        .into_iter()
        .find(|key| json.get(key).is_some())
}

/// Returns the default network, and the `delegates` after the first one.
fn inline_networks(json: &Json) -> Result<(Origin, Vec<Origin>), Error> {
    let own = ["plugins", "network"]
        .iter()
        .any(|key| json.get(key).is_some());
    let delegates =
        json.each_object("delegates", |delegate| Ok(Origin::Inline(delegate.clone())))?;
    match json.str_or("clusterNetwork", "")? {
        "" if own && !delegates.is_empty() => Err(Error::config(
            "\"delegates\" can't be combined with braid's own \"plugins\" or \"network\"",
        )),
        "" if own => Ok((Origin::Inline(own_network(json)), Vec::new())),
        "" => {
            let mut delegates = delegates.into_iter();
            let sentence = "no default network: one of clusterNetwork, delegates, plugins and network is required";
            Ok((
                delegates.next().ok_or_else(|| Error::config(sentence))?,
                delegates.collect(),
            ))
        }
        name => Ok((Origin::Named(name.to_owned()), Vec::new())),
    }
}

/// Returns the configuration without the keys for attaching pods.
fn own_network(json: &Json) -> Json {
    const OURS: [&str; 21] = [
        "kubeconfig",
        "invalidAnnotation",
        "delegates",
        "clusterNetwork",
        "defaultNetworks",
        "systemNamespaces",
        "multusNamespace",
        "confDir",
        "cniDir",
        "binDir",
        "readinessindicatorfile",
        "namespaceIsolation",
        "globalNamespaces",
        "auxiliaryCNIChainName",
        "statusPrefixLength",
        "statusGateway",
        "requireCapabilities",
        "runtimeConfig",
        "prevResult",
        "cni.dev/valid-attachments",
        "cni.dev/attachments",
    ];
    let mut own = json.clone();
    for key in OURS {
        own.remove(key);
    }
    own
}

fn path(json: &Json, key: &str) -> Result<Option<PathBuf>, Error> {
    match json.str(key)? {
        None | Some("") => Ok(None),
        Some(path) => Ok(Some(PathBuf::from(path))),
    }
}

fn system_namespaces(json: &Json) -> Result<Vec<String>, Error> {
    let mut names = json.strings("systemNamespaces")?;
    if names.is_empty() {
        names.push(SYSTEM.to_owned());
    }
    Ok(names)
}

fn namespace(json: &Json, key: &str) -> Result<String, Error> {
    let name = match json.str(key)? {
        None | Some("") => SYSTEM,
        Some(name) => name,
    };
    if !names::is_namespace(name) {
        return Err(Error::config(format!(
            "{key:?}: {:?} is not the name of a namespace",
            shortened(name)
        )));
    }
    Ok(name.to_owned())
}

fn chain_name(json: &Json) -> Result<Option<String>, Error> {
    const KEY: &str = "auxiliaryCNIChainName";
    match json.str_or(KEY, "")? {
        "" => Ok(None),
        name if matches!(name, "." | "..") || name.contains(['/', '\0']) => Err(Error::config(
            format!("{KEY:?}: {:?} is not the name of a folder", shortened(name)),
        )),
        name => Ok(Some(name.to_owned())),
    }
}

fn invalid_annotation(json: &Json) -> Result<InvalidAnnotation, Error> {
    const KEY: &str = "invalidAnnotation";
    match json.str_or(KEY, "fail")? {
        "fail" => Ok(InvalidAnnotation::Fail),
        "ignore" => Ok(InvalidAnnotation::Ignore),
        other => Err(Error::config(format!(
            "{KEY:?}: {:?} is neither \"fail\" nor \"ignore\"",
            shortened(other)
        ))),
    }
}

/// Parses `globalNamespaces`: names separated by commas, as in Multus, or a list of names.
fn global_namespaces(json: &Json) -> Result<Vec<String>, Error> {
    const KEY: &str = "globalNamespaces";
    let mut names = match json.get(KEY) {
        Some(Json::Array(_)) => json.strings(KEY)?,
        _ => json
            .str_or(KEY, "")?
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
    };
    names.retain(|name| !name.is_empty());
    if names.is_empty() {
        names.push("default".to_owned());
    }
    Ok(names)
}

/// The pod of a CNI call, as named in `CNI_ARGS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// `K8S_POD_NAMESPACE` and `K8S_POD_NAME`.
    pub name: ObjectName,
    /// `K8S_POD_UID`, which old runtimes omit.
    pub uid: Option<String>,
    /// `K8S_POD_INFRA_CONTAINER_ID`; empty if the runtime omits it.
    pub infra_container: String,
}

impl PodRef {
    /// Parses `CNI_ARGS`: `K=V` pairs separated by `;`. `None` if the namespace or the name of the
    /// pod is absent. A value may contain `=`. If a key is repeated, the last value is used.
    /// Invalid names fail with code 4.
    pub fn of(cni_args: &str) -> Result<Option<Self>, Error> {
        let pairs: Vec<(&str, &str)> = cni_args
            .split(';')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        let value = |key: &str| {
            pairs
                .iter()
                .rev()
                .find(|(name, _)| *name == key)
                .map_or("", |(_, value)| *value)
        };
        let (namespace, name) = (value("K8S_POD_NAMESPACE"), value("K8S_POD_NAME"));
        if namespace.is_empty() || name.is_empty() {
            return Ok(None);
        }
        for (key, text, is_valid) in [
            (
                "K8S_POD_NAMESPACE",
                namespace,
                names::is_namespace(namespace),
            ),
            ("K8S_POD_NAME", name, names::is_object(name)),
        ] {
            if !is_valid {
                return Err(Error::env(format!(
                    "ARGS: {key} {:?} is not a valid Kubernetes name",
                    shortened(text)
                )));
            }
        }
        Ok(Some(Self {
            name: ObjectName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            uid: match value("K8S_POD_UID") {
                "" => None,
                uid => Some(uid.to_owned()),
            },
            infra_container: value("K8S_POD_INFRA_CONTAINER_ID").to_owned(),
        }))
    }

    /// Refuses a pod if its uid differs from the uid in the call. The mirror pod of a static pod has
    /// another uid in the API, so the uid in its annotations counts.
    pub fn refuse_other(&self, pod: &Pod) -> Result<(), Error> {
        match &self.uid {
            Some(uid) if !pod.is_of(uid) => {
                let (asked, found) = (shortened(uid), shortened(&pod.uid));
                Err(Error::config(format!(
                    "pod {}: the call is for uid {asked}, but the API has uid {found}",
                    self.name
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
