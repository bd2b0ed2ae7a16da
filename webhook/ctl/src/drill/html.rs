//! The report as a page: one file, without scripts and without a server.

use std::fmt::Write;

use super::chart::{self, ChartError};
use super::junit::escape;
use super::render::{Table, client_table, failure_lines, pod_table, verdict};
use super::report::DrillReport;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
    h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}svg{max-width:100%;height:auto}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    th,td{text-align:left;padding:.2rem 1rem .2rem 0;border-bottom:1px solid #ddd}pre{overflow-x:auto}";

/// Renders the page.
///
/// # Errors
/// As [`chart::to_svg`].
pub fn to_html(report: &DrillReport) -> Result<String, ChartError> {
    let chart = chart::to_svg(report)?;
    let title = format!(
        "Drill of {}: {}",
        report.subject.workload, report.subject.disruption
    );
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<p>{}</p>\n{chart}\n",
        escape(&verdict(report)),
        title = escape(&title),
    );
    push_table(&mut page, "Clients", &client_table(report));
    push_table(&mut page, "Pods", &pod_table(report));
    let lines = failure_lines(report);
    if !lines.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "<h2>First failures</h2>\n<pre>{}</pre>\n",
            escape(&lines.join("\n"))
        );
    }
    Ok(page + "</html>\n")
}

fn push_table(page: &mut String, title: &str, table: &Table) {
    let _ = write!(page, "<h2>{title}</h2>\n<table>\n");
    for (nth, row) in table.iter().enumerate() {
        let tag = if nth == 0 { "th" } else { "td" };
        let cells = row
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        let _ = writeln!(page, "<tr>{}</tr>", cells.collect::<String>());
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn page_has_the_chart_and_escapes_names() {
        let mut report = sample();
        report.subject.workload = "<b>".to_owned();
        let page = to_html(&report).unwrap();
        assert!(
            page.contains("<svg ") && page.contains("<td>keep-alive</td>"),
            "{page}"
        );
        assert!(page.contains("reset &lt;by&gt; &quot;peer&quot;"), "{page}");
        assert!(!page.contains("<b>"), "{page}");
        for reference in ["<script", "http-equiv", "src=", "href="] {
            assert!(!page.contains(reference), "{page}");
        }
    }
}
