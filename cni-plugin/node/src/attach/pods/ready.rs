//! Readiness of the default network, as shown by a file that the network's daemon creates.

use crate::apply::host::Machine;
use braid_core::cni::{Error, Kind};
use braid_core::k8s::settings::Settings;
use std::time::Duration;

/// Maximum time that an ADD waits. The runtime repeats the call after CNI code 11, and other pods
/// must not wait for long.
const PATIENCE: Duration = Duration::from_secs(10);

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
/// exist.
pub(super) fn check(settings: &Settings, machine: &dyn Machine) -> Result<(), Error> {
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
