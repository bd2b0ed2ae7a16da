//! README.md and the pages in docs have the figures of docs/measured: what is between two markers is what these render
//! to.
//!
//! ```markdown
//! <!-- measured: drills ranges -->
//! the table of this name
//! <!-- /measured -->
//! <!-- measured: peers.json standby_cpu_time reaction -->
//! the table of these measures, or of all
//! <!-- /measured -->
//! A sentence with <!-- measured: peers.json drainer binary_size -->a figure<!-- /measured -->.
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tests::admission_report::AdmissionReport;
use tests::drill_reports;
use tests::figures;
use tests::golden;
use tests::peers_report::{PeersReport, Program};
use tests::server_report;
use tests::soak_report::SoakReport;
use tests::termination_report;

const START: &str = "<!-- measured: ";
const START_END: &str = " -->";
const END: &str = "<!-- /measured -->";

#[test]
fn pages_have_the_checked_in_figures() {
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        if page.contains(START) {
            let figures = with_figures(&page);
            let figures = figures.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            golden::check_file(&path, &figures);
        }
    }
}

#[test]
fn figures_between_markers_are_written_again() {
    let page = fs::read_to_string(docs().join("measured.md")).unwrap();
    let stale = page.replace(END, &format!("stale{END}"));
    assert_ne!(stale, page);
    assert_eq!(with_figures(&page).unwrap(), with_figures(&stale).unwrap());
}

#[test]
fn a_line_below_each_picture_has_the_command_that_measured_it() {
    let pages = pages().into_iter();
    let pages: Vec<_> = pages.map(|it| fs::read_to_string(it).unwrap()).collect();
    for entry in fs::read_dir(docs().join("images")).unwrap() {
        let link = format!("images/{}", entry.unwrap().file_name().display());
        let below = pages.iter().flat_map(|page| page.split(&link).skip(1));
        let below: Vec<_> = below.collect();
        assert!(!below.is_empty(), "no page has {link}");
        for below in below {
            // Of Markdown, or of HTML for the pictures of light and dark pages.
            let below = below.split_once("</picture>").map_or(below, |(_, it)| it);
            let below = below.trim_start_matches(')').trim_start();
            let line = below.lines().next().unwrap_or_default();
            assert!(line.starts_with("Measured by `make "), "{link}: {line}");
        }
    }
}

/// A page, with what is between markers rendered again.
fn with_figures(page: &str) -> Result<String> {
    let mut parts = page.split(START);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (marker, rest) = part
            .split_once(START_END)
            .context("a marker without an end")?;
        let (text, rest) = rest
            .split_once(END)
            .with_context(|| format!("{marker} has no {END}"))?;
        let line_end = if text.starts_with('\n') { "\n" } else { "" };
        // <https://spec.commonmark.org/0.31.2/#html-blocks>
        let ends_paragraph = line_end.is_empty() && result.ends_with('\n');
        ensure!(
            !ends_paragraph,
            "{marker}: a comment at the start of a line ends the paragraph"
        );
        let figures = render(marker)?;
        result += &format!("{START}{marker}{START_END}{line_end}{figures}{line_end}{END}{rest}");
    }
    Ok(result)
}

/// Renders what a marker names.
fn render(marker: &str) -> Result<String> {
    let (file, rest) = marker.split_once(' ').unwrap_or((marker, ""));
    match file {
        "drills" => render_drills(rest),
        "admission.json" => figures::read::<AdmissionReport>("admission")?.table(rest),
        "peers.json" => render_peers(rest),
        "servers.json" => server_report::table(),
        "terminations.json" => termination_report::text(rest),
        "streams.json" => server_report::streams(),
        "soak.json" => Ok(figures::read::<SoakReport>("soak")?.text()),
        _ => bail!("nothing renders {file}"),
    }
}

/// Renders a table of the drills, or a figure.
fn render_drills(name: &str) -> Result<String> {
    match name {
        "" => drill_reports::overview(),
        "ranges" => drill_reports::ranges(),
        "by-client" => drill_reports::by_client(),
        "terminations" => drill_reports::terminations(),
        _ => bail!("nothing renders {name}"),
    }
}

/// Renders a table of these measures, or a figure: the measure of a program.
fn render_peers(measures: &str) -> Result<String> {
    let report: PeersReport = figures::read("peers")?;
    let measures: Vec<_> = measures.split_whitespace().collect();
    let program = measures
        .first()
        .map(|it| serde_json::from_value::<Program>((*it).into()));
    match (program, &measures[..]) {
        (Some(Ok(program)), [_, measure]) => report.text(measure, program),
        _ => report.table(&measures),
    }
}

/// README.md, and the pages in docs and docs/dev.
fn pages() -> Vec<PathBuf> {
    let entries = [docs(), docs().join("dev")].map(|it| fs::read_dir(it).unwrap());
    let pages = entries.into_iter().flatten().map(|it| it.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|it| it == "md"));
    pages.chain([docs().join("../README.md")]).collect()
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}
