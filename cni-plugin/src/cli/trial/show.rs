//! Tables of a sandbox, its host side, and the duration of the steps.

use super::look::{LinkView, Sides};
use crate::cli::output::table;
use braid_core::kernel_numbers::RT_TABLE_MAIN;
use braid_core::plan::facts::RouteFact;
use braid_core::plan::step::Step;
use braid_node::apply::executor::Timing;
use std::path::Path;
use std::time::Duration;

/// Table of local and broadcast routes, which the kernel adds by itself.
const TABLE_LOCAL: u32 = 255;

pub(super) fn attached(
    path: &Path,
    sides: &Sides,
    timings: &[(Vec<Step>, Timing)],
    took: Duration,
) -> String {
    let links = |of, links: &[LinkView]| {
        table(
            &[of, "kind", "state", "mtu", "mac", "addresses"],
            links.iter().map(link_row),
        )
    };
    let mut routes = Vec::new();
    for route in &sides.routes {
        if route.table != TABLE_LOCAL {
            routes.push(route_row(route, &sides.pod));
        }
    }
    let mut parts = vec![
        format!("sandbox {}\n", path.display()),
        links("interface", &sides.pod),
    ];
    if !routes.is_empty() {
        parts.push(table(&["route", "via", "interface", "table"], routes));
    }
    if !sides.host.is_empty() {
        parts.push(links("host", &sides.host));
    }
    parts.push(table(&["took", "step"], time_rows(timings, took)));
    parts.join("\n")
}

fn link_row(seen: &LinkView) -> Vec<String> {
    let addrs: Vec<String> = seen.addrs.iter().map(|addr| addr.net.to_string()).collect();
    vec![
        seen.name.clone(),
        seen.link.kind.clone(),
        if seen.link.up { "up" } else { "down" }.to_owned(),
        seen.link.mtu.to_string(),
        seen.link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        addrs.join(" "),
    ]
}

fn route_row(route: &RouteFact, links: &[LinkView]) -> Vec<String> {
    let link = links
        .iter()
        .find(|seen| Some(seen.link.index) == route.link);
    let dst = if route.dst.prefix_len() == 0 {
        "default".to_owned()
    } else {
        route.dst.to_string()
    };
    let table = if route.table == RT_TABLE_MAIN {
        "main".to_owned()
    } else {
        route.table.to_string()
    };
    vec![
        dst,
        route.gw.map(|gw| gw.to_string()).unwrap_or_default(),
        link.map(|seen| seen.name.clone()).unwrap_or_default(),
        table,
    ]
}

/// Formats the durations. Steps that were sent to the kernel together have one common duration,
/// which is in the row of the first step.
fn time_rows(timings: &[(Vec<Step>, Timing)], took: Duration) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut sent = Duration::ZERO;
    for (steps, timing) in timings {
        sent += timing.took;
        for (at, step) in steps.iter().enumerate() {
            let time = if at == 0 {
                milliseconds(timing.took)
            } else {
                String::new()
            };
            rows.push(vec![time, step.to_string()]);
        }
    }
    let rest = milliseconds(took.saturating_sub(sent));
    rows.push(vec![
        rest,
        "# reading the host, deciding, reserving addresses, recording, other programs".to_owned(),
    ]);
    rows.push(vec![milliseconds(took), "# total".to_owned()]);
    rows
}

/// Formats milliseconds with three decimals.
pub(super) fn milliseconds(time: Duration) -> String {
    let micros = time.as_micros();
    format!("{}.{:03} ms", micros / 1000, micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::name::IfName;
    use braid_core::plan::step::Event;
    use braid_core::plan::thing::LinkRef;

    #[test]
    fn times_of_sends_and_the_rest_add_up_to_the_whole() {
        let step = |name| {
            Step::Wait(Event::Up(LinkRef::host(
                IfName::parse(name).expect("a name"),
            )))
        };
        let sends = [
            (
                vec![step("a"), step("b")],
                Timing {
                    first: 0,
                    count: 2,
                    took: Duration::from_micros(1500),
                },
            ),
            (
                vec![step("c")],
                Timing {
                    first: 2,
                    count: 1,
                    took: Duration::from_micros(5),
                },
            ),
        ];
        let rows = time_rows(&sends, Duration::from_millis(2));
        let times: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(times, ["1.500 ms", "", "0.005 ms", "0.495 ms", "2.000 ms"]);
    }

    #[test]
    fn default_route_is_named_default() {
        let route = RouteFact {
            dst: "0.0.0.0/0".parse().expect("a net"),
            gw: "10.1.0.1".parse().ok(),
            src: None,
            link: None,
            table: RT_TABLE_MAIN,
            scope: 0,
            from_router: false,
            priority: None,
            mtu: None,
            advmss: None,
            onlink: false,
            request: Vec::new(),
        };
        assert_eq!(route_row(&route, &[]), ["default", "10.1.0.1", "", "main"]);
    }
}
