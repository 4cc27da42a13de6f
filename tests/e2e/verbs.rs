//! Every verb of libcni, in each CNI version that differs, with braid under the names of the
//! reference plugins and as one plugin.

use crate::cnitool::{Form, Node, Plugins, cached, conflist};
use crate::program::needs_programs;
use braid_tests::Ns;

/// CNI versions: the oldest with CHECK, the first with a separate result type, and the first with
/// GC and STATUS.
const VERSIONS: [&str; 3] = ["0.4.0", "1.0.0", "1.1.0"];

#[test]
fn braid_serves_every_verb_of_libcni_under_the_reference_names() {
    needs_programs!("cnitool");
    for version in VERSIONS {
        every_verb(Form::Names, version);
    }
}

#[test]
fn braid_serves_every_verb_of_libcni_as_one_plugin() {
    needs_programs!("cnitool");
    for version in VERSIONS {
        every_verb(Form::Braid, version);
    }
}

fn every_verb(form: Form, version: &str) {
    let node = Node::new(conflist(form, version));
    let pod = node.pod("a");
    node.ok(Plugins::Braid, "status", &pod);
    let addr = node.add(Plugins::Braid, &pod);
    assert_attached(&pod, &addr);
    node.ok(Plugins::Braid, "check", &pod);
    node.ok(Plugins::Braid, "status", &pod);
    node.ok(Plugins::Braid, "del", &pod);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    node.assert_nothing_left();
    // cnitool's GC considers no attachment valid. In every version it detaches everything in
    // libcni's cache.
    let addr = node.add(Plugins::Braid, &pod);
    assert_attached(&pod, &addr);
    node.ok(Plugins::Braid, "gc", &pod);
    assert_eq!(pod.link_names(), Vec::<String>::new());
    node.assert_nothing_left();
}

#[track_caller]
fn assert_attached(pod: &Ns, addr: &str) {
    assert_eq!(pod.addrs("eth0"), [addr]);
    assert_eq!(pod.the_link("eth0")["mtu"], 1400);
    let routes = pod.routes("-4");
    let default = routes
        .iter()
        .find(|route| route["dst"] == "default")
        .expect("a default route");
    assert_eq!(
        (&default["gateway"], &default["dev"]),
        (&"10.1.0.1".into(), &"eth0".into())
    );
    assert!(pod.can_ping("10.1.0.1"), "the gateway answers");
    assert_eq!(cached(), 1, "libcni knows the attachment");
}
