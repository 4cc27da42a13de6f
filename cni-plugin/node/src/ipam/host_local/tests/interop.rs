//! Interoperation with the reference plugin on one data directory.

use super::*;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the reference plugin's path, or prints how to install it.
fn reference() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let path = Path::new(&home).join(".cache/braid/reference/host-local");
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "skipped: {} is missing; `cargo xtask bench --setup` fetches it",
        path.display()
    );
    None
}

/// Runs the reference plugin. Returns its addresses, separated by spaces, or its error text.
fn call(plugin: &Path, verb: &str, id: &str, bed: &Bed, ipam: &str) -> Result<String, String> {
    let data = bed.dir.path().join("data");
    let stdin = format!(
        r#"{{"name":"net","cniVersion":"1.0.0","type":"bridge","ipam":{{"type":"host-local","dataDir":{data:?},{ipam}}}}}"#
    );
    let mut child = Command::new(plugin)
        .env_clear()
        .envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", id),
            ("CNI_IFNAME", "eth0"),
        ])
        .envs([("CNI_NETNS", "/nonexistent"), ("CNI_PATH", "/nonexistent")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(stdin.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() && output.stdout.is_empty() {
        return Ok(String::new());
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    if !output.status.success() {
        return Err(json["msg"].as_str().unwrap().to_owned());
    }
    let mut addresses = Vec::new();
    for ip in json["ips"].as_array().into_iter().flatten() {
        addresses.push(ip["address"].as_str().unwrap());
    }
    Ok(addresses.join(" "))
}

fn ours(verb: &str, id: &str, bed: &Bed, ipam: &str) -> Result<String, String> {
    let config = bed.config(ipam, "");
    match verb {
        "ADD" => bed.add(&config, id),
        "DEL" => {
            let released = bed.run(|host| config.release(&owner(id, "eth0"), host));
            without_output(released.err())
        }
        _ => {
            let checked = bed.run(|host| config.check(&owner(id, "eth0"), None, host));
            without_output(checked.err())
        }
    }
}

fn without_output(error: Option<Error>) -> Result<String, String> {
    match error {
        None => Ok(String::new()),
        Some(error) => Err(error.to_string()),
    }
}

/// Returns name, mode and content of every file in the data directory.
fn snapshot(bed: &Bed) -> Vec<(String, u32, Vec<u8>)> {
    let dir = bed.dir.path().join("data");
    let mut files = Vec::new();
    for folder in [dir.clone(), dir.join("net")] {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            files.push((name, mode, fs::read(entry.path()).unwrap_or_default()));
        }
    }
    files.sort();
    files
}

/// Returns verbs with container ids, in a pseudo-random order that is the same in each run (a
/// linear congruence).
fn script(length: usize) -> Vec<(&'static str, String)> {
    let mut state = 12345_u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
        (state >> 16) % below
    };
    let mut calls = Vec::new();
    for _ in 0..length {
        let verb = ["ADD", "ADD", "DEL", "CHECK"][next(4) as usize];
        calls.push((verb, format!("c{}", next(9))));
    }
    calls
}

fn alternate(ipam: &str) {
    let Some(plugin) = reference() else { return };
    let (alone, mixed) = (Bed::new(), Bed::new());
    for (step, (verb, id)) in script(80).into_iter().enumerate() {
        let expected = call(&plugin, verb, &id, &alone, ipam);
        let got = if step % 3 == 0 {
            call(&plugin, verb, &id, &mixed, ipam)
        } else {
            ours(verb, &id, &mixed, ipam)
        };
        assert_eq!(got, expected, "step {step}: {verb} {id}");
        if expected.is_ok() && verb == "ADD" {
            assert_eq!(
                snapshot(&mixed),
                snapshot(&alone),
                "step {step}: {verb} {id}"
            );
        }
    }
    assert_eq!(snapshot(&mixed), snapshot(&alone));
}

#[test]
fn alternating_with_the_reference_plugin_leaves_the_same_directory() {
    alternate(r#""subnet":"10.1.2.0/29""#);
}

#[test]
fn alternating_with_pools_and_two_families_leaves_the_same_directory() {
    alternate(
        r#""ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.3.0/29","rangeStart":"10.1.3.3","gateway":"10.1.3.5"}],
           [{"subnet":"2001:db8::/125","rangeStart":"2001:db8::2"}]]"#,
    );
}

#[test]
fn concurrent_plugins_assign_no_address_twice_and_lose_none() {
    let Some(plugin) = reference() else { return };
    let (bed, ipam) = (Bed::new(), r#""subnet":"10.1.2.0/26""#);
    let ips: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
        let worker = |thread: usize| {
            let (bed, plugin) = (&bed, &plugin);
            let verb = move |verb, id: &str| {
                if thread.is_multiple_of(2) {
                    ours(verb, id, bed, ipam)
                } else {
                    call(plugin, verb, id, bed, ipam)
                }
            };
            scope.spawn(move || {
                for i in 0..8 {
                    let id = format!("t{thread}-{i}");
                    verb("ADD", &id).unwrap();
                    verb("DEL", &id).unwrap();
                }
                let mut ips = Vec::new();
                for i in 0..8 {
                    ips.push(verb("ADD", &format!("t{thread}-{i}")).unwrap());
                }
                ips
            })
        };
        let workers: Vec<_> = (0..6).map(worker).collect();
        let mut ips = std::collections::BTreeSet::new();
        for worker in workers {
            ips.extend(worker.join().unwrap());
        }
        ips
    });
    assert_eq!(ips.len(), 48);
    for thread in 0..6 {
        for i in 0..8 {
            let id = format!("t{thread}-{i}");
            assert_eq!(bed.del(&bed.config(ipam, ""), &id).len(), 1, "{id}");
        }
    }
    assert_eq!(bed.names(), ["last_reserved_ip.0", "lock"]);
}

#[test]
fn bad_ranges_get_the_reference_plugins_error() {
    let Some(plugin) = reference() else { return };
    let bed = Bed::new();
    for ipam in [
        r#""ranges":[]"#,
        r#""ranges":[[]]"#,
        r#""subnet":"10.1.2.0/32""#,
        r#""subnet":"10.1.2.1/24""#,
        r#""subnet":"10.1.2.0/24","rangeStart":"10.1.3.1""#,
        r#""subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.8""#,
        r#""subnet":"10.1.2.0/24","rangeEnd":"10.1.2.0""#,
        r#""ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"2001:db8::/64"}]]"#,
        r#""ranges":[[{"subnet":"10.1.2.0/24"},{"subnet":"10.1.2.0/25"}]]"#,
        r#""ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"10.1.2.0/25"}]]"#,
    ] {
        let theirs = call(&plugin, "ADD", "c1", &bed, ipam).unwrap_err();
        let text = format!(r#"{{"name":"net","cniVersion":"1.0.0","ipam":{{{ipam}}}}}"#);
        let ours =
            HostLocalConfig::parse(&NetConf::parse(text.as_bytes()).unwrap(), "").unwrap_err();
        assert!(
            ours.msg.starts_with(&theirs),
            "ours: {}\ntheirs: {theirs}",
            ours.msg
        );
    }
}
