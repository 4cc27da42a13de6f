//! `resolvConf`: DNS settings from a file like `/etc/resolv.conf`.

use braid_core::cni::{Dns, Error};
use braid_core::ipam::host_local::HostLocalConfig;
use std::fs;
use std::path::Path;

/// Returns the DNS settings in the file that the key `resolvConf` names; empty settings without
/// that key.
pub fn dns(config: &HostLocalConfig) -> Result<Dns, Error> {
    match &config.resolv_conf {
        Some(path) => read(path),
        None => Ok(Dns::default()),
    }
}

/// Reads the file at `path`.
fn read(path: &Path) -> Result<Dns, Error> {
    let text = fs::read(path)
        .map_err(|e| Error::internal(format!("read resolvConf {}: {e}", path.display())))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Parses `nameserver`, `domain`, `search` and `options`. Ignores comments, other keywords and
/// lines of fewer than two words.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(keyword), Some(first)) = (words.next(), words.next()) else {
            continue;
        };
        match keyword.as_str() {
            "nameserver" => dns.nameservers.push(first),
            "domain" => dns.domain = first,
            "search" => {
                dns.search.push(first);
                dns.search.extend(words);
            }
            "options" => {
                dns.options.push(first);
                dns.options.extend(words);
            }
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_keywords_are_parsed_and_other_lines_ignored() {
        let text = "# c\n; c\nnameserver 192.0.2.1\n nameserver 192.0.2.2 x\nsearch a b\nsearch c\ndomain old\n\
                    domain example.org\noptions ndots:5 edns0\noptions\nsortlist 1\n";
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let expected = Dns {
            nameservers: words(&["192.0.2.1", "192.0.2.2"]),
            domain: "example.org".to_owned(),
            search: words(&["a", "b", "c"]),
            options: words(&["ndots:5", "edns0"]),
        };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), Dns::default());
    }

    #[test]
    fn missing_file_is_named_in_the_error() {
        let error = read(Path::new("/nonexistent/resolv.conf")).unwrap_err();
        assert!(
            error
                .msg
                .starts_with("read resolvConf /nonexistent/resolv.conf: No such file"),
            "{error}"
        );
    }
}
