//! Steps of a journal: decisions without requests.

use super::journal::{Asker, Journal, Own, Place, Reservation, State};
use super::names::{address, offset};
use super::pool::{Entry, Node};
use super::range::{PoolRange, is_far};
use crate::cni::Error;
use ipnet::IpNet;
use std::net::IpAddr;

/// Returns the offset that an attachment has, or gives it a held one.
pub fn take(
    (journal, range, requested): (&mut Journal, &PoolRange, Option<IpAddr>),
    asker: Asker<'_>,
    boot: &str,
) -> Option<u128> {
    let known = journal.used_by(asker.entry);
    // The pool has a claim's address before the pod has it, as another node may be next.
    let is_claim = asker.entry.claim().is_some();
    let prefers = requested.is_none() && has_last(journal, asker, range);
    let found = known.or_else(|| {
        let may_take = !is_claim && !prefers;
        may_take.then(|| journal.take_held(asker, boot, range, requested))?
    });
    if let Some(at) = found {
        journal.waiting.remove(asker.entry);
        use_up(journal, asker.pod, at);
    }
    found
}

/// Ends the request of an ADD: the attachment has the address if its entry is in the pool. Returns false
/// if it was released meanwhile.
pub fn end_intent(journal: &mut Journal, entry: &Entry, at: u128, is_entered: bool) -> bool {
    let own = journal.own.get_mut(&at);
    let own = own.filter(|own| own.state == State::Intent && own.entry == *entry);
    let is_wanted = own.is_some();
    if let Some(own) = own {
        own.state = if is_entered { State::Used } else { State::Owed };
    }
    if is_entered || !is_wanted {
        journal.waiting.remove(entry);
    }
    is_wanted
}

/// Gives up requests for addresses.
pub fn give_up<'a>(journal: &mut Journal, all: impl IntoIterator<Item = &'a u128>) {
    for at in all {
        if let Some(own) = journal.own.get_mut(at)
            && matches!(own.state, State::Intent | State::Holding)
        {
            own.state = State::Owed;
        }
    }
}

/// Releases the addresses of an attachment. One that the journal does not know is looked for in the
/// pool when the node pays.
pub fn release(journal: &mut Journal, entry: &Entry) -> Vec<u128> {
    if !journal.knows(entry) && entry.claim().is_none() {
        let key = (entry.id.clone(), entry.ifname.clone());
        journal.sought.insert(key);
    }
    release_known(journal, entry)
}

/// Releases the addresses of an attachment, also one that an ADD requests. Such an ADD then fails.
pub fn release_known(journal: &mut Journal, entry: &Entry) -> Vec<u128> {
    journal.waiting.release(entry);
    let is_its = |own: &Own| own.entry.is_of(&entry.id, &entry.ifname);
    for own in journal.own.values_mut() {
        if own.state == State::Intent && is_its(own) {
            own.state = State::Owed;
        }
    }
    release_where(journal, &is_its)
}

/// Releases an address of an attachment that another host on the link has. The node takes it after all
/// others.
pub fn refuse(journal: &mut Journal, entry: &Entry, refused: IpAddr) {
    let net = journal.place.as_ref().map(|place| place.net);
    let Some(at) = net.and_then(|net| offset(net, refused)) else {
        return;
    };
    if let Some(own) = journal.own.get_mut(&at)
        && own.state == State::Used
        && own.entry.is_of(&entry.id, &entry.ifname)
    {
        own.state = State::Owed;
        journal.refused.add(at);
    }
}

/// Releases the used addresses for which `is_gone` is true.
pub fn release_where(journal: &mut Journal, is_gone: &dyn Fn(&Own) -> bool) -> Vec<u128> {
    let mut released = Vec::new();
    for (at, own) in &mut journal.own {
        if own.state == State::Used && is_gone(own) {
            own.state = State::Owed;
            released.push(*at);
            if let Some(pod) = &own.pod {
                journal.last.set(pod, *at);
            }
        }
    }
    released
}

/// True if the last address of a pod is free, or will be when the node has paid.
pub fn has_last(journal: &Journal, asker: Asker<'_>, range: &PoolRange) -> bool {
    let net = journal.place.as_ref().map(|place| place.net);
    let at = asker.pod.and_then(|pod| journal.last_of(pod));
    let Some((net, at)) = net.zip(at) else {
        return false;
    };
    let is_inside = address(net, at).is_some_and(|address| range.contains(address));
    let own = journal.own.get(&at);
    let is_owed = own.is_none_or(|own| own.state == State::Owed && own.entry.claim().is_none());
    is_inside && is_owed && !journal.taken.contains(&at)
}

/// Returns the last address of a pod, if it is free.
pub fn last(journal: &Journal, asker: Asker<'_>, range: &PoolRange) -> Option<IpAddr> {
    let at = journal.last_of(asker.pod?)?;
    let address = address(journal.place.as_ref()?.net, at)?;
    (range.contains(address) && !journal.is_taken(at)).then_some(address)
}

