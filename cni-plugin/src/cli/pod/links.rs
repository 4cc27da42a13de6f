//! Links of this node that the user names for requests of claims, in place of the scheduler.

use braid_core::cni::Error;
use braid_core::dra::allocation::NamedLink;
use braid_core::dra::device;
use braid_core::dra::rate::Rate;
use braid_core::name::IfName;
use braid_node::sys::carrier::speed_mbit;
use std::os::unix::net::UnixDatagram;

/// Parses `[<request>=]<link or device>`. `links` are the links of this node.
pub(super) fn parse(text: &str, links: &[IfName]) -> Result<NamedLink, Error> {
    let (request, name) = match text.split_once('=') {
        Some((request, name)) => (Some(request.to_owned()), name),
        None => (None, text),
    };
    let same = links.iter().find(|link| link.as_str() == name);
    let found = match same {
        Some(link) => Some((link, None)),
        None => device::link(name, links).map(|(link, form)| (link, Some(form))),
    };
    let Some((link, form)) = found else {
        return Err(Error::config(format!(
            "--device {text}: this node has no such link"
        )));
    };
    Ok(NamedLink {
        request,
        link: link.clone(),
        form,
        speed: speed(link),
    })
}

/// Returns the speed of a link; `None` if it can't be read, as of a link without one.
fn speed(link: &IfName) -> Option<Rate> {
    let socket = UnixDatagram::unbound().ok()?;
    let speed = speed_mbit(&socket, link).ok().flatten();
    speed.map(Rate::of_mbit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_core::dra::device::Form;

    #[test]
    fn a_link_is_named_by_itself_or_as_a_device() {
        let links = ["no-such-0", "no-such0.7"].map(|name| IfName::parse(name).expect("a name"));
        let parsed = |text: &str| {
            parse(text, &links)
                .map(|named| (named.request, named.link.to_string(), named.form))
                .map_err(|error| error.msg)
        };
        let nic = || Some("nic".to_owned());
        let name = |number: usize| links[number].to_string();
        let device = device::name(&links[1], Form::Shared);
        assert_eq!(parsed("no-such-0"), Ok((None, name(0), None)));
        assert_eq!(parsed("nic=no-such0.7"), Ok((nic(), name(1), None)));
        let shared = Ok((nic(), name(1), Some(Form::Shared)));
        assert_eq!(parsed(&format!("nic={device}")), shared);
        let whole = Ok((None, name(0), Some(Form::Whole)));
        assert_eq!(parsed("no-such-0-whole"), whole);
        let missing = Err("--device nic=eth9: this node has no such link".to_owned());
        assert_eq!(parsed("nic=eth9"), missing);
    }
}
