//! Forms of the configuration. In an empty pool both programs return the same result and write the
//! same objects, except where braid is meant to differ.

use super::json;
use super::peers::{Braid, Objects, Peers, Program, Whereabouts, flat_file};
use braid_tests::{Answer, Call, Ns, Value};
use std::collections::BTreeSet;
use std::fs;

/// Outcome of a call that fails.
const REFUSED: &[&str] = &["refused"];
/// Flat file with defaults for a form.
const DEFAULTS: &str = "/run/defaults.conf";

/// A form of the configuration.
struct Form {
    ipam: Value,
    /// Further `CNI_ARGS`.
    args: &'static str,
    /// Addresses of Whereabouts, each with its gateway if it has one.
    whereabouts: &'static [&'static str],
    /// Addresses of braid.
    braid: &'static [&'static str],
}

/// Returns a form in which result and objects are equal.
fn same(ipam: Value, addresses: &'static [&'static str]) -> Form {
    differs(ipam, addresses, addresses)
}

/// Returns a form with different results, the first of them Whereabouts'.
fn differs(
    ipam: Value,
    whereabouts: &'static [&'static str],
    braid: &'static [&'static str],
) -> Form {
    Form {
        ipam,
        args: "",
        whereabouts,
        braid,
    }
}

impl Form {
    fn with_args(self, args: &'static str) -> Self {
        Self { args, ..self }
    }
}

/// Ranges and their ends.
fn ranges() -> Vec<Form> {
    vec![
        same(json!({"range": "10.234.1.9/24"}), &["10.234.1.1/24"]),
        same(json!({"Range": "10.234.2.0/24"}), &["10.234.2.1/24"]),
        same(json!({"range": "010.234.003.000/24"}), &["10.234.3.1/24"]),
        same(
            json!({"range": "10.234.4.5-10.234.4.9/24"}),
            &["10.234.4.5/24"],
        ),
        same(
            json!({
                "range": "10.234.5.0/24",
                "range_start": "10.234.5.020",
                "range_end": "10.234.5.30",
            }),
            &["10.234.5.20/24"],
        ),
        // An end outside the network, or that is not an address, is ignored.
        same(
            json!({
                "range": "10.234.6.0/24",
                "range_start": "10.235.0.7",
                "range_end": "10.234.5.30",
            }),
            &["10.234.6.1/24"],
        ),
        same(
            json!({"range": "10.234.7.0/24", "range_start": "x", "range_end": "y"}),
            &["10.234.7.1/24"],
        ),
        same(
            json!({"range": "10.234.8.0/24", "range_start": "10.234.8.0"}),
            &["10.234.8.1/24"],
        ),
        same(
            json!({
                "range": "10.234.9.0/24",
                "range_start": "10.234.9.9",
                "range_end": "10.234.9.5",
            }),
            &["10.234.9.9/24"],
        ),
        same(json!({"range": "10.234.10.0/30"}), &["10.234.10.1/30"]),
        // A /31 and a /32 have addresses, too.
        differs(
            json!({"range": "10.234.11.0/31"}),
            REFUSED,
            &["10.234.11.0/31"],
        ),
        differs(
            json!({"range": "10.234.12.4/32"}),
            REFUSED,
            &["10.234.12.4/32"],
        ),
        same(json!({"range": "10.234.13.0"}), REFUSED),
        same(json!({"range": "10.234.1.7-10.234.14.9/24"}), REFUSED),
        // Whereabouts succeeds without an address.
        differs(json!({}), &[], REFUSED),
        // Ends of the first form replace the keys.
        same(
            json!({"range": "10.234.52.5-10.234.52.9/24", "range_start": "10.234.52.7"}),
            &["10.234.52.5/24"],
        ),
        same(
            json!({"range": "10.234.53.5-10.234.53.255/24", "range_end": "10.234.53.6"}),
            &["10.234.53.5/24"],
        ),
        same(
            json!({"range": "10.234.54.0-10.234.54.9/24"}),
            &["10.234.54.1/24"],
        ),
        same(
            json!({"range": "10.234.55.9-10.234.55.5/24"}),
            &["10.234.55.9/24"],
        ),
        same(
            json!({"ipRanges": [{"range": "10.234.57.0/24", "range_start": ""}]}),
            &["10.234.57.1/24"],
        ),
        same(
            json!({"range": "fd34:59::/64", "range_start": "10.234.59.1"}),
            &["fd34:59::1/64"],
        ),
        same(
            json!({"range": "10.234.60.0/24", "range_start": "fd34::1"}),
            &["10.234.60.1/24"],
        ),
        same(
            json!({"range": "FD34:68::/64", "range_start": "FD34:68::a"}),
            &["fd34:68::a/64"],
        ),
        same(
            json!({"range": "::ffff:10.234.69.0/120"}),
            &["10.234.69.1/24"],
        ),
        same(json!({"range": "fd34:15::5/64"}), &["fd34:15::1/64"]),
        same(
            json!({"range": "fd34:16::7-fd34:16::9/120"}),
            &["fd34:16::7/120"],
        ),
        same(
            json!({"range": "fd34:17::/64", "range_start": "fd34:17::1:0:0"}),
            &["fd34:17::1:0:0/64"],
        ),
    ]
}

