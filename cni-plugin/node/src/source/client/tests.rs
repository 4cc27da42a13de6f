use super::*;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;
use tempfile::TempDir;

const LONGEST: Duration = Duration::from_secs(20);

/// Asks a client, which is a shell script, for the uids of all claims. `value` is the new value of
/// an annotation.
fn ask(
    script: &str,
    longest: Duration,
    value: &dyn Fn(Option<&str>) -> Option<String>,
) -> io::Result<Result<Vec<String>, SourceError>> {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("client");
    fs::write(
        &program,
        format!("#!/bin/sh\nread opening; read request\n{script}\n"),
    )
    .unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut running = Running::start(&program, Path::new("/k"), Limits::default()).unwrap();
    let asked = Asked {
        limit: None,
        request: ClientRequest::ClaimUids,
    };
    running.send(&asked)?;
    running.answer(value, longest)
}

#[test]
fn an_answer_is_returned_and_an_error_of_the_server_too() {
    let done = ask(r#"echo '{"Done":{"Ok":["u"]}}' >&0"#, LONGEST, &keep);
    assert_eq!(done.unwrap().unwrap(), ["u"]);
    let why = r#"echo '{"Done":{"Err":{"NotFound":{"what":"pod a/b"}}}}' >&0"#;
    let what = "pod a/b".to_owned();
    assert_eq!(
        ask(why, LONGEST, &keep).unwrap(),
        Err(SourceError::NotFound { what })
    );
}

#[test]
fn new_value_of_an_annotation_comes_from_the_call() {
    let script = r#"echo '{"Value":"a"}' >&0; read new; echo "{\"Done\":{\"Ok\":[$new]}}" >&0"#;
    let value = |now: Option<&str>| Some(format!("{}b", now.unwrap_or_default()));
    assert_eq!(ask(script, LONGEST, &value).unwrap().unwrap(), ["ab"]);
}

#[test]
fn a_client_that_ends_or_writes_something_else_is_an_error() {
    for script in ["exit 1", "echo garbage >&0", "echo '{\"Done\":' >&0"] {
        assert!(ask(script, LONGEST, &keep).is_err(), "{script}");
    }
}

#[test]
fn a_client_that_does_not_answer_is_given_up_and_killed() {
    let start = Instant::now();
    assert!(ask("exec sleep 1000", Duration::from_millis(50), &keep).is_err());
    assert!(start.elapsed() < Duration::from_secs(500));
}

/// Returns a client with a shell script as its program.
fn scripted(folder: &TempDir, script: &str) -> Client {
    let program = folder.path().join("client");
    fs::write(&program, format!("#!/bin/sh\nread opening\n{script}\n")).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let limits = Limits {
        process: Duration::from_secs(1000),
        ..Limits::default()
    };
    let running = Running::start(&program, Path::new("/k"), limits).unwrap();
    Client {
        running: Some(running),
        ..Client::new(PathBuf::from("/k"), limits)
    }
}

fn pod() -> Pod {
    let [namespace, name, uid] = ["a", "b", "u"].map(str::to_owned);
    Pod {
        name: ObjectName { namespace, name },
        uid,
        annotations: BTreeMap::new(),
        resource_claims: Vec::new(),
        node: String::new(),
        is_over: false,
    }
}

#[test]
fn a_failed_add_waits_only_shortly_for_a_status_that_is_not_written() {
    let folder = TempDir::new().unwrap();
    let mut client = scripted(&folder, "read status; exec sleep 1000");
    let start = Instant::now();
    assert!(client.begin(&pod(), &[]));
    let limit = Duration::from_millis(50);
    client.withdraw_within(limit, &pod(), "c").unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(500));
}

#[test]
fn a_failed_add_withdraws_its_status_within_a_limit_that_later_requests_do_not_have() {
    let folder = TempDir::new().unwrap();
    let answer = r#"echo '{"Done":{"Ok":null}}' >&0"#;
    let file = folder.path().join("asked");
    let script = format!(
        "while read -r asked; do echo \"$asked\" >>{}; {answer}; done",
        file.display()
    );
    let mut client = scripted(&folder, &script);
    client.begin(&pod(), &[]);
    let limit = Duration::from_millis(2500);
    client.withdraw_within(limit, &pod(), "c").unwrap();
    let edit = Edit {
        key: "k",
        seen: None,
        value: &keep,
    };
    client.annotate(&pod().name, "u", &edit).unwrap();
    let mut limits = Vec::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        limits.push(serde_json::from_str::<Asked>(line).unwrap().limit);
    }
    assert_eq!(limits, [None, Some(limit), None]);
}

#[test]
fn a_program_that_cannot_be_started_is_a_temporary_error_with_its_path() {
    let started = Running::start(Path::new("/no/client"), Path::new("/k"), Limits::default());
    let Err(SourceError::Passing { why }) = started else {
        panic!("{started:?}");
    };
    assert!(why.contains("start /no/client: No such file"), "{why}");
}
