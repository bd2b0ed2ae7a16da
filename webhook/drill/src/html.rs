//! The report as a page: one file, without scripts and without a server.

use std::fmt::Write;

use anyhow::Result;

use crate::chart;
use crate::disruption::LoadOrigin;
use crate::junit::escape;
use crate::render::{Table, client_table, definition, failure_lines, pod_table, verdict};
use crate::report::DrillReport;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
    h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}svg{max-width:100%;height:auto}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    p.ok{color:#176b2c}p.lost{color:#b02020}p.incomplete{color:#8a5a00}\
    p.ok,p.lost,p.incomplete{font-weight:600}\
    th,td{vertical-align:top;text-align:left;padding:.2rem 1rem .2rem 0;border-bottom:1px solid #ddd}pre{overflow-x:auto}";

/// What the columns of the pods' table mean.
const POD_COLUMNS: &str = "<p>Times are seconds since the start of the load. Failed meanwhile: all requests that failed \
    from the pod's deletion until a second after it was gone. Pods that terminate at the same time share these requests. \
    Drain: the outcome of the pod's drain. Cut by drainer: what was in flight at its end.</p>\n";

/// Renders the page.
///
/// # Errors
/// As [`chart::to_svg`].
pub(super) fn to_html(report: &DrillReport) -> Result<String> {
    let chart = chart::to_svg(report)?;
    let title = format!(
        "Drill of {}: {}",
        report.subject.workload, report.subject.disruption
    );
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<p class=\"{}\">{}</p>\n{chart}\n",
        class(report),
        escape(&verdict(report)),
        title = escape(&title),
    );
    push_table(&mut page, "Clients", &client_table(report));
    // Writing to a String cannot fail.
    for kind in report.failures().into_keys() {
        let _ = writeln!(page, "<p>{kind}: {}.</p>", definition(kind));
    }
    for left_out in &report.left_out {
        let _ = writeln!(page, "<p>Left out: {}.</p>", escape(left_out));
    }
    push_table(&mut page, "Pods", &pod_table(report));
    page.push_str(POD_COLUMNS);
    let lines = failure_lines(report);
    if !lines.is_empty() {
        let _ = write!(
            page,
            "<h2>First failures</h2>\n<pre>{}</pre>\n",
            escape(&lines.join("\n"))
        );
    }
    push_subject(&mut page, report);
    Ok(page + "</html>\n")
}

/// The class of the verdict, which has a colour.
fn class(report: &DrillReport) -> &'static str {
    match (report.completed, report.failed) {
        (false, _) => "incomplete",
        (true, 0) => "ok",
        (true, _) => "lost",
    }
}

fn push_subject(page: &mut String, report: &DrillReport) {
    let subject = &report.subject;
    let origin = match subject.origin {
        LoadOrigin::Cluster => "a Job in the cluster",
        LoadOrigin::Here => "the machine of the drill",
    };
    let rows = [
        ("Workload", &*subject.workload),
        ("Disruption", &subject.disruption),
        ("URL", &subject.url),
        ("Load from", origin),
        ("API server", &subject.cluster),
        (
            "Start",
            &report
                .started_at
                .0
                .strftime("%Y-%m-%d %H:%M:%S UTC")
                .to_string(),
        ),
        ("envoy-drainer", &subject.version),
    ];
    page.push_str("<h2>Drill</h2>\n<table>\n");
    for (name, value) in rows {
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
    }
    page.push_str("</table>\n");
}

fn push_table(page: &mut String, title: &str, table: &Table) {
    let _ = write!(page, "<h2>{title}</h2>\n<table>\n");
    for (nth, row) in table.iter().enumerate() {
        let tag = if nth == 0 { "th" } else { "td" };
        let cells = row.iter();
        let cells = cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        let _ = writeln!(page, "<tr>{}</tr>", cells.collect::<String>());
    }
    page.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

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
