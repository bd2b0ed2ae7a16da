//! Years of CA rotation: several replicas run the product's code against an API server whose calls are slow, stale, in
//! conflict or failing. At every instant, each ready replica serves a certificate that every API server trusts.

mod faults;
mod issuer;
mod network;
mod replica;
mod replica_slot;
mod rng;
mod simulation;
mod trust;

use std::thread;

use tokio::runtime;
use tokio::task::LocalSet;

use crate::{DAY, HOUR, MINUTE};
use faults::Faults;
use simulation::Simulation;

/// Runs simulations of this many rotations, each on its own thread. Everything in one is drawn from its seed, which is
/// the name of the thread in a panic's message.
fn run_simulations(seeds: impl IntoIterator<Item = u64>, rotations: usize, faults: &Faults) {
    let threads: Vec<_> = seeds
        .into_iter()
        .map(|seed| {
            let faults = faults.clone();
            let thread = thread::Builder::new().name(format!("seed {seed}"));
            let thread = thread.spawn(move || {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_time()
                    .start_paused(true)
                    .build()
                    .unwrap();
                let report = LocalSet::new().block_on(&runtime, async {
                    Simulation::new(seed, faults).run(rotations).await
                });
                println!("seed {seed}: {report}");
            });
            thread.unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn hundred_rotations_lose_no_trust() {
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
fn hundred_rotations_with_secret_loss_lose_no_trust() {
    // Often during the rotation that the previous loss began; replicas restart about as often.
    let faults = Faults {
        restart_every: 20 * MINUTE,
        secret_loss_every: 10 * MINUTE,
        ..Faults::default()
    };
    run_simulations(100..104, 25, &faults);
}

#[test]
fn clock_jumps_lose_no_trust() {
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
fn cleared_bundles_lose_no_trust() {
    let faults = Faults {
        bundle_clear_every: Some(3 * DAY),
        webhooks_deletion_every: Some(3 * DAY),
        secret_loss_every: 20 * DAY,
        ..Faults::default()
    };
    run_simulations(200..202, 12, &faults);
}

#[test]
fn forced_upgrades_lose_no_trust() {
    let faults = Faults {
        force_upgrade_every: Some(30 * DAY),
        ..Faults::default()
    };
    run_simulations(400..402, 10, &faults);
}

#[test]
fn mode_changes_lose_no_trust() {
    let faults = Faults {
        mode_change_every: Some(30 * DAY),
        ..Faults::default()
    };
    run_simulations(300..302, 5, &faults);
}

#[test]
fn versions_side_by_side_lose_no_trust() {
    // An upgrade or a rollback is often under way when a CA is replaced or the Secret is lost.
    let faults = Faults {
        version_change_every: Some(HOUR),
        secret_loss_every: 3 * HOUR,
        key_leak_every: Some(10 * HOUR),
        disconnect_every: 10_000 * DAY,
        ..Faults::default()
    };
    run_simulations(700..703, 20, &faults);
}

#[test]
fn deleted_namespaces_lose_no_trust() {
    let faults = Faults {
        namespace_deletion_every: Some(HOUR),
        secret_loss_every: DAY,
        restart_every: 30 * MINUTE,
        ..Faults::default()
    };
    run_simulations(800..804, 25, &faults);
}

#[test]
fn leaked_ca_replacement_loses_no_trust() {
    // Nothing is promised for a replica that is disconnected meanwhile.
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
