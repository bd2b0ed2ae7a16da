//! The chart's alerts and its dashboard: a real Prometheus runs every query on the metrics of a real webhook.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hyper::StatusCode;
use serde_json::{Value, json};
use tests::api_server::FakeApiServer;
use tests::drainer_token::review_token;
use tests::helm::CHART;
use tests::http::Client;
use tests::manifest;
use tests::prometheus::{self, Prometheus, promtool};
use tests::timing::TIMEOUT;
use tests::until::wait_until;
use tests::webhook::{assert_injected, review};

use crate::drainer_api::ServeProcess;

/// The tests of the alerts, in promtool's format.
const ALERT_TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/alerts.yaml");

/// A PromQL query of a panel.
#[derive(Debug)]
struct PanelQuery {
    panel: String,
    expr: String,
    /// The labels in the legend.
    labels: Vec<String>,
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    let text = object[key].as_str();
    text.unwrap_or_else(|| panic!("no `{key}` in {object}"))
}

fn items<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    let items = object[key].as_array();
    items.unwrap_or_else(|| panic!("no list `{key}` in {object}"))
}

fn alerts_file() -> String {
    format!("{CHART}/rules/alerts.yaml")
}

/// The chart's alerts.
fn alerts() -> Vec<Value> {
    let [document] = &manifest::read::<Value>(read(alerts_file()).as_bytes())[..] else {
        panic!("one document")
    };
    let groups = items(document, "groups").iter();
    groups
        .flat_map(|group| items(group, "rules"))
        .cloned()
        .collect()
}

/// The cases of the alerts' tests.
fn alert_cases() -> Vec<Value> {
    let [document] = &manifest::read::<Value>(read(ALERT_TESTS).as_bytes())[..] else {
        panic!("one document")
    };
    items(document, "tests").to_vec()
}

fn dashboard() -> Value {
    serde_json::from_str(&read(format!("{CHART}/dashboards/envoy-drainer.json"))).unwrap()
}

/// The panels, also those in collapsed rows, without the rows themselves.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> + Clone {
    let rows = items(dashboard, "panels").iter();
    let panels = rows.flat_map(|row| row["panels"].as_array().into_iter().flatten().chain([row]));
    panels.filter(|panel| panel["type"] != "row")
}

/// All queries, with a minute for Grafana's variables.
fn panel_queries(dashboard: &Value) -> Vec<PanelQuery> {
    let targets = panels(dashboard)
        .flat_map(|panel| items(panel, "targets").iter().map(move |of| (panel, of)));
    let queries = targets.map(|(panel, target)| {
        let legend = text(target, "legendFormat").split("{{").skip(1);
        let labels = legend.filter_map(|rest| rest.split_once("}}"));
        PanelQuery {
            panel: text(panel, "title").to_owned(),
            expr: text(target, "expr")
                .replace("$__rate_interval", "1m")
                .replace("$__range", "1m")
                .replace("$cluster", ".*")
                .replace("$job", ".*"),
            labels: labels.map(|(label, _)| label.to_owned()).collect(),
        }
    });
    queries.collect()
}

/// The webhook's metrics that an expression names.
fn metric_names(expr: &str) -> BTreeSet<&str> {
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("envoy_drainer_"))
        .collect()
}

/// The names of the series of all metrics in OpenMetrics text.
fn exported_names(exposition: &str) -> BTreeSet<String> {
    let types = exposition.lines().filter_map(|line| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let suffixes: &[_] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            "counter" => &["_total"],
            "info" => &["_info"],
            _ => &[""],
        };
        Some(suffixes.iter().map(move |suffix| format!("{name}{suffix}")))
    });
    types.flatten().collect()
}

/// A webhook that takes reports.
async fn start_webhook() -> Result<ServeProcess> {
    let api_server = FakeApiServer::start_cluster([].into(), review_token).await?;
    let flags = ["--drainer-api-reports=true"];
    ServeProcess::start_with(api_server, None, &flags).await
}

/// Gives every metric that depends on requests a series.
async fn send_one_of_each(serve: &ServeProcess) -> Result<()> {
    let webhook = &serve.server;
    let injected = webhook.https.inject(review("x").bytes()).await?;
    assert_injected(&injected, "x");
    let invalid = webhook.https.inject("{}").await?;
    ensure!(invalid.status() == StatusCode::BAD_REQUEST, "{invalid:?}");
    let remaining =
        json!({"connections": 4, "requests": 2, "upgrades": 1, "tcp": 1, "byListener": {"a": 4}});
    let wait = json!({"outcome": "timeout", "seconds": 30.0});
    let cut = json!({"outcome": "deadline", "seconds": 60.0, "peak": 9, "remaining": remaining, "replacement": wait});
    let drained = json!({"outcome": "drained", "seconds": 12.5, "secondsToZero": 3.5, "peak": 9});
    for report in [
        json!({"setupWarnings": ["stats-hidden"]}),
        json!({"drain": cut}),
        json!({"drain": drained}),
    ] {
        let response = serve.report("7", report.to_string()).await?;
        ensure!(response.status().is_success(), "{report}: {response:?}");
    }
    wait_until("both drains are counted", TIMEOUT, || async {
        let metrics = Client::from(webhook.metrics).get("/metrics").await?.body;
        let is_drain = |line: &&str| line.starts_with("envoy_drainer_drains_total{");
        Ok(metrics.lines().filter(is_drain).count() == 2)
    })
    .await
}

