//! The arguments of the webhook's container are flags of the program, and defaults are left to the program.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser};
use drainer::duration;
use serde_json::Value;
use tests::helm::{find_helm, object, objects};
use webhook::cli::Cli;
use webhook::server::Limits;

use crate::sets;
use crate::values::entries;
use crate::words;

/// Flags that are not used in a cluster.
const LOCAL_FLAGS: [&str; 1] = ["tls-ca-out"];

/// Flags that the chart always sets, or by values of another name.
const OTHER_FLAGS: &str = "\
    listen drainer-api-listen drainer-api-address drainer-api-ip drainer-api-replacement drainer-api-reports \
    health-listen metrics-listen client-ca excluded-namespaces image release-namespace pod-name \
    webhook-configuration ca-secret tls-name tls-secret openshift";

/// The command `serve` of the program.
fn serve() -> Command {
    let mut program = Cli::command();
    program.build();
    program.find_subcommand("serve").unwrap().clone()
}

fn flag<'a>(serve: &'a Command, name: &str) -> &'a Arg {
    let mut flags = serve.get_arguments();
    flags
        .find(|flag| flag.get_long() == Some(name))
        .unwrap_or_else(|| panic!("`serve` has no --{name}"))
}

/// The default of a flag of `serve`.
fn default_of<'a>(serve: &'a Command, name: &str) -> &'a str {
    flag(serve, name).get_default_values()[0].to_str().unwrap()
}

/// The flag of a chart value, if it has one: `drainer.drainTimeout` is `drain-timeout`.
fn flag_of(path: &str) -> Option<String> {
    let (group, key) = path.rsplit_once('.')?;
    let is_group = ["webhook", "drainer", "certificates.self"].contains(&group);
    if !is_group && path != "certificates.caActivationDelay" {
        return None;
    }
    if path == "webhook.clientCA" {
        // The name of the ConfigMap with the file of the flag.
        return None;
    }
    if path == "drainer.logLevel" {
        return Some("drainer-log-level".to_owned());
    }
    let kebab = |c: char| {
        if c.is_ascii_uppercase() {
            format!("-{}", c.to_ascii_lowercase())
        } else {
            c.to_string()
        }
    };
    Some(key.chars().map(kebab).collect())
}

/// `8760h` is `31536000s`.
fn is_same_value(one: &str, other: &str) -> bool {
    one == other
        || matches!((duration::parse(one), duration::parse(other)), (Ok(one), Ok(other)) if one == other)
}

fn container(rendered: &str) -> Value {
    let objects = objects(rendered);
    object(&objects, "Deployment", "")["spec"]["template"]["spec"]["containers"][0].clone()
}

#[test]
fn arguments_of_every_set_are_valid() {
    let Some(helm) = find_helm() else { return };
    for set in sets::all(&helm) {
        let container = container(&set.rendered);
        let args = container["args"].as_array().unwrap();
        let args = args.iter().map(|arg| arg.as_str().unwrap());
        if let Err(error) = Cli::try_parse_from(["envoy-drainer"].into_iter().chain(args)) {
            panic!("{}: {error}", set.name);
        }
        let names: Vec<_> = container["env"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|variable| variable["name"].as_str())
            .filter(|name| name.starts_with("ENVOY_DRAINER_"))
            .collect();
        let serve = serve();
        let known = ["release-namespace", "pod-name"]
            .map(|name| flag(&serve, name).get_env().unwrap().to_str().unwrap());
        assert_eq!(names, known);
    }
}

#[test]
fn every_flag_is_a_value_with_the_default_of_the_program() {
    let serve = serve();
    let mut names = BTreeSet::new();
    for entry in entries() {
        let Some(name) = flag_of(&entry.path) else {
            continue;
        };
        let default = default_of(&serve, &name);
        let value = entry.value.trim_matches('"');
        assert!(is_same_value(value, default), "{entry:?}: {default}");
        names.insert(name);
    }
    for name in serve.get_arguments().filter_map(Arg::get_long) {
        let elsewhere =
            LOCAL_FLAGS.contains(&name) || words(OTHER_FLAGS).any(|other| other == name);
        assert!(
            elsewhere || name == "help" || names.contains(name),
            "no value sets --{name}"
        );
    }
}

#[test]
fn comments_of_drainer_values_are_the_help_of_their_flags() {
    let serve = serve();
    let mut entries = entries();
    entries.retain(|entry| entry.path.starts_with("drainer."));
    for entry in entries {
        let name = flag_of(&entry.path).unwrap();
        let help = flag(&serve, &name).get_help().unwrap().to_string();
        assert_eq!(entry.comment.replace('`', ""), format!("{help}."));
    }
}

#[test]
fn drain_timeout_below_the_minimum_is_rejected() {
    let Some(helm) = find_helm() else { return };
    let serve = serve();
    let [min, timeout] = ["min-drain-duration", "drain-timeout"].map(|it| default_of(&serve, it));
    let tick = Duration::from_millis(1);
    let above = duration::parse(timeout).unwrap() + tick;
    let above = duration::format(above).to_string();
    let below = duration::parse(min).unwrap().checked_sub(tick).unwrap();
    let below = duration::format(below).to_string();
    let table = [
        (Some("90s"), Some("1m30s"), true),
        (Some("1m30.001s"), Some("90s"), false),
        (Some("2m"), Some(".5h"), true),
        (Some("0"), Some("0"), true),
        (Some(timeout), None, true),
        (Some(&*above), None, false),
        (None, Some(min), true),
        (None, Some(&*below), false),
    ];
    for (min, timeout, is_valid) in table {
        let flag = |name, value: Option<&str>| {
            value.map(|value| format!("--set-string=drainer.{name}={value}"))
        };
        let flags = [flag("minDrainDuration", min), flag("drainTimeout", timeout)];
        let rendered = helm.render(flags.iter().flatten());
        assert_eq!(rendered.is_ok(), is_valid, "{flags:?}");
        let error = rendered.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(error.contains("raise the one"), !is_valid, "{error}");
    }
}

#[test]
fn grace_period_is_longer_than_the_shutdown() {
    let Some(helm) = find_helm() else { return };
    for row in ["0 110", "400ms 110", "20.9s 130", "1m30s 200", ".5h 1910"] {
        let (delay, wanted) = row.split_once(' ').unwrap();
        let wanted = wanted.parse().unwrap();
        let rendered = helm.render([format!("--set-string=webhook.shutdownDelay={delay}")]);
        let objects = objects(&rendered.unwrap());
        let pod = &object(&objects, "Deployment", "")["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], wanted, "{delay}");
        let Limits {
            head_timeout: head,
            shutdown_grace: finish,
            ..
        } = Limits::default();
        let end = duration::parse(delay).unwrap() + head + finish;
        assert!(end < Duration::from_secs(wanted));
    }
}

#[test]
fn ports_are_the_defaults_of_the_program() {
    let serve = serve();
    for (value, name) in [
        ("port", "listen"),
        ("healthPort", "health-listen"),
        ("metricsPort", "metrics-listen"),
    ] {
        let entries = entries();
        let port = entries.iter().find(|entry| entry.path == value).unwrap();
        let default = default_of(&serve, name);
        assert_eq!(format!("[::]:{}", port.value), default);
    }
}
