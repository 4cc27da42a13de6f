//! Effects of the values.

/// Arguments of helm with values, and their effect. A line begins with `+` for a new or changed
/// field, and with `-` for a field that is gone.
pub(crate) struct Row {
    /// Arguments, separated by blanks.
    pub(crate) values: &'static str,
    pub(crate) effect: &'static [&'static str],
}

const fn row(values: &'static str, effect: &'static [&'static str]) -> Row {
    Row { values, effect }
}

/// Values that change fields.
pub(crate) const ROWS: &[Row] = &[
    row(
        "--set=image.repository=r.example/braid",
        &[
            "+ pod.containers[agent].image: \"r.example/braid:0.1.0\"",
            "+ pod.initContainers[install].image: \"r.example/braid:0.1.0\"",
        ],
    ),
    row(
        "--set=image.tag=v2",
        &[
            "+ pod.containers[agent].image: \"localhost/braid:v2\"",
            "+ pod.initContainers[install].image: \"localhost/braid:v2\"",
        ],
    ),
    row(
        "--set=image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
        &[
            "+ pod.containers[agent].image: \"localhost/braid@sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
            "+ pod.initContainers[install].image: \"localhost/braid@sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
        ],
    ),
    row(
        "--set=image.pullPolicy=Always",
        &[
            "+ pod.containers[agent].imagePullPolicy: \"Always\"",
            "+ pod.initContainers[install].imagePullPolicy: \"Always\"",
        ],
    ),
    row(
        "--set=imagePullSecrets[0].name=key",
        &["+ pod.imagePullSecrets[key].name: \"key\""],
    ),
    row(
        "--set=network.mode=direct",
        &["+ ConfigMap/braid data.config.yaml.mode: \"direct\""],
    ),
    row(
        "--set=network.mode=flannel",
        &["+ ConfigMap/braid data.config.yaml.mode: \"flannel\""],
    ),
    row(
        "--set=network.type=bridge",
        &["+ ConfigMap/braid data.config.yaml.type: \"bridge\""],
    ),
    row(
        "--set=network.mtu=1400",
        &["+ ConfigMap/braid data.config.yaml.mtu: 1400"],
    ),
    row(
        "--set=log.level=debug",
        &["+ ConfigMap/braid data.config.yaml.log.level: \"debug\""],
    ),
    row(
        "--set=log.format=json",
        &["+ ConfigMap/braid data.config.yaml.log.format: \"json\""],
    ),
    row(
        "--set=metrics.port=9100",
        &[
            "+ pod.containers[agent].args[1]: \"--metrics-address=$(HOST_IP):9100\"",
            "+ pod.containers[agent].ports[metrics].containerPort: 9100",
        ],
    ),
    row(
        "--set=distribution=k3s",
        &[
            "+ pod.containers[agent].args[2]: \"--conflist=/var/lib/rancher/k3s/agent/etc/cni/net.d/00-braid.conflist\"",
            "+ pod.containers[agent].args[3]: \"--call-kubeconfig=/var/lib/rancher/k3s/agent/etc/cni/net.d/braid.d/kubeconfig\"",
            "+ pod.containers[agent].volumeMounts[configurations].mountPath: \"/var/lib/rancher/k3s/agent/etc/cni/net.d\"",
            "+ pod.containers[agent].volumeMounts[plugins].mountPath: \"/var/lib/rancher/k3s/data/cni\"",
            "+ pod.initContainers[install].args[2]: \"--bin-dir=/host/var/lib/rancher/k3s/data/cni\"",
            "+ pod.initContainers[install].volumeMounts[plugins].mountPath: \"/host/var/lib/rancher/k3s/data/cni\"",
            "+ pod.volumes[configurations].hostPath.path: \"/var/lib/rancher/k3s/agent/etc/cni/net.d\"",
            "+ pod.volumes[plugins].hostPath.path: \"/var/lib/rancher/k3s/data/cni\"",
        ],
    ),
    row("--set=distribution=rke2", &[]),
    row(
        "--set=distribution=microk8s",
        &[
            "+ pod.containers[agent].args[2]: \"--conflist=/var/snap/microk8s/current/args/cni-network/00-braid.conflist\"",
            "+ pod.containers[agent].args[3]: \"--call-kubeconfig=/var/snap/microk8s/current/args/cni-network/braid.d/kubeconfig\"",
            "+ pod.containers[agent].args[4]: \"--kubelet-root-dir=/var/snap/microk8s/common/var/lib/kubelet\"",
            "+ pod.containers[agent].volumeMounts[configurations].mountPath: \"/var/snap/microk8s/current/args/cni-network\"",
            "+ pod.containers[agent].volumeMounts[kubelet].mountPath: \"/var/snap/microk8s/common/var/lib/kubelet/pod-resources\"",
            "+ pod.containers[agent].volumeMounts[plugins].mountPath: \"/var/snap/microk8s/current/opt/cni/bin\"",
            "+ pod.initContainers[install].args[2]: \"--bin-dir=/host/var/snap/microk8s/current/opt/cni/bin\"",
            "+ pod.initContainers[install].volumeMounts[plugins].mountPath: \"/host/var/snap/microk8s/current/opt/cni/bin\"",
            "+ pod.volumes[configurations].hostPath.path: \"/var/snap/microk8s/current/args/cni-network\"",
            "+ pod.volumes[kubelet].hostPath.path: \"/var/snap/microk8s/common/var/lib/kubelet/pod-resources\"",
            "+ pod.volumes[plugins].hostPath.path: \"/var/snap/microk8s/current/opt/cni/bin\"",
        ],
    ),
    row("--set=distribution=talos", &[]),
    row("--set=distribution=kind", &[]),
    row(
        "--set=cniBinDir=/opt/bin",
        &[
            "+ pod.containers[agent].volumeMounts[plugins].mountPath: \"/opt/bin\"",
            "+ pod.initContainers[install].args[2]: \"--bin-dir=/host/opt/bin\"",
            "+ pod.initContainers[install].volumeMounts[plugins].mountPath: \"/host/opt/bin\"",
            "+ pod.volumes[plugins].hostPath.path: \"/opt/bin\"",
        ],
    ),
    row(
        "--set=cniConfDir=/etc/cni",
        &[
            "+ pod.containers[agent].args[2]: \"--conflist=/etc/cni/00-braid.conflist\"",
            "+ pod.containers[agent].args[3]: \"--call-kubeconfig=/etc/cni/braid.d/kubeconfig\"",
            "+ pod.containers[agent].volumeMounts[configurations].mountPath: \"/etc/cni\"",
            "+ pod.volumes[configurations].hostPath.path: \"/etc/cni\"",
        ],
    ),
    row(
        "--set=kubeletRootDir=/srv/kubelet",
        &[
            "+ pod.containers[agent].args[2]: \"--kubelet-root-dir=/srv/kubelet\"",
            "+ pod.containers[agent].volumeMounts[kubelet].mountPath: \"/srv/kubelet/pod-resources\"",
            "+ pod.volumes[kubelet].hostPath.path: \"/srv/kubelet/pod-resources\"",
        ],
    ),
    row(
        "--set=distribution=microk8s --set=cniBinDir=/a --set=cniConfDir=/b --set=kubeletRootDir=/c",
        &[
            "+ pod.containers[agent].args[2]: \"--conflist=/b/00-braid.conflist\"",
            "+ pod.containers[agent].args[3]: \"--call-kubeconfig=/b/braid.d/kubeconfig\"",
            "+ pod.containers[agent].args[4]: \"--kubelet-root-dir=/c\"",
            "+ pod.containers[agent].volumeMounts[configurations].mountPath: \"/b\"",
            "+ pod.containers[agent].volumeMounts[kubelet].mountPath: \"/c/pod-resources\"",
            "+ pod.containers[agent].volumeMounts[plugins].mountPath: \"/a\"",
            "+ pod.initContainers[install].args[2]: \"--bin-dir=/host/a\"",
            "+ pod.initContainers[install].volumeMounts[plugins].mountPath: \"/host/a\"",
            "+ pod.volumes[configurations].hostPath.path: \"/b\"",
            "+ pod.volumes[kubelet].hostPath.path: \"/c/pod-resources\"",
            "+ pod.volumes[plugins].hostPath.path: \"/a\"",
        ],
    ),
    row(
        "--set=apiServer.host=fd00::1",
        &[
            "+ pod.containers[agent].env[KUBERNETES_SERVICE_HOST].name: \"KUBERNETES_SERVICE_HOST\"",
            "+ pod.containers[agent].env[KUBERNETES_SERVICE_HOST].value: \"fd00::1\"",
        ],
    ),
    row(
        "--set=apiServer.port=6443",
        &[
            "+ pod.containers[agent].env[KUBERNETES_SERVICE_PORT].name: \"KUBERNETES_SERVICE_PORT\"",
            "+ pod.containers[agent].env[KUBERNETES_SERVICE_PORT].value: \"6443\"",
        ],
    ),
    row(
        "--set=resources.requests.cpu=50m --set=resources.limits.memory=64Mi",
        &[
            "+ pod.containers[agent].resources.limits.memory: \"64Mi\"",
            "+ pod.containers[agent].resources.requests.cpu: \"50m\"",
        ],
    ),
    row(
        "--set=nodeSelector.pool=a",
        &["+ pod.nodeSelector.pool: \"a\""],
    ),
    row(
        "--set-json=tolerations=[]",
        &["- pod.tolerations[0].operator"],
    ),
    row(
        "--set=tolerations[0].key=a --set=tolerations[0].operator=Exists",
        &["+ pod.tolerations[0].key: \"a\""],
    ),
    row(
        "--set-json=affinity={\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchFields\":[{\"key\":\"metadata.name\",\"operator\":\"In\",\"values\":[\"a\"]}]}]}}}",
        &[
            "+ pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: \"metadata.name\"",
            "+ pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator: \"In\"",
            "+ pod.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]: \"a\"",
        ],
    ),
    row("--set=priorityClassName=", &["- pod.priorityClassName"]),
    row(
        "--set=priorityClassName=system-cluster-critical",
        &["+ pod.priorityClassName: \"system-cluster-critical\""],
    ),
    row(
        "--set=updateStrategy.rollingUpdate.maxUnavailable=1",
        &["+ DaemonSet/braid spec.updateStrategy.rollingUpdate.maxUnavailable: 1"],
    ),
    row(
        "--set=updateStrategy.type=OnDelete --set=updateStrategy.rollingUpdate=null",
        &[
            "+ DaemonSet/braid spec.updateStrategy.type: \"OnDelete\"",
            "- DaemonSet/braid spec.updateStrategy.rollingUpdate.maxUnavailable",
        ],
    ),
    row(
        "--set=podAnnotations.a=b",
        &["+ DaemonSet/braid spec.template.metadata.annotations.a: \"b\""],
    ),
    row(
        "--set=podLabels.a=b",
        &["+ DaemonSet/braid spec.template.metadata.labels.a: \"b\""],
    ),
    row(
        "--set=serviceAccount.annotations.a=b",
        &["+ ServiceAccount/braid metadata.annotations.a: \"b\""],
    ),
];

/// Values that leave out all objects of some kinds.
pub(crate) const LEFT_OUT: &[(&str, &[&str])] = &[
    ("--set=crds.create=false", &["CustomResourceDefinition/"]),
    (
        "--set=rbac.create=false",
        &[
            "ClusterRole/",
            "ClusterRoleBinding/",
            "Role/",
            "RoleBinding/",
        ],
    ),
];

/// A value that adds objects, with their names, and the changed fields of others.
pub(crate) struct Addition {
    pub(crate) value: &'static str,
    pub(crate) objects: &'static [&'static str],
    pub(crate) effect: &'static [&'static str],
}

