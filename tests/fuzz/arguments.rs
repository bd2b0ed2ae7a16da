//! The drainer's arguments, by line, which older and newer webhooks write. What is parsed is written and parsed again
//! as it was.

#![no_main]

use drainer::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parse = |args: Vec<String>| Config::parse(args.into_iter().map(Into::into));
    let Ok(config) = parse(text.lines().map(ToOwned::to_owned).collect()) else {
        return;
    };
    assert_eq!(parse(config.args()), Ok(config));
});
