use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn answer(status: u16, retry_after: Option<Duration>) -> Failure {
    Failure::Answer {
        status,
        message: String::new(),
        is_object: true,
        is_uid: false,
        retry_after,
    }
}

#[test]
fn pauses_double_up_to_a_bound_and_are_spread() {
    let silence = Failure::Silence { why: String::new() };
    let pauses: Vec<_> = (1..=7)
        .filter_map(|attempt| silence.pause(attempt, 999))
        .collect();
    assert!(
        pauses.is_sorted() && pauses[0] < MS(50) && pauses[6] < MS(1600),
        "{pauses:?}"
    );
    assert_eq!(silence.pause(1, 0), Some(MS(25)));
    assert_eq!(silence.pause(u32::MAX, 0), Some(MS(800)));
}

#[test]
fn only_transient_failures_are_retried_after_retry_after() {
    for status in [409, 429, 500, 502, 503, 504] {
        assert!(answer(status, None).pause(1, 0).is_some(), "{status}");
    }
    for status in [301, 400, 401, 403, 404, 422] {
        assert_eq!(answer(status, Some(MS(1))).pause(1, 0), None, "{status}");
    }
    assert_eq!(answer(429, Some(MS(3000))).pause(1, 0), Some(MS(3000)));
    assert_eq!(answer(429, Some(MS(0))).pause(2, 0), Some(MS(50)));
    assert_eq!(Failure::Stranger { why: String::new() }.pause(1, 0), None);
}

#[test]
fn retry_after_is_in_seconds() {
    let with = |value: &str| {
        retry_after(&HeaderMap::from_iter([(
            header::RETRY_AFTER,
            value.parse().unwrap(),
        )]))
    };
    assert_eq!(
        (with("7"), with("soon"), with("-1")),
        (Some(MS(7000)), None, None)
    );
    assert_eq!(retry_after(&HeaderMap::new()), None);
}
