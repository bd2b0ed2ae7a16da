//! Years of a webhook's authorities: three replicas of the product's own code, and a cluster whose API
//! is slow, late, in conflict and sometimes gone. At no instant does a replica that is called show a
//! certificate which an API server does not trust.

mod cluster;
mod faults;
mod issuer;
mod replica;
mod replica_slot;
mod rng;
mod simulation;
mod trust;

use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::task::LocalSet;

use faults::Faults;
use simulation::Simulation;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs worlds until their authorities were replaced so often, each on a thread of its own. Everything
/// that happens in one is drawn from its seed, which a failure tells.
fn run_simulations(seeds: impl IntoIterator<Item = u64>, rotations: usize, faults: &Faults) {
    let worlds: Vec<_> = seeds
        .into_iter()
        .map(|seed| {
            let faults = faults.clone();
            let world = thread::Builder::new().name(format!("seed {seed}"));
            let world = world.spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .unwrap();
                let told = LocalSet::new().block_on(&runtime, async {
                    Simulation::new(seed, faults).run(rotations).await
                });
                println!("seed {seed}: {told}");
            });
            world.unwrap()
        })
        .collect();
    for world in worlds {
        world.join().unwrap();
    }
}

#[test]
fn a_hundred_rotations_at_default_lifetimes_lose_no_trust() {
    run_simulations(0..4, 25, &Faults::default());
}

#[test]
fn one_replica_alone_and_five_lose_no_trust() {
    for (seed, replicas) in [(10, 1), (11, 5)] {
        let faults = Faults {
            replicas,
            bundle_clear_every: Some(60 * DAY),
            lifetimes_change_every: Some(90 * DAY),
            ..Faults::default()
        };
        run_simulations([seed], 4, &faults);
    }
}

#[test]
fn a_hundred_rotations_as_the_secret_is_lost_again_and_again_lose_no_trust() {
    // Often within the rotation that the last loss began, and replicas restart as often.
    let faults = Faults {
        restart_every: 20 * MINUTE,
        secret_loss_every: 10 * MINUTE,
        ..Faults::default()
    };
    run_simulations(100..104, 25, &faults);
}

#[test]
fn clocks_that_are_off_while_authorities_follow_each_other_lose_no_trust() {
    let faults = Faults {
        restart_every: 2 * HOUR,
        disconnect_every: 12 * HOUR,
        clock_jump_every: 30 * MINUTE,
        secret_loss_every: 2 * HOUR,
        ..Faults::default()
    };
    run_simulations(500..503, 25, &faults);
}

#[test]
fn bundles_that_are_emptied_or_deleted_lose_no_trust_of_who_is_behind() {
    let faults = Faults {
        bundle_clear_every: Some(3 * DAY),
        webhooks_deletion_every: Some(3 * DAY),
        secret_loss_every: 20 * DAY,
        ..Faults::default()
    };
    run_simulations(200..202, 12, &faults);
}

#[test]
fn a_secret_and_bundles_that_are_emptied_at_once_lose_no_trust_of_who_is_behind() {
    let faults = Faults {
        force_upgrade_every: Some(30 * DAY),
        ..Faults::default()
    };
    run_simulations(400..402, 10, &faults);
}

#[test]
fn the_other_mode_and_back_again_loses_no_trust() {
    let faults = Faults {
        mode_change_every: Some(30 * DAY),
        ..Faults::default()
    };
    run_simulations(300..302, 5, &faults);
}

#[test]
fn a_leaked_ca_is_replaced_within_minutes_and_loses_no_trust() {
    // A replica that does not reach the API server meanwhile is not claimed.
    let never = 10_000 * DAY;
    let faults = Faults {
        restart_every: 10 * MINUTE,
        disconnect_every: never,
        clock_jump_every: 12 * HOUR,
        secret_loss_every: never,
        key_leak_every: Some(2 * HOUR),
        ..Faults::default()
    };
    run_simulations(600..603, 12, &faults);
}
