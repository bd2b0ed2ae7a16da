//! The report as JUnit's XML, which CI systems show.
//! <https://github.com/testmoapp/junitxml>

use std::fmt::Write;

use super::render::count_failures;
use super::report::{ClientReport, DrillReport};

const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The report as a test suite, with a test case for each kind of clients.
pub fn to_xml(report: &DrillReport) -> String {
    let failures = report.clients.iter().filter(|client| client.failed > 0);
    let suite = format!(
        "<testsuite name=\"drill of {}: {}\" tests=\"{}\" failures=\"{}\" time=\"{:.3}\">\n",
        escape(&report.subject.workload),
        escape(&report.subject.disruption),
        report.clients.len(),
        failures.count(),
        report.seconds,
    );
    let mut xml = HEADER.to_owned() + &suite;
    for client in &report.clients {
        push_case(&mut xml, client);
    }
    xml + "</testsuite>\n"
}

/// A test suite for a drill that could not be completed.
pub fn error_to_xml(error: &str) -> String {
    let message = escape(error);
    format!(
        "{HEADER}<testsuite name=\"drill\" tests=\"1\" errors=\"1\">\n  \
         <testcase classname=\"drill\" name=\"drill\">\n    <error message=\"{message}\"/>\n  \
         </testcase>\n</testsuite>\n"
    )
}

fn push_case(xml: &mut String, client: &ClientReport) {
    let name = escape(&client.name);
    xml.push_str(&format!("  <testcase classname=\"drill\" name=\"{name}\""));
    if client.failed == 0 {
        xml.push_str("/>\n");
        return;
    }
    let (failed, sent) = (client.failed, client.sent);
    let kinds = count_failures(&client.failures);
    let message = format!("{failed} of {sent} requests failed: {kinds}");
    // Writing to a String cannot fail.
    let _ = writeln!(xml, ">\n    <failure message=\"{message}\">");
    let first = client.first_failures.len();
    let _ = writeln!(xml, "The first {first} of {failed}:");
    for sample in &client.first_failures {
        let text = format!("at {:.3} s {}", sample.at.as_secs_f64(), sample.failure);
        let _ = writeln!(xml, "{}", escape(&text));
    }
    xml.push_str("    </failure>\n  </testcase>\n");
}

/// Escapes text for XML and HTML. Control characters, which XML cannot have, become U+FFFD.
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
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn kinds_of_clients_are_test_cases() {
        let want = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="drill of Deployment shop/edge: rollout" tests="2" failures="1" time="12.000">
  <testcase classname="drill" name="keep-alive"/>
  <testcase classname="drill" name="connect">
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
