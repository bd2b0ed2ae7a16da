//! The commands of a preStop hook, as far as their words tell what they do: this is no shell.

use std::mem;

use admission::{DRAIN_PATHS, Hook};
use serde_json::Value;

/// Shells that run hooks.
const SHELLS: [&str; 6] = ["sh", "bash", "ash", "dash", "ksh", "zsh"];

/// Words of the shell, and programs that run another one, before the program of a command.
const SHELL_WORDS: &str = " do done then else fi if while until ! { } exec nohup timeout ";

/// Programs that return at once, in what hooks use them for.
const INSTANT: &str =
    " command [ [[ ] ]] test true : echo printf cat date exit export set curl wget ";

/// What separates the commands of a script.
const SEPARATORS: [char; 7] = [';', '\n', '&', '|', '(', ')', '`'];

/// What begins the target of a redirection.
const REDIRECTION: char = '\0';

/// Added to a quoted character that has a meaning for the shell: so it is in Unicode's private area.
const QUOTED: u32 = 0xe000;

/// The commands of a hook.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The shell that runs it; `None` if none does.
    pub(super) shell: Option<String>,
    /// The script, or the words of the only command.
    pub(super) text: String,
    /// The word behind a script that is a single word itself.
    pub(super) argument: Option<String>,
    pub(super) commands: Vec<Command>,
}

/// A command of a script.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) words: Vec<String>,
    /// The separator behind it.
    end: Option<char>,
}

// === impl Script ===

impl Script {
    /// That of a hook in a container with the variables `env`: `name` and `value` of each. Only an `exec` hook has one.
    pub(super) fn new(hook: &Hook<'_>, env: &Value) -> Self {
        let mut script = Self::default();
        let Hook::Exec { command: words } = hook else {
            return script;
        };
        // Also behind `env`, `busybox` or `timeout 5`.
        let programs = words.iter().take_while(|word| !word.starts_with('-'));
        let mut programs = programs.map(|word| base_name(word));
        let shell = programs.find(|program| SHELLS.contains(program));
        let is_flag = |word: &String| word.starts_with('-') && word.ends_with('c');
        if let Some((shell, flag)) = shell.zip(words.iter().position(is_flag)) {
            let mut words = words[flag + 1..].iter().filter(|word| *word != "--");
            script.shell = Some(shell.to_owned());
            script.text = expand(words.next().map_or("", |word| word), env);
            script.commands = split(&script.text);
            let is_word = !script.text.contains([' ', '$']);
            script.argument = words.next().filter(|_| is_word).cloned();
        } else {
            script.text = words.join(" ");
            script.commands.push(Command::default());
            script.commands[0].words.clone_from(words);
        }
        script
    }

    /// How long it sleeps in all, as far as that is known, in seconds.
    pub(super) fn sleep(&self) -> f64 {
        self.sleep_before(|_| false)
    }

    /// How long it sleeps before the first command for which this is true, or in all.
    pub(super) fn sleep_before(&self, is_end: impl Fn(&Command) -> bool) -> f64 {
        let commands = self.commands.iter().take_while(|it| !is_end(it));
        commands.filter_map(Command::wait).sum()
    }

    /// Whether it repeats commands.
    pub(super) fn has_loop(&self) -> bool {
        let mut words = self.commands.iter().flat_map(|it| &it.words);
        words.any(|word| ["while", "until", "for"].contains(&&**word))
    }

    /// How long it takes from its first call of the admin interface on, or in all, in seconds; `None` if that is not
    /// known.
    pub(super) fn wait(&self) -> Option<f64> {
        let is_call = |it: &Command| it.admin_url().is_some();
        let start = self.commands.iter().position(is_call).unwrap_or(0);
        let commands = self.commands[start..].iter().map(Command::wait);
        commands.sum::<Option<_>>().filter(|_| !self.has_loop())
    }
}

/// Inserts the values of variables, as far as these are short and plain.
fn expand(script: &str, env: &Value) -> String {
    let variables = env.as_array().into_iter().flatten();
    let variables = variables.filter_map(|it| Some((it["name"].as_str()?, it["value"].as_str()?)));
    let plain = variables.filter(|(_, value)| value.len() < 64 && !value.contains('$'));
    plain.fold(script.to_owned(), |text, (name, value)| {
        let text = text.replace(&format!("${{{name}}}"), value);
        text.replace(&format!("${name}"), value)
    })
}

