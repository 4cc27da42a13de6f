//! Containers with many ports.

use super::{mapped, network_by};
use braid_tests::{Sandbox, Value, json};

/// So many ports, each of TCP and of UDP.
fn mappings(ports: u16) -> Value {
    let of = |port: u16| {
        ["tcp", "udp"].map(|protocol| json!({"hostPort": port, "containerPort": port, "protocol": protocol}))
    };
    (1000..1000 + ports).flat_map(of).collect()
}

#[test]
fn the_kernel_is_asked_once_for_the_connections_to_any_number_of_ports() {
    let host = Sandbox::new();
    let pod = host.pod("a");
    let call = mapped(&host, &pod, network_by("bridge", "nftables"), &mappings(100));
    let result = call.clone().under("strace -f -qq -e trace=sendto -o /run/strace").add().result();
    let sent = std::fs::read_to_string("/run/strace").unwrap();
    // Once for each family.
    assert_eq!(sent.matches("IPCTNL_MSG_CT_GET").count(), 2, "{sent}");
    call.prev(&result).del().ok();
    host.assert_nothing_left();
}
