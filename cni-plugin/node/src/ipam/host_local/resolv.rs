//! `resolvConf`: DNS settings from a file like `/etc/resolv.conf`.

use braid_core::cni::{Dns, Error};
use std::fs;
use std::path::Path;

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<Dns, Error> {
    let text = fs::read(path)
        .map_err(|e| Error::internal(format!("read resolvConf {}: {e}", path.display())))?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// Parses `nameserver`, `domain`, `search` and `options`. Ignores comments, other keywords and
/// lines of fewer than two words.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|l| !l.starts_with(['#', ';']))
    {
        let mut words = line.split_whitespace().map(str::to_owned);
        match (words.next().as_deref(), words.next()) {
            (Some("nameserver"), Some(server)) => dns.nameservers.push(server),
            (Some("domain"), Some(domain)) => dns.domain = domain,
            (Some("search"), Some(first)) => dns.search.extend(std::iter::once(first).chain(words)),
            (Some("options"), Some(first)) => {
                dns.options.extend(std::iter::once(first).chain(words));
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