/// Splits a script into its commands.
fn split(script: &str) -> Vec<Command> {
    let script = script.replace("\\\n", "");
    // A comment is like a quote of which nothing is left but the end of its line.
    let (mut quote, mut last) = (None, '\n');
    let unquoted = script
        .chars()
        .filter_map(|char| match (quote, mem::replace(&mut last, char)) {
            (None, last) if char == '#' && last.is_whitespace() => quote.replace('\n'),
            (Some('\n'), _) => (char == '\n').then(|| quote.take()).flatten(),
            (None, _) if matches!(char, '\'' | '"') => quote.replace(char),
            (Some(open), _) if open == char => quote.take().and(None),
            (Some(_), _) if char.is_ascii() && !char.is_ascii_alphanumeric() => {
                char::from_u32(QUOTED + u32::from(char))
            }
            _ => Some(char),
        });
    let text: String = unquoted.collect();
    let text = text.replace("&&", ";").replace("||", ";");
    let text = text.replace(">&", ">").replace("&>", ">");
    // What is in the background as a group ends there, too.
    let text = text.replace("; }", ")").replace(") &", "&");
    let text = text.replace(['<', '>'], &format!(" {REDIRECTION}"));
    let original = |char| {
        let code = u32::from(char).checked_sub(QUOTED);
        let code = code.filter(|code| *code < 128);
        code.and_then(char::from_u32).unwrap_or(char)
    };
    let word = |word: &str| word.chars().map(original).collect();
    let commands = text.split_inclusive(SEPARATORS).map(|command| {
        let words = command.trim_end_matches(SEPARATORS).split_whitespace();
        let words = words.map(word).collect();
        let end = command.chars().last().filter(|it| SEPARATORS.contains(it));
        Command { words, end }
    });
    commands.filter(|it| !it.words.is_empty()).collect()
}

// === impl Command ===

impl Command {
    /// The program that it runs: its first word that is neither a word of the shell, nor a flag, a number, an assignment
    /// or a redirection. Of one in the usual folders it is the name, of another one the path.
    pub(super) fn program(&self) -> Option<&str> {
        let is_program = |word: &&String| {
            let name = word.split_once('=').map(|(name, _)| name);
            let is_assignment = name.is_some_and(|name| !name.contains(['/', ':']));
            let is_program = |it: char| it != REDIRECTION && it != '-' && !it.is_ascii_digit();
            let is_word = SHELL_WORDS.contains(&format!(" {word} "));
            word.starts_with(is_program) && !is_assignment && !is_word
        };
        let word = self.words.iter().find(is_program)?;
        let is_usual = word.starts_with("/bin/") || word.starts_with("/usr/");
        Some(if is_usual { base_name(word) } else { word })
    }

    /// The URL of the admin interface that it calls, or what it has of that, if that takes POST alone.
    pub(super) fn admin_url(&self) -> Option<&str> {
        let is_text = ["echo", "printf"].contains(&self.program()?);
        let is_sent = self.is_piped() || self.words.iter().any(|it| is_connection(it));
        let words = self.words.iter().filter(|_| is_sent || !is_text);
        let mut words = words.flat_map(|word| word.split_whitespace());
        words.find(|word| DRAIN_PATHS.iter().any(|path| word.contains(path)))
    }

    /// Whether the script goes on before it ends.
    pub(super) fn is_in_background(&self) -> bool {
        self.end == Some('&')
    }

    /// Whether the next command reads what it writes.
    pub(super) fn is_piped(&self) -> bool {
        self.end == Some('|')
    }

    /// How long the script waits for it, in seconds; `None` if that is not known.
    pub(super) fn wait(&self) -> Option<f64> {
        match self.program() {
            Some("sleep") if !self.is_in_background() => {
                let at = self.words.iter().position(|it| base_name(it) == "sleep")?;
                parse_sleep(self.words.get(at + 1)?)
            }
            Some("curl" | "wget") if self.admin_url().is_none() => None,
            Some(it) if !INSTANT.contains(&format!(" {it} ")) && !self.is_in_background() => None,
            _ => Some(0.0),
        }
    }

    /// Whether it sends POST, as far as its words tell.
    pub(super) fn is_post(&self) -> bool {
        let has = |flags: &str| {
            let mut flags = flags.split(' ');
            flags.any(|flag| self.words.iter().any(|word| word.starts_with(flag)))
        };
        let is_method = |flag: &str| match flag {
            "--request" | "--method" => true,
            _ => flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('X'),
        };
        let mut pairs = self.words.windows(2);
        match (
            pairs.find(|pair| is_method(&pair[0])),
            self.program().map(base_name),
        ) {
            (Some(pair), _) => pair[1].eq_ignore_ascii_case("post") || pair[1].contains('$'),
            (None, Some("curl")) => {
                let is_post =
                    |it: &String| it.contains("XPOST") || it.starts_with("-s") && it.ends_with('d');
                has("--request=POST -d --data --json -F --form") || self.words.iter().any(is_post)
            }
            (None, Some("wget")) => has("--post- --method=POST"),
            // Such as `printf 'GET /healthcheck/fail HTTP/1.1…'`.
            (None, _) => !has("GET"),
        }
    }
}

