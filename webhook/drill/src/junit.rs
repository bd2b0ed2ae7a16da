//! The report as JUnit's XML, which CI systems show.
//! <https://github.com/testmoapp/junitxml>

use std::fmt::Write;

use drainer::text::needs_escape;

use crate::render::count_failures;
use crate::report::{ClientReport, DrillReport};

const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The report as a test suite, with a test case for each kind of clients.
pub(super) fn to_xml(report: &DrillReport) -> String {
    let subject = &report.subject;
    let failures = report.clients.iter().filter(|client| client.failed > 0);
    let suite = format!(
        "<testsuite name=\"drill of {}: {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" timestamp=\"{}\" time=\"{:.3}\">\n",
        escape(&subject.workload),
        escape(&subject.disruption),
        report.clients.len() + 1,
        failures.count(),
        u8::from(!report.completed),
        report.started_at.0.strftime("%Y-%m-%dT%H:%M:%SZ"),
        report.seconds,
    );
    let mut xml = HEADER.to_owned() + &suite + "  <properties>\n";
    for (name, value) in [("url", &subject.url), ("cluster", &subject.cluster)] {
        let value = escape(value);
        // Writing to a String cannot fail.
        let _ = writeln!(xml, "    <property name=\"{name}\" value=\"{value}\"/>");
    }
    xml += "  </properties>\n";
    let class = format!("drill.{}", escape(&subject.workload));
    let late = "    <error message=\"it was not complete in time\"/>\n";
    let error = (!report.completed).then_some(late);
    push_case(&mut xml, &class, "disruption", error);
    for client in &report.clients {
        push_case(&mut xml, &class, &client.name, failure(client).as_deref());
    }
    xml + "</testsuite>\n"
}

/// A test suite for a drill that could not be completed.
pub(super) fn error_to_xml(error: &str) -> String {
    let message = escape(error);
    format!(
        "{HEADER}<testsuite name=\"drill\" tests=\"1\" errors=\"1\">\n  \
         <testcase classname=\"drill\" name=\"drill\">\n    <error message=\"{message}\"/>\n  \
         </testcase>\n</testsuite>\n"
    )
}

/// Adds a test case, with the element of its failure or error.
fn push_case(xml: &mut String, class: &str, name: &str, problem: Option<&str>) {
    let end = problem.map(|problem| format!(">\n{problem}  </testcase>\n"));
    let (name, end) = (escape(name), end.as_deref().unwrap_or("/>\n"));
    *xml += &format!("  <testcase classname=\"{class}\" name=\"{name}\"{end}");
}

/// The element of the failed requests of a kind of clients, if there are any.
fn failure(client: &ClientReport) -> Option<String> {
    let (failed, sent) = (client.failed, client.sent);
    let kinds = count_failures(&client.failures);
    let first = client.first_failures.len();
    let mut xml = format!(
        "    <failure message=\"{failed} of {sent} requests failed: {kinds}\">\nThe first {first} of {failed}:\n"
    );
    for sample in &client.first_failures {
        let text = format!("at {:.3} s {}", sample.at, sample.failure);
        xml += &(escape(&text) + "\n");
    }
    (failed > 0).then(|| xml + "    </failure>\n")
}

/// Escapes text for XML. What it cannot have, and what terminals execute or hide, becomes U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(char),
            char if needs_escape(char) || matches!(char, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn kinds_of_clients_are_test_cases() {
        let want = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="drill of Deployment shop/edge: rollout" tests="3" failures="1" errors="0" timestamp="1970-01-01T00:00:00Z" time="12.000">
  <properties>
    <property name="url" value="http://edge/"/>
    <property name="cluster" value="https://10.0.0.1:6443/"/>
  </properties>
  <testcase classname="drill.Deployment shop/edge" name="disruption"/>
  <testcase classname="drill.Deployment shop/edge" name="keep-alive"/>
  <testcase classname="drill.Deployment shop/edge" name="connect">
    <failure message="3 of 120 requests failed: 1 refused, 2 cut in flight">
The first 1 of 3:
at 9.200 s cut in flight: connection reset &lt;by&gt; &quot;peer&quot;
    </failure>
  </testcase>
</testsuite>
"#;
        assert_eq!(to_xml(&sample()), want);
    }

    #[test]
    fn disruption_that_took_too_long_is_an_error() {
        let mut report = sample();
        report.completed = false;
        let xml = to_xml(&report);
        assert!(
            xml.contains(r#"errors="1""#) && xml.contains("<error "),
            "{xml}"
        );
    }

    #[test]
    fn drill_that_was_not_completed_is_an_error() {
        let xml = error_to_xml("no `Deployment` <edge>");
        assert!(xml.contains(r#"errors="1""#), "{xml}");
        assert!(
            xml.contains("message=\"no `Deployment` &lt;edge&gt;\""),
            "{xml}"
        );
    }

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(escape("a\u{1b}[1m&'\n"), "a\u{fffd}[1m&amp;&#39;\n");
    }
}
