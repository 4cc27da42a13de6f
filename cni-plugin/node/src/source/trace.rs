//! Trace of this process' call.

use braid_core::cni::trace::{TRACEPARENT, TraceId};

/// Returns the trace in the environment of this process; `None` if there is none.
pub fn of_process() -> Option<TraceId> {
    let value = std::env::var_os(TRACEPARENT)?;
    TraceId::parse(value.to_str()?)
}
