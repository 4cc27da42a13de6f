//! Any JSON as a plugin's result or error. Values that a CNI version can express survive a round
//! trip.
#![no_main]

use braid_core::cni::{AddResult, Error, Json, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stdout: &[u8]| {
    if let Ok(error) = Error::from_stdout(stdout) {
        assert_eq!(
            Error::from_stdout(error.to_stdout(Version::NEWEST).as_bytes()),
            Ok(error)
        );
    }
    let Ok(json) = Json::parse(stdout, "result") else {
        return;
    };
    for default in [Version::V0_2_0, Version::V0_4_0, Version::V1_1_0] {
        let Ok(result) = AddResult::parse(&json, default) else {
            continue;
        };
        for version in Version::ALL {
            let Ok(text) = result.to_stdout(version) else {
                assert!(result.convertible(version).is_err());
                continue;
            };
            let again = Json::parse(text.as_bytes(), "own result")
                .and_then(|json| AddResult::parse(&json, default));
            let again = again.expect("own output is a result");
            assert_eq!(again.to_stdout(version).as_deref(), Ok(text.as_str()));
            if version == Version::NEWEST {
                assert_eq!(again, result);
            }
        }
    }
});
