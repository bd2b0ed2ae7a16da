//! `envoy-drainer drains` against a fake API server: its list and its watch, what it asks for, and what it says when it
//! may not read.

use std::process::{Output, Stdio};
use std::time::Duration;

use admission::SUMMARY_ANNOTATION;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::api_server::{FakeApiServer, Reply, Responses, failure, failure_status};
use tests::foreign_text::{FOREIGN_TEXT, assert_escaped};
use tests::golden;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::text;

const PODS: &str = "/api/v1/namespaces/shop/pods";
const EVENTS: &str = "/api/v1/namespaces/shop/events";

/// Longer than the program takes to print a change, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Of a drainer that could not read the admin interface.
const UNREADABLE: &str = r#"{"outcome":"deadline","seconds":60.004,"peak":0}"#;
const DEADLINE: &str = r#"{"outcome":"deadline","seconds":60.004,"peak":12,"remaining":{"connections":4,"requests":3,"upgrades":1,"tcp":0,"byListener":{"0.0.0.0_8080":4}}}"#;
const DRAINED: &str = r#"{"outcome":"drained","seconds":10.25,"secondsToZero":1.5,"secondsToLastNewConnection":4.5,"peak":3,"remaining":{"connections":0,"requests":0,"upgrades":0,"tcp":0,"byListener":{}}}"#;

/// A pod of a StatefulSet in `shop` whose drainer is in this state. If it is deleted, that was in 2020.
fn pod(name: &str, is_deleted: bool, state: &Value) -> Value {
    let mut pod: Value = serde_json::from_str(include_str!("drains/pod.json")).unwrap();
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(format!("uid-{name}"));
    pod["status"]["initContainerStatuses"][0]["state"] = state.clone();
    if is_deleted {
        pod["metadata"]["deletionTimestamp"] = json!("2020-01-02T10:01:15Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(75);
    }
    pod
}

fn running() -> Value {
    json!({"running": {"startedAt": "2020-01-02T08:00:00Z"}})
}

/// A deleted pod whose drainer has exited at this time of 2020-01-02, with this termination message.
fn terminated(name: &str, time: &str, message: &str) -> Value {
    let finished_at = format!("2020-01-02T{time}Z");
    let state = json!({"exitCode": 0, "finishedAt": finished_at, "message": message});
    pod(name, true, &json!({ "terminated": state }))
}

/// An Event about the drain of a pod of the Deployment `web`, which left these connections.
fn event(pod: &str, time: &str, mut remaining: Value) -> Value {
    remaining["byListener"] = json!({});
    let summary =
        json!({"outcome": "deadline", "seconds": 30.0, "peak": 7, "remaining": remaining});
    let mut event: Value = serde_json::from_str(include_str!("drains/event.json")).unwrap();
    event["metadata"]["name"] = json!(format!("a.{pod}"));
    event["metadata"]["annotations"][SUMMARY_ANNOTATION] = json!(summary.to_string());
    event["related"]["name"] = json!(pod);
    event["related"]["uid"] = json!(format!("uid-{pod}"));
    event["eventTime"] = json!(format!("{time}.000000Z"));
    event
}

/// Connections with a request each.
fn requests(number: u32) -> Value {
    json!({"connections": number, "requests": number})
}

/// A page of a list; `next` is the token of the next one.
fn page(items: &[Value], next: &str) -> (u16, String) {
    let list = json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items});
    (200, list.to_string())
}

fn forbidden() -> (u16, String) {
    failure(403, "Forbidden", "no")
}

/// A cluster with these pods and Events in `shop`.
fn cluster(pods: &[Value], events: &[Value]) -> Responses {
    [
        (PODS.to_owned(), page(pods, "")),
        (EVENTS.to_owned(), page(events, "")),
    ]
    .into()
}

async fn start(responses: Responses) -> FakeApiServer {
    FakeApiServer::start_cluster(responses, |_| (405, json!(null)))
        .await
        .unwrap()
}

async fn drains(api: &FakeApiServer, args: &[&str]) -> Output {
    let mut command = api.command(&["drains"], args).unwrap();
    timeout(LIMIT, command.output()).await.unwrap().unwrap()
}

