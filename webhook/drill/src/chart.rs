//! The chart of a drill: failed and sent requests by second, the ends of pods below, and their open connections.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{DrillReport, PodReport};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Why a chart cannot be drawn.
pub(super) type ChartError = Box<dyn Error + Send + Sync>;

const WIDTH: u32 = 960;

/// The heights of the parts, in pixels.
const TITLE_HEIGHT: u32 = 34;
const PANEL_HEIGHT: u32 = 150;
const POD_HEIGHT: u32 = 22;
const PODS_MARGIN: u32 = 28;

/// The room for the labels of the y axes, and right of the charts.
const LEFT: u32 = 68;
const RIGHT: u32 = 16;

/// The part of `LEFT` that stays empty.
const MARGIN: u32 = 4;

/// At most so many pods have a bar.
const MAX_PODS: usize = 20;

const FAILED: RGBColor = RGBColor(200, 36, 36);
const SENT: RGBColor = RGBColor(70, 110, 160);
const TERMINATING: RGBColor = RGBColor(214, 182, 96);
const INK: RGBColor = RGBColor(50, 50, 50);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// The colours of the lines of pods, which colour-blind readers can tell apart.
/// <https://jfly.uni-koeln.de/color/>
const LINES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
];

/// Draws the chart as SVG.
///
/// # Errors
/// Never in practice: a text can always be written.
pub(super) fn to_svg(report: &DrillReport) -> Result<String, ChartError> {
    let pods = &report.pods[..report.pods.len().min(MAX_PODS)];
    let has_connections = pods.iter().any(|pod| !pod.connections.is_empty());
    let panels = if has_connections { 3 } else { 2 };
    let pods_height = POD_HEIGHT * pods.len() as u32 + PODS_MARGIN;
    let height = TITLE_HEIGHT + PANEL_HEIGHT * panels + pods_height;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(owned)?;
        let (title, rest) = area.split_vertically(TITLE_HEIGHT);
        let text = format!(
            "{}, {}: {} of {} requests failed",
            report.subject.workload, report.subject.disruption, report.failed, report.sent
        );
        title
            .draw_text(&text, &style(17, INK), (12, 9))
            .map_err(owned)?;
        let (failed, rest) = rest.split_vertically(PANEL_HEIGHT);
        let (sent, rest) = rest.split_vertically(PANEL_HEIGHT);
        let by_second = |count: fn(&load::SecondReport) -> u64| -> Vec<u64> {
            report.by_second.iter().map(count).collect()
        };
        let counts = by_second(|second| second.failed);
        draw_seconds(&failed, report, "failed per second", FAILED, &counts)?;
        let counts = by_second(|second| second.sent);
        draw_seconds(&sent, report, "sent per second", SENT, &counts)?;
        let rest = if has_connections {
            let (connections, rest) = rest.split_vertically(PANEL_HEIGHT);
            draw_connections(&connections, report, pods)?;
            rest
        } else {
            rest
        };
        draw_pods(&rest, report, pods)?;
        area.present().map_err(owned)?;
    }
    Ok(svg)
}

/// Draws a bar for each second.
fn draw_seconds(
    area: &Area<'_>,
    report: &DrillReport,
    title: &str,
    color: RGBColor,
    counts: &[u64],
) -> Result<(), ChartError> {
    let max = counts.iter().copied().max().unwrap_or(0);
    let mut chart = panel(area, report, title, max)?;
    let bars = counts.iter().enumerate().map(|(second, count)| {
        let second = second as f64;
        let corners = [(second + 0.05, 0.0), (second + 0.95, *count as f64)];
        Rectangle::new(corners, color.filled())
    });
    chart.draw_series(bars).map_err(owned)?;
    Ok(())
}

/// Draws a line for each pod.
fn draw_connections(
    area: &Area<'_>,
    report: &DrillReport,
    pods: &[PodReport],
) -> Result<(), ChartError> {
    let counts = pods.iter().flat_map(|pod| &pod.connections);
    let max = counts.map(|count| count.open).max().unwrap_or(0);
    let mut chart = panel(area, report, "open connections", max)?;
    for (nth, pod) in pods.iter().enumerate() {
        let points = pod.connections.iter();
        let points = points.map(|count| (count.at, count.open as f64));
        let line = LineSeries::new(points, line_color(nth).stroke_width(2));
        chart.draw_series(line).map_err(owned)?;
    }
    Ok(())
}

