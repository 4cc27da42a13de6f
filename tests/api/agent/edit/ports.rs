//! Host ports that stay beside changed ones.

use super::{Edited, limited, stop};
use crate::agent::await_true;
use crate::json;
use std::net::UdpSocket;
use std::time::Duration;

const NET: u8 = 222;

#[test]
fn a_udp_flow_of_a_kept_port_goes_on() {
    let Some(node) = Edited::new("edit-ports", NET) else {
        return;
    };
    let world = &node.node.pair.world;
    world.create_nad("limited", &json!({"config": limited(NET).to_string()}));
    let request = |ports: &[u16]| {
        let mut mappings = Vec::new();
        for port in ports {
            mappings.push(json!({"hostPort": port, "containerPort": 80, "protocol": "UDP"}));
        }
        json!([{"name": "limited", "portMappings": mappings}]).to_string()
    };
    let pod = node.start("web", &request(&[8090, 8091]));
    let elements = || {
        let list = "nft -j list map inet braid hostport4-any";
        let all = world.sandbox.run(list);
        ["8090", "8091", "8092"].map(|port| all.contains(port))
    };
    assert_eq!(elements(), [true, true, false]);
    let bind = |port: u16| UdpSocket::bind(("0.0.0.0", port)).expect("bound");
    let (server, client) = (pod.ns.enter(|| bind(80)), bind(0));
    for socket in [&server, &client] {
        let limit = Some(Duration::from_secs(20));
        socket.set_read_timeout(limit).expect("set");
    }
    client
        .connect(format!("10.{NET}.200.1:8091"))
        .expect("connected");
    client.send(b"to the pod").expect("sent");
    let mut text = [0; 16];
    let (_, from) = server.recv_from(&mut text).expect("received");
    for (ports, expected) in [
        (&[8091][..], [false, true, false]),
        (&[8091, 8092], [false, true, true]),
    ] {
        node.annotate(&pod, &request(ports));
        await_true("the ports", || elements() == expected);
        node.node.await_status(&pod, &["eth0", "net1"]);
        // From the pod: a new connection would not have the host port's address.
        server.send_to(b"to the client", from).expect("sent");
        let len = client.recv(&mut text).expect("received");
        assert_eq!(&text[..len], b"to the client");
    }
    stop(&pod);
}