/// A running `drains --watch`.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(api: &FakeApiServer, args: &[&str]) -> Self {
        let command = api.command(&["drains", "-n", "shop", "--watch"], args);
        let child = command.unwrap().stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line as JSON.
    async fn next(&mut self) -> Value {
        let line = timeout(LIMIT, self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    /// Sends SIGINT, and returns the exit code.
    async fn interrupt(mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
        let status = timeout(LIMIT, self.child.wait()).await.unwrap();
        status.unwrap().code()
    }
}

#[tokio::test]
async fn list_has_each_drain_once_the_newest_last() {
    let pods = [
        terminated("edge-1", "10:00:10", DRAINED),
        terminated("edge-0", "10:01:00", DEADLINE),
        terminated("edge-2", "10:01:15", ""),
        terminated("edge-4", "10:01:20", UNREADABLE),
        pod("edge-3", false, &running()),
    ];
    let mut series = event("web-1", "2020-01-02T09:00:00", json!({"connections": 7}));
    let upgraded = json!({"connections": 3, "requests": 3, "upgrades": 1});
    series["series"] = json!({"count": 3, "lastObservedTime": "2020-01-02T09:30:00.000000Z"});
    let events = [
        event("edge-0", "2020-01-02T10:01:00", requests(1)),
        event("web-0", "2020-01-02T08:00:00", upgraded),
        series,
    ];
    let api = start(cluster(&pods, &events)).await;
    let output = drains(&api, &["--namespace", "shop"]).await;
    golden::check("drains/list.txt", text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let requests = api.take_requests().into_iter();
    let requests: Vec<_> = requests.map(|it| it.request_line).collect();
    assert_eq!(
        requests,
        [
            format!("GET {PODS}?&limit=100"),
            format!("GET {EVENTS}?&fieldSelector=reason%3DDrainCut&limit=100"),
        ]
    );
    let output = drains(&api, &["--namespace", "shop", "-o", "json"]).await;
    golden::check("drains/list.json", text(&output.stdout));
}

#[tokio::test]
async fn foreign_text_is_escaped() {
    let event = event(FOREIGN_TEXT, "2026-01-02T10:01:00", requests(1));
    let failure = failure(500, "InternalError", FOREIGN_TEXT);
    let mut responses = cluster(&[], &[event]);
    responses.insert(PODS.to_owned(), failure.clone());
    let output = drains(&start(responses.clone()).await, &["--namespace", "shop"]).await;
    assert_escaped(&output.stdout);
    assert_escaped(&output.stderr);
    responses.insert(EVENTS.to_owned(), failure);
    let output = drains(&start(responses).await, &["--namespace", "shop"]).await;
    assert_escaped(&output.stderr);
}

#[tokio::test]
async fn all_namespaces_are_read_page_by_page() {
    let drained = |name| terminated(name, "10:00:10", DRAINED);
    let mut other = drained("edge-1");
    other["metadata"]["namespace"] = json!("bank\u{1b}[2J");
    let pods = "/api/v1/pods".to_owned();
    let api = start(
        [
            (pods.clone(), page(&[drained("edge-0")], "second")),
            (format!("{pods}?continue=second"), page(&[other], "")),
            ("/api/v1/events".to_owned(), page(&[], "")),
        ]
        .into(),
    )
    .await;
    let output = drains(&api, &["-A"]).await;
    golden::check("drains/all.txt", text(&output.stdout));
}

#[tokio::test]
async fn empty_list_says_which_drains_are_shown() {
    // The namespace of the context is the default.
    let none = cluster(&[], &[]).into_iter();
    let none = none.map(|(path, page)| (path.replace("shop", "default"), page));
    let running = cluster(&[pod("edge-0", false, &running())], &[]);
    for (responses, args, want) in [
        (
            none.collect(),
            &[][..],
            "no drains found in the namespace `default`: no pod there has a drainer\n",
        ),
        (
            running,
            &["-n", "shop"],
            "no drains found in the namespace `shop`: drains of deleted pods are shown only if they have an Event; \
             use --watch to follow drains\n",
        ),
    ] {
        let output = drains(&start(responses).await, args).await;
        assert_eq!(text(&output.stderr), want);
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(0)));
    }
}

#[tokio::test]
async fn missing_rights_are_named() {
    let mut responses = cluster(&[terminated("edge-0", "10:01:00", DEADLINE)], &[]);
    responses.insert(EVENTS.to_owned(), forbidden());
    let api = start(responses.clone()).await;
    let output = drains(&api, &["-n", "shop"]).await;
    assert_eq!(
        text(&output.stderr),
        "warning: drains of deleted pods are not shown: forbidden: list events in the namespace `shop`\n"
    );
    assert!(text(&output.stdout).contains("edge-0"), "{output:?}");
    assert_eq!(output.status.code(), Some(3));

    responses.insert(PODS.to_owned(), forbidden());
    let api = start(responses).await;
    let output = drains(&api, &["-n", "shop", "-w"]).await;
    let want = "forbidden: list pods in the namespace `shop`; forbidden: list events in the namespace `shop`";
    assert!(text(&output.stderr).contains(want), "{output:?}");
    assert_eq!(output.status.code(), Some(3));

    // Lists are allowed, and watches are not.
    let api = start(cluster(&[], &[])).await;
    let (code, body) = forbidden();
    api.set_watch_reply(Reply::Response(code, body));
    let output = drains(&api, &["-n", "shop", "-w"]).await;
    assert!(
        text(&output.stderr).contains("forbidden: watch "),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(3));
}

