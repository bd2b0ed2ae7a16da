//! The latency of an admission by load, beside that of a server with a constant response.

use ::tests::admission_report::{
    AdmissionReport, Connections, Figures, LIMIT, Measure, PRODUCT, USUAL,
};
use ::tests::figures::Figure;
use anyhow::{Context, Result, ensure};
use plotters::prelude::*;

use crate::canvas::{self, GRID, INK, SMALL, Side, WIDTH, font};

/// A line of the chart.
struct Line {
    server: &'static str,
    percentile: &'static str,
    color: RGBColor,
    latency: Latency,
}

/// The servers, and the colours of their percentiles.
const SERVERS: [(&str, [RGBColor; 3]); 2] = [
    (
        PRODUCT,
        [
            RGBColor(16, 55, 110),
            RGBColor(40, 110, 200),
            RGBColor(130, 180, 240),
        ],
    ),
    (
        LIMIT,
        [
            RGBColor(70, 70, 70),
            RGBColor(130, 130, 130),
            RGBColor(190, 190, 190),
        ],
    ),
];

/// The percentiles, and where a measure has them.
const PERCENTILES: [(&str, Latency); 3] = [
    ("p99.9", |it| &it.p99_9_micros),
    ("p99", |it| &it.p99_micros),
    ("median", |it| &it.p50_micros),
];

type Latency = fn(&Figures) -> &Figure;

const TITLE: &str =
    "Latency of an admission by load, over TLS, beside that of a constant response (limit)";

const HEIGHT: u32 = 420;
const HEADER: u32 = 40;
/// The room for the labels of the axes, and for the names of the lines.
const LEFT: u32 = 76;
const BOTTOM: u32 = 44;
const NAMES: u32 = 200;
/// The height of a name.
const ROW: i32 = 22;

/// Draws a line for each percentile of both servers, over the rates.
pub(crate) fn draw(report: &AdmissionReport) -> Result<String> {
    let lines = lines().map(|line| Ok((line.points(report)?, line)));
    let lines: Vec<_> = lines.collect::<Result<_>>()?;
    let points = || lines.iter().flat_map(|(points, _)| points);
    let highest_rate = points().map(|(rate, _)| *rate).fold(1.0, f64::max);
    let least = points().map(|(_, micros)| *micros).fold(f64::MAX, f64::min);
    let most = points().map(|(_, micros)| *micros).fold(least, f64::max);
    canvas::draw((canvas::WIDTH, HEIGHT), |area| {
        canvas::title(area, TITLE, (12, 20))?;
        let size = (WIDTH - NAMES, HEIGHT - HEADER - 6);
        let mut chart = ChartBuilder::on(&area.clone().shrink((0, HEADER), size))
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .build_cartesian_2d(
                0.0..highest_rate * 1.02,
                (least / 1.5..most * 1.5).log_scale(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(font(SMALL))
            .x_desc("admissions per second")
            .x_label_formatter(&|rate| format!("{rate}"))
            .y_label_formatter(&|micros| latency(*micros))
            .draw()?;
        let x = (WIDTH - NAMES) as i32 + 16;
        for (row, (points, line)) in (0..).zip(&lines) {
            let style = line.color.stroke_width(2);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            let mark = |point: &(f64, f64)| Circle::new(*point, 3, line.color.filled());
            chart.draw_series(points.iter().map(mark))?;
            let y = HEADER as i32 + 12 + ROW * row;
            canvas::rectangle(area, [(x, y - 1), (x + 20, y + 1)], line.color)?;
            let name = format!("{}, {}", line.server, line.percentile);
            canvas::text(area, &name, (x + 28, y), Side::Right)?;
        }
        Ok(())
    })
}

/// A line for each percentile of both servers.
fn lines() -> impl Iterator<Item = Line> {
    SERVERS.into_iter().flat_map(|(server, colors)| {
        let percentiles = PERCENTILES.into_iter().zip(colors);
        percentiles.map(move |((percentile, latency), color)| Line {
            server,
            percentile,
            color,
            latency,
        })
    })
}

/// A duration with its unit.
fn latency(micros: f64) -> String {
    if micros < 1e3 {
        format!("{micros} µs")
    } else {
        format!("{} ms", micros / 1e3)
    }
}

/// The rate of a measure, if it is one of those that are drawn: of usual pods, over kept connections, with a CPU for
/// the server.
fn drawn_rate(measure: &Measure) -> Option<f64> {
    let is_drawn = measure.server_cpus == 1
        && measure.pod_kib == USUAL
        && measure.load.connections == Connections::Kept;
    measure.load.rate.filter(|_| is_drawn).map(f64::from)
}

// === impl Line ===

impl Line {
    /// The latencies in microseconds, by rate.
    fn points(&self, report: &AdmissionReport) -> Result<Vec<(f64, f64)>> {
        let mut points = Vec::new();
        for measure in &report.measures {
            if let Some(rate) = drawn_rate(measure) {
                let latencies = measure.servers.get(self.server);
                let latencies =
                    latencies.with_context(|| format!("no {} at {rate}", self.server))?;
                points.push((rate, (self.latency)(latencies).median));
            }
        }
        ensure!(!points.is_empty(), "no measure has a rate");
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(points)
    }
}