/// Notes that a pod has an address. It is then no longer the last one of another pod, nor refused.
pub fn use_up(journal: &mut Journal, pod: Option<&str>, at: u128) {
    journal.last.end(pod.unwrap_or_default(), at);
    journal.refused.remove(at);
}

/// Returns the part of a range with the addresses that the node may give out: as long as Whereabouts uses
/// the pool, those that it reads too. `None` if there are none.
pub fn part(journal: &Journal, range: &PoolRange) -> Option<PoolRange> {
    if journal.is_exclusive() {
        return Some(range.clone());
    }
    range.shared()
}

/// Returns the error of addresses that Whereabouts does not read, in a pool that it may use.
pub fn too_far(journal: &Journal, range: &PoolRange, requested: Option<IpAddr>) -> Option<Error> {
    let Place { name, net, .. } = journal.place.as_ref()?;
    let address = requested.unwrap_or(range.first);
    if journal.is_exclusive() || !offset(*net, address).is_some_and(is_far) {
        return None;
    }
    let why = format!(
        "{address} is too far from {net}: Whereabouts reads offsets below 2^63, and IPPool {name} is \
         not braid's alone (braid ipam finish)"
    );
    Some(Error::config(why).at_key("ipam"))
}

/// Returns the free addresses of a range in the order in which the node takes them: the lowest first
/// if it is alone, otherwise its own part first; then the last addresses of pods, and refused
/// addresses.
pub fn free<'a>(
    journal: &'a Journal,
    range: &'a PoolRange,
    is_taken: impl Fn(IpAddr) -> bool + Copy + 'a,
) -> impl Iterator<Item = IpAddr> + 'a {
    let seen = journal.seen.as_ref();
    let (rank, nodes) = seen.map_or((0, 1), |seen| (seen.rank, seen.nodes));
    let net = journal.place.as_ref().map(|place| place.net);
    let at = move |ip: IpAddr| net.and_then(|net| offset(net, ip));
    let is_refused = move |at: u128| journal.refused.has(at);
    let is_later = move |ip: IpAddr| {
        let at = at(ip);
        at.is_some_and(|at| journal.is_last(at) || is_refused(at))
    };
    let others = range.free_from(rank, nodes, move |ip| is_taken(ip) || is_later(ip));
    let last = journal.last_offsets().filter(move |at| !is_refused(*at));
    let later = last.chain(journal.refused.offsets());
    let later = later.filter_map(move |at| address(net?, at));
    others.chain(later.filter(move |ip| range.contains(*ip) && !is_taken(*ip)))
}

/// Returns the addresses at these offsets.
pub fn addresses(net: IpNet, offsets: &[u128]) -> Vec<IpAddr> {
    let all = offsets.iter().filter_map(|at| address(net, *at));
    all.collect()
}

/// Returns the number of addresses that are held, or that will be.
pub fn held(journal: &Journal) -> usize {
    journal.count(State::Held) + journal.count(State::Holding)
}

