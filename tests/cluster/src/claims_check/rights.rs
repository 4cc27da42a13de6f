//! Rights of the agent to claims and slices: each is used, and no other request is sent.

use super::objects::get;
use anyhow::{Result, ensure};
use braid_testbed::Cluster;
use braid_testbed::audit::{Audit, granted};
use std::collections::BTreeSet;

const GROUP: &str = " resource.k8s.io/";
/// Right that the API server asks about beside a request, so that no request has it.
const BESIDE: &str = "associated-node:patch resource.k8s.io/resourceclaims/driver";

/// Compares the requests of braid's account with its roles. With `is_brief`, rights may be unused.
pub(super) fn check(cluster: &Cluster, is_brief: bool) -> Result<()> {
    let audit = Audit::of(cluster)?;
    let is_of_group = |right: &String| right.contains(GROUP);
    let of_claims = granted(&get(cluster, &["clusterrole", "braid-dra"])?);
    let mut rights = granted(&get(cluster, &["clusterrole", "braid"])?);
    rights.extend(of_claims.iter().cloned());
    let asked: BTreeSet<String> = audit.asked().into_iter().filter(is_of_group).collect();
    let more: Vec<&String> = asked.difference(&rights).collect();
    ensure!(more.is_empty(), "requests without a right: {more:?}");
    let mut unused: Vec<&String> = of_claims.difference(&asked).collect();
    unused.retain(|right| *right != BESIDE && !is_brief);
    ensure!(unused.is_empty(), "rights without use: {unused:?}");
    let forbidden: Vec<String> = audit.forbidden().into_iter().filter(is_of_group).collect();
    ensure!(
        forbidden.is_empty(),
        "refused by the API server: {forbidden:?}"
    );
    println!("the agents use their rights to claims and slices, and no other");
    Ok(())
}