/// Draws a bar for each pod from its deletion until it was gone, with marks for the steps between.
fn draw_pods(area: &Area<'_>, report: &DrillReport, pods: &[PodReport]) -> Result<(), ChartError> {
    let end = end(report);
    let width = f64::from(WIDTH - LEFT - RIGHT);
    let x = |seconds: f64| (f64::from(LEFT) + seconds.clamp(0.0, end) / end * width) as i32;
    let text = style(12, INK);
    for (nth, pod) in pods.iter().enumerate() {
        let top = (POD_HEIGHT * nth as u32) as i32 + 4;
        let bottom = top + POD_HEIGHT as i32 - 6;
        let gone_at = pod.gone_at.unwrap_or(end);
        let corners = [(x(pod.deleted_at), top), (x(gone_at), bottom)];
        let color = if pod.connections.is_empty() {
            TERMINATING.filled()
        } else {
            line_color(nth).mix(0.5).filled()
        };
        let bar = Rectangle::new(corners, color);
        area.draw(&bar).map_err(owned)?;
        for (at, color) in [(pod.unready_at, INK), (pod.drained_at, SENT)] {
            if let Some(at) = at {
                let mark = Rectangle::new([(x(at) - 1, top), (x(at) + 1, bottom)], color.filled());
                area.draw(&mark).map_err(owned)?;
            }
        }
        // Beside the bar, on the side with more room.
        let (at, side) = if x(gone_at) > WIDTH as i32 / 2 {
            (x(pod.deleted_at) - 6, HPos::Right)
        } else {
            (x(gone_at) + 6, HPos::Left)
        };
        let text = text.pos(Pos::new(side, VPos::Center));
        area.draw_text(&pod.name, &text, (at, (top + bottom) / 2))
            .map_err(owned)?;
    }
    let bottom = (POD_HEIGHT * pods.len() as u32) as i32 + 14;
    area.draw_text(&key(pods), &text, (LEFT as i32, bottom))
        .map_err(owned)?;
    Ok(())
}

/// Explains what is drawn, and only that.
fn key(pods: &[PodReport]) -> String {
    let has = |is_drawn: fn(&PodReport) -> bool| pods.iter().any(is_drawn);
    let parts = [
        (true, "vertical line: start of the disruption"),
        (
            has(|_| true),
            "bars: pods from their deletion until they are gone",
        ),
        (
            has(|pod| !pod.connections.is_empty()),
            "in the colours of the lines above",
        ),
        (has(|pod| pod.unready_at.is_some()), "dark mark: not ready"),
        (has(|pod| pod.drained_at.is_some()), "blue mark: drained"),
    ];
    let parts = parts.iter().filter(|(is_drawn, _)| *is_drawn);
    parts.map(|(_, text)| *text).collect::<Vec<_>>().join("; ")
}

fn line_color(nth: usize) -> RGBColor {
    LINES[nth % LINES.len()]
}

/// A chart whose x axis is the time of the drill, with room for values up to `max`.
fn panel<'a, 'b>(
    area: &'a Area<'b>,
    report: &DrillReport,
    title: &str,
    max: u64,
) -> Result<Panel<'a, 'b>, ChartError> {
    let max = max.max(4) as f64 * 1.1;
    let mut chart = ChartBuilder::on(area)
        .set_label_area_size(LabelAreaPosition::Left, LEFT - MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, 22)
        .margin_left(MARGIN)
        .margin_right(RIGHT)
        .margin_top(8)
        .build_cartesian_2d(0.0..end(report), 0.0..max)
        .map_err(owned)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(style(12, INK))
        .x_label_formatter(&|second| format!("{second} s"))
        .y_label_formatter(&|count| format!("{count}"))
        .y_labels(4)
        .y_desc(title)
        .axis_desc_style(style(12, INK))
        .draw()
        .map_err(owned)?;
    let at = report.disrupted_at;
    let mark = PathElement::new([(at, 0.0), (at, max)], INK);
    chart.draw_series([mark]).map_err(owned)?;
    Ok(chart)
}

/// The end of the x axis, in seconds.
fn end(report: &DrillReport) -> f64 {
    (report.by_second.len() as f64).max(report.seconds).max(1.0)
}

fn style(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

fn owned(error: impl Error + Send + Sync + 'static) -> ChartError {
    Box::new(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ConnectionCount;
    use crate::report::tests::sample;

    #[test]
    fn chart_shows_failures_and_pods() {
        let svg = to_svg(&sample()).unwrap();
        assert!(svg.starts_with("<svg "), "{svg}");
        assert!(svg.contains("3 of 240 requests failed"), "{svg}");
        let red = format!("#{:02X}{:02X}{:02X}", FAILED.0, FAILED.1, FAILED.2);
        assert!(svg.contains(&red), "{svg}");
        for pod in ["edge-a", "edge-b"] {
            assert!(svg.contains(pod), "{svg}");
        }
        for absent in ["open connections", "blue mark", "colours"] {
            assert!(!svg.contains(absent), "{svg}");
        }
    }

    #[test]
    fn connections_have_a_panel_if_they_are_known() {
        let mut report = sample();
        report.pods[0].connections = vec![ConnectionCount { at: 1.0, open: 7 }];
        assert!(to_svg(&report).unwrap().contains("open connections"));
    }

    #[test]
    fn names_cannot_add_elements() {
        let mut report = sample();
        report.pods[0].name = "<script>alert(1)</script>".to_owned();
        report.subject.workload = "</text><script>".to_owned();
        assert!(!to_svg(&report).unwrap().contains("<script"));
    }
}