pub(crate) const NODE: Addition = Addition {
    value: "--set=node.clearNetworkUnavailable=true",
    objects: &[
        "ClusterRole/braid-node",
        "ClusterRoleBinding/braid-node",
        "ValidatingAdmissionPolicy/braid-node",
        "ValidatingAdmissionPolicyBinding/braid-node",
    ],
    effect: &["+ ConfigMap/braid data.config.yaml.clearNetworkUnavailable: true"],
};

pub(crate) const IPAM: Addition = Addition {
    value: "--set=ipam.enabled=true",
    objects: &[
        "CustomResourceDefinition/ippools.whereabouts.cni.cncf.io",
        "CustomResourceDefinition/overlappingrangeipreservations.whereabouts.cni.cncf.io",
        "ClusterRole/braid-ipam",
        "ClusterRoleBinding/braid-ipam",
    ],
    effect: &[],
};

pub(crate) const FLANNEL: Addition = Addition {
    value: "--set=flannel.enabled=true",
    objects: &[
        "ClusterRole/braid-flannel",
        "ClusterRoleBinding/braid-flannel",
        "ValidatingAdmissionPolicy/braid-flannel",
        "ValidatingAdmissionPolicyBinding/braid-flannel",
    ],
    effect: &[
        "+ pod.containers[agent].volumeMounts[flannel].mountPath: \"/run/flannel\"",
        "+ pod.containers[agent].volumeMounts[flannel].name: \"flannel\"",
        "+ pod.volumes[flannel].hostPath.path: \"/run/flannel\"",
        "+ pod.volumes[flannel].hostPath.type: \"DirectoryOrCreate\"",
        "+ pod.volumes[flannel].name: \"flannel\"",
    ],
};

