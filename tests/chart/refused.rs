//! Values that the schema refuses.

use crate::{helm, lacks_helm};
use braid_testbed::chart::{CHART, RELEASE};

/// A value as an argument of helm, and the place of it in the error.
const REFUSED: &[(&str, &str)] = &[
    ("--set=colour=red", "additional properties 'colour'"),
    ("--set=image.name=a", "additional properties 'name'"),
    ("--set=network.mode=fast", "/network/mode"),
    ("--set=network.type=macvlan", "/network/type"),
    ("--set=network.mtu=1279", "/network/mtu"),
    ("--set=network.mtu=65536", "/network/mtu"),
    ("--set-string=network.mtu=1400", "/network/mtu"),
    ("--set=network.vxlan=1", "additional properties 'vxlan'"),
    ("--set=log.level=loud", "/log/level"),
    ("--set=log.format=xml", "/log/format"),
    ("--set=log.file=a", "additional properties 'file'"),
    ("--set=metrics.port=0", "/metrics/port"),
    ("--set=metrics.port=4627", "/metrics/port"),
    ("--set=metrics.port=65536", "/metrics/port"),
    ("--set=distribution=minikube", "/distribution"),
    ("--set=cniBinDir=opt/cni/bin", "/cniBinDir"),
    ("--set=cniBinDir=/", "/cniBinDir"),
    ("--set=cniConfDir=/etc/../root", "/cniConfDir"),
    ("--set=cniConfDir=/etc/a b", "/cniConfDir"),
    ("--set=kubeletRootDir=/a/", "/kubeletRootDir"),
    ("--set=image.repository=a b", "/image/repository"),
    ("--set=image.tag=a:b", "/image/tag"),
    ("--set=image.tag=1", "/image/tag"),
    ("--set=image.digest=sha256:12", "/image/digest"),
    ("--set=image.pullPolicy=Often", "/image/pullPolicy"),
    ("--set=imagePullSecrets[0]=a", "/imagePullSecrets/0"),
    ("--set=imagePullSecrets[0].nam=a", "/imagePullSecrets/0"),
    ("--set=nameOverride=Braid", "/nameOverride"),
    ("--set=nameOverride=a/b", "/nameOverride"),
    ("--set=apiServer.host=https://a", "/apiServer/host"),
    ("--set=apiServer.port=65536", "/apiServer/port"),
    ("--set=apiServer.port=https", "/apiServer/port"),
    (
        "--set=resources.requests.cpu=much",
        "/resources/requests/cpu",
    ),
    (
        "--set=resources.request.cpu=1",
        "additional properties 'request'",
    ),
    ("--set=nodeSelector.a=b c", "/nodeSelector/a"),
    (
        "--set=tolerations[0].operator=Any",
        "/tolerations/0/operator",
    ),
    ("--set=tolerations.a=b", "/tolerations"),
    ("--set=affinity.node=a", "additional properties 'node'"),
    ("--set=priorityClassName=A", "/priorityClassName"),
    ("--set=updateStrategy.type=Now", "/updateStrategy/type"),
    (
        "--set=updateStrategy.rollingUpdate.maxUnavailable=0",
        "/updateStrategy/rollingUpdate/maxUnavailable",
    ),
    (
        "--set=updateStrategy.rollingUpdate.maxSurge=1",
        "additional properties 'maxSurge'",
    ),
    ("--set=podAnnotations.a=1", "/podAnnotations/a"),
    (
        "--set=podLabels.app\\.kubernetes\\.io/name=a",
        "app.kubernetes.io/name",
    ),
    (
        "--set=serviceAccount.create=false",
        "additional properties 'create'",
    ),
    ("--set=rbac.create=1", "/rbac/create"),
    ("--set=crds.create=x", "/crds/create"),
    ("--set=flannel.enabled=maybe", "/flannel/enabled"),
    ("--set=ipam.enabled=1", "/ipam/enabled"),
    ("--set=dra.enabled=1", "/dra/enabled"),
    ("--set=dra.include[0]=a/b", "/dra/include/0"),
    ("--set=dra.capacity.eth1=fast", "/dra/capacity/eth1"),
    ("--set=dra.reserve=-1", "/dra/reserve"),
    ("--set=dra.nodesReadClaims=1", "/dra/nodesReadClaims"),
    (
        "--set=node.clearNetworkUnavailable=1",
        "/node/clearNetworkUnavailable",
    ),
];

#[test]
fn unknown_keys_wrong_types_and_values_out_of_range_are_refused_with_the_key() {
    if lacks_helm("refused") {
        return;
    }
    for (value, place) in REFUSED {
        let output = helm(&["template", RELEASE, CHART, value]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is accepted");
        let is_refused = said.contains("values don't meet the specifications of the schema");
        assert!(is_refused && said.contains(place), "{value}: {said}");
    }
}