/// Several ranges, and addresses that are left out.
fn lists() -> Vec<Form> {
    vec![
        same(
            json!({
                "range": "10.234.20.0/24",
                "exclude": ["10.234.20.0/30", "10.234.20.4", "10.234.20.7/30"],
            }),
            &["10.234.20.8/24"],
        ),
        same(
            json!({"range": "fd34:21::/64", "exclude": ["fd34:21::/126", "fd34:21::4"]}),
            &["fd34:21::5/64"],
        ),
        same(
            json!({"range": "10.234.22.0/24", "exclude": ["x"]}),
            REFUSED,
        ),
        // Leading zeros are decimal here as well.
        differs(
            json!({"range": "10.234.23.0/24", "exclude": ["10.234.23.001"]}),
            REFUSED,
            &["10.234.23.2/24"],
        ),
        same(
            json!({"ipRanges": [
                {"range": "10.234.24.0/24", "exclude": ["10.234.24.1"]},
                {"range": "10.234.25.0/24", "range_start": "10.234.25.7"},
                {"range": "fd34:26::/64"},
            ]}),
            &["10.234.24.2/24", "10.234.25.7/24", "fd34:26::1/64"],
        ),
        same(
            json!({
                "range": "10.234.27.0/24",
                "exclude": ["10.234.27.1", "10.234.28.1"],
                "ipRanges": [{"range": "10.234.28.0/24"}],
            }),
            &["10.234.27.2/24", "10.234.28.1/24"],
        ),
        // Each range has a pool of its own, also if they overlap.
        same(
            json!({
                "range": "10.234.65.0/24",
                "ipRanges": [{"range": "10.234.65.0/25"}],
            }),
            &["10.234.65.1/24", "10.234.65.1/25"],
        ),
        same(
            json!({"ipRanges": [{"range": "10.234.29.0/24", "range_start": "010.234.29.7"}]}),
            REFUSED,
        ),
        same(
            json!({"range": "10.234.30.0/24", "network_name": "lan-a"}),
            &["10.234.30.1/24"],
        ),
        same(
            json!({"range": "fd34:31::/64", "network_name": "lan-a"}),
            &["fd34:31::1/64"],
        ),
        same(
            json!({"range": "10.234.32.0/24", "network_name": "Lan"}),
            REFUSED,
        ),
        same(
            json!({"range": "10.234.74.0/24", "network_name": "a_b"}),
            REFUSED,
        ),
        same(
            json!({"range": "10.234.33.0/24", "enable_overlapping_ranges": false}),
            &["10.234.33.1/24"],
        ),
    ]
}

