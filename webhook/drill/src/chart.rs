//! The chart of a drill: failed and sent requests by second, and the ends of pods below; and of several drills, only
//! failed requests.

use anyhow::Result;
use load::SecondReport;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{DrillReport, PodReport};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A drill and its title.
type TitledDrill<'a> = (&'a str, &'a DrillReport);

const WIDTH: u32 = 960;

/// The heights of the parts, in pixels.
const TITLE_HEIGHT: u32 = 34;
const PANEL_HEIGHT: u32 = 150;
const COMPARED_HEIGHT: u32 = 100;
const POD_HEIGHT: u32 = 22;
const KEY_HEIGHT: u32 = 28;

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

/// Requests by second: their name, their colour, and how many there are.
type Counts = (&'static str, RGBColor, fn(&SecondReport) -> u64);

const FAILED_COUNTS: Counts = ("failed per second", FAILED, |second| second.failed);
const SENT_COUNTS: Counts = ("sent per second", SENT, |second| second.sent);

/// Draws all of a drill as SVG.
///
/// # Errors
/// Never in practice: a text can always be written.
pub(super) fn to_svg(report: &DrillReport) -> Result<String> {
    let title = format!("{}, {}", report.subject.workload, report.subject.disruption);
    let counts = [FAILED_COUNTS, SENT_COUNTS];
    draw(&[(&title, report)], &counts, PANEL_HEIGHT)
}

/// Draws the failed requests of several drills as SVG, below each other and on the same axes.
///
/// # Errors
/// Never in practice: a text can always be written.
pub fn compare_losses(drills: &[TitledDrill<'_>]) -> Result<String> {
    draw(drills, &[FAILED_COUNTS], COMPARED_HEIGHT)
}

fn draw(drills: &[TitledDrill<'_>], counts: &[Counts], panel_height: u32) -> Result<String> {
    let reports = || drills.iter().map(|(_, report)| *report);
    let panels = counts.len() as u32;
    let pods_height = |report| POD_HEIGHT * pods(report).len() as u32;
    let height = |report| TITLE_HEIGHT + panel_height * panels + pods_height(report);
    let height = reports().map(height).sum::<u32>() + KEY_HEIGHT;
    let end = reports().map(end).fold(1.0, f64::max);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut rest = area.clone();
        let mut cut = |height| {
            let (part, below) = rest.split_vertically(height);
            rest = below;
            part
        };
        for (title, report) in drills {
            let DrillReport { failed, sent, .. } = report;
            let text = format!("{title}: {failed} of {sent} requests failed");
            cut(TITLE_HEIGHT).draw_text(&text, &style(17, INK), (12, 9))?;
            for counts in counts {
                let seconds = reports().flat_map(|report| &report.by_second);
                let max = seconds.map(counts.2).max().unwrap_or(0);
                draw_seconds(&cut(panel_height), report, *counts, end, max)?;
            }
            draw_pods(&cut(pods_height(report)), pods(report), end)?;
        }
        let key = key(&reports().flat_map(pods).collect::<Vec<_>>());
        let at = (LEFT as i32, 14);
        cut(KEY_HEIGHT).draw_text(&key, &style(12, INK), at)?;
        area.present()?;
    }
    Ok(svg)
}

/// The pods that have a bar.
fn pods(report: &DrillReport) -> &[PodReport] {
    &report.pods[..report.pods.len().min(MAX_PODS)]
}

/// Draws a bar for each second.
fn draw_seconds(
    area: &Area<'_>,
    report: &DrillReport,
    (name, color, count): Counts,
    end: f64,
    max: u64,
) -> Result<()> {
    let mut chart = panel(area, report, name, end, max)?;
    let bars = report.by_second.iter().map(count).enumerate();
    let bars = bars.map(|(second, count)| {
        let second = second as f64;
        // A single failure is visible.
        let height = count.max(count.min(1) * max / 50) as f64;
        let corners = [(second + 0.05, 0.0), (second + 0.95, height)];
        Rectangle::new(corners, color.filled())
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Draws a bar for each pod from its deletion until it was gone, with marks for the steps between.
fn draw_pods(area: &Area<'_>, pods: &[PodReport], end: f64) -> Result<()> {
    let width = f64::from(WIDTH - LEFT - RIGHT);
    let x = |seconds: f64| (f64::from(LEFT) + seconds.clamp(0.0, end) / end * width) as i32;
    let text = style(12, INK);
    for (nth, pod) in pods.iter().enumerate() {
        let top = (POD_HEIGHT * nth as u32) as i32 + 4;
        let bottom = top + POD_HEIGHT as i32 - 6;
        let gone_at = pod.gone_at.unwrap_or(end);
        let corners = [(x(pod.deleted_at), top), (x(gone_at), bottom)];
        let bar = Rectangle::new(corners, TERMINATING.filled());
        area.draw(&bar)?;
        for (at, color) in [(pod.unready_at, INK), (pod.drained_at, SENT)] {
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

/// Explains what is drawn, and only that.
fn key(pods: &[&PodReport]) -> String {
    let has = |is_drawn: fn(&&PodReport) -> bool| pods.iter().any(is_drawn);
    let parts = [
        (true, "vertical line: start of the disruption"),
        (
            has(|_| true),
            "bars: pods from their deletion until they are gone",
        ),
        (has(|pod| pod.unready_at.is_some()), "dark mark: not ready"),
        (has(|pod| pod.drained_at.is_some()), "blue mark: drained"),
    ];
    let parts = parts.iter().filter(|(is_drawn, _)| *is_drawn);
    parts.map(|(_, text)| *text).collect::<Vec<_>>().join("; ")
}

/// A chart whose x axis is the time of the drill, with room for values up to `max`.
fn panel<'a, 'b>(
    area: &'a Area<'b>,
    report: &DrillReport,
    title: &str,
    end: f64,
    max: u64,
) -> Result<Panel<'a, 'b>> {
    let max = max.max(4) as f64 * 1.1;
    let mut chart = ChartBuilder::on(area)
        .set_label_area_size(LabelAreaPosition::Left, LEFT - MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, 22)
        .margin_left(MARGIN)
        .margin_right(RIGHT)
        .margin_top(8)
        .build_cartesian_2d(0.0..end, 0.0..max)?;
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
        .draw()?;
    let at = report.disrupted_at;
    let mark = PathElement::new([(at, 0.0), (at, max)], INK);
    chart.draw_series([mark])?;
    Ok(chart)
}

/// The end of the x axis, in seconds.
fn end(report: &DrillReport) -> f64 {
    (report.by_second.len() as f64).max(report.seconds).max(1.0)
}

fn style(size: u32, color: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(!svg.contains("blue mark"), "{svg}");
    }

    #[test]
    fn single_failure_beside_many_is_visible() {
        let (mut many, mut single) = (sample(), sample());
        many.by_second[0].failed = 10_000;
        for report in [&mut many, &mut single] {
            report.by_second[1..].fill(load::SecondReport { sent: 0, failed: 0 });
        }
        single.by_second[0].failed = 1;
        let svg = compare_losses(&[("many", &many), ("one", &single)]).unwrap();
        let bars = svg.lines().filter(|line| line.contains("#C82424"));
        let heights = bars.filter_map(|bar| bar.split(" height=\"").nth(1)?.split('"').next());
        let heights: Vec<u32> = heights.map(|it| it.parse().unwrap()).collect();
        let visible: Vec<_> = heights.into_iter().filter(|height| *height > 0).collect();
        assert_eq!(visible.len(), 2, "{svg}");
    }

    #[test]
    fn names_cannot_add_elements() {
        let mut report = sample();
        report.pods[0].name = "<script>alert(1)</script>".to_owned();
        report.subject.workload = "</text><script>".to_owned();
        assert!(!to_svg(&report).unwrap().contains("<script"));
    }
}
