//! Years of CA rotation: several replicas run the product's code against an API server whose calls are slow, stale, in
//! conflict or failing. At every instant, each ready replica serves a certificate that every API server trusts.

mod faults;
mod issuer;
mod network;
mod release;
mod replica;
mod replica_slot;
mod rng;
mod simulation;
mod trust;

use std::{env, thread};

use tokio::runtime;
use tokio::task::LocalSet;

use crate::{DAY, HOUR, MINUTE};
use faults::{Fault, Faults};
use simulation::Simulation;

/// Set to 1 by `make quick`, for the first simulation of each test and its first rotations alone; `make test` runs all.
const IS_QUICK: &str = "QUICK_SIMULATIONS";

/// The number of rotations of each simulation in `make quick`.
const QUICK_ROTATIONS: usize = 5;

/// Runs simulations of this many rotations, each on its own thread. Everything in one is drawn from its seed, which is
/// the name of the thread in a panic's message.
fn run_simulations(seeds: impl IntoIterator<Item = u64>, rotations: usize, faults: &Faults) {
    let is_quick = env::var_os(IS_QUICK).is_some_and(|value| value == "1");
    let (count, rotations) = if is_quick {
        (1, rotations.min(QUICK_ROTATIONS))
    } else {
        (usize::MAX, rotations)
    };
    let threads: Vec<_> = seeds
        .into_iter()
        .take(count)
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
        let mut faults = Faults::with_intervals([
            (Fault::BundleClear, 60 * DAY),
            (Fault::LifetimesChange, 90 * DAY),
        ]);
        faults.replicas = replicas;
        run_simulations([seed], 4, &faults);
    }
}

#[test]
fn hundred_rotations_with_secret_loss_lose_no_trust() {
    // Often during the rotation that the previous loss began; replicas restart about as often.
    let faults = Faults::with_intervals([
        (Fault::Restart, 20 * MINUTE),
        (Fault::SecretLoss, 10 * MINUTE),
    ]);
    run_simulations(100..104, 25, &faults);
}

#[test]
fn clock_jumps_lose_no_trust() {
    let faults = Faults::with_intervals([
        (Fault::Restart, 2 * HOUR),
        (Fault::Disconnect, 12 * HOUR),
        (Fault::ClockJump, 30 * MINUTE),
        (Fault::SecretLoss, 2 * HOUR),
    ]);
    run_simulations(500..503, 25, &faults);
}

#[test]
fn cleared_bundles_lose_no_trust() {
    let faults = Faults::with_intervals([
        (Fault::BundleClear, 3 * DAY),
        (Fault::WebhooksDeletion, 3 * DAY),
        (Fault::SecretLoss, 20 * DAY),
    ]);
    run_simulations(200..202, 12, &faults);
}

#[test]
fn forced_upgrades_lose_no_trust() {
    let faults = Faults::with_intervals([(Fault::ForceUpgrade, 30 * DAY)]);
    run_simulations(400..402, 10, &faults);
}

#[test]
fn mode_changes_lose_no_trust() {
    let faults = Faults::with_intervals([(Fault::ModeChange, 30 * DAY)]);
    run_simulations(300..302, 5, &faults);
}

#[test]
fn deleted_namespaces_lose_no_trust() {
    let faults = Faults::with_intervals([
        (Fault::NamespaceDeletion, HOUR),
        (Fault::SecretLoss, DAY),
        (Fault::Restart, 30 * MINUTE),
    ]);
    run_simulations(800..804, 25, &faults);
}

#[test]
fn leaked_ca_replacement_loses_no_trust() {
    // Nothing is promised for a replica that is disconnected meanwhile.
    let never = 10_000 * DAY;
    let faults = Faults::with_intervals([
        (Fault::Restart, 10 * MINUTE),
        (Fault::Disconnect, never),
        (Fault::ClockJump, 12 * HOUR),
        (Fault::SecretLoss, never),
        (Fault::KeyLeak, 2 * HOUR),
    ]);
    run_simulations(600..603, 12, &faults);
}