/// Returns true for a redirection to a connection, or to a file descriptor beyond the usual three.
fn is_connection(word: &str) -> bool {
    let target = word.strip_prefix(REDIRECTION).unwrap_or_default();
    target.starts_with("/dev/tcp/")
        || target.starts_with(|it| it == '$' || ('3'..='9').contains(&it))
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The duration of `sleep`: `15`, `15s`, `1.5m` or `infinity`, in seconds; `None` for a variable.
fn parse_sleep(text: &str) -> Option<f64> {
    let factor = match text.chars().last()? {
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86400.0,
        _ => 1.0,
    };
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']).parse::<f64>();
    let seconds = number.ok().map(|number| number * factor);
    seconds.filter(|seconds| *seconds >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_in(words: &[&str], env: &Value) -> Script {
        let command = words.iter().map(|word| word.to_string()).collect();
        Script::new(&Hook::Exec { command }, env)
    }

    fn script(text: &str) -> Script {
        script_in(&["/bin/sh", "-c", text], &Value::Null)
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
            assert_eq!(script(text).sleep(), seconds, "{text}");
        }
        assert_eq!(script_in(&["sleep", "30"], &Value::Null).sleep(), 30.0);
    }

    #[test]
    fn method_of_a_call_is_read() {
        let table = [
            ("curl -X POST http://localhost:9901/healthcheck/fail", true),
            ("curl -sX POST 'localhost:9901/healthcheck/fail'", true),
            ("curl -XPOST localhost:9901/drain_listeners?graceful", true),
            ("curl -s -d '' localhost:9901/healthcheck/fail", true),
            ("curl -sSXPOST localhost:9901/healthcheck/fail", true),
            ("curl -sSd '' localhost:9901/healthcheck/fail", true),
            ("curl -X $METHOD localhost:9901/healthcheck/fail", true),
            ("curl -X PUT localhost:9901/healthcheck/fail", false),
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
            let mut calls = script.commands.iter().filter(|it| it.admin_url().is_some());
            let Some(call) = calls.next() else {
                // pilot-agent names the path without a slash.
                assert!(text.starts_with("pilot-agent"), "{text}");
                continue;
            };
            assert_eq!(call.is_post(), is_post, "{text}");
        }
    }

    #[test]
    fn programs_are_those_of_each_command() {
        let table: [(&str, &[&str]); 8] = [
            (
                "X=1 curl -X POST localhost/drain_listeners; while [ 1 ]; do sleep 1; done",
                &["curl", "[", "sleep"],
            ),
            ("curl 'a?b&c' # wget\n/usr/bin/env", &["curl", "env"]),
            ("curl a?b&c >/dev/null 2>&1 || true", &["curl", "c", "true"]),
            (
                "[ $(wget -qO- a) ] && /tools/curl",
                &["[", "wget", "]", "/tools/curl"],
            ),
            ("echo 'a; b' \"c | d\"; e", &["echo", "e"]),
            (
                "exec 3<>/dev/tcp/127.0.0.1/9901; timeout 5 cat <&3",
                &["cat"],
            ),
            ("cur\\\nl a", &["curl"]),
            ("(sleep 1; nohup wget x) &", &["sleep", "wget"]),
        ];
        for (text, want) in table {
            let script = script(text);
            let programs = script.commands.iter().filter_map(Command::program);
            assert_eq!(programs.collect::<Vec<_>>(), want, "{text}");
        }
    }

    #[test]
    fn wait_is_what_follows_the_call() {
        let table = [
            (
                "sleep 9; curl -X POST localhost/healthcheck/fail",
                Some(0.0),
            ),
            (
                "curl -X POST localhost/healthcheck/fail & sleep 3",
                Some(3.0),
            ),
            (
                "curl -X POST localhost/healthcheck/fail; sleep 3 &",
                Some(0.0),
            ),
            (
                "curl -X POST localhost/healthcheck/fail; sleep 3 2>/dev/null",
                Some(3.0),
            ),
            (
                "(curl -X POST localhost/healthcheck/fail; sleep 3) &",
                Some(0.0),
            ),
            (
                "curl -X POST localhost/healthcheck/fail; sleep 3 & wait",
                None,
            ),
            ("curl -X POST localhost/healthcheck/fail; sleep $N", None),
            (
                "curl -X POST localhost/healthcheck/fail; sleep ${T}",
                Some(7.0),
            ),
            ("curl -X POST localhost/healthcheck/fail; sleep $TT", None),
            (
                "curl -X POST localhost/healthcheck/fail; until a; do sleep 1; done",
                None,
            ),
            ("curl localhost:8090/shutdown", None),
            ("echo bye", Some(0.0)),
        ];
        let env = serde_json::json!([{"name": "T", "value": "7"}, {"name": "TT", "value": "8"}]);
        for (text, want) in table {
            let script = script_in(&["bash", "-c", text], &env);
            assert_eq!(script.wait(), want, "{text}");
        }
    }
}
