//! An admin interface that misbehaves: what is not known is never taken for zero, what failed is
//! tried again, and a drain ends as soon as the fault is over, or at its deadline.

use std::time::Duration;

use anyhow::Result;
use drainer::Phase;
use tests::at_once::at_once;
use tests::drainer::{Drainer, drainer};
use tests::due::{PATIENCE, SECOND, assert_due, assert_due_between};
use tests::fake_admin::{FakeAdmin, Mood};
use tests::memory::Memory;
use tests::until::until;
use tokio::time::{Instant, sleep};

/// The memory limit below which the webhook refuses to inject.
const LEAST_MEMORY_LIMIT: u64 = 24 << 10;

/// Long for Envoy, short for a test; longer than the drainer waits for one answer.
const DEADLINE: Duration = Duration::from_secs(12);

async fn hasty(fake: &FakeAdmin) -> Result<Drainer> {
    drainer(&fake.address())?
        .hasty()
        .timing(|timing| timing.drain_timeout = DEADLINE)
        .start()
        .await
}

/// Waits until the drainer drains and has counted what is open.
async fn has_counted(drainer: &Drainer, connections: u64) -> Result<()> {
    drainer.reaches(Phase::Draining).await?;
    until("the first count", PATIENCE, || async {
        let open = drainer.status().await?.open;
        Ok(open.is_some_and(|open| open.connections == connections))
    })
    .await
}

