//! The log on standard output, which never decides what the drainer does: a line that the reader has no room for, or that
//! nothing reads any more, is lost.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::Level;

/// Writes to standard output without waiting, and without errors.
struct LogWriter;

/// A pipe that is ready takes so many bytes at once without blocking.
/// <https://man7.org/linux/man-pages/man7/pipe.7.html>
const PIPE_BUF: usize = 4096;

/// Starts the log, in JSON, with messages up to this level.
pub(crate) fn init(max_level: Level) {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_max_level(max_level)
        // It would print them to standard error, and panic where that is closed too.
        .log_internal_errors(false)
        .with_writer(|| LogWriter)
        .init();
}

// === impl LogWriter ===

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let stdout = io::stdout();
        for part in line.chunks(PIPE_BUF) {
            let mut ready = [PollFd::new(&stdout, PollFlags::OUT)];
            let is_ready = poll(&mut ready, Some(&Timespec::default())).is_ok_and(|n| n > 0);
            if !is_ready || rustix::io::write(stdout.as_fd(), part).is_err() {
                break;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
