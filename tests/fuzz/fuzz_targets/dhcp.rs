//! Any bytes from a DHCP server, a DHCP daemon or its client, or in answer to a probe: no panic, and
//! written messages parse to the same value.
#![no_main]

use braid_core::cni::{NetConf, Owner};
use braid_core::ipam::dhcp::rpc::{CONNECT, CONNECTED, Client, Server};
use braid_core::ipam::dhcp::session::{Held, Link};
use braid_core::ipam::dhcp::timing::Limits;
use braid_core::ipam::dhcp::{DhcpConfig, Session, v4, v6};
use braid_core::ipam::probe;
use braid_core::name::Mac;
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

fuzz_target!(|bytes: &[u8]| {
    if let Some(message) = v4::Message::decode(bytes) {
        let again = v4::Message::decode(&message.encode()).expect("own bytes");
        assert_eq!(
            (again.xid, again.mac, again.yiaddr),
            (message.xid, message.mac, message.yiaddr)
        );
    }
    if let Some(message) = v6::Message::decode(bytes) {
        assert_eq!(v6::Message::decode(&message.encode()), Some(message));
    }
    let own = Mac([0; 6]);
    if let Some(claim) = probe::arp_claim(bytes, own) {
        assert!(claim.mac != own && !claim.address.is_ipv6());
    }
    assert_eq!(probe::nd_claim(bytes, own, own), None);
    let _ = probe::nd_claim(bytes, Mac([1; 6]), own);
    let _ = Server::default().read(&[CONNECT, bytes].concat());
    let _ = Client::default().read(&[CONNECTED, bytes].concat());
    let conf = br#"{"name":"n","ipam":{"type":"dhcp","ipFamilies":["IPv4","IPv6"]}}"#;
    let config = DhcpConfig::parse(&NetConf::parse(conf).expect("a configuration"), "")
        .expect("a configuration");
    let owner = Owner::new("n", "c", "eth0");
    let link = Link {
        owner: &owner,
        mac: Mac([0; 6]),
        broadcast: false,
    };
    let now = Duration::ZERO;
    // The session's random numbers are zero, so that an input can match them.
    let mut session = Session::new(
        &config,
        link,
        Held::default(),
        (Limits::default(), now),
        &mut || 0,
    );
    session.tick(now, &mut || 0);
    for part in bytes.chunks(bytes.len() / 2 + 1) {
        session.take4(part, Mac([0; 6]), now, &mut || 0);
        session.take6(part, now, &mut || 0);
        let _ = session.lease();
    }
    session.release(&mut || 0);
});
