//! Any bytes as a line of the agent's socket, in both directions, and as the report of a call. An accepted line is read back from
//! the text that is written for it.
#![no_main]

use braid_node::source::agent::protocol::{AgentRequest, AnswerLine};
use braid_node::source::agent::report::CallReport;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    if let Some(request) = AgentRequest::parse(line)
        && let Some(text) = request.line()
    {
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(AgentRequest::parse(text.trim_end_matches('\n').as_bytes()), Some(request));
    }
    if let Some(report) = CallReport::parse(line) {
        assert_eq!(CallReport::parse(report.to_string().as_bytes()), Some(report));
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return;
    };
    for line in text.lines() {
        if let Some(answer) = AnswerLine::parse(line) {
            let text = answer.to_string();
            assert_eq!(text.matches('\n').count(), 1);
            assert!(AnswerLine::parse(text.trim_end_matches('\n')).is_some());
        }
    }
});
