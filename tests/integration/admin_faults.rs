//! An admin interface that misbehaves: what is not known is never taken for zero, what failed is
//! tried again, and a drain ends as soon as the fault is over, or at its deadline.

use std::time::Duration;

use anyhow::Result;
use drainer::DrainPhase;
use tests::drainer::{Drainer, drainer};
use tests::fake_admin::{Behaviour, FakeAdmin};
use tests::memory::MemoryMetric;
use tests::parallel::run_in_parallel;
use tests::timing::{SECOND, TIMEOUT, assert_took, assert_took_between};
use tests::until::wait_until;
use tokio::time::{Instant, sleep};

/// The memory limit below which the webhook refuses to inject.
const MIN_MEMORY_LIMIT: u64 = 24 << 10;

/// Long for Envoy, short for a test; longer than the drainer waits for one answer.
const DEADLINE: Duration = Duration::from_secs(12);

async fn start_drainer(fake: &FakeAdmin) -> Result<Drainer> {
    drainer(&fake.address())?
        .exit_without_minimum()
        .timing(|timing| timing.drain_timeout = DEADLINE)
        .start()
        .await
}

/// Waits until the drainer drains and has counted what is open.
async fn wait_for_count(drainer: &Drainer, connections: u64) -> Result<()> {
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    wait_until("the first count", TIMEOUT, || async {
        let open = drainer.status().await?.open;
        Ok(open.is_some_and(|open| open.connections == connections))
    })
    .await
}