#[tokio::test]
async fn what_a_fault_hides_is_not_zero_and_a_fault_without_end_lasts_to_the_deadline() -> Result<()>
{
    let moods = [
        Mood::Status(500),
        Mood::Status(503),
        Mood::Status(404),
        Mood::Status(403),
        Mood::Hangs,
        Mood::Slow(8 * SECOND),
        Mood::Half,
        Mood::HalfDocument,
        Mood::Huge(10 << 20),
        Mood::Page,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Mood::Well).await?;
            fake.open(1);
            let drainer = hasty(&fake).await?;
            let end = drainer.pod_ends()?;
            has_counted(&drainer, 1).await?;
            fake.set(mood).await?;
            // In truth nothing is left, but who says so?
            fake.open(0);
            sleep(SECOND / 2).await;
            until("the fault is shown", PATIENCE, || async {
                Ok(drainer.status().await?.unknown.is_some())
            })
            .await?;
            assert_due(end.returned().await?, DEADLINE);
            let words = drainer.last_words()?;
            assert_eq!(words["outcome"], "deadline", "{words}");
            assert_eq!(words["left"]["connections"], 1, "the last that was known");
            let asked = fake.calls("/").len();
            assert!(asked < 80, "{asked} questions in {DEADLINE:?}");
            assert_eq!(fake.most_at_once(), 1);
            let peak = Memory::Peak.of(drainer.process())?;
            assert!(peak < LEAST_MEMORY_LIMIT, "{peak} KiB");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn a_drain_that_begins_under_a_fault_ends_when_that_is_over() -> Result<()> {
    // How long after the fault's end the drainer may still wait for an answer that does not come.
    let moods = [
        (Mood::Status(500), Duration::ZERO),
        (Mood::Hangs, 2 * SECOND),
        (Mood::Slow(8 * SECOND), 2 * SECOND),
        (Mood::Half, Duration::ZERO),
        (Mood::HalfDocument, Duration::ZERO),
        (Mood::Huge(10 << 20), Duration::ZERO),
        (Mood::Page, Duration::ZERO),
        (Mood::Refuses, Duration::ZERO),
    ];
    let cases = moods.map(|(mood, wait)| {
        let case = async move {
            let mut fake = FakeAdmin::start(mood).await?;
            let drainer = hasty(&fake).await?;
            let end = drainer.pod_ends()?;
            sleep(3 * SECOND).await;
            assert!(end.is_waiting());
            let well = end.called().elapsed();
            fake.set(Mood::Well).await?;
            let took = end.returned().await?;
            // And one pause between two looks.
            assert_due_between(took, well, well + wait + SECOND / 4);
            let words = drainer.last_words()?;
            assert_eq!(words["outcome"], "drained", "{words}");
            assert!(!fake.is_live(), "it was told in the end");
            assert!(!fake.calls("/drain_listeners").is_empty());
            assert!(drainer.has_marked());
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_drain_is_survived() -> Result<()> {
    let moods = [
        Mood::Status(500),
        Mood::Half,
        Mood::HalfDocument,
        Mood::Huge(10 << 20),
        Mood::Page,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Mood::Well).await?;
            fake.open(1);
            let drainer = hasty(&fake).await?;
            let end = drainer.pod_ends()?;
            has_counted(&drainer, 1).await?;
            fake.set(mood).await?;
            sleep(SECOND * 3 / 10).await;
            fake.set(Mood::Well).await?;
            sleep(2 * SECOND).await;
            assert!(end.is_waiting());
            let closed = end.called().elapsed();
            fake.open(0);
            let took = end.returned().await?;
            assert_due_between(took, closed, closed + SECOND / 4);
            assert_eq!(drainer.last_words()?["outcome"], "drained");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn answers_that_are_slow_or_the_last_on_their_connection_are_answers() -> Result<()> {
    let moods = [Mood::Slow(SECOND / 10), Mood::Closes, Mood::Drops];
    let cases = moods.map(|mood| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            fake.open(1);
            let drainer = hasty(&fake).await?;
            drainer.logs("Envoy answers", PATIENCE).await?;
            let end = drainer.pod_ends()?;
            has_counted(&drainer, 1).await?;
            sleep(2 * SECOND).await;
            assert!(end.is_waiting());
            let closed = end.called().elapsed();
            fake.open(0);
            let took = end.returned().await?;
            // After a slow look there is a pause, ten times as long.
            assert_due_between(took, closed, closed + 3 * SECOND);
            assert_eq!(drainer.last_words()?["outcome"], "drained");
            assert!(!fake.is_live());
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn refusals_are_an_end_when_they_go_on_and_none_when_they_do_not() -> Result<()> {
    let mut fake = FakeAdmin::start(Mood::Well).await?;
    fake.open(1);
    let drainer = hasty(&fake).await?;
    let end = drainer.pod_ends()?;
    has_counted(&drainer, 1).await?;
    // Seen once: too short for three looks.
    fake.set(Mood::Refuses).await?;
    until("a look was refused", PATIENCE, || async {
        Ok(drainer.status().await?.unknown.is_some())
    })
    .await?;
    fake.set(Mood::Well).await?;
    sleep(SECOND).await;
    assert!(end.is_waiting());
    let refused = Instant::now();
    fake.set(Mood::Refuses).await?;
    end.returned().await?;
    let took = refused.elapsed();
    assert_due_between(took, SECOND * 6 / 10, SECOND);
    assert_eq!(drainer.last_words()?["outcome"], "gone");
    Ok(())
}

#[tokio::test]
async fn statistics_as_big_as_they_may_be_are_counted_within_the_memory_limit() -> Result<()> {
    // Just below the bound of 4 MiB: some 50,000 statistics.
    let fake = FakeAdmin::start(Mood::Huge((4 << 20) - 4096)).await?;
    fake.open(1);
    let drainer = drainer(&fake.address())?.hasty().start().await?;
    let end = drainer.pod_ends()?;
    has_counted(&drainer, 1).await?;
    fake.open(0);
    end.returned().await?;
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    let peak = Memory::Peak.of(drainer.process())?;
    assert!(peak < LEAST_MEMORY_LIMIT, "{peak} KiB");
    Ok(())
}

#[tokio::test]
async fn where_only_statistics_are_allowed_the_drain_does_without_the_rest() -> Result<()> {
    let fake = FakeAdmin::start(Mood::OnlyStats).await?;
    fake.open(1);
    let drainer = hasty(&fake).await?;
    let end = drainer.pod_ends()?;
    has_counted(&drainer, 1).await?;
    sleep(SECOND).await;
    assert!(end.is_waiting());
    let closed = end.called().elapsed();
    fake.open(0);
    let took = end.returned().await?;
    assert_due(took, closed);
    assert_eq!(drainer.last_words()?["outcome"], "drained");
    // Said once each, and not asked again.
    for call in ["/healthcheck/fail", "/drain_listeners"] {
        assert_eq!(fake.calls(call).len(), 1, "{call}");
        let told = |line: &serde_json::Value| line["level"] == "ERROR" && line["call"] == call;
        assert_eq!(drainer.log().into_iter().filter(told).count(), 1, "{call}");
    }
    Ok(())
}

#[tokio::test]
async fn why_listeners_are_not_known_is_told_as_it_is() -> Result<()> {
    let cases = [
        (Mood::OnlyStats, "admin.allow_paths"),
        (Mood::HugeDump(5 << 20), "more than 4194304 bytes"),
    ];
    let cases = cases.map(|(mood, why)| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            let drainer = hasty(&fake).await?;
            let line = drainer
                .logs("/config_dump cannot be read", PATIENCE)
                .await?;
            let told = line["message"].as_str().unwrap_or_default();
            for reason in ["admin.allow_paths", "more than 4194304 bytes"] {
                assert_eq!(told.contains(reason), reason == why, "{told}");
            }
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn another_service_at_the_admins_address_is_told_at_start() -> Result<()> {
    let cases = [Mood::Page, Mood::Status(404)].map(|mood| {
        let case = async move {
            let fake = FakeAdmin::start(mood).await?;
            let drainer = hasty(&fake).await?;
            let line = drainer
                .logs("admin interface does not answer", 3 * SECOND)
                .await?;
            assert_eq!(line["level"], "ERROR");
            assert!(fake.calls("/healthcheck").is_empty(), "nothing was touched");
            assert_due(drainer.pod_ends()?.returned().await?, DEADLINE);
            assert_eq!(drainer.last_words()?["outcome"], "deadline");
            Ok(())
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}

#[tokio::test]
async fn a_marker_stays_through_every_fault_until_envoy_has_heard() -> Result<()> {
    let moods = [
        Mood::Status(500),
        Mood::Status(404),
        Mood::Hangs,
        Mood::Half,
        Mood::Refuses,
    ];
    let cases = moods.map(|mood| {
        let case = async move {
            let mut fake = FakeAdmin::start(Mood::Well).await?;
            let mut drainer = hasty(&fake).await?;
            // It was not proved that the pod ends.
            let hook = drainer.envoy_hook();
            until("health has failed", PATIENCE, || async {
                Ok(!fake.is_live())
            })
            .await?;
            assert!(drainer.has_marked());
            drainer.signal(tests::process::Signal::KILL);
            drop(hook);
            fake.set(mood).await?;
            drainer.start_again().await?;
            sleep(2 * SECOND).await;
            assert!(drainer.has_marked());
            fake.set(Mood::Well).await?;
            // Of half an answer the fake has heard the call, the drainer not that it was heard.
            until("health is restored", PATIENCE, || async {
                Ok(fake.is_live() && !drainer.has_marked())
            })
            .await
        };
        (format!("{mood:?}"), case)
    });
    at_once(cases).await
}
