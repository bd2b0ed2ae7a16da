//! The commands of a preStop hook.

use std::time::Duration;

use admission::DRAIN_PATHS;

/// Programs that are not in an image without a shell.
const PROGRAMS: [&str; 8] = ["sh", "bash", "ash", "curl", "wget", "sleep", "nc", "perl"];

/// Words of the shell, and programs that run another one, before the program of a command.
const SHELL_WORDS: [&str; 10] = [
    "do", "then", "else", "if", "while", "until", "!", "[", "exec", "timeout",
];

/// What separates the commands of a script.
const SEPARATORS: [char; 7] = [';', '\n', '&', '|', '(', ')', '`'];

/// The commands of a hook, each as its words.
#[derive(Debug)]
pub(super) struct Script<'a> {
    commands: Vec<Vec<&'a str>>,
}

/// A call of Envoy's admin interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AdminCall<'a> {
    /// The program that calls it.
    pub(super) program: &'a str,
    /// The word with the URL.
    pub(super) url: &'a str,
    pub(super) is_post: bool,
}

// === impl Script ===

impl<'a> Script<'a> {
    /// Those of a command in these words.
    pub(super) fn new(words: impl Iterator<Item = &'a str>) -> Self {
        let mut commands = vec![Vec::new()];
        // Of `sh -c SCRIPT`, the last word has the commands.
        for word in words {
            let is_script = word.contains(char::is_whitespace) || word.contains(SEPARATORS);
            if !is_script {
                commands.last_mut().into_iter().for_each(|it| it.push(word));
                continue;
            }
            for command in word.split(SEPARATORS) {
                let words = command.split_whitespace();
                let words = words.map(|word| word.trim_matches(['"', '\'']));
                commands.push(words.filter(|word| !word.is_empty()).collect());
            }
        }
        commands.retain(|command| !command.is_empty());
        Self { commands }
    }

    /// The programs that it runs and that an image without a shell does not have.
    pub(super) fn programs(&self) -> Vec<&'a str> {
        let mut programs = Vec::new();
        for command in &self.commands {
            let program =
                program(command).filter(|it| PROGRAMS.contains(it) && !programs.contains(it));
            programs.extend(program);
        }
        programs
    }

    /// The calls of the admin interface that take POST alone.
    pub(super) fn admin_calls(&self) -> Vec<AdminCall<'a>> {
        let calls = self.commands.iter().filter_map(|command| {
            let is_url = |word: &&&str| DRAIN_PATHS.iter().any(|path| word.contains(path));
            let url = command.iter().find(is_url)?;
            let program = program(command).unwrap_or(url);
            Some(AdminCall {
                program,
                url,
                is_post: is_post(program, command),
            })
        });
        calls.collect()
    }

    /// Whether a word of it contains this text.
    pub(super) fn contains(&self, text: &str) -> bool {
        self.commands
            .iter()
            .flatten()
            .any(|word| word.contains(text))
    }

    /// Whether it repeats commands.
    pub(super) fn has_loop(&self) -> bool {
        let words = ["while", "until"];
        self.commands
            .iter()
            .flatten()
            .any(|word| words.contains(word))
    }

    /// How long it sleeps in all.
    pub(super) fn sleep(&self) -> Duration {
        let sleeps = self.commands.iter().filter_map(|command| {
            let at = command.iter().position(|word| base_name(word) == "sleep")?;
            parse_sleep(command.get(at + 1)?)
        });
        sleeps.sum()
    }
}

/// The program that a command runs: its first word that is neither a word of the shell nor an assignment.
fn program<'a>(command: &[&'a str]) -> Option<&'a str> {
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_assignment = |word: &str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let is_program = |word: &&&str| !SHELL_WORDS.contains(*word) && !is_assignment(word);
    let word = command.iter().find(is_program)?;
    Some(base_name(word))
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether a command of `curl` or `wget` sends POST. Of another program it is assumed.
fn is_post(program: &str, command: &[&str]) -> bool {
    let has = |starts: &[&str]| {
        command
            .iter()
            .any(|word| starts.iter().any(|start| word.starts_with(start)))
    };
    let has_method = |is_flag: fn(&str) -> bool| {
        let mut pairs = command.windows(2);
        pairs.any(|pair| is_flag(pair[0]) && pair[1].eq_ignore_ascii_case("post"))
    };
    match program {
        "curl" => {
            has_method(|word| word == "--request" || is_short_flags(word) && word.ends_with('X'))
                || has(&[
                    "-XPOST",
                    "--request=POST",
                    "-d",
                    "--data",
                    "--json",
                    "-F",
                    "--form",
                ])
        }
        "wget" => {
            has(&["--post-data", "--post-file", "--method=POST"])
                || has_method(|word| word == "--method")
        }
        _ => true,
    }
}

/// Several flags in one word, such as `-sX`.
fn is_short_flags(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

/// The duration of `sleep`: `15`, `15s` or `1.5m`; `None` for a variable.
fn parse_sleep(text: &str) -> Option<Duration> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Script<'_> {
        Script::new(["/bin/sh", "-c", text].into_iter())
    }

    #[test]
    fn sleeps_are_added() {
        let table = [
            ("sleep 15", 15.0),
            (
                "curl -X POST localhost:9901/healthcheck/fail; sleep 1m && /bin/sleep 0.5",
                60.5,
            ),
            ("sleep $SECONDS", 0.0),
            ("while true; do sleep 2; done", 2.0),
        ];
        for (text, seconds) in table {
            assert_eq!(
                script(text).sleep(),
                Duration::from_secs_f64(seconds),
                "{text}"
            );
        }
        let words = Script::new(["sleep", "30"].into_iter());
        assert_eq!(words.sleep(), Duration::from_secs(30));
    }

    #[test]
    fn method_of_a_call_is_read() {
        let table = [
            ("curl -X POST http://localhost:9901/healthcheck/fail", true),
            ("curl -sX POST 'localhost:9901/healthcheck/fail'", true),
            ("curl -XPOST localhost:9901/drain_listeners?graceful", true),
            ("curl -s -d '' localhost:9901/healthcheck/fail", true),
            ("curl localhost:9901/healthcheck/fail", false),
            (
                "wget -qO- http://127.0.0.1:19000/healthcheck/fail && sleep 10",
                false,
            ),
            (
                "wget --post-data '' -O /dev/null 127.0.0.1:19000/healthcheck/fail; sleep 10",
                true,
            ),
            ("pilot-agent request POST 'drain_listeners?graceful'", true),
        ];
        for (text, is_post) in table {
            let script = script(text);
            let calls = script.admin_calls();
            let Some(call) = calls.first() else {
                // pilot-agent names the path without a slash.
                assert!(text.starts_with("pilot-agent"), "{text}");
                continue;
            };
            assert_eq!(call.is_post, is_post, "{text}");
        }
    }

    #[test]
    fn programs_are_those_of_each_command() {
        let text = "X=1 curl -X POST localhost/drain_listeners; while [ 1 ]; do sleep 1; done";
        let script = Script::new(["/bin/bash", "-c", text].into_iter());
        assert_eq!(script.programs(), ["bash", "curl", "sleep"]);
        assert!(script.has_loop());
    }
}
