use super::*;
use crate::ipam::dhcp::timing::Limits;
use crate::ipam::dhcp::v4::number::{LEASE_TIME, SUBNET_MASK};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 7);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a random number that causes no jitter.
fn rng() -> u64 {
    0x1234_5678_0000_06f8
}

fn client(wish: Option<Ipv4Addr>) -> Client {
    let options = vec![(61, vec![0, b'x']), (12, b"web".to_vec())];
    let identity = Identity {
        mac: MAC,
        options,
        request: vec![3, 1],
        broadcast: false,
    };
    Client::new(identity, Limits::default(), wish, at(100), &mut rng)
}

/// Decodes the single packet in `events`: message, source, destination, destination hardware
/// address.
#[track_caller]
fn sent(events: &[Event]) -> (Message, Ipv4Addr, Ipv4Addr, Option<Mac>) {
    let packets: Vec<&Packet> = events
        .iter()
        .filter_map(|event| {
            if let Event::Send(packet) = event {
                Some(packet)
            } else {
                None
            }
        })
        .collect();
    let [packet] = packets[..] else {
        panic!("{events:?}")
    };
    parts(packet)
}

fn parts(packet: &Packet) -> (Message, Ipv4Addr, Ipv4Addr, Option<Mac>) {
    let ip = |at: usize| Ipv4Addr::from(*packet.bytes[at..].first_chunk::<4>().unwrap());
    (
        Message::decode(&packet.bytes[28..]).expect("a message"),
        ip(12),
        ip(16),
        packet.to,
    )
}

fn answer(to: &Message, kind: MessageType, options: &[(u8, &[u8])]) -> Message {
    let mut message = Message::new(kind, to.xid, MAC);
    (message.is_reply, message.yiaddr) = (true, ADDRESS);
    message.options.push((SERVER_ID, SERVER.octets().to_vec()));
    message
        .options
        .extend(options.iter().map(|(code, value)| (*code, value.to_vec())));
    message
}

/// Returns the acknowledgement of a lease of 100 seconds.
fn ack(to: &Message) -> Message {
    answer(
        to,
        MessageType::Ack,
        &[
            (LEASE_TIME, &[0, 0, 0, 100]),
            (SUBNET_MASK, &[255, 255, 255, 0]),
        ],
    )
}

/// Returns a client with a lease of 100 seconds since second 100.
fn bound() -> Client {
    let mut client = client(None);
    let (discover, ..) = sent(&client.tick(at(100), &mut rng));
    let (request, ..) = sent(&client.take(
        &answer(&discover, MessageType::Offer, &[]),
        SERVER_MAC,
        at(100),
        &mut rng,
    ));
    assert_eq!(
        client.take(&ack(&request), SERVER_MAC, at(100), &mut rng),
        [Event::Bound]
    );
    client
}

/// Advances the clock until there are events.
fn next(client: &mut Client) -> (Duration, Vec<Event>) {
    let now = client.next().expect("something to do");
    (now, client.tick(now, &mut rng))
}

#[test]
fn four_messages_make_a_lease() {
    let mut client = client(Some(ADDRESS));
    let (discover, from, to, mac) = sent(&client.tick(at(100), &mut rng));
    assert_eq!(
        (from, to, mac),
        (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, None)
    );
    assert_eq!(
        (discover.kind(), discover.mac, discover.xid),
        (Some(MessageType::Discover), MAC, 0x1234_5678)
    );
    assert_eq!(discover.addresses(REQUESTED_ADDRESS), [ADDRESS]);
    assert_eq!(
        (discover.get(61), discover.get(12)),
        (Some(vec![0, b'x']), Some(b"web".to_vec()))
    );
    assert_eq!(discover.get(REQUEST_LIST), Some(vec![3, 1]));
    let offer = answer(&discover, MessageType::Offer, &[]);
    let (request, from, to, _) = sent(&client.take(&offer, SERVER_MAC, at(101), &mut rng));
    assert_eq!(
        (from, to, request.kind()),
        (
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::BROADCAST,
            Some(MessageType::Request)
        )
    );
    assert_eq!(
        (
            request.addresses(REQUESTED_ADDRESS),
            request.addresses(SERVER_ID)
        ),
        (vec![ADDRESS], vec![SERVER])
    );
    assert_eq!(client.lease(), None);
    assert_eq!(
        client.take(&ack(&request), SERVER_MAC, at(101), &mut rng),
        [Event::Bound]
    );
    let lease = client.lease().expect("a lease");
    assert_eq!(
        (lease.address, lease.server, lease.server_mac),
        (ADDRESS, SERVER, SERVER_MAC)
    );
    assert_eq!((client.next(), client.listens()), (Some(at(151)), false));
}

