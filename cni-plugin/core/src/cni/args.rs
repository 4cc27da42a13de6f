//! `CNI_ARGS`: `K=V` pairs separated by `;`.

use super::Error;

const IGNORE_UNKNOWN: &str = "IgnoreUnknown";

/// Arguments of `CNI_ARGS`, by name. Names are case-sensitive, and the last of several equal names
/// is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs(Vec<(String, String)>);

impl CniArgs {
    /// Parses `CNI_ARGS` like the reference plugins; errors have CNI code 4. Each pair must have
    /// exactly one `=`. A name outside `known` is refused unless `IgnoreUnknown` is true.
    pub fn parse(text: &str, known: &[&str]) -> Result<Self, Error> {
        let mut pairs = Vec::new();
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        if text.is_empty() {
            return Ok(Self(pairs));
        }
        for pair in text.split(';') {
            match pair.split('=').collect::<Vec<_>>()[..] {
                [IGNORE_UNKNOWN, value] => ignore_unknown = parse_bool(pair, value)?,
                [key, _] if !known.contains(&key) => unknown.push(pair),
                [key, value] => pairs.push((key.to_owned(), value.to_owned())),
                _ => return Err(Error::env(format!("ARGS: invalid pair {pair:?}"))),
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            let quoted: Vec<String> = unknown.iter().map(|pair| format!("{pair:?}")).collect();
            return Err(Error::env(format!(
                "ARGS: unknown args [{}]",
                quoted.join(" ")
            )));
        }
        Ok(Self(pairs))
    }

    /// Returns the value of `key`; `None` if absent or empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.0.iter().rev().find(|(name, _)| name == key)?;
        if value.is_empty() { None } else { Some(value) }
    }
}

fn parse_bool(pair: &str, value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Error::env(format!(
            "ARGS: error parsing value of pair {pair:?}: expected 1, 0, true or false"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_read_and_the_last_duplicate_is_used() {
        let args = CniArgs::parse("MAC=aa;IP=10.0.0.1;MAC=bb", &["IP", "MAC"]).unwrap();
        assert_eq!(
            (args.get("MAC"), args.get("IP"), args.get("mac")),
            (Some("bb"), Some("10.0.0.1"), None)
        );
        assert_eq!(CniArgs::parse("", &[]), Ok(CniArgs::default()));
        assert_eq!(CniArgs::parse("IP=", &["IP"]).unwrap().get("IP"), None);
    }

    #[test]
    fn unknown_names_are_accepted_only_with_ignore_unknown() {
        let error = CniArgs::parse("FOO=1;IP=x;bar=", &["IP"]).unwrap_err();
        assert_eq!(error.msg, r#"ARGS: unknown args ["FOO=1" "bar="]"#);
        for ignore in ["1", "true", "TRUE", "True"] {
            let args = CniArgs::parse(&format!("FOO=1;IgnoreUnknown={ignore}"), &[]).unwrap();
            assert_eq!(args.get("FOO"), None, "an unknown name has no value");
        }
        assert!(CniArgs::parse("FOO=1;IgnoreUnknown=false", &[]).is_err());
        assert!(
            CniArgs::parse("FOO=1;ignoreunknown=1", &[]).is_err(),
            "the name is case-sensitive"
        );
    }

    #[test]
    fn malformed_text_is_refused() {
        for (text, pair) in [
            ("IP=1;", ""),
            ("none", "none"),
            ("IP=a=b", "IP=a=b"),
            (";", ""),
        ] {
            assert_eq!(
                CniArgs::parse(text, &["IP"]).unwrap_err().msg,
                format!("ARGS: invalid pair {pair:?}")
            );
        }
        assert!(CniArgs::parse("IgnoreUnknown=yes", &[]).is_err());
    }
}
