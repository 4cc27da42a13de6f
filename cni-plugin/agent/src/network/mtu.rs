//! MTU of pods.

use super::vxlan::Underlay;
use crate::cluster::config::{Config, Mode};

/// Returns the MTU of pods in bytes. In mode `auto` it leaves room for VXLAN, since a node can move
/// from a direct route to VXLAN at any time, and pods keep their MTU.
pub fn of_pods(config: &Config, underlay: Option<Underlay>, uplink_mtu: u32) -> u32 {
    if let Some(mtu) = config.mtu {
        return mtu;
    }
    match config.mode {
        // Flannel's own configuration decides in mode `flannel`.
        Mode::Direct | Mode::Flannel | Mode::None => uplink_mtu,
        Mode::Auto | Mode::Vxlan => {
            uplink_mtu.saturating_sub(underlay.map_or(0, Underlay::overhead))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_pods_fit_into_the_uplink_in_each_mode() {
        let [v4, v6] = [Underlay::V4, Underlay::V6].map(Some);
        for (mode, underlay, expected) in [
            (Mode::Direct, v4, 9000),
            (Mode::None, v6, 9000),
            (Mode::Vxlan, v4, 8950),
            (Mode::Vxlan, v6, 8930),
            (Mode::Auto, v4, 8950),
            (Mode::Auto, v6, 8930),
        ] {
            let mut config = Config {
                mode,
                ..Config::default()
            };
            assert_eq!(of_pods(&config, underlay, 9000), expected, "{mode:?}");
            config.mtu = Some(1400);
            assert_eq!(of_pods(&config, underlay, 9000), 1400, "{mode:?}");
        }
    }
}
