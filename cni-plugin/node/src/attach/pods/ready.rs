//! Readiness of the default network, as shown by files that its daemon or the agent creates.

use crate::apply::host::Machine;
use braid_core::cni::{Error, Kind};
use braid_core::k8s::settings::Settings;
use std::time::Duration;

/// Maximum time that an ADD waits. The runtime repeats the call after CNI code 11, and other pods
/// must not wait for long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after the boot in which STATUS waits for the agent's routes.
const OF_BOOT: Duration = Duration::from_mins(1);

/// Waits for the readiness file in the settings, if any. Fails with CNI code 11 (try again later)
/// if the file does not appear.
pub(super) fn wait(settings: &Settings, machine: &dyn Machine) -> Result<(), Error> {
    let Some(file) = &settings.readiness_file else {
        return Ok(());
    };
    if machine.await_file(file, PATIENCE) {
        return Ok(());
    }
    let sentence = format!(
        "readinessindicatorfile: {} does not exist after {PATIENCE:?}",
        file.display()
    );
    Err(Error::new(Kind::TryAgain, sentence))
}

/// Fails with CNI code 50 (plugin not available) if the readiness file in the settings does not
/// exist, or if the agent has not yet set the routes of this boot.
pub(super) fn check(settings: &Settings, machine: &dyn Machine) -> Result<(), Error> {
    check_network(settings, machine)?;
    let Some(file) = &settings.routes_file else {
        return Ok(());
    };
    if !are_awaited(machine.await_file(file, Duration::ZERO), machine.uptime()) {
        return Ok(());
    }
    Err(Error::not_available(format!(
        "the agent has not yet set the routes of this boot: {} does not exist",
        file.display()
    )))
}

/// True if routes are missing because the node has just booted. After that, an agent that is away
/// must not take the node out of service.
fn are_awaited(are_set: bool, uptime: Option<Duration>) -> bool {
    !are_set && uptime.is_some_and(|uptime| uptime < OF_BOOT)
}

fn check_network(settings: &Settings, machine: &dyn Machine) -> Result<(), Error> {
    let Some(file) = settings
        .readiness_file
        .as_ref()
        .filter(|file| !machine.await_file(file, Duration::ZERO))
    else {
        return Ok(());
    };
    Err(Error::not_available(format!(
        "readinessindicatorfile: {} does not exist",
        file.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_awaited_for_a_minute_after_the_boot() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        assert!(are_awaited(false, after(0)));
        assert!(are_awaited(false, after(59)));
        assert!(!are_awaited(false, after(60)));
        assert!(!are_awaited(true, after(1)));
        assert!(!are_awaited(false, None), "the clock cannot be read");
    }
}
