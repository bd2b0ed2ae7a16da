//! Where the demo is told: a terminal, with colours and a live line, or plain lines.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};

/// What was added.
pub const ADDED: Style = coloured(AnsiColor::Green);
/// What was removed, or went wrong.
pub const REMOVED: Style = coloured(AnsiColor::Red);
/// What is there for orientation.
pub const QUIET: Style = Style::new().dimmed();
/// What opens a chapter.
pub const STRONG: Style = Style::new().bold();

const INTRODUCTION: &str = "\
Kubernetes ends a pod with SIGTERM, and Envoy answers that by closing every connection at once,
whatever is in flight, while clients are still being sent to it. envoy-drainer puts a sidecar into
the pod that lets Envoy finish first. All it takes is an annotation: envoy-drainer.dev/inject.
";

/// Standard output.
pub struct Screen {
    is_terminal: bool,
    has_colours: bool,
}

const fn coloured(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(Color::Ansi(colour)))
}

// === impl Screen ===

impl Screen {
    pub fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        // <https://no-color.org>
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_terminal,
            has_colours: is_terminal && !refused,
        }
    }

    /// Tells what this is about, to someone who has never heard of it.
    pub fn introduce(&self) {
        self.print(INTRODUCTION);
    }

    /// Opens a chapter.
    pub fn heading(&self, text: &str) {
        self.print(&format!("\n{}\n", self.styled(STRONG, text)));
    }

    /// Adds a line to a timeline.
    pub fn event(&self, at: Duration, who: &str, what: &str) {
        self.clear_live_line();
        let at = format!("{:6.1} s", at.as_secs_f64());
        self.print(&format!("{}  {who:<13}  {what}\n", self.styled(QUIET, &at)));
    }

    /// Shows how it stands now; on a terminal, until the next line comes.
    pub fn live(&self, at: Duration, what: &str) {
        if self.is_terminal {
            let line = format!("{:6.1} s  {what}", at.as_secs_f64());
            self.print(&format!("\r\x1b[K{}", self.styled(QUIET, &line)));
        }
    }

    /// Ends a timeline.
    pub fn clear_live_line(&self) {
        if self.is_terminal {
            self.print("\r\x1b[K");
        }
    }

    /// Tells whether everything went as promised.
    pub fn conclude(&self, broken: &[String]) {
        let told = if broken.is_empty() {
            self.styled(ADDED, "With the drainer nothing was lost.")
        } else {
            let broken = broken.join("\n");
            self.styled(REMOVED, &format!("This is not as promised:\n{broken}"))
        };
        self.print(&format!("\n{told}\n"));
    }

    /// Prints as it is. Nobody may be reading any more, which is no reason to end.
    pub fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// A text in a style, where there are any.
    pub fn styled(&self, style: Style, text: &str) -> String {
        if self.has_colours {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}