/// Keys that are copied into the result.
fn results() -> Vec<Form> {
    vec![
        same(
            json!({
                "range": "10.234.62.0/24",
                "range_end": "",
                "exclude": null,
                "gateway": "",
                "routes": null,
            }),
            &["10.234.62.1/24"],
        ),
        same(json!({"range": "10.234.71.0/24", "gateway": "x"}), REFUSED),
        same(
            json!({"range": "10.234.40.0/24", "gateway": "10.234.040.254"}),
            &["10.234.40.1/24 via 10.234.40.254"],
        ),
        // The gateway is not assigned.
        differs(
            json!({"range": "10.234.41.0/24", "gateway": "10.234.41.1"}),
            &["10.234.41.1/24 via 10.234.41.1"],
            &["10.234.41.2/24 via 10.234.41.1"],
        ),
        same(
            json!({
                "range": "10.234.42.0/24",
                "gateway": "10.234.42.254",
                "routes": [
                    {"dst": "198.51.100.0/25"},
                    {"dst": "198.51.100.128/25", "gw": "10.234.42.253"},
                ],
                "dns": {
                    "nameservers": ["192.0.2.53"],
                    "domain": "example.org",
                    "search": ["a.example.org"],
                    "options": ["ndots:2"],
                },
            }),
            &["10.234.42.1/24 via 10.234.42.254"],
        ),
    ]
}

/// Addresses beside those of a range, gateways of ranges, and keys of the flat file.
fn others() -> Vec<Form> {
    vec![
        same(
            json!({
                "range": "10.234.43.0/24",
                "addresses": [
                    {"address": "10.235.043.7/24", "gateway": "10.235.43.1"},
                    {"address": "fd35:43::7/64"},
                ],
            }),
            &[
                "10.234.43.1/24",
                "10.235.43.7/24 via 10.235.43.1",
                "fd35:43::7/64",
            ],
        ),
        same(
            json!({"range": "10.234.44.0/24"}),
            &[
                "10.234.44.1/24",
                "10.235.44.7/24 via 10.235.44.1",
                "10.236.44.7/24",
            ],
        )
        .with_args("IP=10.235.44.7/24,10.236.044.7/24;GATEWAY=10.235.44.1"),
        same(json!({"range": "10.234.45.0/24"}), REFUSED).with_args("IP=10.235.45.7"),
        // Fixed addresses of a range are assigned from it, so no other container gets them.
        differs(
            json!({"range": "10.234.46.0/24"}),
            &["10.234.46.1/24", "10.234.46.7/24"],
            &["10.234.46.7/24"],
        )
        .with_args("IP=10.234.46.7/24"),
        differs(
            json!({
                "range": "10.234.47.0/24",
                "addresses": [{"address": "10.234.47.7/24"}],
            }),
            &["10.234.47.1/24", "10.234.47.7/24"],
            &["10.234.47.7/24"],
        ),
        // The gateway of a range has its family. A range of `ipRanges` may have its own.
        differs(
            json!({
                "gateway": "10.234.50.254",
                "ipRanges": [{"range": "10.234.50.0/24"}, {"range": "fd34:50::/64"}],
            }),
            &[
                "10.234.50.1/24 via 10.234.50.254",
                "fd34:50::1/64 via 10.234.50.254",
            ],
            &["10.234.50.1/24 via 10.234.50.254", "fd34:50::1/64"],
        ),
        differs(
            json!({"ipRanges": [{"range": "10.234.51.0/24", "gateway": "10.234.51.9"}]}),
            &["10.234.51.1/24"],
            &["10.234.51.1/24 via 10.234.51.9"],
        ),
        // Defaults of the flat file.
        same(
            json!({"configuration_path": DEFAULTS}),
            &["10.234.48.1/24 via 10.234.48.9"],
        ),
        same(
            json!({
                "range": "10.234.49.0/24",
                "gateway": "10.234.49.9",
                "configuration_path": DEFAULTS,
            }),
            &["10.234.49.2/24 via 10.234.49.9"],
        ),
    ]
}

/// Returns all forms. Each has ranges of its own, so each finds its pools empty.
fn forms() -> Vec<Form> {
    let mut forms = ranges();
    forms.extend(lists());
    forms.extend(results());
    forms.extend(others());
    forms
}

/// Returns the call for the form with this number. The interface has the number, so that the
/// objects name the form.
fn call(peers: &Peers, by: Program, ns: &Ns, (number, form): (usize, &Form)) -> Call {
    let call = peers.call(by, ns, &form.ipam).ifname(&ifname(number));
    if form.args.is_empty() {
        return call;
    }
    call.args(&format!("{};{}", peers.args(ns.name()), form.args))
}

fn ifname(number: usize) -> String {
    format!("net{number}")
}

