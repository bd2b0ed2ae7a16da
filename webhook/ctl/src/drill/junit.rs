//! The report as JUnit's XML, which CI systems show.
//! <https://github.com/testmoapp/junitxml>

use std::fmt::Write;

use super::report::{ClientReport, DrillReport};

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
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned() + &suite;
    for client in &report.clients {
        push_case(&mut xml, client, report.seconds);
    }
    xml + "</testsuite>\n"
}

fn push_case(xml: &mut String, client: &ClientReport, seconds: f64) {
    let name = escape(&client.name);
    let case = format!("  <testcase classname=\"drill\" name=\"{name}\" time=\"{seconds:.3}\"");
    xml.push_str(&case);
    if client.failed == 0 {
        xml.push_str("/>\n");
        return;
    }
    let message = format!("{} of {} requests failed", client.failed, client.sent);
    // Writing to a String cannot fail.
    let _ = writeln!(xml, ">\n    <failure message=\"{message}\">");
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
  <testcase classname="drill" name="keep-alive" time="12.000"/>
  <testcase classname="drill" name="connect" time="12.000">
    <failure message="3 of 120 requests failed">
at 9.200 s cut in flight: connection reset &lt;by&gt; &quot;peer&quot;
    </failure>
  </testcase>
</testsuite>
"#;
        assert_eq!(to_xml(&sample()), want);
    }

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(escape("a\u{1b}[1m&'\n"), "a\u{fffd}[1m&amp;&#39;\n");
    }
}
