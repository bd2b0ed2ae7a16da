//! Prints the demo's output, with colours on a terminal.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};

pub(crate) const PLAIN: Style = Style::new();
/// Style of context and notes.
pub(crate) const DIMMED: Style = Style::new().dimmed();
/// Style of headings and of the most important row.
pub(crate) const BOLD: Style = Style::new().bold();

/// How often the status is printed.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// Standard output.
pub(crate) struct Screen {
    has_colours: bool,
    /// When the status is next printed, since the start of the step.
    next_status: Cell<Duration>,
}

// === impl Screen ===

impl Screen {
    pub(crate) fn of_stdout() -> Self {
        // <https://no-color.org>
        let is_disabled = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            has_colours: io::stdout().is_terminal() && !is_disabled,
            next_status: Cell::default(),
        }
    }

    /// Prints the heading of a step.
    pub(crate) fn heading(&self, text: &str) {
        self.next_status.set(STATUS_INTERVAL);
        self.print(&format!("\n{}\n", self.styled(BOLD, text)));
    }

    /// Prints a note, dimmed.
    pub(crate) fn note(&self, text: &str) {
        self.print(&format!("{}\n", self.styled(DIMMED, text)));
    }

    /// Prints what the webhook adds.
    pub(crate) fn added(&self, text: &str) {
        self.print(&format!(
            "{}\n",
            self.styled(AnsiColor::Green.on_default(), text)
        ));
    }

    /// Prints an expectation that was not met.
    pub(crate) fn failure(&self, text: &str) {
        self.print(&format!(
            "\n{}\n",
            self.styled(AnsiColor::Red.on_default(), text)
        ));
    }

    /// Prints a line of a timeline.
    pub(crate) fn event(&self, at: Duration, subject: &str, text: &str) {
        let at = self.styled(DIMMED, &seconds(at));
        self.print(&format!("{at}  {subject:<13}  {text}\n"));
    }

    /// Returns true if the status is to be printed at this time.
    pub(crate) fn is_status_due(&self, at: Duration) -> bool {
        at >= self.next_status.get()
    }

    /// Prints the status.
    pub(crate) fn status(&self, at: Duration, text: &str) {
        self.next_status.set(at + STATUS_INTERVAL);
        self.print(&format!("{}  {text}\n", seconds(at)));
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

/// Formats a number below a million with a thousands separator: `6,460`.
pub(crate) fn thousands(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}
