//! ADD: one transaction for all plugins of the chain.

use super::chain::{self, Chain, From, Item, Work};
use super::del::{self, give_back};
use super::liveness::Known;
use crate::apply::executor::Timing;
use crate::apply::kernel::Kernel;
use crate::apply::observe::observe;
use crate::apply::record::{Folder, Record};
use crate::apply::transaction::Transaction;
use crate::cni::{AddResult, Attachment, Command, Error, Request};
use crate::ipam::Lease;
use crate::plan::step::{LinkRef, Step};
use crate::plan::{Facts, Need};
use crate::plugins::{Call, Plugin};
use crate::sys::netns::NetNs;
use std::path::Path;

/// What a successful ADD has to say.
#[derive(Debug)]
pub struct Added {
    /// The result as the runtime reads it.
    pub stdout: String,
    /// The same as values.
    pub result: AddResult,
    /// How long each send took, with the steps that it carried.
    pub timings: Vec<(Vec<Step>, Timing)>,
}

/// Attaches the container, or leaves everything as it was.
pub fn add(request: &Request, chain: &Chain) -> Result<Added, Error> {
    let attachment = request.attachment.as_ref().ok_or_else(|| Error::env("ADD needs a container"))?;
    let netns = open_netns(attachment, request.netns_override)?;
    if let [Item { work: Work::Ipam, addresses: From::Ours(ipam), .. }] = chain.items.as_slice() {
        let known = Known::of(chain.network());
        let result = AddResult::from(ipam.reserve(&chain::owner(attachment), known.host())?);
        let stdout = result.to_stdout(request.conf.version).inspect_err(|_| {
            let _ = ipam.release(&chain::owner(attachment), known.host());
        })?;
        return Ok(Added { stdout, result, timings: Vec::new() });
    }
    let folder = Folder::lock(&attachment.container_id).map_err(internal)?;
    let mut kernel = Kernel::open(Some(netns)).map_err(internal)?;
    let record = start_record(request, chain, attachment, &folder, &mut kernel)?;
    let sandbox = attachment.netns.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
    let node = boot_id();
    let mut run = Run {
        request,
        chain,
        attachment,
        sandbox: &sandbox,
        node: &node,
        prev: request.conf.prev_result.clone(),
        done: 0,
        transaction: Transaction::new(&folder, record),
    };
    match run.all(&mut kernel) {
        Ok(stdout) => {
            let result = run.prev.unwrap_or_default();
            Ok(Added { stdout, result, timings: run.transaction.timings })
        }
        Err(error) => Err(run.fail(error, &mut kernel)),
    }
}

/// The container's namespace, which must not be the plugin's own.
pub fn open_netns(attachment: &Attachment, may_be_own: bool) -> Result<NetNs, Error> {
    let path = attachment.netns.as_deref().unwrap_or(Path::new(""));
    let netns = NetNs::open(path).map_err(|err| Error::netns(err.to_string()))?;
    if !may_be_own {
        refuse_own(&netns)?;
    }
    Ok(netns)
}

/// Refuses to work on the plugin's own namespace as if it were a container's.
pub fn refuse_own(netns: &NetNs) -> Result<(), Error> {
    let own = NetNs::current().map_err(|err| Error::internal(err.to_string()))?;
    if netns.is(&own).map_err(|err| Error::internal(err.to_string()))? {
        let sentence = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(Error::netns(format!("{sentence}: {}", netns.path().display())));
    }
    Ok(())
}

/// The record to go on with: a new one, after what an interrupted ADD left is taken back; or, where the chain only
/// changes an interface that others made, the one that an earlier call of the same chain began.
fn start_record(
    request: &Request,
    chain: &Chain,
    attachment: &Attachment,
    folder: &Folder,
    kernel: &mut Kernel,
) -> Result<Record, Error> {
    let key = chain.key(attachment);
    let mut record = Record::new(key.clone(), request.conf.json.clone());
    record.netns.clone_from(&attachment.netns);
    record.args.clone_from(&attachment.args);
    record.path.clone_from(&request.path);
    if let Some(earlier) = folder.load(&key).map_err(internal)? {
        if !chain.makes_interface() {
            return Ok(earlier);
        }
        let pod = LinkRef::pod(attachment.ifname.clone());
        if kernel.link(&pod).ok().flatten().is_some() {
            let name = attachment.ifname.as_str();
            let id = &attachment.container_id;
            return Err(Error::internal(format!("interface {name:?} of container {id} is already attached")));
        }
        del::take_back(&earlier, chain, attachment, folder, kernel)?;
    }
    Ok(record)
}

/// A number that differs between nodes and between boots.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn internal(err: impl std::fmt::Display) -> Error {
    Error::internal(err.to_string())
}

/// One ADD on its way through the chain.
struct Run<'a> {
    request: &'a Request,
    chain: &'a Chain,
    attachment: &'a Attachment,
    sandbox: &'a str,
    node: &'a str,
    /// The result so far.
    prev: Option<AddResult>,
    /// How many items hold something that a failure has to give back.
    done: usize,
    transaction: Transaction<'a>,
}

