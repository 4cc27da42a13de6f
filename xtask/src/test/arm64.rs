//! Unit tests and goldens of the shipped packages for aarch64, run by qemu-user. It passes system
//! calls on to this machine's kernel, but has no netlink for routes.

use crate::emulator;
use crate::musl::Toolchain;
use anyhow::{Context, Result, bail, ensure};
use braid_testbed::Arch;
use std::process::Stdio;

/// Packages with a test program each: unit tests, or the goldens of the last one.
const PACKAGES: [&str; 6] = [
    "braid",
    "braid-agent",
    "braid-client",
    "braid-core",
    "braid-node",
    "braid-tests",
];
/// Tests that qemu-user cannot run, by full name.
const LEFT_OUT: &[&str] = &[
    // eBPF: the system call is not implemented.
    "effect::host_ports::ebpf::programs::tests::kernel_loads_the_programs",
    "effect::host_ports::loopback::programs::tests::kernel_loads_the_programs",
    "effect::shaping::program::tests::kernel_loads_the_program_and_keeps_each_configuration",
    "effect::shaping::slot::tests::call_killed_between_its_writes_wastes_the_slot",
    "effect::shaping::slot::tests::forgotten_program_is_no_longer_shared",
    "effect::shaping::slot::tests::owner_that_does_not_fit_an_entry_is_not_written",
    "effect::shaping::slot::tests::program_is_shared_until_its_slots_are_assigned",
    "effect::shaping::slot::tests::slot_of_an_earlier_version_belongs_to_the_record_at_its_path",
    "effect::shaping::slot::tests::unloaded_or_unknown_program_is_not_shared",
    "effect::shaping::slot::tests::unused_slots_are_assigned_before_slots_of_gone_owners",
    "effect::xsk_guard::bind::tests::kernel_calls_the_program_if_bpf_lsm_is_on",
    "effect::xsk_guard::holds::tests::attachment_is_narrowed_to_its_link",
    "effect::xsk_guard::holds::tests::each_owner_has_one_entry_and_releases_only_it",
    "effect::xsk_guard::holds::tests::namespace_has_a_fixed_number_of_entries",
    "sys::bpf::btf::tests::running_kernel_has_ids_and_offsets",
    "sys::bpf::btf::tests::truncated_btf_is_refused_or_searched_up_to_its_end",
    // Identity and cookie of a network namespace are not implemented.
    "sys::netns::tests::each_namespace_has_another_cookie",
    "sys::netns::tests::only_the_current_namespace_is_own",
    "sys::netns::tests::thread_returns_even_if_the_work_panics",
    "sys::packet::tests::packet_socket_receives_only_its_port",
    // The kernel cannot start programs for aarch64, and strace counts the emulator's calls.
    "cli::cni::tests::panic_after_the_answer_writes_no_second_document",
    "ipam::host_local::tests::scale::one_reserve_and_release_count_the_same_syscalls_on_an_empty_and_on_a_crowded_network",
    "sys::executable::tests::links_copies_and_scripts_are_this_program",
];

/// Builds the tests and runs them. Fails as well if a program has no tests, or if another number of
/// tests is left out than [`LEFT_OUT`] lists.
pub(super) fn run() -> Result<()> {
    let qemu = emulator::install(Arch::Arm64)?;
    let mut test = Toolchain::find_or_install(Arch::Arm64)?.tests(&qemu)?;
    // Without debug information, the build is shorter.
    test.env("CARGO_PROFILE_DEV_DEBUG", "0");
    for package in PACKAGES {
        test.args(["--package", package]);
    }
    test.args([
        "--no-fail-fast",
        "--lib",
        "--test",
        "golden",
        "--",
        "--exact",
    ]);
    for name in LEFT_OUT {
        test.args(["--skip", name]);
    }
    let output = test
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {test:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    if !output.status.success() {
        bail!("{test:?}: {}", output.status);
    }
    println!(
        "{} tests passed for aarch64",
        passed(&text, LEFT_OUT.len())?
    );
    Ok(())
}

/// Numbers of tests of a program.
#[derive(Debug, Default, PartialEq)]
struct Results {
    passed: usize,
    /// Tests that are filtered out by name.
    left_out: usize,
}

/// Returns the number of passed tests in the output of all programs. `left_out` is the number of
/// tests that must be left out.
fn passed(output: &str, left_out: usize) -> Result<usize> {
    let mut programs = Vec::new();
    for line in output.lines() {
        if let Some(results) = line.strip_prefix("test result: ok. ") {
            programs.push(results_of(results)?);
        }
    }
    // The library of the goldens' package has no tests.
    programs.retain(|program| *program != Results::default());
    let of_program: Vec<usize> = programs.iter().map(|program| program.passed).collect();
    ensure!(
        of_program.len() == PACKAGES.len() && !of_program.contains(&0),
        "tests passed in each program: {of_program:?}, in {} packages",
        PACKAGES.len()
    );
    let found: usize = programs.iter().map(|program| program.left_out).sum();
    ensure!(
        found == left_out,
        "{found} tests are left out instead of {left_out}"
    );
    Ok(of_program.iter().sum())
}

/// Parses a line such as `7 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …`.
fn results_of(line: &str) -> Result<Results> {
    let mut results = Results::default();
    for part in line.split("; ") {
        let Some((number, kind)) = part.split_once(' ') else {
            continue;
        };
        let field = match kind {
            "passed" => &mut results.passed,
            "filtered out" => &mut results.left_out,
            _ => continue,
        };
        *field = number.parse().with_context(|| format!("parse {line:?}"))?;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output of programs with these numbers of passed and left out tests.
    fn output(programs: &[(usize, usize)]) -> String {
        let of_program = |(passed, left_out): &(usize, usize)| {
            format!(
                "\nrunning {passed} tests\n....\ntest result: ok. {passed} passed; 0 failed; 1 ignored; \
                 0 measured; {left_out} filtered out; finished in 0.01s\n"
            )
        };
        programs.iter().map(of_program).collect()
    }

    #[test]
    fn the_tests_of_all_programs_are_counted() -> Result<()> {
        let all = output(&[(3, 0), (5, 1), (300, 0), (40, 1), (0, 0), (2, 0), (1, 0)]);
        assert_eq!(passed(&all, 2)?, 351);
        Ok(())
    }

    #[test]
    fn a_program_without_tests_or_a_missing_program_is_an_error() {
        let all = [(3, 0), (5, 0), (300, 0), (40, 0), (2, 0), (0, 0)];
        for programs in [&all[..], &all[..5], &all[..1]] {
            assert!(passed(&output(programs), 0).is_err(), "{programs:?}");
        }
        assert!(passed("", 0).is_err());
    }

    #[test]
    fn another_number_of_tests_that_are_left_out_is_an_error() {
        let all = output(&[(3, 0), (5, 1), (300, 0), (40, 0), (2, 0), (1, 0)]);
        let said = passed(&all, 2).map_err(|err| err.to_string());
        assert_eq!(said, Err("1 tests are left out instead of 2".into()));
    }
}
