//! Output of `braid ipam finish` for people.

use crate::cli::cluster::text::{table, wrap};
use braid_core::ipam::whereabouts::finish::Progress;
use braid_core::ipam::whereabouts::inventory::Assigned;

/// Returns the entries of Whereabouts, and the pools that are braid's alone.
pub(super) fn text(progress: &Progress) -> String {
    let mut rows = Vec::new();
    for (entries, state) in [
        (&progress.used, "in use"),
        (&progress.waiting, "no pod"),
        (&progress.released, "removed"),
    ] {
        rows.extend(entries.iter().map(|one| row(one, state)));
    }
    let mut text = String::new();
    if !rows.is_empty() {
        let header = ["pool", "address", "pod", "entry"];
        text += &table(&header, rows, &[0, 2]);
    }
    if progress.finished {
        let pools = progress.exclusive.join(", ");
        text += &wrap("", &format!("braid's alone: {pools}"), 2);
    }
    text
}

fn row(one: &Assigned, state: &str) -> Vec<String> {
    let pod = one.pod.clone().unwrap_or_default();
    vec![one.pool.clone(), one.address.clone(), pod, state.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::ipam::whereabouts::inventory::Kind;

    #[test]
    fn entries_are_shown_with_their_state_and_then_the_pools() {
        let one = |address: &str, pod: &str| Assigned {
            pool: "10.7.0.0-16".to_owned(),
            address: address.to_owned(),
            kind: Kind::Whereabouts,
            container_id: Some("4f1c".to_owned()),
            ifname: Some("net1".to_owned()),
            pod: Some(pod.to_owned()),
            node: None,
        };
        let progress = Progress {
            waiting: vec![one("10.7.0.9", "shop/web")],
            released: vec![one("10.7.0.12", "shop/db")],
            ..Progress::default()
        };
        let expected = "\
pool         address    pod       entry
10.7.0.0-16  10.7.0.9   shop/web  no pod
10.7.0.0-16  10.7.0.12  shop/db   removed
";
        assert_eq!(text(&progress), expected);
        let progress = Progress {
            finished: true,
            exclusive: ["10.7.0.0-16", "lan-fd07---120"].map(Into::into).into(),
            ..Progress::default()
        };
        let expected = "braid's alone: 10.7.0.0-16, lan-fd07---120\n";
        assert_eq!(text(&progress), expected);
    }
}
