//! The memory of the drainer in standby, beside that of other shutdown managers.

use anyhow::Result;
use plotters::style::RGBColor;
use tests::peers_report::{PeersReport, Program};

use crate::canvas::{self, Side, WIDTH};

/// The measures, and what each is called.
const MEASURES: [(&str, &str); 3] = [
    ("standby_resident_memory", "resident"),
    ("standby_proportional_memory", "proportional"),
    ("standby_private_memory", "private"),
];

const HEADER: i32 = 48;
const ROW: i32 = 24;
const BAR: i32 = 16;
/// Between two measures.
const GAP: i32 = 18;

/// The right ends of the names, and the longest bar.
const MEASURE_END: i32 = 110;
const PROGRAM_END: i32 = 280;
const BAR_START: i32 = PROGRAM_END + 8;
const BAR_WIDTH: f64 = WIDTH as f64 - BAR_START as f64 - 90.0;

const DRAINER: RGBColor = RGBColor(30, 95, 180);
const OTHER: RGBColor = RGBColor(140, 140, 140);

/// Draws a bar for each program and measure. Their lengths are in proportion to the medians.
pub(crate) fn draw(report: &PeersReport) -> Result<String> {
    let programs: Vec<_> = report.programs().collect();
    let mut largest = 0.0_f64;
    for (measure, _) in MEASURES {
        for (program, _) in &programs {
            largest = largest.max(report.median(measure, *program)?);
        }
    }
    let group_height = ROW * programs.len() as i32 + GAP;
    let height = HEADER + group_height * MEASURES.len() as i32;
    canvas::draw((canvas::WIDTH, height.try_into()?), |area| {
        let runs = report.runs();
        let title = format!("Memory in standby, beside each Envoy: medians of {runs} runs");
        canvas::title(area, &title, (12, 22))?;
        for (group, (measure, name)) in (0..).zip(MEASURES) {
            let top = HEADER + group_height * group;
            canvas::text(area, name, (MEASURE_END, top + ROW / 2), Side::Left)?;
            for (row, (program, version)) in (0..).zip(&programs) {
                let middle = top + ROW * row + ROW / 2;
                let name = format!("{} {version}", program.name());
                canvas::text(area, &name, (PROGRAM_END, middle), Side::Left)?;
                let median = report.median(measure, *program)?;
                let end = BAR_START + (median / largest * BAR_WIDTH).ceil() as i32;
                let corners = [(BAR_START, middle - BAR / 2), (end, middle + BAR / 2)];
                canvas::rectangle(area, corners, color(*program))?;
                let value = format!("{median} MiB");
                canvas::text(area, &value, (end + 8, middle), Side::Right)?;
            }
        }
        Ok(())
    })
}

fn color(program: Program) -> RGBColor {
    if program == Program::Drainer {
        DRAINER
    } else {
        OTHER
    }
}
