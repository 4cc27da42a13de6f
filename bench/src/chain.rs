//! Calls the plugins of a conflist in the same way as libcni.

use crate::call::Call;
use crate::conflist::Conflist;
use crate::strace::Trace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Timing of one ADD or DEL through the whole list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    /// Time of the plugins alone, without the caller's work between them.
    pub(crate) took: Duration,
    /// Counts from strace, zero without it.
    pub(crate) trace: Trace,
}

impl Timing {
    /// Returns the timing of work from `start` to `end`. The whole time counts as the plugins' time.
    pub(crate) fn whole(start: Instant, end: Instant) -> Self {
        Timing {
            start,
            end,
            took: end.duration_since(start),
            trace: Trace::default(),
        }
    }
}

/// Calls each plugin with the previous result; returns the last result.
pub(crate) fn add(conflist: &Conflist, call: Call<'_>) -> Result<(Timing, Value)> {
    let mut timing = Timing::whole(Instant::now(), Instant::now());
    let mut result = None;
    for (at, plugin) in conflist.types().enumerate() {
        let output = step(
            &mut timing,
            call,
            plugin,
            &conflist.stdin(at, result.as_ref()),
        )?;
        let parsed = serde_json::from_slice(&output)
            .with_context(|| format!("ADD {plugin}: result is not JSON"))?;
        result = Some(parsed);
    }
    Ok((timing, result.unwrap_or_default()))
}

/// Calls the plugins in reverse order, each with the result of ADD.
pub(crate) fn del(conflist: &Conflist, call: Call<'_>, result: &Value) -> Result<Timing> {
    let result = Some(result).filter(|result| conflist.del_has_prev_result() && !result.is_null());
    let mut timing = Timing::whole(Instant::now(), Instant::now());
    for (at, plugin) in conflist.types().enumerate().rev() {
        step(&mut timing, call, plugin, &conflist.stdin(at, result))?;
    }
    Ok(timing)
}

fn step(timing: &mut Timing, call: Call<'_>, plugin: &str, stdin: &[u8]) -> Result<Vec<u8>> {
    let (output, took) = call.run(plugin, stdin)?;
    timing.end = Instant::now();
    timing.took += took;
    if let Some(log) = call.trace {
        let text =
            std::fs::read(log).with_context(|| format!("read strace's log {}", log.display()))?;
        timing.trace = timing.trace.add(Trace::of(&String::from_utf8_lossy(&text)));
    }
    Ok(output)
}
