//! What drills lost in all: a bar for each way to end a pod.

use anyhow::Result;
use plotters::prelude::*;

use crate::canvas::{self, Side, font, rectangle, write};

/// The heights of the title and of a row, in pixels.
const TITLE_HEIGHT: i32 = 40;
const ROW_HEIGHT: i32 = 42;

/// The width, of which a phone shows about half, and the size of text, in pixels.
const WIDTH: i32 = 640;
const TEXT: u32 = 20;

/// Where bars begin, and the room for the counts behind the longest, in pixels.
const LEFT: i32 = 316;
const RIGHT: i32 = 130;

/// The colours of what fails, and of envoy-drainer, whose bar may have no length.
const FAILED: RGBColor = RGBColor(200, 36, 36);
const OURS: RGBColor = RGBColor(38, 112, 196);

/// Draws the requests that failed, of those sent, the first of which are envoy-drainer's.
pub(crate) fn draw(title: &str, drills: &[(&str, u64, u64)]) -> Result<String> {
    let most = drills.iter().map(|(_, failed, _)| *failed).max();
    let scale = f64::from(WIDTH - LEFT - RIGHT) / most.unwrap_or(1).max(1) as f64;
    let height = TITLE_HEIGHT + ROW_HEIGHT * drills.len() as i32 + 10;
    canvas::draw((WIDTH as u32, height as u32), |area| {
        write(area, title, (12, 22), Side::Right, &font(TEXT))?;
        for (row, (name, failed, sent)) in drills.iter().enumerate() {
            let middle = TITLE_HEIGHT + ROW_HEIGHT * row as i32 + ROW_HEIGHT / 2;
            let color = if row == 0 { OURS } else { FAILED };
            let end = LEFT + 3 + (*failed as f64 * scale) as i32;
            rectangle(area, [(LEFT, middle - 13), (end, middle + 13)], color)?;
            write(area, name, (LEFT - 12, middle), Side::Left, &font(TEXT))?;
            let count = format!("{failed} of {sent}");
            write(area, &count, (end + 10, middle), Side::Right, &font(TEXT))?;
        }
        Ok(())
    })
}
