use super::*;
use crate::dra::claim::{Claim, Share};

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes(), "test").expect("JSON")
}

fn named(request: Option<&str>, link: &str) -> NamedLink {
    NamedLink {
        request: request.map(str::to_owned),
        link: IfName::parse(link).expect("a name"),
        form: None,
        speed: Some(Rate(10_000_000_000)),
    }
}

/// Returns the claim with the allocation of these requests, and the notes.
fn allocated(
    requests: &str,
    config: &str,
    classes: &[&str],
    links: &[NamedLink],
) -> Result<(Claim, Vec<String>), String> {
    let name = ObjectName {
        namespace: "web".to_owned(),
        name: "c".to_owned(),
    };
    let devices = json(&format!(
        r#"{{"requests":[{requests}],"config":[{config}]}}"#
    ));
    let classes: Vec<Json> = classes.iter().map(|text| json(text)).collect();
    let classes: Vec<&Json> = classes.iter().collect();
    let Allocation { json, notes } =
        allocate(&name, &devices, &classes, links).map_err(|error| error.msg)?;
    let body = format!(
        r#"{{"metadata":{{"namespace":"web","name":"c","uid":"u"}},"status":{{"allocation":{json}}}}}"#
    );
    Ok((Claim::parse(body.as_bytes()).expect("a claim"), notes))
}

fn shown(claim: &Claim) -> Vec<(&str, &str, Option<u64>)> {
    let mut shown = Vec::new();
    for Share {
        request,
        device,
        bandwidth,
        ..
    } in &claim.shares
    {
        shown.push((request.as_str(), device.as_str(), *bandwidth));
    }
    shown
}

const OPAQUE: &str = r#""opaque":{"driver":"braid.dev","parameters":{}}"#;

fn exactly(name: &str, class: &str, more: &str) -> String {
    format!(r#"{{"name":"{name}","exactly":{{"deviceClassName":"{class}"{more}}}}}"#)
}

fn rate(bandwidth: &str) -> String {
    format!(r#","capacity":{{"requests":{{"bandwidth":"{bandwidth}"}}}}"#)
}

#[test]
fn requests_have_the_named_links_and_their_bandwidth() {
    let requests = [
        exactly("a", "braid.dev", &rate("200M")),
        exactly("b", "braid.dev", ""),
        exactly("c", "whole.braid.dev", &rate("1G")),
        exactly("d", "braid.dev", &rate("1k")),
    ]
    .join(",");
    let links = [named(None, "eth1"), named(Some("c"), "enp3s0")];
    let (claim, notes) = allocated(&requests, "", &[], &links).expect("allocated");
    assert_eq!(
        shown(&claim),
        [
            ("a", "eth1", Some(200_000_000)),
            ("b", "eth1", Some(100_000_000)),
            ("c", "enp3s0-whole", None),
            ("d", "eth1", Some(1_000_000)),
        ]
    );
    assert_eq!(notes, [""; 0]);
    let mut unknown = named(None, "eth1");
    unknown.speed = None;
    let (claim, notes) =
        allocated(&exactly("b", "braid.dev", ""), "", &[], &[unknown]).expect("allocated");
    assert_eq!(shown(&claim), [("b", "eth1", None)]);
    assert_eq!(
        notes,
        [
            r#"claim web/c: request "b": the speed of eth1 is not known, so its default bandwidth is not shown"#
        ]
    );
}

#[test]
fn the_first_alternative_is_allocated_with_the_parameters_of_its_class_first() {
    let request = r#"{"name":"nic","firstAvailable":[
        {"name":"fast","deviceClassName":"lan","capacity":{"requests":{"bandwidth":"5G"}}},
        {"name":"slow","deviceClassName":"braid.dev"}]}"#;
    let class = format!(r#"{{"metadata":{{"name":"lan"}},"spec":{{"config":[{{{OPAQUE}}}]}}}}"#);
    let config = format!(r#"{{"requests":["nic"],{OPAQUE}}}"#);
    let links = [named(Some("nic"), "eth1")];
    let (claim, _) = allocated(request, &config, &[&class], &links).expect("allocated");
    assert_eq!(shown(&claim), [("nic/fast", "eth1", Some(5_000_000_000))]);
    let configs = claim.configs.iter();
    let configs: Vec<_> = configs
        .map(|one| (one.is_of_class, one.requests.join(" ")))
        .collect();
    let expected = [(true, "nic/fast"), (false, "nic")];
    assert_eq!(configs, expected.map(|(is, name)| (is, name.to_owned())));
}

#[test]
fn requests_of_other_drivers_are_left_out() {
    let gpu = r#"{"metadata":{"name":"gpu"},"spec":{"selectors":[{"cel":{"expression":"device.driver == 'gpu.example.com'"}}]}}"#;
    let whole = r#"{"metadata":{"name":"all"},"spec":{"selectors":[{"cel":{"expression":"device.driver == 'braid.dev'"}}]}}"#;
    let names = [("g", "gpu"), ("n", "none"), ("w", "all")];
    let requests = names
        .map(|(name, class)| exactly(name, class, ""))
        .join(",");
    let mut link = named(None, "eth1");
    link.form = Some(Form::Whole);
    let (claim, notes) = allocated(&requests, "", &[gpu, whole], &[link]).expect("allocated");
    assert_eq!(shown(&claim), [("w", "eth1-whole", None)]);
    assert_eq!(
        notes,
        [
            r#"claim web/c: request "g": class "gpu" is of another driver; not shown"#,
            r#"claim web/c: request "n": class "none" is not in these files; not shown"#,
        ]
    );
}

#[test]
fn a_request_without_its_links_is_refused() {
    let one = named(None, "eth1");
    let nic = |more: &str| exactly("nic", "braid.dev", more);
    let refused = |request: &str, links: &[NamedLink]| {
        let message = allocated(request, "", &[], links).expect_err(request);
        let start = r#"claim web/c: request "nic": "#;
        message.strip_prefix(start).unwrap_or(&message).to_owned()
    };
    let required = "--device nic=<link> is required: the scheduler is not asked";
    assert_eq!(refused(&nic(""), &[]), required);
    assert_eq!(refused(&nic(""), &[named(Some("other"), "eth1")]), required);
    let twice = "--device nic=<link> is required 2 times, each with another link: the scheduler is not asked";
    assert_eq!(
        refused(&nic(r#","count":2"#), std::slice::from_ref(&one)),
        twice
    );
    assert_eq!(
        refused(
            &nic(r#","allocationMode":"All""#),
            std::slice::from_ref(&one)
        ),
        r#""allocationMode": "All": only the scheduler knows all devices"#
    );
    let mut whole = one;
    whole.form = Some(Form::Whole);
    assert_eq!(
        refused(&nic(""), &[whole]),
        r#"class "braid.dev" has shares of eth1, and "whole.braid.dev" all of it"#
    );
    let both = [named(Some("nic"), "eth1"), named(Some("nic"), "eth2")];
    let (claim, _) = allocated(&nic(r#","count":2"#), "", &[], &both).expect("allocated");
    let devices: Vec<&str> = shown(&claim).iter().map(|share| share.1).collect();
    assert_eq!(devices, ["eth1", "eth2"]);
}
