use super::*;

#[test]
fn every_code_round_trips_through_its_number() {
    for number in [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51, 100, 999, u32::MAX] {
        assert_eq!(Kind::from_code(number).code(), number);
    }
    assert_eq!(Kind::from_code(7), Kind::InvalidConfig);
    assert_eq!(Kind::from_code(100), Kind::Foreign(100));
}

#[test]
fn context_goes_outside_and_keeps_code_and_details() {
    let error = Error::config("vlan 5000 is outside 1-4094")
        .with_details("d")
        .context("network \"storage\"");
    assert_eq!(
        error.to_string(),
        "network \"storage\": vlan 5000 is outside 1-4094; d"
    );
    assert_eq!(error.kind, Kind::InvalidConfig);
}

#[test]
fn place_is_built_from_the_inside_out() {
    let key = |key: &str| PathPart::Key(key.to_owned());
    let error = Error::config("bad").at_key("subnet").at_index(1);
    let error = error.context("c").at_keys("ipam.ranges");
    let path = vec![
        key("ipam"),
        key("ranges"),
        PathPart::Index(1),
        key("subnet"),
    ];
    assert_eq!(error.place(), FaultPlace::Path(path));
    assert_eq!(error.msg, "c: bad");
    assert_eq!(Error::config("bad").place(), FaultPlace::Path(Vec::new()));
    let syntax = Json::parse(b"{\n\"a\":}", "x").unwrap_err().at_key("k");
    let position = FaultPlace::Position { line: 2, column: 5 };
    assert_eq!(syntax.place(), position);
}

#[test]
fn several_errors_become_one_without_repeated_sentences() {
    let [wait, lost] = [
        Error::new(Kind::TryAgain, "lock x: held"),
        Error::internal("link a: EPERM").with_details("d"),
    ];
    let same = lost.clone().context("container c");
    let joined = |errors: &[Error]| Error::joined(errors).expect_err("an error");
    assert_eq!(Error::joined(&[]), Ok(()));
    assert_eq!(joined(&[wait.clone(), wait.clone()]), wait);
    let all = Error::internal("lock x: held; container c: link a: EPERM").with_details("d");
    assert_eq!(
        joined(&[wait.clone(), lost.clone(), same, lost.clone()]),
        all
    );
    let near = Error::internal("link a: EPERMANENT");
    assert_eq!(
        joined(&[lost.clone(), near]).msg,
        "link a: EPERM; link a: EPERMANENT"
    );
    let many: Vec<Error> = (0..500)
        .map(|at| Error::internal(format!("link {at}: EPERM")))
        .collect();
    assert!(joined(&many).msg.ends_with(" more)") && joined(&many).msg.len() < 2048);
}

#[test]
fn left_behind_objects_are_reported_once() {
    let error = Error::internal("spy failed").with_details("d");
    let left = error
        .clone()
        .and_left_behind(&[error.clone(), Error::internal("link a: EPERM")]);
    assert_eq!(
        left.to_string(),
        "spy failed; left behind until DEL or GC: link a: EPERM; d"
    );
    let left = error.clone().and_left_behind(std::slice::from_ref(&error));
    assert_eq!(left.full_msg(), "spy failed; left behind until DEL or GC");
    let outer = left.and_left_behind(&[Error::internal("link a: EPERM")]);
    assert_eq!(
        outer.full_msg(),
        "spy failed; left behind until DEL or GC: link a: EPERM"
    );
    let outermost = outer.and_left_behind(&[
        Error::internal("link b: EPERM"),
        Error::internal("spy failed"),
    ]);
    assert_eq!(
        outermost.full_msg(),
        "spy failed; left behind until DEL or GC: link a: EPERM; link b: EPERM"
    );
    assert_eq!(error.clone().and_left_behind(&[]), error);
}

#[test]
fn error_length_is_bounded() {
    let long = "x".repeat(1 << 20);
    let read = |error: Error| error.to_stdout(Version::V1_1_0).len();
    assert!(read(Error::internal(&long).with_details(&long).context(&long)) < 5000);
    let foreign = format!(r#"{{"code":107,"msg":"{long}","details":"{long}"}}"#);
    assert!(read(Error::from_stdout(foreign.as_bytes()).expect("an error")) < 5000);
}

#[test]
fn document_has_details_only_if_set() {
    let error = Error::env("m");
    assert_eq!(
        error.to_stdout(Version::V1_0_0),
        "{\n    \"cniVersion\": \"1.0.0\",\n    \"code\": 4,\n    \"msg\": \"m\"\n}"
    );
    let json = error.with_details("more").to_json(Version::V0_4_0);
    assert_eq!(
        json.to_string(),
        r#"{"cniVersion":"0.4.0","code":4,"msg":"m","details":"more"}"#
    );
}

#[test]
fn printed_error_is_read_back_unchanged() {
    for error in [
        Error::new(Kind::TryAgain, "wait").with_details("a bit"),
        Error::new(Kind::Foreign(123), "own"),
        Error::new(Kind::Foreign(0), ""),
    ] {
        assert_eq!(
            Error::from_stdout(error.to_stdout(Version::V1_1_0).as_bytes()),
            Ok(error)
        );
    }
}

#[test]
fn output_that_is_not_an_error_document_is_refused() {
    for stdout in ["", "panic: oh", "[]", r#"{"code":"x"}"#, r#"{"code":-1}"#] {
        assert_eq!(
            Error::from_stdout(stdout.as_bytes()).unwrap_err().kind,
            Kind::Decode,
            "{stdout}"
        );
    }
}
