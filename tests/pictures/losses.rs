//! The requests that drills of a rollout lost, by second: a panel for each way to end a pod.

use ::tests::drill_reports::PodEnd;
use anyhow::Result;
use drill::report::DrillReport;
use plotters::prelude::*;

use crate::canvas::{self, Area, Side, WIDTH};

/// The axes of all panels. Seconds are counted from the start of the rollout.
struct Axes {
    start: f64,
    end: f64,
    /// Failed requests in a second.
    max: f64,
}

const HEADER: i32 = 40;
/// The parts of a panel.
const TITLE: i32 = 26;
const POD: i32 = 14;
const CHART: i32 = 92;
const LABELS: u32 = 22;
const GAP: i32 = 14;
const KEY: i32 = 30;

/// The room for the labels of the y axis, and right of the charts for those of pods.
const LEFT: i32 = 56;
const RIGHT: i32 = 56;

/// The least height of a bar, so that a single failure is visible, in pixels.
const MIN_BAR: f64 = 3.0;

const FAILED: RGBColor = RGBColor(200, 36, 36);
const TERMINATING: RGBColor = RGBColor(214, 182, 96);
/// Where no requests were sent.
const NO_LOAD: RGBColor = RGBColor(240, 240, 240);

/// Draws reports, each with how its pods end.
pub(crate) fn draw(reports: &[(PodEnd, DrillReport)]) -> Result<String> {
    let axes = Axes::of(reports);
    let heights: i32 = reports.iter().map(|(_, report)| panel_height(report)).sum();
    canvas::draw((HEADER + heights + KEY).try_into()?, |area| {
        let title = "Failed requests by second in one rollout, behind endpoints that lag 15 s";
        canvas::title(area, title, (12, 20))?;
        let mut top = HEADER;
        for (end, report) in reports {
            draw_panel(area, top, end.name(), report, &axes)?;
            top += panel_height(report);
        }
        draw_key(area, top + KEY / 2)
    })
}

fn panel_height(report: &DrillReport) -> i32 {
    TITLE + POD * report.pods.len() as i32 + CHART + GAP
}

fn draw_panel(
    area: &Area<'_>,
    top: i32,
    name: &str,
    report: &DrillReport,
    axes: &Axes,
) -> Result<()> {
    let counts = format!("{} of {} requests failed", report.failed, report.sent);
    let title = format!("{name}: {counts}");
    canvas::title(area, &title, (LEFT, top + TITLE / 2))?;
    let pods_top = top + TITLE;
    let chart_top = pods_top + POD * report.pods.len() as i32;
    let size = (WIDTH - RIGHT as u32, CHART as u32);
    let mut chart = ChartBuilder::on(&area.clone().shrink((0, chart_top), size))
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, LABELS)
        .build_cartesian_2d(axes.start..axes.end, 0.0..axes.max)?;
    let [load_start, load_end] = load(report);
    for (from, to) in [(axes.start, load_start), (load_end, axes.end)] {
        let corners = [(from, 0.0), (to, axes.max)];
        chart.draw_series([Rectangle::new(corners, NO_LOAD.filled())])?;
    }
    let mut mesh = chart.configure_mesh();
    canvas::style_mesh(&mut mesh);
    mesh.x_label_formatter(&|second| format!("{second} s"))
        .y_label_formatter(&|count| format!("{count}"))
        .x_labels(12)
        .y_labels(3)
        .draw()?;
    let visible = axes.max * MIN_BAR / f64::from(CHART - LABELS as i32);
    let bars = report.failing_seconds().map(|(second, failed)| {
        let second = second as f64 - report.disrupted_at;
        let height = (failed as f64).max(visible);
        Rectangle::new([(second, 0.0), (second + 0.95, height)], FAILED.filled())
    });
    chart.draw_series(bars)?;
    let x = |second: f64| chart.backend_coord(&(second - report.disrupted_at, 0.0)).0;
    for (row, pod) in (0..).zip(&report.pods) {
        let middle = pods_top + POD * row + POD / 2;
        let (deleted, gone) = (x(pod.deleted_at), pod.gone_at.map(&x));
        canvas::small_text(area, "t0", (deleted - 5, middle), Side::Left)?;
        let end = gone.unwrap_or_else(|| x(report.seconds)).max(deleted + 1);
        let corners = [(deleted, middle - 4), (end, middle + 4)];
        canvas::rectangle(area, corners, TERMINATING)?;
        if gone.is_some() {
            canvas::small_text(area, "gone", (end + 5, middle), Side::Right)?;
        }
    }
    Ok(())
}