impl Run<'_> {
    fn all(&mut self, kernel: &mut Kernel) -> Result<String, Error> {
        let items = &self.chain.items;
        let mut at = 0;
        while let Some(item) = items.get(at) {
            if matches!(item.work, Work::Foreign) {
                self.foreign(at)?;
                at += 1;
                continue;
            }
            let native = items.iter().skip(at).take_while(|item| !matches!(item.work, Work::Foreign)).count();
            self.native(at, at + native, kernel)?;
            at += native;
        }
        self.prev
            .as_ref()
            .map_or_else(|| AddResult::default().to_stdout(self.version()), |r| r.to_stdout(self.version()))
    }

    fn version(&self) -> crate::cni::Version {
        self.request.conf.version
    }

    fn foreign(&mut self, at: usize) -> Result<(), Error> {
        let plugin = &self.chain.items[at].conf.plugin;
        self.transaction.will_delegate().map_err(internal)?;
        self.done = at + 1;
        let result = self.chain.delegate(plugin, at, Command::Add, Some(self.attachment), self.prev.as_ref())?;
        self.prev = result.or(self.prev.take());
        Ok(())
    }

    /// Plans neighbouring native plugins one after the other, then applies all their steps at once.
    fn native(&mut self, from: usize, to: usize, kernel: &mut Kernel) -> Result<(), Error> {
        let mut observed = Facts::default();
        let mut parts: Vec<Vec<Step>> = Vec::new();
        for at in from..to {
            let planned = self.plan(at, kernel, &mut observed, &parts)?;
            planned.warnings.iter().for_each(|warning| eprintln!("network {:?}: {warning}", self.chain.network()));
            parts.push(planned.steps);
            self.prev = Some(planned.result);
        }
        if let (Some(result), true) = (&self.prev, to == self.chain.items.len()) {
            result.convertible(self.version())?;
        }
        self.transaction.run(kernel, &parts, &observed).map_err(internal)
    }

    fn plan(
        &mut self,
        at: usize,
        kernel: &mut Kernel,
        observed: &mut Facts,
        before: &[Vec<Step>],
    ) -> Result<crate::plugins::Planned, Error> {
        let item = &self.chain.items[at];
        let Work::Native(plugin) = &item.work else {
            return Err(Error::config(format!("{:?} can't be part of a list: it is an IPAM", item.conf.plugin)));
        };
        let prev = self.prev.clone();
        let call = call(self.chain, self.attachment, self.sandbox, self.node, prev.as_ref());
        read_more(kernel, plugin.as_ref(), &call, observed)?;
        let facts = before.iter().fold(observed.clone(), |facts, steps| facts.after(steps));
        plugin.refuse(&call, &facts)?;
        let lease = self.lease(at)?;
        let planned = plugin.plan(&call, &facts, lease)?;
        planned.result.convertible(self.version()).map(|()| planned)
    }

    fn lease(&mut self, at: usize) -> Result<Option<Lease>, Error> {
        let lease = match &self.chain.items[at].addresses {
            From::Nobody => return Ok(None),
            From::Ours(ipam) => {
                let known = Known::of(self.chain.network());
                ipam.reserve(&chain::owner(self.attachment), known.host())?
            }
            From::Foreign(ipam) => {
                self.done = at + 1;
                let result = self.chain.delegate(ipam, at, Command::Add, Some(self.attachment), self.prev.as_ref())?;
                chain::lease_of(result.unwrap_or_default())
            }
        };
        self.done = at + 1;
        Ok(Some(lease))
    }

    /// Takes everything back and says what went wrong, and what could not be taken back.
    fn fail(self, error: Error, kernel: &mut Kernel) -> Error {
        let leftovers = self.transaction.roll_back(kernel);
        let mut sentences: Vec<String> = leftovers.iter().map(ToString::to_string).collect();
        for at in (0..self.done).rev() {
            sentences.extend(give_back(self.chain, at, self.attachment, None).err().map(|err| err.to_string()));
        }
        if sentences.is_empty() {
            return error;
        }
        let msg = format!("{}; left behind until DEL or GC: {}", error.msg, sentences.join("; "));
        Error { msg, ..error }
    }
}

/// What a plan may depend on.
pub fn call<'a>(
    chain: &'a Chain,
    attachment: &'a Attachment,
    sandbox: &'a str,
    node: &'a str,
    prev: Option<&'a AddResult>,
) -> Call<'a> {
    Call {
        network: chain.network(),
        container_id: &attachment.container_id,
        ifname: &attachment.ifname,
        sandbox,
        prev,
        node,
    }
}

/// Reads what the plugin needs and no earlier one asked for.
fn read_more(kernel: &mut Kernel, plugin: &dyn Plugin, call: &Call<'_>, facts: &mut Facts) -> Result<(), Error> {
    let needs: Vec<Need> = plugin.needs(call);
    facts.merge(observe(kernel, &needs).map_err(internal)?);
    Ok(())
}
