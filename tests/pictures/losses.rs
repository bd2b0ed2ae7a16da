//! What drills lost: failed requests by second, and the ends of pods below.

use anyhow::Result;
use drill::report::{DrillReport, PodReport};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::canvas::{self, Area, GRID, INK, SMALL, WIDTH};

/// A drill and its title.
type TitledDrill = (&'static str, DrillReport);

/// The heights of the parts, in pixels.
const TITLE_HEIGHT: u32 = 34;
const PANEL_HEIGHT: u32 = 100;
const POD_HEIGHT: u32 = 22;
const KEY_HEIGHT: u32 = 28;

/// The room for the labels of the y axes, and right of the charts.
const LEFT: u32 = 68;
const RIGHT: u32 = 16;

/// The part of `LEFT` that stays empty.
const MARGIN: u32 = 4;

/// What is drawn.
const KEY: &str = "vertical line: start of the disruption; bars: pods from their deletion until they are gone; dark mark: not \
    ready; blue mark: drained";

const FAILED: RGBColor = RGBColor(200, 36, 36);
const DRAINED: RGBColor = RGBColor(70, 110, 160);
const TERMINATING: RGBColor = RGBColor(214, 182, 96);

/// Draws the failed requests of several drills, below each other and on the same axes.
pub(crate) fn draw(drills: &[TitledDrill]) -> Result<String> {
    let reports = || drills.iter().map(|(_, report)| report);
    let pods_height = |report: &DrillReport| POD_HEIGHT * report.pods.len() as u32;
    let height = |report| TITLE_HEIGHT + PANEL_HEIGHT + pods_height(report);
    let height = reports().map(height).sum::<u32>() + KEY_HEIGHT;
    let end = reports().map(end).fold(1.0, f64::max);
    let seconds = reports().flat_map(|report| &report.by_second);
    let max = seconds.map(|second| second.failed).max().unwrap_or(0);
    canvas::draw((canvas::WIDTH, height), |area| {
        let mut rest = area.clone();
        let mut cut = |height| {
            let (part, below) = rest.split_vertically(height);
            rest = below;
            part
        };
        for (title, report) in drills {
            let DrillReport { failed, sent, .. } = report;
            let text = format!("{title}: {failed} of {sent} requests failed");
            cut(TITLE_HEIGHT).draw_text(&text, &canvas::font(17), (12, 9))?;
            draw_seconds(&cut(PANEL_HEIGHT), report, end, max)?;
            draw_pods(&cut(pods_height(report)), &report.pods, end)?;
        }
        let at = (LEFT as i32, 14);
        Ok(cut(KEY_HEIGHT).draw_text(KEY, &canvas::font(SMALL), at)?)
    })
}

/// Draws a bar for each second.
fn draw_seconds(area: &Area<'_>, report: &DrillReport, end: f64, max: u64) -> Result<()> {
    let top = max.max(4) as f64 * 1.1;
    let mut chart = ChartBuilder::on(area)
        .set_label_area_size(LabelAreaPosition::Left, LEFT - MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, 22)
        .margin_left(MARGIN)
        .margin_right(RIGHT)
        .margin_top(8)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(canvas::font(SMALL))
        .x_label_formatter(&|second| format!("{second} s"))
        .y_label_formatter(&|count| format!("{count}"))
        .y_labels(4)
        .y_desc("failed per second")
        .axis_desc_style(canvas::font(SMALL))
        .draw()?;
    let at = report.disrupted_at;
    chart.draw_series([PathElement::new([(at, 0.0), (at, top)], INK)])?;
    let bars = report.by_second.iter().map(|it| it.failed).enumerate();
    let bars = bars.map(|(second, count)| {
        let second = second as f64;
        // A single failure is visible.
        let height = count.max(count.min(1) * max / 50) as f64;
        let corners = [(second + 0.05, 0.0), (second + 0.95, height)];
        Rectangle::new(corners, FAILED.filled())
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Draws a bar for each pod from its deletion until it was gone, with marks for the steps between.
fn draw_pods(area: &Area<'_>, pods: &[PodReport], end: f64) -> Result<()> {
    let width = f64::from(WIDTH - LEFT - RIGHT);
    let x = |seconds: f64| (f64::from(LEFT) + seconds.clamp(0.0, end) / end * width) as i32;
    let text = canvas::font(SMALL);
    for (nth, pod) in pods.iter().enumerate() {
        let top = (POD_HEIGHT * nth as u32) as i32 + 4;
        let bottom = top + POD_HEIGHT as i32 - 6;
        let gone_at = pod.gone_at.unwrap_or(end);
        let corners = [(x(pod.deleted_at), top), (x(gone_at), bottom)];
        let bar = Rectangle::new(corners, TERMINATING.filled());
        area.draw(&bar)?;
        for (at, color) in [(pod.unready_at, INK), (pod.drained_at, DRAINED)] {
            if let Some(at) = at {
                let mark = Rectangle::new([(x(at) - 1, top), (x(at) + 1, bottom)], color.filled());
                area.draw(&mark)?;
            }
        }
        // Beside the bar, on the side with more room.
        let (at, side) = if x(gone_at) > WIDTH as i32 / 2 {
            (x(pod.deleted_at) - 6, HPos::Right)
        } else {
            (x(gone_at) + 6, HPos::Left)
        };
        let text = text.pos(Pos::new(side, VPos::Center));
        area.draw_text(&pod.name, &text, (at, (top + bottom) / 2))?;
    }
    Ok(())
}

/// The end of the x axis, in seconds.
fn end(report: &DrillReport) -> f64 {
    (report.by_second.len() as f64).max(report.seconds).max(1.0)
}