#[tokio::test]
async fn queries_find_the_metrics_of_a_webhook() -> Result<()> {
    if !prometheus::is_installed() {
        return Ok(());
    }
    let serve = start_webhook().await?;
    send_one_of_each(&serve).await?;
    let webhook = &serve.server;
    let exported = exported_names(&Client::from(webhook.metrics).get("/metrics").await?.body);
    let prometheus = Prometheus::start(&webhook.metrics.to_string()).await?;
    let check_names = |about: &str, expr: &str| {
        let mut unknown = metric_names(expr);
        unknown.retain(|name| !exported.contains(*name));
        assert!(unknown.is_empty(), "{about}: {unknown:?} in {expr}");
    };

    for alert in alerts() {
        let (name, expr) = (text(&alert, "alert"), text(&alert, "expr"));
        check_names(name, expr);
        prometheus.query(expr).await.context(name.to_owned())?;
    }

    for query in panel_queries(&dashboard()) {
        let PanelQuery {
            panel,
            expr,
            labels,
        } = &query;
        check_names(panel, expr);
        assert!(!metric_names(expr).is_empty(), "{query:?}");
        // An increase needs two scrapes.
        wait_until(&format!("{query:?} has a result"), TIMEOUT, || async {
            let result = prometheus.query(expr).await?;
            let has = |label: &String| result.iter().any(|of| !of["metric"][label].is_null());
            Ok(!result.is_empty() && labels.iter().all(has))
        })
        .await?;
    }

    // What the tests of the alerts take for granted.
    for case in alert_cases() {
        for input in items(&case, "input_series") {
            let series = text(input, "series");
            if !series.starts_with("envoy_drainer_") {
                continue;
            }
            // This label is the target's.
            let series = series.replace("pod=", "instance!=");
            let found = prometheus.query(&series).await?;
            assert!(!found.is_empty(), "{series}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn alerts_fire_for_their_faults_alone() -> Result<()> {
    if !prometheus::is_installed() {
        return Ok(());
    }
    promtool(["check", "rules", &alerts_file()]).await?;
    promtool(["test", "rules", ALERT_TESTS]).await?;
    Ok(())
}

#[test]
fn every_alert_is_tested_and_explained() {
    let cases = alert_cases();
    let expectations: Vec<_> = cases
        .iter()
        .flat_map(|case| items(case, "alert_rule_test"))
        .map(|test| (text(test, "alertname"), items(test, "exp_alerts").len()))
        .collect();
    let dashboard = dashboard();
    for alert in alerts() {
        let name = text(&alert, "alert");
        for fires in [true, false] {
            let is_tested = |&(of, count): &(&str, usize)| of == name && (count > 0) == fires;
            assert!(expectations.iter().any(is_tested), "{name}: {fires}");
        }
        let annotations = &alert["annotations"];
        for key in ["summary", "description"] {
            let sentence = text(annotations, key);
            assert!(sentence.ends_with('.'), "{name}: {sentence}");
        }
        let runbook = text(annotations, "runbook_url");
        let (page, anchor) = runbook.split_once('#').expect("an anchor");
        let page = read(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../docs")
                .join(page),
        );
        let heading = format!("\n### {name}\n");
        let is_linked = |panel: &Value| panel["links"].to_string().contains(runbook);
        assert!(panels(&dashboard).any(is_linked), "{runbook}");
        assert!(page.contains(&heading), "{runbook}");
        assert_eq!(anchor, name.to_lowercase());
    }
}

#[test]
fn dashboard_is_laid_out_without_overlap() {
    let dashboard = dashboard();
    let rows = items(&dashboard, "panels").iter();
    let rows = rows.filter(|panel| panel["type"] == "row");
    let all = panels(&dashboard).chain(rows.clone());
    let ids: BTreeSet<_> = all.clone().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), all.count());
    let variable = &dashboard["templating"]["list"][0];
    assert_eq!(variable["type"], "datasource");
    let source = json!({"type": "prometheus", "uid": format!("${{{}}}", text(variable, "name"))});
    // The panels of a collapsed row have a grid of their own.
    for grid in rows.chain([&dashboard]) {
        let mut cells = BTreeSet::new();
        for panel in items(grid, "panels") {
            let at = |key| panel["gridPos"][key].as_u64().unwrap();
            let [x, y, w, h] = ["x", "y", "w", "h"].map(at);
            assert!(x + w <= 24, "{panel}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{panel} overlaps at {cell:?}");
            }
        }
    }
    for panel in panels(&dashboard) {
        assert_eq!(panel["datasource"], source, "{panel}");
        let targets = items(panel, "targets").iter();
        let references: BTreeSet<_> = targets.map(|it| text(it, "refId")).collect();
        assert_eq!(references.len(), items(panel, "targets").len(), "{panel}");
    }
}

/// What is off by default is in collapsed rows, whose titles name the value that turns it on.
#[test]
fn dashboard_opens_on_what_is_on_by_default() {
    let reports = read(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reports.md"));
    for row in items(&dashboard(), "panels") {
        for PanelQuery { expr, .. } in panel_queries(&json!({"panels": [row]})) {
            let name = metric_names(&expr).pop_first().unwrap();
            let name = name.replace("_bucket", "").replace("_count", "");
            let name = name.trim_start_matches("envoy_drainer_");
            let value = match name {
                _ if reports.contains(&format!("\n| `{name}` |")) => "drainerAPI.reports",
                _ if name.starts_with("api_") => "drainerAPI.enabled",
                _ => "",
            };
            assert_eq!(row["collapsed"] == true, !value.is_empty(), "{expr}");
            assert!(text(row, "title").contains(value), "{expr}: {row}");
        }
    }
}
