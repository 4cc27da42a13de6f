//! The plugin `firewall` on a node with firewalld. It tells firewalld the containers' addresses
//! over the system bus.

use crate::program::needs_programs;
use braid_tests::{Sandbox, Value, json};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BUS: &str = r#"<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen>
<auth>EXTERNAL</auth><policy context="default"><allow own="*"/><allow send_destination="*"/>
<allow receive_type="method_call"/><allow receive_type="method_return"/>
<allow receive_type="error"/><allow receive_type="signal"/></policy></busconfig>"#;

/// A system bus and firewalld in the sandbox. Dropping the value ends both.
struct Firewalld(Vec<Child>);

impl Firewalld {
    fn start(host: &Sandbox) -> Self {
        fs::create_dir_all("/run/dbus").expect("folder of the bus");
        fs::write("/run/dbus/bus.conf", BUS).expect("configuration of the bus");
        let spawn = |command: &[&str]| {
            let mut command_line = Command::new(command[0]);
            command_line
                .args(&command[1..])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command_line
                .spawn()
                .unwrap_or_else(|err| panic!("{command:?}: {err}"))
        };
        let bus = spawn(&[
            "dbus-daemon",
            "--config-file=/run/dbus/bus.conf",
            "--nofork",
            "--nopidfile",
        ]);
        let mut all = Self(vec![bus]);
        wait("the bus", || {
            fs::exists("/run/dbus/system_bus_socket").unwrap_or(false)
        });
        all.0
            .push(spawn(&["/usr/sbin/firewalld", "--nofork", "--nopid"]));
        wait("firewalld", || host.try_run("firewall-cmd --state").is_ok());
        all
    }
}

fn wait(what: &str, is_there: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "{what} does not start"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Firewalld {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

fn sources(host: &Sandbox) -> String {
    host.run("firewall-cmd --zone=trusted --list-sources")
        .trim()
        .to_owned()
}

fn bridge() -> Value {
    json!({"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true,
        "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}})
}

fn network(plugins: &[Value]) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "braid", "plugins": plugins})
}

#[test]
fn an_attached_container_is_in_a_firewalld_zone() {
    needs_programs!("dbus-daemon", "firewalld", "firewall-cmd");
    let host = Sandbox::new();
    let _outside = host.outside("world", "192.0.2.1/24", "192.0.2.2/24");
    let _running = Firewalld::start(&host);
    let (a, b) = (host.pod("a"), host.pod("b"));
    let without = host.call("braid", &a, network(&[bridge()]));
    without.add().result();
    assert!(a.cannot_ping("192.0.2.2"));
    for backend in ["", "firewalld"] {
        let firewall = json!({"type": "firewall", "backend": backend});
        let call = host.call("braid", &b, network(&[bridge(), firewall]));
        let result = call.add().result();
        assert!(b.can_ping("192.0.2.2"), "{backend:?}");
        let addr = result["ips"][0]["address"]
            .as_str()
            .expect("an address")
            .replace("/24", "/32");
        assert_eq!(sources(&host), addr);
        call.check(&result).ok();
        host.run(&format!(
            "firewall-cmd --zone=trusted --remove-source={addr}"
        ));
        call.check(&result)
            .refused(999, &["is not in firewalld's zone trusted"]);
        host.run(&format!("firewall-cmd --zone=trusted --add-source={addr}"));
        // DEL must succeed without the record too.
        if backend.is_empty() {
            fs::remove_dir_all("/run/braid/attachments").expect("records");
        }
        call.prev(&result).del().ok();
        assert_eq!(sources(&host), "");
    }
    without.del().ok();
}

#[test]
fn an_unknown_firewalld_zone_is_refused_and_nothing_is_left() {
    needs_programs!("dbus-daemon", "firewalld", "firewall-cmd");
    let host = Sandbox::new();
    let running = Firewalld::start(&host);
    let pod = host.pod("a");
    let firewall = json!({"type": "firewall", "firewalldZone": "nowhere"});
    let call = host.call("braid", &pod, network(&[bridge(), firewall]));
    call.add().refused(999, &["nowhere", "INVALID_ZONE"]);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    assert_eq!(
        braid_tests::state::elements(&host)
            .iter()
            .filter(|one| one.contains(" braid "))
            .count(),
        0
    );
    drop(running);
    let firewall = json!({"type": "firewall", "backend": "firewalld"});
    let call = host.call("braid", &pod, network(&[bridge(), firewall]));
    call.add().refused(999, &["firewalld does not run"]);
    call.del().ok();
}
