//! Records and leases as JSON, without secrets: steps as commands, configurations reduced.

use super::reduce::{self, STRING};
use braid_core::cni::Json;
use braid_core::cni::netconf::is_identifier;
use braid_core::plan::step::{Legacy, Step};
use braid_core::plan::thing::firewall::Gate;
use braid_core::plan::thing::{Firewall, Note, Sysctl, Thing};
use braid_node::ipam::host_local::store::{Holder, LeaseFile};
use braid_node::store::record::{Attached, Key, Record};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest number that a sysctl's value may be to be shown. A longer one may be a key.
const MAX_DIGITS: usize = 10;

/// Returns a record and the time at which it was written.
pub(super) fn record(record: &Record, written: Option<SystemTime>) -> Value {
    let Key { owner, plugin } = &record.key;
    let attachments: Vec<Value> = record.attachments.iter().map(attached).collect();
    json!({
        "container_id": owner.container_id,
        "network": owner.network,
        "ifname": owner.ifname,
        "plugin": plugin,
        "written": written.map(timestamp),
        "netns": record.netns,
        "netns_cookie": record.netns_cookie,
        "owes_status_of": record.owed.as_ref().map(|owed| owed.pod.to_string()),
        "is_unpublished": record.is_unpublished,
        "is_foreign": record.is_foreign,
        "is_of_earlier_boot": record.is_of_earlier_boot(),
        "attachments": attachments,
    })
}

fn attached(attached: &Attached) -> Value {
    // Without `..`: a new field is either shown here or left out on purpose.
    let Attached {
        network,
        ifname,
        plugin,
        object,
        asked,
        default_route,
        args,
        conf,
        parts,
        displaced,
        result,
        claim,
        device,
        claimed,
        device_file,
        left,
        is_unsettled,
    } = attached;
    let commands = |steps: &Vec<Step>| steps.iter().map(command).collect::<Vec<String>>();
    let steps: Vec<Vec<String>> = parts.iter().map(commands).collect();
    json!({
        "network": network,
        "ifname": ifname.as_str(),
        "plugin": plugin,
        "object": object.as_ref().map(ToString::to_string),
        "requests": asked.as_ref().map(reduce::requests),
        "default_route": default_route,
        "args": reduce::args(args),
        "conf": reduce::conf(conf),
        "steps": steps,
        "displaced": commands(displaced),
        "result": result.as_ref().map(reduce::result),
        "claim": claim,
        "claimed": claimed,
        "has_device": device.is_some(),
        "has_device_file": device_file.is_some(),
        "left": left,
        "is_unsettled": is_unsettled,
    })
}

/// Returns a step as a command, without text that a network's author chose.
fn command(step: &Step) -> String {
    let step = match step.clone() {
        Step::Add(thing) => Step::Add(without_text(thing)),
        Step::Ensure(thing) => Step::Ensure(without_text(thing)),
        Step::Del(thing) => Step::Del(without_text(thing)),
        Step::Legacy(Legacy::Tuning { at, .. }) => Step::Legacy(Legacy::Tuning {
            at,
            file: STRING.to_owned(),
        }),
        Step::Legacy(Legacy::Firewall { addrs, .. }) => Step::Legacy(Legacy::Firewall {
            addrs,
            zone: STRING.to_owned(),
        }),
        step @ (Step::Set { .. }
        | Step::Retune { .. }
        | Step::Wait(_)
        | Step::Forget(..)
        | Step::Legacy(
            Legacy::Masquerade { .. }
            | Legacy::MacCheck { .. }
            | Legacy::HostPorts { .. }
            | Legacy::Rules { .. },
        )) => step,
    };
    step.to_string()
}

fn without_text(thing: Thing) -> Thing {
    match thing {
        Thing::Sysctl(sysctl) => Thing::Sysctl(Sysctl {
            value: shown_value(&sysctl.value).to_owned(),
            ..sysctl
        }),
        Thing::Firewall(firewall) => Thing::Firewall(Firewall {
            gate: match firewall.gate {
                Gate::Firewalld { .. } => Gate::Firewalld {
                    zone: STRING.to_owned(),
                },
                chains @ Gate::Chains { .. } => chains,
            },
            ..firewall
        }),
        // flannel's note is a configuration.
        Thing::Note(_) => Thing::Note(Note {
            path: STRING.to_owned(),
            text: STRING.to_owned(),
        }),
        thing @ (Thing::Link(_)
        | Thing::Moved(_)
        | Thing::Attr(_)
        | Thing::Vlan(_)
        | Thing::Addr(_)
        | Thing::Route(_)
        | Thing::NoRoute(_)
        | Thing::Neigh(_)
        | Thing::Fdb(_)
        | Thing::Rule(_)
        | Thing::VrfMember(_)
        | Thing::Masquerade(_)
        | Thing::MacCheck(_)
        | Thing::HostPorts(_)
        | Thing::Shaping(_)
        | Thing::PacketGuard(_)
        | Thing::XskGuard(_)
        | Thing::XskLink(_)
        | Thing::Redirect(_)) => thing,
    }
}