pub(crate) const DRA: Addition = Addition {
    value: "--set=dra.enabled=true",
    objects: &[
        "DeviceClass/braid.dev",
        "DeviceClass/whole.braid.dev",
        "ClusterRole/braid-dra",
        "ClusterRoleBinding/braid-dra",
        "ValidatingAdmissionPolicy/braid-dra",
        "ValidatingAdmissionPolicy/braid-dra-status",
        "ValidatingAdmissionPolicyBinding/braid-dra",
        "ValidatingAdmissionPolicyBinding/braid-dra-status",
    ],
    effect: &[
        "+ ConfigMap/braid data.config.yaml.dra.capacity: {}",
        "+ ConfigMap/braid data.config.yaml.dra.enabled: true",
        "+ ConfigMap/braid data.config.yaml.dra.exclude: []",
        "+ ConfigMap/braid data.config.yaml.dra.include: []",
        "+ ConfigMap/braid data.config.yaml.dra.reserve: 0",
        "+ pod.containers[agent].volumeMounts[claims].mountPath: \"/var/lib/kubelet/plugins/braid.dev\"",
        "+ pod.containers[agent].volumeMounts[claims].name: \"claims\"",
        "+ pod.containers[agent].volumeMounts[registry].mountPath: \"/var/lib/kubelet/plugins_registry\"",
        "+ pod.containers[agent].volumeMounts[registry].name: \"registry\"",
        "+ pod.volumes[claims].hostPath.path: \"/var/lib/kubelet/plugins/braid.dev\"",
        "+ pod.volumes[claims].hostPath.type: \"DirectoryOrCreate\"",
        "+ pod.volumes[claims].name: \"claims\"",
        "+ pod.volumes[registry].hostPath.path: \"/var/lib/kubelet/plugins_registry\"",
        "+ pod.volumes[registry].hostPath.type: \"DirectoryOrCreate\"",
        "+ pod.volumes[registry].name: \"registry\"",
    ],
};