#[test]
fn answers_to_other_clients_are_ignored() {
    let mut client = client(None);
    let (discover, ..) = sent(&client.tick(at(100), &mut rng));
    let offer = answer(&discover, MessageType::Offer, &[]);
    let other = |change: &dyn Fn(&mut Message)| {
        let mut message = offer.clone();
        change(&mut message);
        message
    };
    let others = [
        other(&|message| message.xid += 1),
        other(&|message| message.mac = SERVER_MAC),
        other(&|message| message.is_reply = false),
        other(&|message| message.options.retain(|(code, _)| *code != SERVER_ID)),
        answer(&discover, MessageType::Ack, &[]),
    ];
    for message in others {
        assert_eq!(
            client.take(&message, SERVER_MAC, at(100), &mut rng),
            [],
            "{message:?}"
        );
    }
    assert!(
        !client
            .take(&offer, SERVER_MAC, at(100), &mut rng)
            .is_empty()
    );
}

#[test]
fn without_an_answer_the_client_gives_up_at_the_timeout() {
    let mut client = client(None);
    let mut times = Vec::new();
    loop {
        let (now, events) = next(&mut client);
        if events == [Event::GaveUp] {
            assert_eq!(now, at(308));
            break;
        }
        let (discover, ..) = sent(&events);
        times.push(now.as_secs() - 100);
        assert_eq!(u64::from(discover.secs), now.as_secs() - 100);
    }
    assert_eq!(times, [0, 2, 4, 6, 8, 12, 20, 36, 68, 130, 192]);
    assert_eq!(client.next(), None);
}

#[test]
fn unconfirmed_offer_is_dropped_for_another() {
    let mut client = client(None);
    let (discover, ..) = sent(&client.tick(at(100), &mut rng));
    client.take(
        &answer(&discover, MessageType::Offer, &[]),
        SERVER_MAC,
        at(100),
        &mut rng,
    );
    let kinds: Vec<_> = (0..6)
        .map(|_| next(&mut client))
        .map(|(now, events)| (now, sent(&events).0.kind()))
        .collect();
    let request = |second| (at(second), Some(MessageType::Request));
    let expected = [
        request(102),
        request(104),
        request(106),
        request(108),
        (at(110), Some(MessageType::Discover)),
    ];
    assert_eq!(kinds[..5], expected);
}

#[test]
fn lease_is_renewed_by_its_server_at_half_time() {
    let mut client = bound();
    let (now, events) = next(&mut client);
    let (renew, from, to, mac) = sent(&events);
    assert_eq!(
        (now, from, to, mac),
        (at(150), ADDRESS, SERVER, Some(SERVER_MAC))
    );
    assert_eq!(
        (renew.kind(), renew.ciaddr),
        (Some(MessageType::Request), ADDRESS)
    );
    assert_eq!(
        (renew.get(SERVER_ID), renew.get(REQUESTED_ADDRESS)),
        (None, None)
    );
    assert_eq!(
        client.take(&ack(&renew), SERVER_MAC, at(151), &mut rng),
        [Event::Bound]
    );
    assert_eq!(client.next(), Some(at(201)));
}

#[test]
fn any_server_is_asked_after_a_silent_one_until_the_lease_ends() {
    let mut client = bound();
    let (mut unicast, mut broadcast) = (Vec::new(), Vec::new());
    loop {
        let (now, events) = next(&mut client);
        if let [Event::Lost(lease, why), ..] = &events[..] {
            assert_eq!((lease.address, *why, now), (ADDRESS, "it expired", at(200)));
            let (discover, from, ..) = sent(&events[1..]);
            assert_eq!(
                (discover.kind(), from),
                (Some(MessageType::Discover), Ipv4Addr::UNSPECIFIED)
            );
            assert_eq!(discover.addresses(REQUESTED_ADDRESS), [ADDRESS]);
            break;
        }
        let (_, from, to, _) = sent(&events);
        assert_eq!(from, ADDRESS);
        if to == SERVER {
            unicast.push(now.as_secs());
        } else {
            broadcast.push(now.as_secs());
        }
    }
    assert_eq!(
        (unicast.first(), broadcast.first()),
        (Some(&150), Some(&185))
    );
    assert!(
        unicast.len() > 3 && broadcast.len() > 3,
        "{unicast:?} {broadcast:?}"
    );
    // The client retries without end.
    assert!((0..50).all(|_| matches!(next(&mut client).1[..], [Event::Send(_)])));
}