/// API servers accept a time that cannot be decoded, which any client writes into managed fields and Events.
#[tokio::test]
async fn undecodable_object_costs_no_other() {
    const TIME: &str = "9999-12-31T23:59:59";
    let drained = |name| terminated(name, "10:00:10", DRAINED);
    let mut undecodable = drained("edge-0");
    undecodable["metadata"]["managedFields"] = json!([{"time": format!("{TIME}Z")}]);
    let late = event("web-0", TIME, requests(1));
    let events = [
        late.clone(),
        event("web-1", "2020-01-02T08:00:00", requests(1)),
    ];
    let api = start(cluster(&[undecodable, drained("edge-1")], &events)).await;
    let output = drains(&api, &["-n", "shop"]).await;
    let left_out = |name: &str, call: &str| {
        format!(
            "warning: left out `shop/{name}`, which cannot be decoded: {call} in the namespace `shop`\n"
        )
    };
    let want = left_out("edge-0", "list pods") + &left_out("a.web-0", "list events");
    assert_eq!(text(&output.stderr), want);
    let rows = text(&output.stdout);
    assert!(rows.contains("edge-1") && rows.contains("web-1"), "{rows}");
    assert_eq!(output.status.code(), Some(3));
    let next = event("web-2", "2020-01-02T08:00:00", requests(1));
    let added = [late, next].map(|event| json!({"type": "ADDED", "object": event}));
    api.set_watch_reply_of(EVENTS, Reply::WatchEvents(added.into()));
    let mut watch = Watch::start(&api, &["-o", "json"]);
    let _ = [watch.next().await, watch.next().await];
    assert_eq!(watch.next().await["pod"], "web-2");
    assert_eq!(watch.interrupt().await, Some(3));
}

/// The updates of a pod in the order in which kubelet and API server make them: the message is in the last ones.
#[tokio::test]
async fn watch_shows_each_drain_at_its_start_and_end() {
    let api = start(cluster(&[pod("edge-0", false, &running())], &[])).await;
    let update = |kind: &str, object: Value| json!({"type": kind, "object": object});
    let ended = terminated("edge-0", "10:01:00", DEADLINE);
    api.set_watch_reply_of(
        PODS,
        Reply::WatchEvents(vec![
            update("MODIFIED", pod("edge-0", true, &running())),
            update("MODIFIED", pod("edge-0", true, &running())),
            update("MODIFIED", ended.clone()),
            update("DELETED", ended),
            update("DELETED", terminated("edge-1", "10:00:10", DRAINED)),
        ]),
    );
    let mut watch = Watch::start(&api, &["-o", "json"]);
    let mut shown = Vec::new();
    for _ in 0..3 {
        let drain = watch.next().await;
        shown.push((drain["pod"].clone(), drain["outcome"].clone()));
    }
    let want = [
        ("edge-0", "draining"),
        ("edge-0", "deadline"),
        ("edge-1", "drained"),
    ];
    assert_eq!(
        shown,
        want.map(|(pod, outcome)| (json!(pod), json!(outcome)))
    );
    let watches = api.watches();
    let is_from_list = |line: &String| {
        line.starts_with(&format!("GET {PODS}?")) && line.contains("resourceVersion=9")
    };
    assert!(watches.iter().any(is_from_list), "{watches:?}");
    assert_eq!(watch.interrupt().await, Some(0));
}

#[tokio::test]
async fn watch_shows_events_of_pods_that_are_gone() {
    let api = start(cluster(&[], &[])).await;
    let event = event("web-0", "2020-01-02T08:00:00", requests(2));
    let added = json!({"type": "ADDED", "object": event});
    api.set_watch_reply_of(EVENTS, Reply::WatchEvents(vec![added.clone(), added]));
    let added = json!({"type": "ADDED", "object": terminated("edge-0", "10:01:00", DRAINED)});
    api.set_watch_reply_of(PODS, Reply::WatchEvents(vec![added]));
    let mut watch = Watch::start(&api, &["-o", "json"]);
    let mut shown = [watch.next().await, watch.next().await].map(|drain| drain["pod"].to_string());
    shown.sort();
    assert_eq!(shown, ["\"edge-0\"", "\"web-0\""]);
    assert_eq!(watch.interrupt().await, Some(0));
}

/// The changes since its version are no longer known, so it lists again.
#[tokio::test]
async fn expired_watch_lists_again() {
    let api = start(cluster(&[pod("edge-0", true, &running())], &[])).await;
    let (_, status) = failure_status(410, "Expired", "too old resource version");
    let expired = json!({"type": "ERROR", "object": status});
    api.set_watch_reply_of(PODS, Reply::WatchEvents(vec![expired]));
    let mut watch = Watch::start(&api, &["-o", "json"]);
    assert_eq!(watch.next().await["outcome"], "draining");
    let ended = terminated("edge-0", "10:01:00", DEADLINE);
    let list = json!({"metadata": {"resourceVersion": "10"}, "items": [ended]});
    api.set_object(PODS, &list);
    let drain = watch.next().await;
    assert_eq!(
        (&drain["outcome"], &drain["seconds"]),
        (&json!("deadline"), &json!(60.004))
    );
    assert_eq!(watch.interrupt().await, Some(0));
}
