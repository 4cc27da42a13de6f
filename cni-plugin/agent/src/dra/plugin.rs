//! The kubelet's access to the driver: there while devices are offered, and while a claim is prepared.
//! Without it, a pod with a prepared claim would not end.

use super::claims::Stored;
use super::driver::ClaimDriver;
use super::wish::Wish;
use crate::error::Error;
use crate::kubelet::{Plugin, Registration};
use braid_core::dra::DRIVER;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The plugin of the kubelet, running or not.
pub(super) struct KubeletPlugin {
    /// Folder of the kubelet.
    folder: PathBuf,
    driver: ClaimDriver,
    running: Option<Plugin>,
}

impl KubeletPlugin {
    pub(super) fn new(folder: PathBuf, driver: ClaimDriver) -> Self {
        Self {
            folder,
            driver,
            running: None,
        }
    }

    /// Logs the claims with a damaged file. The agent reads them from the API when a request needs them.
    pub(super) async fn report_damaged(&self) {
        match self.driver.0.claims.read().await {
            Ok(Stored { damaged, .. }) => {
                for uid in damaged {
                    tracing::warn!(uid, "the file of a prepared claim is damaged");
                }
            }
            Err(err) => tracing::warn!(error = %err, "prepared claims"),
        }
    }

    /// Starts or ends the plugin. Returns a sentence if the kubelet refuses it.
    pub(super) async fn keep(&mut self, wish: &Wish) -> Result<Option<String>, Error> {
        let is_offered = wish.is_offered();
        if !is_offered && !self.has_claims().await {
            if self.running.take().is_some() {
                tracing::info!("ended the plugin of the kubelet");
            }
            return Ok(None);
        }
        let plugin = match &mut self.running {
            Some(plugin) => plugin,
            running => match Plugin::start(&self.folder, DRIVER, self.driver.clone()) {
                Ok(plugin) => {
                    tracing::info!(folder = %self.folder.display(), "started a plugin of the kubelet");
                    running.insert(plugin)
                }
                // The agent's container has no folder of the kubelet if no devices are offered.
                Err(err) if !is_offered => {
                    let sentence = format!(
                        "claims are prepared, but the kubelet cannot end them, and pods with claims stay \
                         Terminating: {err}"
                    );
                    return Ok(Some(sentence));
                }
                Err(err) => {
                    let folder = self.folder.display();
                    let doing = format_args!("start a plugin of the kubelet in {folder}");
                    return Err(Error::new(doing, err));
                }
            },
        };
        Ok(match &*plugin.registration().borrow() {
            Registration::Refused(why) => Some(format!("the kubelet refuses the plugin: {why}")),
            Registration::Pending | Registration::Registered => None,
        })
    }

    /// Returns the devices that prepared claims have alone.
    pub(super) async fn devices_alone(&self) -> BTreeSet<String> {
        let read = self.driver.0.claims.read().await;
        let prepared = read.unwrap_or_default().whole;
        let shares = prepared.into_iter().flat_map(|one| one.claim.shares);
        let alone = shares.filter(|share| share.share_id.is_none());
        alone.map(|share| share.device).collect()
    }

    async fn has_claims(&self) -> bool {
        let read = self.driver.0.claims.read().await;
        // Claims that can't be read may be there.
        read.map_or(true, |Stored { whole, damaged }| {
            !whole.is_empty() || !damaged.is_empty()
        })
    }

    /// Shows claims and bandwidths in the metrics.
    pub(super) async fn show_traffic(&self) {
        self.driver.0.show_traffic().await;
    }
}
