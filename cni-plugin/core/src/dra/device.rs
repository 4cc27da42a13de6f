//! Names of devices. A link is offered twice: as a device that many pods share, and as one that a
//! single pod has alone.

use crate::name::IfName;
use sha2::{Digest, Sha256};

/// End of the name of a device that one pod has alone.
const WHOLE: &str = "-whole";
/// Number of bytes of the hash in the name of a link that is no DNS label.
const HASH_LEN: usize = 4;

/// Form in which a link is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Many pods share it.
    Shared,
    /// One pod has it alone.
    Whole,
}

/// Returns the name of the device of a link: a DNS label, different for each link.
pub fn name(link: &IfName, form: Form) -> String {
    let text = link.as_str();
    let label: String = text.chars().map(label_character).collect();
    let name = if is_label(text) && !text.ends_with(WHOLE) {
        label
    } else {
        let hash = Sha256::digest(text.as_bytes());
        let hash = base16ct::lower::encode_string(&hash[..HASH_LEN]);
        let name = format!("{}-{hash}", label.trim_matches('-'));
        name.trim_start_matches('-').to_owned()
    };
    match form {
        Form::Shared => name,
        Form::Whole => name + WHOLE,
    }
}

/// Returns the link of a device among the links of the node, and its form.
pub fn link<'l>(
    device: &str,
    links: impl IntoIterator<Item = &'l IfName>,
) -> Option<(&'l IfName, Form)> {
    links.into_iter().find_map(|link| {
        let forms = [Form::Shared, Form::Whole];
        let form = forms.into_iter().find(|form| name(link, *form) == device)?;
        Some((link, form))
    })
}

fn is_label(text: &str) -> bool {
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    has_ends && !text.is_empty() && text.chars().all(|one| label_character(one) == one)
}

fn label_character(one: char) -> char {
    if one.is_ascii_lowercase() || one.is_ascii_digit() {
        one
    } else {
        '-'
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_link_has_its_own_devices() {
        let links = [
            "eth1", "enp3s0.7", "enp3s0-7", "ETH1", "a_b", "a-", "...", "x-whole", "x",
        ];
        let links: Vec<IfName> = links
            .map(|name| IfName::parse(name).expect("a name"))
            .into();
        let mut names = BTreeSet::new();
        for of in &links {
            for form in [Form::Shared, Form::Whole] {
                let name = name(of, form);
                assert!(is_label(&name) && name.len() <= 63, "{name}");
                assert_eq!(link(&name, &links), Some((of, form)));
                assert!(names.insert(name));
            }
        }
        assert_eq!(name(&links[0], Form::Shared), "eth1");
        assert_eq!(name(&links[0], Form::Whole), "eth1-whole");
        assert_eq!(name(&links[2], Form::Shared), "enp3s0-7");
        assert_eq!(link("eth9", &links), None);
    }
}
