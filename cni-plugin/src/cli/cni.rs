//! A plugin call: environment and standard input in, result or error out.

use crate::attach;
use crate::attach::chain::BRAID;
use crate::cni::request::Environment;
use crate::cni::version::version_reply;
use crate::cni::{Command, Error, Version};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// Room for a usual configuration, so that it is read at once.
const INPUT_LEN: usize = 16 * 1024;

/// Answers the call that the environment describes.
pub fn run() -> ExitCode {
    set_panic_answer();
    let mut version = Version::NEWEST;
    match answer(&mut version) {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err(error) => print(&error.to_stdout(version), ExitCode::FAILURE),
    }
}

/// The plugin that the program was called as.
pub fn face() -> String {
    let argv0 = std::env::args_os().next().unwrap_or_default();
    Path::new(&argv0).file_name().and_then(OsStr::to_str).unwrap_or(BRAID).to_owned()
}

fn answer(version: &mut Version) -> Result<String, Error> {
    let env = |key: &str| std::env::var_os(key).map(|value| value.to_string_lossy().into_owned());
    let Some(environment) = Environment::parse(&env)? else { return Ok(String::new()) };
    if environment.command() == Some(Command::Version) {
        return Ok(version_reply(&Version::ALL));
    }
    let mut stdin = Vec::with_capacity(INPUT_LEN);
    std::io::stdin().lock().read_to_end(&mut stdin).map_err(|err| Error::io(format!("read standard input: {err}")))?;
    let request = environment.request(&stdin, &Version::ALL)?;
    *version = request.conf.version;
    attach::answer(&request, &face())
}

/// Writes the answer; an ADD whose answer nobody can read has failed.
fn print(text: &str, code: ExitCode) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A panic must still answer the runtime; its text goes to standard error as well.
fn set_panic_answer() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        let error = Error::internal(format!("this is a bug in braid: {panic}"));
        let _ = std::io::stdout().write_all(error.to_stdout(Version::NEWEST).as_bytes());
    }));
}