pub(crate) const ALL_DRA: Addition = Addition {
    value: "--set=dra.enabled=true --set=dra.include[0]=eth* --set=dra.exclude[0]=eth9 \
            --set=dra.capacity.eth1=10G --set=dra.reserve=500M --set=dra.nodesReadClaims=true",
    objects: &[
        "DeviceClass/braid.dev",
        "DeviceClass/whole.braid.dev",
        "ClusterRole/braid-dra",
        "ClusterRole/braid-dra-nodes",
        "ClusterRoleBinding/braid-dra",
        "ClusterRoleBinding/braid-dra-nodes",
        "ValidatingAdmissionPolicy/braid-dra",
        "ValidatingAdmissionPolicy/braid-dra-status",
        "ValidatingAdmissionPolicyBinding/braid-dra",
        "ValidatingAdmissionPolicyBinding/braid-dra-status",
    ],
    effect: &[
        "+ ConfigMap/braid data.config.yaml.dra.capacity.eth1: \"10G\"",
        "+ ConfigMap/braid data.config.yaml.dra.enabled: true",
        "+ ConfigMap/braid data.config.yaml.dra.exclude[0]: \"eth9\"",
        "+ ConfigMap/braid data.config.yaml.dra.include[0]: \"eth*\"",
        "+ ConfigMap/braid data.config.yaml.dra.reserve: \"500M\"",
        "+ pod.containers[agent].volumeMounts[claims].mountPath: \"/var/lib/kubelet/plugins/braid.dev\"",
        "+ pod.containers[agent].volumeMounts[claims].name: \"claims\"",
        "+ pod.containers[agent].volumeMounts[registry].mountPath: \"/var/lib/kubelet/plugins_registry\"",
        "+ pod.containers[agent].volumeMounts[registry].name: \"registry\"",
        "+ pod.volumes[claims].hostPath.path: \"/var/lib/kubelet/plugins/braid.dev\"",
        "+ pod.volumes[claims].hostPath.type: \"DirectoryOrCreate\"",
        "+ pod.volumes[claims].name: \"claims\"",
        "+ pod.volumes[registry].hostPath.path: \"/var/lib/kubelet/plugins_registry\"",
        "+ pod.volumes[registry].hostPath.type: \"DirectoryOrCreate\"",
        "+ pod.volumes[registry].name: \"registry\"",
    ],
};
