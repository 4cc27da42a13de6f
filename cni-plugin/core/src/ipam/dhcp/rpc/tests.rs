use super::*;

/// Bytes of a Go 1.26 client with the types of the reference plugin: two calls on one connection.
const CLIENT: &str = "2e7f030101075265717565737401ff80000102010d536572766963654d6574686f64010c000103536571010600000012ff80\
    010d444843502e416c6c6f63617465006cff8103010107436d644172677301ff82000107010b436f6e7461696e6572494401\
    0c0001054e65746e73010c00010649664e616d65010c00010441726773010c00010450617468010c00010d4e65746e734f76\
    657272696465010c000109537464696e44617461010a0000003eff82010434663163010c2f72756e2f6e65746e732f610104\
    6574683001034b3d56010c2f6f70742f636e692f62696e020c7b226e616d65223a226e227d0013ff80010c444843502e5265\
    6c6561736501010009ff8201043466316300";
/// Bytes of a Go 1.26 daemon with the types of the reference plugin: a lease, an empty answer, an
/// error.
const DAEMON: &str = "3aff8303010108526573706f6e736501ff84000103010d536572766963654d6574686f64010c000103536571010600010545\
    72726f72010c00000012ff84010d444843502e416c6c6f636174650051ff8503010106526573756c7401ff86000105010a43\
    4e4956657273696f6e010c00010a496e746572666163657301ff8a00010349507301ff90000106526f7574657301ff940001\
    03444e5301ff9600000024ff89020101155b5d2a74797065733130302e496e7465726661636501ff8a0001ff8800004aff87\
    030102ff8800010601044e616d65010c0001034d6163010c0001034d7475010400010753616e64626f78010c00010a536f63\
    6b657450617468010c0001055063694944010c00000023ff8f020101145b5d2a74797065733130302e4950436f6e66696701\
    ff900001ff8c000033ff8b030102ff8c0001030109496e7465726661636501040001074164647265737301ff8e0001074761\
    7465776179010a00000023ff8d0301010549504e657401ff8e00010201024950010a0001044d61736b010a0000001dff9302\
    01010e5b5d2a74797065732e526f75746501ff940001ff92000050ff91030102ff92000107010344737401ff8e0001024757\
    010a0001034d545501040001064164764d535301040001085072696f7269747901040001055461626c65010400010553636f\
    7065010400000046ff9503010103444e5301ff96000104010b4e616d657365727665727301ff98000106446f6d61696e010c\
    00010653656172636801ff980001074f7074696f6e7301ff9800000016ff97020101085b5d737472696e6701ff9800010c00\
    006eff860105312e312e3002010201040a0100070104ffffff000001040a0100010001020101040000000001040000000000\
    011000000000000000000000ffff0a01000103ffc8000101040a0100070104ffffff0000011000000000000000000000ffff\
    0000000005fe01fa0001000013ff84010c444843502e52656c656173650101000aff99030102ff9a00000003ff9a0023ff84\
    010d444843502e416c6c6f636174650102010d6e6f206d6f72652074726965730003ff9a00";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn lease() -> Lease {
    let route = |dst: &str, gw: Option<&str>, priority, scope| Route {
        dst: dst.parse().unwrap(),
        gw: gw.map(|gw| gw.parse().unwrap()),
        priority,
        scope,
        ..Route::to("0.0.0.0/0".parse().unwrap())
    };
    let ip = IpConfig {
        address: "10.1.0.7/24".parse().unwrap(),
        gateway: "10.1.0.1".parse().ok(),
        interface: None,
    };
    let routes = vec![
        route("0.0.0.0/0", Some("10.1.0.1"), 100, None),
        route("10.1.0.7/24", Some("0.0.0.0"), 0, Some(253)),
    ];
    Lease {
        ips: vec![ip],
        routes,
        dns: Dns::default(),
    }
}

#[test]
fn calls_of_a_go_client_are_read() {
    let mut server = Server::default();
    let stream = [CONNECT, &bytes(CLIENT)].concat();
    let (mut calls, mut greeting) = (Vec::new(), Vec::new());
    for piece in stream.chunks(7) {
        let (more, out) = server.read(piece).expect("a good stream");
        calls.extend(more);
        greeting.extend(out);
    }
    assert_eq!(greeting, CONNECTED);
    let args = Args {
        container_id: "4f1c".into(),
        netns: "/run/netns/a".into(),
        ifname: "eth0".into(),
        args: "K=V".into(),
        stdin: br#"{"name":"n"}"#.to_vec(),
    };
    let released = Args {
        container_id: "4f1c".into(),
        ..Args::default()
    };
    let expected = [
        RpcCall {
            seq: 0,
            method: ALLOCATE.into(),
            args,
        },
        RpcCall {
            seq: 1,
            method: RELEASE.into(),
            args: released,
        },
    ];
    assert_eq!(calls, expected);
}

#[test]
fn the_answer_of_a_go_daemon_is_read() {
    let mut client = Client::default();
    let stream = [CONNECTED, &bytes(DAEMON)].concat();
    let mut answer = None;
    for piece in stream.chunks(11) {
        answer = answer.or(client.read(piece).expect("a good stream"));
    }
    assert_eq!(answer, Some(Ok(lease())));
}

#[test]
fn own_daemon_and_own_client_interoperate() {
    let args = Args {
        container_id: "4f1c".into(),
        netns: "/n".into(),
        stdin: vec![0, 255],
        ..Args::default()
    };
    let mut server = Server::default();
    assert_eq!(server.read(CONNECT), Ok((Vec::new(), CONNECTED.to_vec())));
    let (calls, _) = server
        .read(&Client::call(ALLOCATE, &args))
        .expect("a good stream");
    assert_eq!(
        calls,
        [RpcCall {
            seq: 0,
            method: ALLOCATE.into(),
            args
        }]
    );
    for (said, expected) in [
        (Ok(Some(&lease())), Ok(lease())),
        (Ok(None), Ok(Lease::default())),
        (Err("no"), Err("no".to_owned())),
    ] {
        let mut server = Server::default();
        let mut client = Client::default();
        assert_eq!(client.read(CONNECTED), Ok(None));
        assert_eq!(
            client.read(&server.answer(0, ALLOCATE, said)),
            Ok(Some(expected))
        );
    }
}

#[test]
fn another_protocol_is_refused() {
    assert!(Server::default().read(b"GET / HTTP/1.1\r\n\r\n").is_err());
    assert!(Server::default().read(&vec![b'x'; MOST_HEAD + 1]).is_err());
    assert!(
        Client::default()
            .read(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .is_err()
    );
}
