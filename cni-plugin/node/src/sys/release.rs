//! Release of the running kernel, such as `6.12.0-1-amd64`.

use nix::sys::utsname::uname;

/// Returns the release; empty if it is unknown.
pub fn release() -> String {
    match uname() {
        Ok(names) => names.release().to_string_lossy().into_owned(),
        Err(_) => String::new(),
    }
}

/// True if the kernel has this version or a later one.
pub fn is_at_least(major: u32, minor: u32) -> bool {
    parsed(&release()).is_some_and(|version| version >= (major, minor))
}

fn parsed(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_starts_with_two_numbers() {
        assert_eq!(parsed("6.12.90-1-amd64"), Some((6, 12)));
        assert_eq!(parsed("6.18-rc1"), Some((6, 18)));
        assert_eq!(parsed("10.1"), Some((10, 1)));
        for none in ["", "unknown"] {
            assert_eq!(parsed(none), None);
        }
        assert!(is_at_least(5, 0) && !is_at_least(1000, 0));
    }
}