/// Returns the value of a sysctl if it is a short number. `tcp_fastopen_key` and `stable_secret` are
/// keys in hexadecimal digits and in the form of an address.
fn shown_value(value: &str) -> &str {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && value.len() <= MAX_DIGITS {
        value
    } else {
        STRING
    }
}

/// Returns a lease of `host-local`.
pub(super) fn lease(network: &str, lease: &LeaseFile) -> Value {
    let owner = match &lease.holder {
        Holder::Key(key) => {
            let mut lines = key.lines();
            let is_written_by_plugins =
                lines.next().is_some_and(is_identifier) && lines.next().is_none_or(is_identifier);
            if is_written_by_plugins {
                key.lines().collect::<Vec<&str>>().join(" ")
            } else {
                STRING.to_owned()
            }
        }
        Holder::Broken => "<broken>".to_owned(),
        Holder::Other => "<unreadable>".to_owned(),
    };
    json!({
        "network": network,
        "address": lease.ip,
        "owner": owner,
        "written": timestamp(lease.written),
    })
}

/// Returns a configuration file of the node.
pub(super) fn conflist(bytes: &[u8]) -> Result<String, String> {
    // The parser's error does not quote the file.
    let conf = Json::parse(bytes, "configuration").map_err(|err| err.to_string())?;
    Ok(reduce::conf(&conf).pretty() + "\n")
}

fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::cni::{Attachment, Owner};
    use braid_core::name::{IfName, Ns};
    use std::net::Ipv4Addr;

    const SECRET: &str = "s3cret";

    fn json_of(text: &str) -> Json {
        Json::parse(text.as_bytes(), "test").expect("json")
    }

    fn sysctl(value: &str) -> Step {
        Step::Add(Thing::Sysctl(Sysctl {
            ns: Ns::Pod,
            key: "net/ipv4/x".to_owned(),
            value: value.to_owned(),
            optional: false,
        }))
    }

    #[test]
    fn a_record_with_secrets_in_every_field_shows_none() {
        let attachment = Attachment {
            container_id: "c".to_owned(),
            ifname: IfName::parse("eth0").expect("a name"),
            netns: None,
            args: "IgnoreUnknown=1;token=s3cret".to_owned(),
        };
        let conf = json_of(
            r#"{"name":"n","type":"theirs","token":"s3cret","args":{"cni":{"token":"s3cret"}}}"#,
        );
        let mut attached = Attached::new("n", "theirs", &attachment, conf.into());
        attached.asked = Some(json_of(r#"{"cni-args":{"token":"s3cret"}}"#));
        attached.result = Some(json_of(r#"{"token":"s3cret"}"#));
        attached.device_file = Some("/s3cret".into());
        let note = Thing::Note(Note {
            path: SECRET.to_owned(),
            text: r#"{"token":"s3cret"}"#.to_owned(),
        });
        attached.parts = vec![vec![
            sysctl(SECRET),
            Step::Ensure(note.clone()),
            Step::Del(note),
        ]];
        attached.displaced = vec![sysctl(SECRET)];
        let key = Key {
            owner: Owner::new("n", "c", "eth0"),
            plugin: "theirs".to_owned(),
        };
        let shown = record(
            &Record::new(key, None, vec![attached]),
            Some(UNIX_EPOCH + Duration::from_secs(1)),
        );
        let text = shown.to_string();
        assert!(!text.contains(SECRET), "{text}");
        assert_eq!(shown["written"], "1970-01-01T00:00:01Z");
        assert_eq!(
            shown["attachments"][0]["steps"][0][0],
            "pod  sysctl -w net/ipv4/x=<string>"
        );
    }

    #[test]
    fn values_of_sysctls_are_shown_if_they_are_short_numbers() {
        for (value, shown) in [
            ("1", "1"),
            ("4096", "4096"),
            ("2001:db8::5317", STRING),
            ("12345678901", STRING),
            ("00000000-00000000-00000000-00005317", STRING),
        ] {
            assert_eq!(
                command(&sysctl(value)),
                format!("pod  sysctl -w net/ipv4/x={shown}")
            );
        }
    }

    #[test]
    fn a_lease_shows_its_owner_but_no_note_of_an_administrator() {
        for (holder, owner) in [
            (Holder::Key("c1\r\neth0".to_owned()), "c1 eth0"),
            (Holder::Key("ipamclaim-17".to_owned()), "ipamclaim-17"),
            (Holder::Key("the password".to_owned()), STRING),
            (Holder::Broken, "<broken>"),
            (Holder::Other, "<unreadable>"),
        ] {
            let file = LeaseFile {
                ip: Ipv4Addr::LOCALHOST.into(),
                holder,
                written: UNIX_EPOCH,
            };
            assert_eq!(lease("n", &file)["owner"], owner);
        }
    }

    #[test]
    fn a_broken_configuration_is_not_quoted() {
        let err = conflist(br#"{"token":"s3cret" "#).expect_err("no JSON");
        assert!(!err.contains(SECRET), "{err}");
    }
}
