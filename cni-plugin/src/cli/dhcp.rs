//! `braid dhcp daemon`, or `dhcp daemon` under the plugin's name: the daemon for the IPAM plugin
//! `dhcp`, with the flags of the reference plugin.

use super::{Outcome, SUCCESS, output};
use braid_core::ipam::dhcp::config::SOCKET;
use braid_core::ipam::dhcp::timing::Limits;
use braid_node::dhcpd::{self, Settings};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "dhcp daemon [-socketpath PATH] [-pidfile PATH] [-hostprefix PATH] [-broadcast] [-timeout 10s] \
                     [-resendmax 1m2s] [-resendtimeout 3m28s]";

/// Acquire and renew DHCP leases for containers: `dhcp daemon`
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The word `daemon`, then the flags of the reference plugin: -socketpath, -pidfile,
    /// -hostprefix, -broadcast, -timeout, -resendmax, -resendtimeout
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    called_so(&arguments.words).unwrap_or_else(|| Err(format!("dhcp: usage: {USAGE}").into()))
}

/// Runs the daemon if the first word is `daemon`; returns `None` for any other word.
pub(super) fn called_so(words: &[OsString]) -> Option<Outcome> {
    let (first, flags) = words.split_first()?;
    (first == "daemon").then(|| run_daemon(flags))
}

fn run_daemon(flags: &[OsString]) -> Outcome {
    let mut words = Vec::new();
    for word in flags {
        words.push(word.to_string_lossy().into_owned());
    }
    dhcpd::run(settings(&words)?)?;
    Ok(SUCCESS)
}

/// Parses flags like Go: one dash or two, with the value after `=` or in the next word.
fn settings(words: &[String]) -> Result<Settings, String> {
    let mut settings = Settings {
        socket: SOCKET.into(),
        pidfile: None,
        host_prefix: String::new(),
        broadcast: false,
        limits: Limits::default(),
        log: output::log(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").or(word.strip_prefix('-'));
        let flag = flag.unwrap_or_default();
        if flag.is_empty() {
            return Err(format!("dhcp daemon: unexpected {word:?}; usage: {USAGE}"));
        }
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        if name == "broadcast" {
            settings.broadcast = truth(value.as_deref().unwrap_or("true"))?;
            continue;
        }
        let mut value = || {
            value
                .clone()
                .or_else(|| words.next().cloned())
                .ok_or(format!("flag needs an argument: -{name}"))
        };
        match name {
            "socketpath" => {
                let path = value()?;
                settings.socket = if path.is_empty() {
                    SOCKET.into()
                } else {
                    path.into()
                };
            }
            "pidfile" => settings.pidfile = absolute(value()?)?,
            "hostprefix" => settings.host_prefix = value()?,
            "timeout" => settings.limits.request = duration(name, &value()?)?,
            "resendmax" => settings.limits.resend_most = duration(name, &value()?)?,
            "resendtimeout" => settings.limits.give_up = duration(name, &value()?)?,
            _ => {
                return Err(format!(
                    "flag provided but not defined: -{name}; usage: {USAGE}"
                ));
            }
        }
    }
    Ok(settings)
}

fn absolute(path: String) -> Result<Option<PathBuf>, String> {
    match path.as_str() {
        "" => Ok(None),
        text if text.starts_with('/') => Ok(Some(path.into())),
        _ => Err(format!("Error writing pidfile {path:?}: path not absolute")),
    }
}

fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("invalid boolean value {text:?} for -broadcast")),
    }
}

/// Parses a duration in Go's format: numbers with units, as in `1m2.5s`.
fn duration(name: &str, text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("invalid value {text:?} for flag -{name}: not a duration such as 10s or 1m2s");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    if rest == "0" {
        return Ok(total);
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, behind) = rest.split_at(digits);
        // "ms" comes before "m", because the first match counts.
        let units = [
            ("ns", 1e-9),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ms", 1e-3),
            ("s", 1.0),
            ("m", 60.0),
            ("h", 3600.0),
        ];
        let unit = units.iter().find(|(unit, _)| behind.starts_with(unit));
        let (unit, seconds) = unit.ok_or_else(wrong)?;
        let number: f64 = number.parse().map_err(|_err| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_err| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &behind[unit.len()..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Settings, String> {
        settings(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn flags_are_parsed_like_go() {
        let none = read(&[]).expect("read");
        assert_eq!(
            (none.socket, none.broadcast),
            (PathBuf::from(SOCKET), false)
        );
        assert_eq!(none.limits, Limits::default());
        let words = [
            "-socketpath",
            "/s",
            "--pidfile=/p",
            "-hostprefix=/host",
            "-broadcast",
            "-timeout",
            "1m2.5s",
        ];
        let all = read(&[&words[..], &["-resendmax=500ms", "-resendtimeout", "1h"]].concat())
            .expect("read");
        assert_eq!(
            (all.socket, all.pidfile),
            (PathBuf::from("/s"), Some(PathBuf::from("/p")))
        );
        assert_eq!((all.host_prefix.as_str(), all.broadcast), ("/host", true));
        let limits = [
            all.limits.request,
            all.limits.resend_most,
            all.limits.give_up,
        ];
        assert_eq!(limits, [62_500, 500, 3_600_000].map(Duration::from_millis));
        assert!(!read(&["-broadcast=false"]).expect("read").broadcast);
    }

    #[test]
    fn flags_that_go_refuses_are_refused() {
        let refused: [&[&str]; 9] = [
            &["daemon"],
            &["-unknown"],
            &["-timeout"],
            &["-timeout", "10"],
            &["-timeout="],
            &["-timeout", "+"],
            &["-timeout", "-1s"],
            &["-pidfile", "p"],
            &["-broadcast=maybe"],
        ];
        for words in refused {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
