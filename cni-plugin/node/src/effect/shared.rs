//! Things that several attachments share.

use braid_core::plan::facts::Facts;
use braid_core::plan::step::Step;
use braid_core::plan::thing::Thing;

/// True if the facts show a shared thing in the state that the step requires. Sysctls are compared
/// here, since `holds` accepts any value of an optional sysctl.
pub(crate) fn is_there_already(step: &Step, facts: &Facts) -> bool {
    match step {
        Step::Ensure(Thing::Sysctl(sysctl)) => {
            facts.sysctl_is(sysctl.ns, &sysctl.key, &sysctl.value)
        }
        Step::Ensure(
            thing @ (Thing::Link(_) | Thing::Attr(_) | Thing::Vlan(_) | Thing::Addr(_)),
        ) => thing.state().holds(facts).is_ok(),
        Step::Add(_)
        | Step::Ensure(_)
        | Step::Del(_)
        | Step::Set { .. }
        | Step::Retune { .. }
        | Step::Wait(_)
        | Step::Forget(..)
        | Step::Legacy(_) => false,
    }
}
