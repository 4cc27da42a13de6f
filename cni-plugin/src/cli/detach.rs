//! `braid detach`: deletes all attachments of one container, and the sandbox that `braid try
//! --keep` left.

use super::{Outcome, conf, gc, output, trial};
use braid_node::apply::host::This;
use braid_node::attach::del::collect;
use braid_node::attach::orphans::records;
use clap::Args;

/// Delete all attachments of one container
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Container id
    container: String,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    // The id becomes part of a path below.
    conf::attachment(&arguments.container, "eth0", None, "")?;
    let mut records = records(&This::new(output::log()))?;
    records.retain(|record| record.key.owner.container_id == arguments.container);
    let sandbox = trial::sandbox_of(&arguments.container).filter(|path| path.exists());
    if records.is_empty() && sandbox.is_none() {
        return Err(format!("container {:?}: no attachment", arguments.container).into());
    }
    let code = gc::take_back(
        &records,
        |record| &record.key,
        |record| collect(record, &This::new(output::log())).map(|()| "detached"),
    );
    if let Some(path) = sandbox {
        trial::remove(&arguments.container, &path)?;
    }
    Ok(code)
}