/// Draws the meanings of the colours.
fn draw_key(area: &Area<'_>, middle: i32) -> Result<()> {
    let entries = [
        (FAILED, LEFT, "failed requests in a second"),
        (
            TERMINATING,
            290,
            "a pod, from its deletion (t0) until it is gone",
        ),
        (NO_LOAD, 620, "no requests are sent"),
    ];
    for (color, x, name) in entries {
        canvas::rectangle(area, [(x, middle - 5), (x + 16, middle + 5)], color)?;
        canvas::small_text(area, name, (x + 24, middle), Side::Right)?;
    }
    Ok(())
}

/// The first and the last second in which requests were sent, since the start of the rollout.
fn load(report: &DrillReport) -> [f64; 2] {
    let end = (report.by_second.len() as f64).max(report.seconds);
    [-report.disrupted_at, end - report.disrupted_at]
}

// === impl Axes ===

impl Axes {
    /// Axes that have room for all reports.
    fn of(reports: &[(PodEnd, DrillReport)]) -> Self {
        let reports = || reports.iter().map(|(_, report)| report);
        let seconds = || reports().flat_map(load);
        let counts = reports().flat_map(DrillReport::failing_seconds);
        let max = counts.map(|(_, failed)| failed).max().unwrap_or(0);
        Self {
            start: seconds().fold(0.0, f64::min),
            end: seconds().fold(1.0, f64::max),
            max: max.max(4) as f64 * 1.05,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A drill in which a request fails four seconds after the start of the rollout.
    fn drill(disrupted_at: usize) -> DrillReport {
        let failed = |second| u64::from(second == disrupted_at + 4);
        let seconds = (0..30).map(|second| json!({ "sent": 10, "failed": failed(second) }));
        let pod = json!({
            "name": "edge",
            "deletedAt": disrupted_at + 2,
            "goneAt": disrupted_at + 9,
            "failedMeanwhile": 1,
            "connections": [],
        });
        let report = json!({
            "workload": "Deployment shop/edge",
            "disruption": "rollout",
            "url": "http://edge/",
            "cluster": "https://10.0.0.1:6443/",
            "origin": "cluster",
            "version": "0.1.0",
            "startedAt": "2026-01-02T10:00:00Z",
            "disruptedAt": disrupted_at,
            "seconds": 30,
            "sent": 300,
            "failed": 1,
            "failedLater": 0,
            "completed": true,
            "leftOut": [],
            "clients": [],
            "bySecond": seconds.collect::<Vec<_>>(),
            "pods": [pod],
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn panels_are_aligned_at_the_start_of_the_rollout() {
        let svg = draw(&[(PodEnd::Sigterm, drill(5)), (PodEnd::Drainer, drill(7))]).unwrap();
        for color in ["#C82424", "#D6B660"] {
            let shapes = svg.lines().filter(|line| line.contains(color));
            let x = shapes.filter_map(|line| line.split(" x=").nth(1)?.split(' ').next());
            let x: Vec<_> = x.collect();
            assert_eq!(x[0], x[1], "{svg}");
        }
    }

    #[test]
    fn a_single_failure_beside_many_is_visible() {
        let mut many = drill(5);
        many.by_second[9].failed = 10_000;
        let svg = draw(&[(PodEnd::Sigterm, many), (PodEnd::Drainer, drill(5))]).unwrap();
        let bars = svg.lines().filter(|line| line.contains("#C82424"));
        let height = bars.filter_map(|line| line.split(" height=\"").nth(1)?.split('"').next());
        let heights: Vec<u32> = height.map(|it| it.parse().unwrap()).collect();
        assert!(heights[1] >= 1, "{svg}");
    }
}