#[tokio::test]
async fn what_a_fault_hides_is_not_zero_and_a_fault_without_end_lasts_to_the_deadline() -> Result<()>
{
    let moods = [
        Behaviour::Status(500),
        Behaviour::Status(503),
        Behaviour::Status(404),
        Behaviour::Status(403),
        Behaviour::NoResponse,
        Behaviour::Slow(8 * SECOND),
        Behaviour::TruncatedResponse,
        Behaviour::TruncatedDocument,
        Behaviour::LargeStats(10 << 20),
        Behaviour::UnrelatedPage,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Behaviour::Normal).await?;
            fake.set_open_connections(1);
            let drainer = start_drainer(&fake).await?;
            let end = drainer.call_pod_hooks()?;
            wait_for_count(&drainer, 1).await?;
            fake.set_behaviour(mood).await?;
            // In truth nothing is left, but who says so?
            fake.set_open_connections(0);
            sleep(SECOND / 2).await;
            wait_until("the fault is shown", TIMEOUT, || async {
                Ok(drainer.status().await?.unknown.is_some())
            })
            .await?;
            assert_took(end.wait_for_return().await?, DEADLINE);
            let words = drainer.termination_message()?;
            assert_eq!(words["outcome"], "deadline", "{words}");
            assert_eq!(words["left"]["connections"], 1, "the last that was known");
            let asked = fake.calls("/").len();
            assert!(asked < 80, "{asked} questions in {DEADLINE:?}");
            assert_eq!(fake.max_concurrent_requests(), 1);
            let peak = MemoryMetric::Peak.read(drainer.process())?;
            assert!(peak < MIN_MEMORY_LIMIT, "{peak} KiB");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_drain_that_begins_under_a_fault_ends_when_that_is_over() -> Result<()> {
    // How long after the fault's end the drainer may still wait for an answer that does not come.
    let moods = [
        (Behaviour::Status(500), Duration::ZERO),
        (Behaviour::NoResponse, 2 * SECOND),
        (Behaviour::Slow(8 * SECOND), 2 * SECOND),
        (Behaviour::TruncatedResponse, Duration::ZERO),
        (Behaviour::TruncatedDocument, Duration::ZERO),
        (Behaviour::LargeStats(10 << 20), Duration::ZERO),
        (Behaviour::UnrelatedPage, Duration::ZERO),
        (Behaviour::ConnectionRefused, Duration::ZERO),
    ];
    let cases = moods.map(|(mood, wait)| {
        let case = async move {
            let mut fake = FakeAdmin::start(mood).await?;
            let drainer = start_drainer(&fake).await?;
            let end = drainer.call_pod_hooks()?;
            sleep(3 * SECOND).await;
            assert!(end.is_waiting());
            let well = end.called_at().elapsed();
            fake.set_behaviour(Behaviour::Normal).await?;
            let took = end.wait_for_return().await?;
            // And one pause between two looks.
            assert_took_between(took, well, well + wait + SECOND / 4);
            let words = drainer.termination_message()?;
            assert_eq!(words["outcome"], "drained", "{words}");
            assert!(!fake.is_live(), "it was told in the end");
            assert!(!fake.calls("/drain_listeners").is_empty());
            assert!(drainer.has_marker());
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_drain_is_survived() -> Result<()> {
    let moods = [
        Behaviour::Status(500),
        Behaviour::TruncatedResponse,
        Behaviour::TruncatedDocument,
        Behaviour::LargeStats(10 << 20),
        Behaviour::UnrelatedPage,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Behaviour::Normal).await?;
            fake.set_open_connections(1);
            let drainer = start_drainer(&fake).await?;
            let end = drainer.call_pod_hooks()?;
            wait_for_count(&drainer, 1).await?;
            fake.set_behaviour(mood).await?;
            sleep(SECOND * 3 / 10).await;
            fake.set_behaviour(Behaviour::Normal).await?;
            sleep(2 * SECOND).await;
            assert!(end.is_waiting());
            let closed = end.called_at().elapsed();
            fake.set_open_connections(0);
            let took = end.wait_for_return().await?;
            assert_took_between(took, closed, closed + SECOND / 4);
            assert_eq!(drainer.termination_message()?["outcome"], "drained");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn answers_that_are_slow_or_the_last_on_their_connection_are_answers() -> Result<()> {
    let moods = [
        Behaviour::Slow(SECOND / 10),
        Behaviour::AnnouncedClose,
        Behaviour::UnannouncedClose,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            fake.set_open_connections(1);
            let drainer = start_drainer(&fake).await?;
            drainer.wait_for_log("Envoy is responding", TIMEOUT).await?;
            let end = drainer.call_pod_hooks()?;
            wait_for_count(&drainer, 1).await?;
            sleep(2 * SECOND).await;
            assert!(end.is_waiting());
            let closed = end.called_at().elapsed();
            fake.set_open_connections(0);
            let took = end.wait_for_return().await?;
            // After a slow look there is a pause, ten times as long.
            assert_took_between(took, closed, closed + 3 * SECOND);
            assert_eq!(drainer.termination_message()?["outcome"], "drained");
            assert!(!fake.is_live());
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn refusals_are_an_end_when_they_go_on_and_none_when_they_do_not() -> Result<()> {
    let mut fake = FakeAdmin::start(Behaviour::Normal).await?;
    fake.set_open_connections(1);
    let drainer = start_drainer(&fake).await?;
    let end = drainer.call_pod_hooks()?;
    wait_for_count(&drainer, 1).await?;
    // Seen once: too short for three looks.
    fake.set_behaviour(Behaviour::ConnectionRefused).await?;
    wait_until("a look was refused", TIMEOUT, || async {
        Ok(drainer.status().await?.unknown.is_some())
    })
    .await?;
    fake.set_behaviour(Behaviour::Normal).await?;
    sleep(SECOND).await;
    assert!(end.is_waiting());
    let refused = Instant::now();
    fake.set_behaviour(Behaviour::ConnectionRefused).await?;
    end.wait_for_return().await?;
    let took = refused.elapsed();
    assert_took_between(took, SECOND * 6 / 10, SECOND);
    assert_eq!(drainer.termination_message()?["outcome"], "gone");
    Ok(())
}

#[tokio::test]
async fn statistics_as_big_as_they_may_be_are_counted_within_the_memory_limit() -> Result<()> {
    // Just below the bound of 4 MiB: some 50,000 statistics.
    let fake = FakeAdmin::start(Behaviour::LargeStats((4 << 20) - 4096)).await?;
    fake.set_open_connections(1);
    let drainer = drainer(&fake.address())?
        .exit_without_minimum()
        .start()
        .await?;
    let end = drainer.call_pod_hooks()?;
    wait_for_count(&drainer, 1).await?;
    fake.set_open_connections(0);
    end.wait_for_return().await?;
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    assert!(peak < MIN_MEMORY_LIMIT, "{peak} KiB");
    Ok(())
}

/// Waits until the drainer has read each kind of answer at least once since the drain's begin.
async fn wait_for_reads(drainer: &Drainer, fake: &FakeAdmin) -> Result<()> {
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    let before = fake.calls("/stats").len();
    // Who asks again has done with the answer before; the first may have been asked before the drain.
    wait_until("it polls", 6 * TIMEOUT, || async {
        Ok(fake.calls("/stats").len() > before + 1 || drainer.termination_message().is_ok())
    })
    .await
}

/// A document of about so many bytes, which repeats what `element` makes of a number.
fn repeated(bytes: usize, before: &str, element: impl Fn(usize) -> String, after: &str) -> String {
    let mut document = before.to_owned();
    for n in 0.. {
        let element = element(n);
        if document.len() + element.len() + after.len() + 2 > bytes {
            break;
        }
        if n > 0 {
            document.push(',');
        }
        document += &element;
    }
    document + after
}

/// Answers that are as large as they may be and become as much as they can in memory.
fn hostile_responses() -> Vec<(&'static str, &'static str, String)> {
    const STATS: &str = "/stats";
    const STATIC: &str = "/config_dump?resource=static";
    const DYNAMIC: &str = "/config_dump?resource=dynamic";
    const SERVER: &str = "/server_info";
    let long = "\u{ad}".repeat((2 << 20) - 64);
    let short = "\u{ad}".repeat((1 << 19) - 64);
    let objects = |bytes, before: &str| repeated(bytes, before, |_| "{}".into(), "]}");
    let stats = |element: fn(usize) -> String| {
        // As many as are read at all: the canaries come first.
        let canary = r#"{"name":"listener.admin.downstream_cx_active","value":1},
            {"name":"listener.admin.downstream_cx_total","value":1},
            {"name":"listener.admin.http.admin.downstream_rq_completed","value":1},
            {"name":"http.admin.downstream_cx_http1_total","value":1},
            {"name":"http.admin.downstream_cx_active","value":1},
            {"name":"http.admin.downstream_rq_active","value":1}"#;
        let element = |n: usize| match n {
            0 => canary.to_owned(),
            n if n < 65_000 => element(n),
            _ => " ".repeat(4 << 20),
        };
        repeated((4 << 20) - 64, r#"{"stats":["#, element, "]}")
    };
    let listener = |n: usize| {
        let name = "n".repeat(200);
        let addresses = vec!["{}"; 16].join(",");
        format!(
            r#"{{"listener":{{"name":"{name}","stat_prefix":"{n}{name}","address":{{"pipe":{{"path":"{name}"}}}},"additional_addresses":[{addresses}]}}}}"#
        )
    };
    let most = 4 << 20;
    vec![
        ("empty statistics", STATS, objects(most, r#"{"stats":["#)),
        (
            "nested statistics",
            STATS,
            format!(r#"{{"stats":{}"#, "[".repeat(most - 64)),
        ),
        (
            "nested elsewhere",
            STATS,
            format!(r#"{{"x":{}"#, "[".repeat(most - 64)),
        ),
        ("a text for a document", STATS, format!(r#""{long}""#)),
        (
            "a text for statistics",
            STATS,
            format!(r#"{{"stats":"{long}"}}"#),
        ),
        (
            "a text for a statistic",
            STATS,
            format!(r#"{{"stats":["{long}"]}}"#),
        ),
        (
            "a text for a number",
            STATS,
            format!(r#"{{"stats":[{{"name":"x","value":"{long}"}}]}}"#),
        ),
        (
            "a long name",
            STATS,
            format!(
                r#"{{"stats":[{{"name":"listener.{}","value":1}}]}}"#,
                ".http.x".repeat(most / 8)
            ),
        ),
        (
            "many listeners",
            STATS,
            stats(|n| format!(r#"{{"name":"listener.{n}.downstream_cx_active","value":1}}"#)),
        ),
        (
            "many prefixes",
            STATS,
            stats(|n| format!(r#"{{"name":"http.{n}.downstream_cx_active","value":1}}"#)),
        ),
        (
            "many prefixes of listeners",
            STATS,
            stats(|n| match n % 2 {
                0 => format!(r#"{{"name":"listener.{n}.downstream_cx_total","value":1}}"#),
                _ => format!(
                    r#"{{"name":"listener.{}.http.{n}.downstream_rq_completed","value":1}}"#,
                    n - 1
                ),
            }),
        ),
        ("empty listeners", STATIC, objects(most, r#"{"configs":["#)),
        (
            "empty dynamic listeners",
            DYNAMIC,
            objects(most, r#"{"configs":["#),
        ),
        (
            "empty addresses",
            STATIC,
            objects(most, r#"{"configs":[{"listener":{"additional_addresses":["#),
        ),
        (
            "many listeners in a dump",
            STATIC,
            repeated(most, r#"{"configs":["#, listener, "]}"),
        ),
        (
            "a text for listeners",
            DYNAMIC,
            format!(r#"{{"configs":"{long}"}}"#),
        ),
        (
            "a text for a drain type",
            DYNAMIC,
            format!(r#"{{"configs":[{{"listener":{{"drain_type":"{long}"}}}}]}}"#),
        ),
        (
            "a long version",
            SERVER,
            format!(r#"{{"version":"{short}"}}"#),
        ),
        (
            "a long strategy",
            SERVER,
            format!(r#"{{"version":"1","command_line_options":{{"drain_strategy":"{short}"}}}}"#),
        ),
    ]
}

#[tokio::test]
async fn hostile_answers_are_read_within_the_memory_limit() -> Result<()> {
    for (name, path, body) in hostile_responses() {
        let fake = FakeAdmin::start(Behaviour::Normal).await?;
        fake.set_open_connections(1);
        fake.override_response(path, body);
        let drainer = start_drainer(&fake).await?;
        let _end = drainer.call_pod_hooks()?;
        wait_for_reads(&drainer, &fake).await?;
        let peak = MemoryMetric::Peak.read(drainer.process())?;
        println!("{name}: {peak} KiB");
        assert!(peak < MIN_MEMORY_LIMIT, "{name}: {peak} KiB");
        let longest = drainer.log().iter().map(|l| l.to_string().len()).max();
        assert!(longest < Some(2000), "{name}: a line of {longest:?} bytes");
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_in_crumbs_is_read_within_the_memory_limit() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::OneByteChunks).await?;
    fake.set_open_connections(1);
    let body = format!(r#"{{"stats":[]{}}}"#, " ".repeat(1 << 20));
    fake.override_response("/stats", body);
    let drainer = start_drainer(&fake).await?;
    let _end = drainer.call_pod_hooks()?;
    wait_for_reads(&drainer, &fake).await?;
    let peak = MemoryMetric::Peak.read(drainer.process())?;
    println!("crumbs: {peak} KiB");
    // Itself and the body twice; a frame for each byte would be thirty times the body.
    assert!(peak < 10 << 10, "{peak} KiB");
    Ok(())
}

#[tokio::test]
async fn numbers_that_no_envoy_counts_are_never_few_connections() -> Result<()> {
    let half = 1_u64 << 63;
    let values = [
        format!("{half}"),
        "18446744073709551616".to_owned(),
        "1e400".to_owned(),
        "-1".to_owned(),
        "0.5".to_owned(),
        r#""0""#.to_owned(),
        "null".to_owned(),
    ];
    let cases = values.map(|value| {
        let name = value.clone();
        let case = async move {
            let fake = FakeAdmin::start(Behaviour::Normal).await?;
            let listener = |port| {
                format!(
                    r#"{{"name":"listener.0.0.0.0_{port}.downstream_cx_active","value":{value}}}"#
                )
            };
            let stats = [80, 81].map(listener).join(",");
            let canary = r#"{"name":"listener.admin.downstream_cx_active","value":1}"#;
            fake.override_response("/stats", format!(r#"{{"stats":[{canary},{stats}]}}"#));
            let drainer = drainer(&fake.address())?
                .exit_without_minimum()
                .timing(|timing| timing.drain_timeout = 3 * SECOND)
                .start()
                .await?;
            assert_took(
                drainer.call_pod_hooks()?.wait_for_return().await?,
                3 * SECOND,
            );
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            Ok(())
        };
        (name, case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn where_only_statistics_are_allowed_the_drain_does_without_the_rest() -> Result<()> {
    let fake = FakeAdmin::start(Behaviour::StatsOnly).await?;
    fake.set_open_connections(1);
    let drainer = start_drainer(&fake).await?;
    let end = drainer.call_pod_hooks()?;
    wait_for_count(&drainer, 1).await?;
    sleep(SECOND).await;
    assert!(end.is_waiting());
    let closed = end.called_at().elapsed();
    fake.set_open_connections(0);
    let took = end.wait_for_return().await?;
    assert_took(took, closed);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    // Said once each, and not asked again.
    for call in ["/healthcheck/fail", "/drain_listeners"] {
        assert_eq!(fake.calls(call).len(), 1, "{call}");
        let told = |line: &serde_json::Value| line["level"] == "ERROR" && line["call"] == call;
        assert_eq!(drainer.log().into_iter().filter(told).count(), 1, "{call}");
    }
    Ok(())
}

#[tokio::test]
async fn a_total_that_is_never_flushed_is_not_zero() -> Result<()> {
    // Nor does Envoy tell its flush interval: its admin interface allows statistics alone.
    let fake = FakeAdmin::start(Behaviour::StatsOnly).await?;
    let drainer = start_drainer(&fake).await?;
    let flushed = |uptime| {
        format!(
            r#"{{"stats":[{{"name":"server.total_connections","value":0}},
                {{"name":"server.uptime","value":{uptime}}}]}}"#
        )
    };
    fake.override_response("/stats", flushed(60));
    let end = drainer.call_pod_hooks()?;
    drainer.wait_for_phase(DrainPhase::Draining).await?;
    sleep(8 * SECOND).await;
    assert!(end.is_waiting());
    let flush = end.called_at().elapsed();
    fake.override_response("/stats", flushed(120));
    assert_took(end.wait_for_return().await?, flush);
    assert_eq!(drainer.termination_message()?["outcome"], "drained");
    Ok(())
}

#[tokio::test]
async fn why_listeners_are_not_known_is_told_as_it_is() -> Result<()> {
    let cases = [
        (Behaviour::StatsOnly, "admin.allow_paths"),
        (
            Behaviour::LargeListenerDump(5 << 20),
            "more than 4194304 bytes",
        ),
    ];
    let cases = cases.map(|(mood, why)| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            let drainer = start_drainer(&fake).await?;
            let line = drainer
                .wait_for_log("cannot read Envoy's /config_dump", TIMEOUT)
                .await?;
            let told = line["message"].as_str().unwrap_or_default();
            for reason in ["admin.allow_paths", "more than 4194304 bytes"] {
                assert_eq!(told.contains(reason), reason == why, "{told}");
            }
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn another_service_at_the_admins_address_is_told_at_start() -> Result<()> {
    let cases = [Behaviour::UnrelatedPage, Behaviour::Status(404)].map(|mood| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            let drainer = start_drainer(&fake).await?;
            let line = drainer
                .wait_for_log("admin interface does not respond", 3 * SECOND)
                .await?;
            assert_eq!(line["level"], "ERROR");
            assert!(fake.calls("/healthcheck").is_empty(), "nothing was touched");
            assert_took(drainer.call_pod_hooks()?.wait_for_return().await?, DEADLINE);
            assert_eq!(drainer.termination_message()?["outcome"], "deadline");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}

#[tokio::test]
async fn a_marker_stays_through_every_fault_until_envoy_has_heard() -> Result<()> {
    let moods = [
        Behaviour::Status(500),
        Behaviour::Status(404),
        Behaviour::NoResponse,
        Behaviour::TruncatedResponse,
        Behaviour::ConnectionRefused,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Behaviour::Normal).await?;
            let mut drainer = start_drainer(&fake).await?;
            // It was not proved that the pod ends.
            let hook = drainer.call_envoy_hook();
            wait_until("health has failed", TIMEOUT, || async {
                Ok(!fake.is_live())
            })
            .await?;
            assert!(drainer.has_marker());
            drainer.signal(tests::process::Signal::KILL);
            drop(hook);
            fake.set_behaviour(mood).await?;
            drainer.restart().await?;
            sleep(2 * SECOND).await;
            assert!(drainer.has_marker());
            fake.set_behaviour(Behaviour::Normal).await?;
            // Of half an answer the fake has heard the call, the drainer not that it was heard.
            wait_until("health is restored", TIMEOUT, || async {
                Ok(fake.is_live() && !drainer.has_marker())
            })
            .await
        };
        (format!("{mood:?}"), case)
    });
    run_in_parallel(cases).await
}
