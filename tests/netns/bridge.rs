//! `bridge`.

use braid_tests::{Sandbox, json};

#[test]
fn a_container_gets_its_address_and_reaches_its_gateway() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br0", "isGateway": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
    let call = host.call("bridge", &pod, conf);
    let result = call.add().result();
    assert_eq!(pod.addrs("eth0"), ["10.1.0.2/24"]);
    assert!(pod.can_ping("10.1.0.1"));
    call.check(&result).ok();
    call.del().ok();
    host.assert_nothing_left();
}
