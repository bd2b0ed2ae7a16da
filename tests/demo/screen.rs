//! Where the story is told: a terminal, with colours and a live line, or plain lines.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};

/// What was added.
pub(crate) const ADDED: Style = coloured(AnsiColor::Green);
/// What was removed, or went wrong.
pub(crate) const REMOVED: Style = coloured(AnsiColor::Red);
/// What is there for orientation.
pub(crate) const DIMMED: Style = Style::new().dimmed();
/// What must not be missed.
pub(crate) const BOLD: Style = Style::new().bold();

const INTRODUCTION: &str = "\
Kubernetes ends a pod with SIGTERM; Envoy then cuts all connections at once, while clients are still
sent to it. envoy-drainer gives the pod a sidecar that lets Envoy finish first, for one annotation.
";

/// How often the live line is renewed on a terminal, and how often it is printed elsewhere.
const LIVE_INTERVAL: Duration = Duration::from_millis(100);
const PLAIN_INTERVAL: Duration = Duration::from_secs(6);

/// Standard output.
pub(crate) struct Screen {
    is_terminal: bool,
    has_colours: bool,
    /// When the state is to be shown again.
    next_update: Cell<Duration>,
}

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

// === impl Screen ===

impl Screen {
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        // <https://no-color.org>
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_terminal,
            has_colours: is_terminal && !refused,
            next_update: Cell::default(),
        }
    }

    /// Tells what this is about, to someone who has never heard of it.
    pub(crate) fn print_introduction(&self) {
        self.print(INTRODUCTION);
    }

    /// Opens a chapter.
    pub(crate) fn heading(&self, text: &str) {
        self.next_update.set(if self.is_terminal {
            Duration::ZERO
        } else {
            PLAIN_INTERVAL
        });
        self.print(&format!("\n{}\n", self.styled(BOLD, text)));
    }

    /// Adds what one should know of a chapter.
    pub(crate) fn note(&self, text: &str) {
        self.print(&format!("{}\n", self.styled(DIMMED, text)));
    }

    /// Adds a line to a timeline.
    pub(crate) fn event(&self, at: Duration, who: &str, what: &str) {
        self.clear_live();
        let at = self.styled(DIMMED, &seconds(at));
        self.print(&format!("{at}  {who:<13}  {what}\n"));
    }

    /// Shows how it stands on a terminal, until the next line comes.
    pub(crate) fn live(&self, at: Duration, what: &str) {
        if self.is_terminal && self.is_due(at, LIVE_INTERVAL) {
            let line = format!("{}  {what}", seconds(at));
            self.print(&format!("\r\x1b[K{}", self.styled(DIMMED, &line)));
        }
    }

    /// Says at times how it stands, where there is no terminal.
    pub(crate) fn sample(&self, at: Duration, what: &str) {
        if !self.is_terminal && self.is_due(at, PLAIN_INTERVAL) {
            self.print(&format!("{}  {what}\n", seconds(at)));
        }
    }

    /// Takes the live line away.
    pub(crate) fn clear_live(&self) {
        if self.is_terminal {
            self.print("\r\x1b[K");
        }
    }

    fn is_due(&self, at: Duration, pause: Duration) -> bool {
        let is_due = at >= self.next_update.get();
        if is_due {
            self.next_update.set(at + pause);
        }
        is_due
    }

    /// Tells what did not go as promised.
    pub(crate) fn print_failure(&self, what: &str) {
        self.print(&format!("\n{}\n", self.styled(REMOVED, what)));
    }

    /// Prints as it is. That nobody reads any more is no reason to end.
    pub(crate) fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// A text in a style, where there are any.
    pub(crate) fn styled(&self, style: Style, text: &str) -> String {
        if self.has_colours {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

fn seconds(at: Duration) -> String {
    format!("{:7.1} s", at.as_secs_f64())
}

/// A number with its thousands apart: `6,460`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
