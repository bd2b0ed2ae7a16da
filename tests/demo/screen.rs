//! Prints the demo's output: with colours and a live status line on a terminal, as plain lines elsewhere.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};

/// Style of added lines.
pub(crate) const ADDED: Style = coloured(AnsiColor::Green);
/// Style of removed lines and of failures.
pub(crate) const REMOVED: Style = coloured(AnsiColor::Red);
/// Style of context and notes.
pub(crate) const DIMMED: Style = Style::new().dimmed();
/// Style of headings and of the most important row.
pub(crate) const BOLD: Style = Style::new().bold();

const INTRODUCTION: &str = "\
Kubernetes terminates a pod with SIGTERM. Envoy then closes all connections at once, although the
Service still routes clients to it. With one annotation, envoy-drainer injects a sidecar that drains
Envoy first.
";

/// How often the live line is updated on a terminal.
const LIVE_INTERVAL: Duration = Duration::from_millis(100);

/// How often the status is printed where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(6);

/// Standard output.
pub(crate) struct Screen {
    is_terminal: bool,
    has_colours: bool,
    /// When the status is next printed, since the start of the step.
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
        let is_disabled = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_terminal,
            has_colours: is_terminal && !is_disabled,
            next_update: Cell::default(),
        }
    }

    /// Prints what envoy-drainer does.
    pub(crate) fn print_introduction(&self) {
        self.print(INTRODUCTION);
    }

    /// Prints the heading of a step.
    pub(crate) fn heading(&self, text: &str) {
        self.next_update.set(if self.is_terminal {
            Duration::ZERO
        } else {
            PLAIN_INTERVAL
        });
        self.print(&format!("\n{}\n", self.styled(BOLD, text)));
    }

    /// Prints a note, dimmed.
    pub(crate) fn note(&self, text: &str) {
        self.print(&format!("{}\n", self.styled(DIMMED, text)));
    }

    /// Prints a line of a timeline.
    pub(crate) fn event(&self, at: Duration, subject: &str, text: &str) {
        self.clear_live();
        let at = self.styled(DIMMED, &seconds(at));
        self.print(&format!("{at}  {subject:<13}  {text}\n"));
    }

    /// Updates the live status line, on a terminal only. The next event replaces it.
    pub(crate) fn live(&self, at: Duration, text: &str) {
        if self.is_terminal && self.is_due(at, LIVE_INTERVAL) {
            let line = format!("{}  {text}", seconds(at));
            self.print(&format!("\r\x1b[K{}", self.styled(DIMMED, &line)));
        }
    }

    /// Prints the status at intervals, where there is no terminal.
    pub(crate) fn sample(&self, at: Duration, text: &str) {
        if !self.is_terminal && self.is_due(at, PLAIN_INTERVAL) {
            self.print(&format!("{}  {text}\n", seconds(at)));
        }
    }

    /// Erases the live status line.
    pub(crate) fn clear_live(&self) {
        if self.is_terminal {
            self.print("\r\x1b[K");
        }
    }

    fn is_due(&self, at: Duration, interval: Duration) -> bool {
        let is_due = at >= self.next_update.get();
        if is_due {
            self.next_update.set(at + interval);
        }
        is_due
    }

    /// Prints an expectation that was not met.
    pub(crate) fn print_failure(&self, text: &str) {
        self.print(&format!("\n{}\n", self.styled(REMOVED, text)));
    }

    /// Prints text unchanged. A closed pipe is ignored, so that the demo runs to its end.
    pub(crate) fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Applies a style to text if colours are enabled.
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

/// Formats a number with thousands separators: `6,460`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
