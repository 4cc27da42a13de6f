//! Where the code lies of what few calls do.

/// Does `work`, whose code is kept out of the function that asks for it.
///
/// A call runs once through code that was never run before, and the kernel maps it in pieces of 64 KiB as it gets there.
/// The compiler would put the work of every branch, used in one place alone, into the middle of the code that all calls
/// run. Each piece less is 5 us of an ADD.
#[inline(never)]
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}