/// Returns addresses and gateways of an answer.
fn outcome(answer: &Answer) -> Vec<String> {
    if answer.code != 0 {
        return vec![REFUSED[0].to_owned()];
    }
    let result = answer.result();
    let mut outcome = Vec::new();
    for ip in result["ips"].as_array().into_iter().flatten() {
        let address = ip["address"].as_str().expect("an address");
        outcome.push(match ip["gateway"].as_str() {
            Some(gateway) => format!("{address} via {gateway}"),
            None => address.to_owned(),
        });
    }
    outcome
}

/// Returns names, ranges and offsets of the objects for these interfaces.
fn shape(objects: &Objects, ifnames: &BTreeSet<String>) -> Vec<String> {
    let mut shape = Vec::new();
    for entry in &objects.entries {
        if ifnames.contains(&entry.ifname) {
            shape.push(format!(
                "{} {} {} {}",
                entry.pool, entry.range, entry.offset, entry.ifname
            ));
        }
    }
    for reservation in &objects.reservations {
        if ifnames.contains(&reservation.ifname) {
            shape.push(format!("{} {}", reservation.name, reservation.ifname));
        }
    }
    shape
}

#[test]
fn each_form_has_the_result_and_the_objects_of_whereabouts() {
    let Some(peers) = Peers::apart("whereabouts-forms", "whereabouts-forms-braid") else {
        return;
    };
    let mut defaults = flat_file();
    defaults["range"] = "10.234.48.0/24".into();
    defaults["gateway"] = "10.234.48.9".into();
    defaults["exclude"] = json!(["10.234.48.2", "10.234.49.1"]);
    // Only the value in the network's own configuration counts.
    defaults["enable_overlapping_ranges"] = false.into();
    fs::write(DEFAULTS, defaults.to_string()).expect("a flat file");
    let forms = forms();
    let [one, other] = peers.pods(["one", "other"]);
    let calls = [(Whereabouts, one), (Braid, other)].map(|(by, ns)| {
        let forms = forms.iter().enumerate();
        let calls = forms.map(|form| call(&peers, by, &ns, form));
        calls.collect::<Vec<_>>()
    });
    let [answers, own_answers] = both(&calls, Call::add);
    let (mut equal, mut attached) = (BTreeSet::new(), [Vec::new(), Vec::new()]);
    for (number, form) in forms.iter().enumerate() {
        let (answer, own) = (&answers[number], &own_answers[number]);
        let found = [outcome(answer), outcome(own)];
        assert_eq!(
            found,
            [form.whereabouts, form.braid],
            "{} {}\n{answer:?}\n{own:?}",
            form.ipam,
            form.args
        );
        if form.whereabouts == form.braid && form.braid != REFUSED {
            let (result, own) = (answer.result(), own.result());
            assert_eq!(own["routes"], result["routes"], "{}", form.ipam);
            assert_eq!(own["dns"], result["dns"], "{}", form.ipam);
            equal.insert(ifname(number));
        }
        for (side, answer) in [answer, own].into_iter().enumerate() {
            if answer.code == 0 {
                attached[side].push(calls[side][number].clone());
            }
        }
    }
    let [objects, own] = [Whereabouts, Braid].map(|by| peers.objects(by));
    assert_eq!(shape(&own, &equal), shape(&objects, &equal));
    assert_eq!(objects.containers(), ["one"].into());
    assert_eq!(own.containers(), ["other"].into());
    // An empty reference keeps Whereabouts' reconciler and its ADD from braid's entries.
    assert_eq!(objects.podrefs(), ["whereabouts-forms/one"].into());
    assert_eq!(own.podrefs(), [""].into());
    for answers in both(&attached, Call::del) {
        for answer in answers {
            answer.ok();
        }
    }
    peers.assert_all_free(Whereabouts);
    peers.assert_all_free(Braid);
}

/// Runs the calls of both programs, each in order, at the same time.
fn both(calls: &[Vec<Call>; 2], verb: impl Fn(&Call) -> Answer + Sync) -> [Vec<Answer>; 2] {
    std::thread::scope(|scope| {
        let run = |calls: &Vec<Call>| calls.iter().map(&verb).collect();
        let threads = calls
            .each_ref()
            .map(|calls| scope.spawn(move || run(calls)));
        threads.map(|thread| thread.join().expect("answers"))
    })
}