#[test]
fn refusal_ends_the_lease_and_starts_over() {
    let mut client = bound();
    let (renew, ..) = sent(&next(&mut client).1);
    let events = client.take(
        &answer(&renew, MessageType::Nak, &[]),
        SERVER_MAC,
        at(151),
        &mut rng,
    );
    assert!(
        matches!(&events[..], [Event::Lost(lease, "the server refused the lease"), ..] if lease.address == ADDRESS)
    );
    let (discover, from, ..) = sent(&events[1..]);
    assert_eq!(
        (discover.kind(), from),
        (Some(MessageType::Discover), Ipv4Addr::UNSPECIFIED)
    );
    assert_eq!(discover.get(REQUESTED_ADDRESS), None);
    assert_eq!(client.lease(), None);
}

#[test]
fn refused_request_is_retried_with_a_pause() {
    let mut client = client(Some(ADDRESS));
    let (discover, ..) = sent(&client.tick(at(100), &mut rng));
    let (request, ..) = sent(&client.take(
        &answer(&discover, MessageType::Offer, &[]),
        SERVER_MAC,
        at(100),
        &mut rng,
    ));
    assert_eq!(
        client.take(
            &answer(&request, MessageType::Nak, &[]),
            SERVER_MAC,
            at(100),
            &mut rng
        ),
        []
    );
    let (now, events) = next(&mut client);
    assert_eq!(
        (now, sent(&events).0.kind()),
        (at(102), Some(MessageType::Discover))
    );
}

#[test]
fn release_is_sent_from_the_address_to_its_server() {
    let mut client = bound();
    let (release, from, to, mac) = parts(&client.release(&mut rng).expect("a lease"));
    assert_eq!((from, to, mac), (ADDRESS, SERVER, Some(SERVER_MAC)));
    assert_eq!(
        (release.kind(), release.ciaddr),
        (Some(MessageType::Release), ADDRESS)
    );
    assert_eq!(
        (release.addresses(SERVER_ID), release.get(61)),
        (vec![SERVER], Some(vec![0, b'x']))
    );
    assert_eq!((release.get(12), release.get(REQUEST_LIST)), (None, None));
    assert_eq!((client.next(), client.release(&mut rng)), (None, None));
}

#[test]
fn requested_lease_is_released_before_it_is_acknowledged() {
    let mut client = client(None);
    assert_eq!(
        client.clone().release(&mut rng),
        None,
        "nothing is asked for"
    );
    let (discover, ..) = sent(&client.tick(at(100), &mut rng));
    drop(client.take(
        &answer(&discover, MessageType::Offer, &[]),
        SERVER_MAC,
        at(100),
        &mut rng,
    ));
    let (release, from, to, mac) = parts(&client.release(&mut rng).expect("an offer"));
    assert_eq!((from, to, mac), (ADDRESS, SERVER, Some(SERVER_MAC)));
    assert_eq!(
        (release.kind(), release.ciaddr),
        (Some(MessageType::Release), ADDRESS)
    );
}

#[test]
fn resumed_client_continues_with_its_lease() {
    let lease = bound().lease().expect("a lease").clone();
    let resume = || Client::resume(client(None).protocol, Limits::default(), lease.clone());
    assert_eq!(
        (resume().next(), resume().tick(at(149), &mut rng)),
        (Some(at(150)), Vec::new())
    );
    assert_eq!(sent(&resume().tick(at(160), &mut rng)).2, SERVER);
    assert_eq!(
        sent(&resume().tick(at(190), &mut rng)).2,
        Ipv4Addr::BROADCAST
    );
    assert!(matches!(
        resume().tick(at(200), &mut rng)[..],
        [Event::Lost(..), Event::Send(_)]
    ));
}

#[test]
fn unsent_packet_is_retried_shortly() {
    let mut client = client(None);
    client.tick(at(100), &mut rng);
    client.hold(at(100));
    assert_eq!(client.next(), Some(at(100) + Duration::from_millis(100)));
}
