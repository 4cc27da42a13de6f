//! The arrow rule: which part of braid may name which, so that what decides never depends on what does.

use super::Violation;
use super::source::{Name, Source, is_below};

/// Who may name what, and why. A part may always name itself, and main may name all.
const ARROWS: &[(&str, &str, &str)] = &[
    ("cli", "", "the faces for people show whatever there is"),
    ("attach", "apply", "a verb is planned, then applied"),
    ("attach", "cni", "it answers a request with a result"),
    ("attach", "ipam", "a lease comes between the config and the plan"),
    ("attach", "plan", "plans are what it passes on"),
    ("attach", "plugins", "the config's type names its planner"),
    ("attach", "sys", "it opens the sandbox's namespace and takes the lock"),
    ("apply", "sys", "steps are carried out by system calls"),
    ("apply", "plan", "steps are its input, facts its output"),
    ("apply", "ipam::liveness", "what a dead container has is free, whether an address or a port"),
    ("apply", "cni", "a foreign program is asked in the protocol's words"),
    ("plugins", "plan", "a plugin turns its config into steps"),
    ("plugins", "cni", "a plugin's config is a part of the request"),
    ("plugins", "ipam", "a plugin places the lease's addresses"),
    ("ipam", "cni", "a lease becomes a part of the result"),
    ("ipam::host_local::store", "sys", "leases are files under a lock"),
    ("ipam::host_local::index", "sys", "the index is a file beside them"),
    ("ipam::host_local::liveness", "sys", "whether a container lives is asked of the kernel"),
    ("", "name", "links, hardware addresses and namespaces have one name everywhere"),
    ("k8s", "cni", "a network's configuration and result are the protocol's"),
    ("k8s::lint", "plugins", "each plugin knows what is wrong with its keys"),
    ("k8s::lint", "ipam", "and each IPAM"),
    ("source", "k8s", "what it fetches, as values"),
];

/// The places where `source` names a part that no arrow leads to.
pub(super) fn violations(source: &Source) -> Vec<Violation> {
    source.names.iter().filter_map(|name| violation(source, name)).collect()
}

fn violation(source: &Source, name: &Name) -> Option<Violation> {
    let from = name.module.first()?;
    let target = target(name)?;
    let arrives = |(start, end, _): &(&str, &str, &str)| is_below(&name.module, start) && is_below(&target, end);
    if target.first() == Some(from) || ARROWS.iter().any(arrives) {
        return None;
    }
    let allowed: Vec<&str> =
        ARROWS.iter().filter(|(start, ..)| is_below(&name.module, start)).map(|(_, end, _)| *end).collect();
    let rule = format!(
        "arrow rule: {} names {}, and may name only {}",
        name.module.join("::"),
        name.segments.join("::"),
        if allowed.is_empty() { "itself".to_owned() } else { allowed.join(", ") }
    );
    Some(Violation { path: source.path.clone(), line: name.line, rule })
}

/// What a path means from the crate's root; nothing if it does not leave its module.
fn target(name: &Name) -> Option<Vec<String>> {
    let (first, rest) = name.segments.split_first().filter(|(_, rest)| !rest.is_empty())?;
    if first == "crate" {
        return Some(rest.to_vec());
    }
    let ups = name.segments.iter().take_while(|segment| *segment == "super").count();
    let parent = name.module.get(..name.module.len().checked_sub(ups)?)?;
    (ups > 0).then(|| [parent, &name.segments[ups..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(&format!("cni-plugin/src/{path}"), text).unwrap();
        violations(&source).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_plan_that_names_the_executor_is_refused_with_its_line() {
        let source =
            Source::parse("cni-plugin/src/plan/step.rs", "//! Steps.\n\nuse crate::apply::Outcome;\n").unwrap();
        let rule = "arrow rule: plan::step names crate::apply::Outcome, and may name only itself".to_owned();
        assert_eq!(violations(&source), [Violation { path: "cni-plugin/src/plan/step.rs".into(), line: 3, rule }]);
    }

    #[test]
    fn super_leads_out_of_a_part_as_well() {
        assert_eq!(rules("plugins/bridge.rs", "use super::super::sys::netns;").len(), 1);
        assert_eq!(rules("plugins/bridge.rs", "use super::Config; fn f() { super::super::plan::x() }"), [""; 0]);
        assert_eq!(rules("apply/mod.rs", "use super::*;").len(), 1);
    }

    #[test]
    fn arrows_of_a_file_hold_for_no_other_file() {
        assert_eq!(rules("ipam/host_local/store.rs", "use crate::sys::lock;"), [""; 0]);
        assert_eq!(rules("ipam/host_local/allocator.rs", "use crate::sys::lock;").len(), 1);
    }

    #[test]
    fn an_arrow_to_a_module_is_none_to_its_parent() {
        assert_eq!(rules("apply/holder.rs", "use crate::ipam::liveness::Netns;"), [""; 0]);
        assert_eq!(rules("apply/holder.rs", "use crate::ipam::{liveness::Netns, Lease};").len(), 1);
        assert_eq!(rules("apply/holder.rs", "use crate::ipam;").len(), 1);
    }

    #[test]
    fn the_faces_name_all() {
        assert_eq!(rules("main.rs", "use crate::sys::rtnl; use braid::plan::Step;"), [""; 0]);
        assert_eq!(rules("cli/doctor.rs", "use crate::sys::release;"), [""; 0]);
    }
}
