use super::*;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use tempfile::TempDir;

/// A folder with the agent's socket.
struct Place {
    folder: TempDir,
    listener: UnixListener,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("sock")).expect("a socket");
        Self { folder, listener }
    }

    fn agent(&self) -> Agent {
        let folder = self.folder.path();
        Agent::at(&folder.join("sock"), &folder.join("silent"))
    }

    /// Asks for a network while `serve` answers. Returns the answer and the time that it took.
    fn asked(&self, serve: impl FnOnce(UnixStream) + Send) -> (Option<Answer>, Duration) {
        thread::scope(|scope| {
            scope.spawn(|| serve(self.listener.accept().expect("a connection").0));
            let start = Instant::now();
            let answer = self.agent().networks(&[name("a")]);
            (answer, start.elapsed())
        })
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName {
        namespace: "lan".into(),
        name: name.into(),
    }
}

#[test]
fn answer_in_pieces_is_put_together() {
    let place = Place::new();
    let (answer, _) = place.asked(|mut stream| {
        let mut line = [0; 15];
        stream.read_exact(&mut line).expect("a request");
        assert_eq!(&line, b"networks lan/a\n");
        let config = "x".repeat(3 * BUFFER);
        let text = format!("+\nnetwork lan/a {{\"metadata\":{{}},\"spec\":{{\"config\":\"{config}\"}}}}\nno-network lan/b\nend\n");
        for piece in text.as_bytes().chunks(1000) {
            stream.write_all(piece).expect("written");
        }
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer.networks[&name("b")], None);
    let nad = answer.networks[&name("a")].as_ref().expect("a network");
    assert_eq!(nad.config.len(), 3 * BUFFER);
}

#[test]
fn agent_that_never_acknowledges_costs_100_ms_and_the_next_call_does_not_wait() {
    let place = Place::new();
    let (answer, time) = place.asked(hold);
    assert!(answer.is_none());
    assert!(time >= ACKNOWLEDGED_WITHIN, "{time:?}");
    assert!(place.folder.path().join("silent").exists());
    // The mark may have expired on a slow machine.
    place.agent().set_silent();
    assert!(place.agent().networks(&[name("a")]).is_none());
    place.listener.set_nonblocking(true).expect("a socket");
    assert!(place.listener.accept().is_err(), "the next call connected");
}

/// Reads until the call closes the connection.
fn hold(mut stream: UnixStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn status() -> Publication {
    Publication {
        pod: name("web"),
        uid: "u".into(),
        status: Some("[]".into()),
        seen: None,
        events: Vec::new(),
        is_awaited: true,
    }
}

#[test]
fn a_report_is_not_acknowledged_and_a_status_only_at_its_end() {
    let place = Place::new();
    let mut agent = place.agent();
    // Nothing accepts yet.
    agent.report(Publication {
        status: None,
        ..status()
    });
    let begun = agent.begin(status()).expect("sent");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut report = String::new();
            let (mut stream, _) = place.listener.accept().expect("a report");
            stream.read_to_string(&mut report).expect("a whole report");
            assert!(report.starts_with("publish {"), "{report}");
            let (mut stream, _) = place.listener.accept().expect("a status");
            stream.write_all(b"+\npublished\nend\n").expect("written");
        });
        assert_eq!(agent.finish(begun), Some(Ok(())));
    });
    assert!(!place.folder.path().join("silent").exists());
}

#[test]
fn kernel_work_that_takes_long_does_not_make_the_agent_silent() {
    let place = Place::new();
    let mut agent = place.agent();
    let mut begun = agent.begin(status()).expect("sent");
    let (mut stream, _) = place.listener.accept().expect("a status");
    stream.write_all(b"+\npublished\nend\n").expect("written");
    begun.sent.deadline = Instant::now();
    assert_eq!(agent.finish(begun), Some(Ok(())));
    assert!(!place.folder.path().join("silent").exists());
}

#[test]
fn agent_that_is_away_or_breaks_the_protocol_is_not_waited_for() {
    let place = Place::new();
    for text in [
        "",
        "+",
        "-\n",
        "+\n",
        "+\nend",
        "+\nx\nend\n",
        "+\nnetwork lan/a {\nend\n",
    ] {
        let (answer, time) = place.asked(|mut stream| {
            let mut line = [0; 15];
            stream.read_exact(&mut line).expect("a request");
            stream.write_all(text.as_bytes()).expect("written");
        });
        assert!(answer.is_none(), "{text:?}");
        assert!(time < ACKNOWLEDGED_WITHIN, "{text:?}: {time:?}");
    }
    let Place { folder, listener } = place;
    drop(listener);
    let mut agent = Agent::at(&folder.path().join("sock"), &folder.path().join("silent"));
    assert!(agent.networks(&[name("a")]).is_none());
    assert!(!folder.path().join("silent").exists());
}
