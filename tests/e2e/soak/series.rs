//! Measures over time, and whether they grow.
//!
//! A leak grows as long as the program runs; what an allocator or a pool takes once does not. So growth is judged over
//! the whole run, by the line that fits the samples best (least squares). A measure grows if that line rises by more
//! than the measure's allowance between the first sample and the last, even with a slope that is three standard errors
//! less. The allowance is for what is taken once, and the standard errors are for noise. The bound of the slope is
//! therefore the allowance divided by the time of the run: the longer a run, the smaller the leak that it finds.

use std::time::Duration;

use ::tests::soak_report::Trend;

/// The interval between two samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// By how much it may rise in a run, in its unit; `None` if it is not judged.
    pub(crate) allowance: Option<f64>,
}

/// The samples of all measures.
#[derive(Debug, Default)]
pub(crate) struct SeriesSet(Vec<Series>);

/// The samples of a measure, in the order of time.
#[derive(Debug)]
struct Series {
    /// Of what it is a measure.
    subject: &'static str,
    measure: Measure,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Hours since the start.
    at: f64,
    value: f64,
}

/// The standard errors that are taken for noise: by chance alone, a slope differs by more once in 700 times.
const NOISE: f64 = 3.0;

// === impl Measure ===

impl Measure {
    pub(crate) const fn new(
        name: &'static str,
        unit: &'static str,
        allowance: Option<f64>,
    ) -> Self {
        Self {
            name,
            unit,
            allowance,
        }
    }
}

// === impl SeriesSet ===

impl SeriesSet {
    /// Adds a sample, taken this long after the start.
    pub(crate) fn record(
        &mut self,
        subject: &'static str,
        measure: Measure,
        at: Duration,
        value: f64,
    ) {
        let at = at.as_secs_f64() / 3600.0;
        let sample = Sample { at, value };
        let mut all = self.0.iter_mut();
        match all.find(|series| (series.subject, series.measure) == (subject, measure)) {
            Some(series) => series.samples.push(sample),
            None => self.0.push(Series {
                subject,
                measure,
                samples: vec![sample],
            }),
        }
    }

    /// Returns how each measure has changed.
    pub(crate) fn trends(&self) -> Vec<Trend> {
        self.0.iter().map(Series::trend).collect()
    }
}

// === impl Series ===

impl Series {
    fn trend(&self) -> Trend {
        let Measure {
            name,
            unit,
            allowance,
        } = self.measure;
        let samples = &self.samples[..];
        let quarter = samples.len().div_ceil(4);
        let fit = fit(samples);
        let hours = samples.last().map_or(0.0, |last| last.at) - samples[0].at;
        let bound = allowance.map(|allowance| allowance / hours);
        let above = |((slope, error), bound): ((f64, f64), f64)| slope - NOISE * error > bound;
        let grows = fit.zip(bound).is_some_and(above);
        Trend {
            subject: self.subject.to_owned(),
            measure: name.to_owned(),
            unit: unit.to_owned(),
            samples: samples.len(),
            first_quarter: median(&samples[..quarter]),
            last_quarter: median(&samples[samples.len() - quarter..]),
            slope: fit.map(|(slope, _)| slope),
            standard_error: fit.map(|(_, error)| error),
            bound: bound.filter(|_| fit.is_some()),
            grows,
        }
    }
}

/// Returns the slope of the line that fits the samples best, and its standard error; `None` for fewer than three.
/// <https://en.wikipedia.org/wiki/Simple_linear_regression>
fn fit(samples: &[Sample]) -> Option<(f64, f64)> {
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (mean_at, mean_value) = (mean(|it| it.at), mean(|it| it.value));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        let all = samples.iter();
        all.map(|it| of(it.at - mean_at, it.value - mean_value))
            .sum()
    };
    let spread = sum(&|at, _| at * at);
    let slope = sum(&|at, value| at * value) / spread;
    let residuals = sum(&|at, value| (value - slope * at).powi(2));
    let error = (residuals / (count - 2.0) / spread).sqrt();
    (samples.len() >= 3).then_some((slope, error))
}

/// Returns the median; zero of no samples.
fn median(samples: &[Sample]) -> f64 {
    let mut values: Vec<_> = samples.iter().map(|sample| sample.value).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trend of values that are sampled every 30 s, with an allowance of 1.
    fn trend(count: u32, value: impl Fn(f64) -> f64) -> Trend {
        let memory = Measure::new("memory", "MiB", Some(1.0));
        let mut series = SeriesSet::default();
        for index in 0..count {
            let at = Duration::from_secs(30) * index;
            series.record("drainer", memory, at, value(f64::from(index)));
        }
        series.trends().remove(0)
    }

    /// Between -1 and 1, without a trend.
    fn noise(index: f64) -> f64 {
        (index * 12.9898).sin()
    }

    #[test]
    fn line_without_noise_has_its_slope() {
        let trend = trend(121, |index| 10.0 + index / 60.0);
        assert!((trend.slope.unwrap() - 2.0).abs() < 1e-9, "{trend:?}");
        assert!(trend.standard_error.unwrap() < 1e-6, "{trend:?}");
        assert!((trend.bound.unwrap() - 1.0).abs() < 1e-9, "{trend:?}");
        assert!((trend.first_quarter - 10.25).abs() < 1e-9, "{trend:?}");
        assert!((trend.last_quarter - 11.75).abs() < 1e-9, "{trend:?}");
    }

    #[test]
    fn leak_grows_however_noisy() {
        // (samples, value, grows)
        type Case = (u32, fn(f64) -> f64, bool);
        let table: [Case; 7] = [
            (121, |_| 10.0, false),
            (121, |index| 10.0 + 5.0 * noise(index), false),
            (121, |index| 10.0 - index, false),
            // What is taken once.
            (121, |index| 10.0 + f64::from(index > 9.0), false),
            // 2 MiB an hour.
            (121, |index| 10.0 + index / 60.0, true),
            (121, |index| 10.0 + index / 60.0 + noise(index), true),
            // The same in five minutes is less than the allowance.
            (11, |index| 10.0 + index / 60.0, false),
        ];
        for (number, (samples, value, want)) in table.into_iter().enumerate() {
            let trend = trend(samples, value);
            assert_eq!(trend.grows, want, "{number}: {trend:?}");
        }
    }

    #[test]
    fn two_samples_are_not_judged() {
        let trend = trend(2, |index| index * 100.0);
        assert_eq!((trend.slope, trend.bound, trend.grows), (None, None, false));
        assert_eq!((trend.first_quarter, trend.last_quarter), (0.0, 100.0));
    }
}