/// Gives back held addresses beyond `target` and outside the range of the last ADD, and holds owed ones
/// up to it.
pub fn adjust(journal: &mut Journal, node: &Node, net: IpNet, target: usize) {
    let range = journal.range.clone();
    let is_inside = |at: u128| {
        let address = address(net, at);
        range
            .as_ref()
            .zip(address)
            .is_some_and(|(range, address)| range.contains(address))
    };
    let seen = journal.seen.clone().unwrap_or_default();
    let mut held = 0;
    for (at, own) in &mut journal.own {
        let is_whole = own.reservation != Reservation::Asked;
        if matches!(own.state, State::Held | State::Holding) {
            if held < target && is_whole && is_inside(*at) {
                held += 1;
            } else {
                own.state = State::Owed;
            }
        }
    }
    for (at, own) in &mut journal.own {
        // An entry of Whereabouts is removed, as the node's annotation does not name it. That of a
        // claim stays. The reservation of an address without an entry may be gone.
        let is_own = own.entry.podref.is_empty() && own.entry.claim().is_none();
        let is_own = is_own && journal.last.offsets().all(|last| last != *at);
        let is_own = is_own && !journal.refused.has(*at);
        let is_own = is_own && seen.own.get(at) == Some(&own.entry);
        let is_whole = own.reservation != Reservation::Asked && is_own;
        if held < target && own.state == State::Owed && is_whole && is_inside(*at) {
            own.entry = Entry::held_by(node);
            own.state = State::Holding;
            own.boot.clone_from(&node.boot);
            held += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::Seen;
    use super::super::last::Last;
    use super::super::range::usable;
    use super::*;
    use std::path::PathBuf;

    fn journal() -> (Journal, PoolRange) {
        let net: IpNet = "10.211.0.0/29".parse().expect("a network");
        let (first, last) = usable(net);
        let range = PoolRange {
            net,
            prefix_len: 29,
            first,
            last,
            exclude: Vec::new(),
            gateway: None,
        };
        let place = Place {
            name: "pool".to_owned(),
            net,
            network: String::new(),
            has_reservations: false,
            kubeconfig: PathBuf::new(),
        };
        let journal = Journal {
            place: Some(place),
            ..Journal::default()
        };
        (journal, range)
    }

    /// Gives an address to the attachment `id`.
    fn give(journal: &mut Journal, id: &str, at: u128) -> Entry {
        let entry = Entry {
            id: id.to_owned(),
            podref: String::new(),
            ifname: "net1".to_owned(),
        };
        use_up(journal, Some(id), at);
        let own = Own {
            entry: entry.clone(),
            pod: Some(id.to_owned()),
            state: State::Used,
            ..Own::default()
        };
        journal.own.insert(at, own);
        entry
    }

    fn free_ones(journal: &Journal, range: &PoolRange) -> Vec<u128> {
        let at = |ip: IpAddr| offset(range.net, ip).expect("an offset");
        let free = free(journal, range, |ip| journal.is_taken(at(ip)));
        free.map(at).collect()
    }

    #[test]
    fn a_refused_address_is_owed_and_comes_after_all_others_until_it_is_taken_again() {
        let (mut journal, range) = journal();
        let address = |at: u128| address(range.net, at).expect("an address");
        let entry = give(&mut journal, "web-0", 1);
        let other = give(&mut journal, "web-1", 2);
        refuse(&mut journal, &other, address(1));
        assert_eq!(journal.own[&1].state, State::Used, "it is another's");
        refuse(&mut journal, &entry, address(1));
        refuse(
            &mut journal,
            &entry,
            "192.0.2.1".parse().expect("an address"),
        );
        assert_eq!(journal.own[&1].state, State::Owed);
        assert_eq!(journal.used_by(&entry), None);
        assert_eq!(
            journal.last_of("web-0"),
            None,
            "the pod does not ask for it"
        );
        release(&mut journal, &other);
        journal.own.clear();
        assert_eq!(free_ones(&journal, &range), [3, 4, 5, 6, 2, 1]);
        give(&mut journal, "web-0", 1);
        journal.own.clear();
        assert_eq!(free_ones(&journal, &range), [1, 3, 4, 5, 6, 2]);
    }

    #[test]
    fn an_address_that_was_refused_or_has_no_entry_is_not_held() {
        let (mut journal, range) = journal();
        let entry = give(&mut journal, "a", 1);
        give(&mut journal, "b", 2);
        let node = Node {
            name: "node-a".to_owned(),
            uid: "uid".to_owned(),
            boot: "boot".to_owned(),
        };
        journal.range = Some(range.clone());
        let first = address(range.net, 1).expect("an address");
        refuse(&mut journal, &entry, first);
        release_where(&mut journal, &|own| own.entry.id == "b");
        journal.last = Last::default();
        let entries = journal.own.iter().map(|(at, own)| (*at, own.entry.clone()));
        journal.seen = Some(Seen {
            own: entries.collect(),
            ..Seen::default()
        });
        adjust(&mut journal, &node, range.net, 2);
        let states = [1, 2].map(|at| journal.own[&at].state);
        assert_eq!(states, [State::Owed, State::Holding]);
        journal.own.get_mut(&2).expect("held").state = State::Owed;
        journal.seen = Some(Seen::default());
        adjust(&mut journal, &node, range.net, 2);
        let states = [1, 2].map(|at| journal.own[&at].state);
        assert_eq!(states, [State::Owed; 2], "its reservation may be gone");
    }

    #[test]
    fn only_a_pool_of_braid_alone_gives_out_addresses_that_whereabouts_does_not_read() {
        let net: IpNet = "fd00::/64".parse().unwrap();
        let range = |first: &str, last: &str| PoolRange {
            net,
            prefix_len: 64,
            first: first.parse().unwrap(),
            last: last.parse().unwrap(),
            exclude: Vec::new(),
            gateway: None,
        };
        let [all, upper] =
            ["fd00::1", "fd00::8000:0:0:0"].map(|first| range(first, "fd00::ffff:ffff:ffff:fffe"));
        let far: IpAddr = "fd00::9000:0:0:1".parse().unwrap();
        let journal = |is_exclusive| Journal {
            place: Some(Place {
                name: "fd00---64".into(),
                net,
                network: String::new(),
                has_reservations: true,
                kubeconfig: PathBuf::new(),
            }),
            seen: Some(Seen {
                is_exclusive,
                ..Seen::default()
            }),
            ..Journal::default()
        };
        let (shared, alone) = (journal(false), journal(true));
        assert_eq!(part(&shared, &all), all.shared());
        assert_eq!(part(&shared, &upper), None);
        assert_eq!(part(&alone, &upper), Some(upper.clone()));
        assert!(part(&Journal::default(), &upper).is_none());
        let error = |journal, range, requested| {
            too_far(journal, range, requested).map(|err: Error| err.msg)
        };
        let text = error(&shared, &upper, None).unwrap();
        assert!(
            text.starts_with("fd00::8000:0:0:0 is too far from fd00::/64"),
            "{text}"
        );
        assert!(error(&shared, &all, Some(far)).is_some());
        assert_eq!(error(&shared, &all, None), None);
        assert_eq!(error(&alone, &upper, Some(far)), None);
    }
}
