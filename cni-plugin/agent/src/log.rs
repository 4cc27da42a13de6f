//! The log of the agent: lines on standard error, with a level and a form that can change while it
//! runs.

use crate::cluster::config::{Format, Level, Log as Settings};
use std::io::stderr;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, Layered, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// The log of this process.
pub struct Log {
    lines: Handle<Lines, Registry>,
    levels: Handle<Targets, Layered<reload::Layer<Lines, Registry>, Registry>>,
    settings: Settings,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

impl Log {
    /// Sends the log lines of this process to standard error. Call it once.
    pub fn start() -> Self {
        let settings = Settings::default();
        let (line_layer, lines) = reload::Layer::new(lines(settings.format));
        let (level_layer, levels) = reload::Layer::new(levels(settings.level));
        tracing_subscriber::registry()
            .with(line_layer)
            .with(level_layer)
            .init();
        Self {
            lines,
            levels,
            settings,
        }
    }

    /// Changes level and form.
    pub fn set(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        // It fails only without a subscriber, and then there are no lines.
        let _ = self.lines.reload(lines(settings.format));
        let _ = self.levels.reload(levels(settings.level));
        self.settings = settings;
    }
}

/// Returns the writer of lines: time in UTC (RFC 3339), level, target, message, values.
fn lines(format: Format) -> Lines {
    match format {
        Format::Text => fmt::layer().with_ansi(false).with_writer(stderr).boxed(),
        Format::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(stderr)
            .boxed(),
    }
}

/// Returns the levels: the configured one for braid, and warnings of other crates.
fn levels(level: Level) -> Targets {
    let own = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(own.min(LevelFilter::WARN))
        .with_target("braid", own)
        // The client logs the body of an answer that it cannot parse, which may contain a token.
        .with_target("kube_client", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as Tracing;

    #[test]
    fn only_braid_gets_the_configured_level_and_the_client_writes_nothing() {
        let debug = levels(Level::Debug);
        assert!(debug.would_enable("braid_agent::agent", &Tracing::DEBUG));
        assert!(!debug.would_enable("hyper", &Tracing::INFO));
        assert!(debug.would_enable("hyper", &Tracing::WARN));
        let error = levels(Level::Error);
        assert!(!error.would_enable("hyper", &Tracing::WARN));
        assert!(!error.would_enable("braid_agent", &Tracing::WARN));
        assert!(!debug.would_enable("kube_client::client", &Tracing::ERROR));
    }
}
