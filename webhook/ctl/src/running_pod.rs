//! A pod of a cluster as it runs: the drainer that was injected, by its arguments, for `explain pod/NAME`.
//!
//! Annotations are read when a pod is created; those of a running pod may have changed since, without effect.

use admission::keys::{INJECT, PREFIX, STATUS, inject_requested, lint_names, parse_value};
use admission::{
    Code, DEFAULT_GRACE_PERIOD, DrainPlan, PodView, RecordedInjection, RecordedSkip, SettingSource,
    SidecarMode,
};
use drainer::settings::drain_setting_definitions;
use drainer::shutdown_manager::ManagerCommand;
use drainer::{Config, SettingDefinition, duration};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

use crate::object_name::ObjectName;
use crate::pod_status::drainer;

#[derive(Debug)]
pub struct RunningPod {
    pub object: ObjectName,
    /// Its drainer; `None` if it has none, or one whose arguments cannot be read.
    pub drainer: Option<RunningDrainer>,
    /// Whether it has a drainer, readable or not.
    pub has_drainer: bool,
    /// Whether what came with it was changed afterwards, so that the pod may end without a drain.
    pub is_changed: bool,
    /// What is to be noted, a sentence each: why there is no drainer, or where it came from.
    pub notes: Vec<String>,
    /// What differs from what was injected, a sentence each: hooks, grace period, form and annotations; and which
    /// annotations are unknown.
    pub annotation_notes: Vec<String>,
}

#[derive(Debug)]
pub struct RunningDrainer {
    /// What its arguments set.
    pub config: Config,
    /// The form of its container.
    pub sidecar: SidecarMode,
    /// What was done to the pod's other containers.
    pub recorded: RecordedInjection,
    pub image: String,
    /// The pod's grace period in seconds.
    pub grace: i64,
    /// The drain's settings, in the order of the documentation.
    pub settings: Vec<RunningSetting>,
}

/// A setting of an injected drainer.
#[derive(Debug, PartialEq, Eq)]
pub struct RunningSetting {
    /// The annotation's name without the prefix.
    pub name: &'static str,
    /// The value in effect, in the notation of the annotation.
    pub value: String,
    /// The value that the annotation has now, in the same notation, or as it is if it is invalid; `None` without one.
    pub annotation: Option<String>,
    /// Whether the value is not the built-in default.
    pub is_changed: bool,
}

// === impl RunningPod ===

impl RunningPod {
    /// Reads a pod of the cluster.
    pub fn new(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let container = drainer(pod);
        let read = container.map(|it| RunningDrainer::try_new(pod, it));
        let note = match &read {
            Some(Ok(drainer)) => drainer.adoption_note(),
            Some(Err(error)) => Some(format!("the drainer's arguments cannot be read: {error}")),
            None => Some(no_drainer_note(pod)),
        };
        let drainer = read.and_then(Result::ok);
        let mut annotation_notes = changes(pod);
        let is_changed = !annotation_notes.is_empty();
        if let Some(it) = &drainer {
            let notes = [it.version_note(), it.difference(), it.left_out_wait()];
            annotation_notes.extend(notes.into_iter().flatten());
        }
        annotation_notes.extend(unknown_annotations(pod));
        Self {
            object: ObjectName::new("Pod", metadata.namespace.as_deref(), name),
            has_drainer: container.is_some(),
            is_changed,
            annotation_notes,
            drainer,
            notes: note.into_iter().collect(),
        }
    }

    /// Both kinds of notes.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.annotation_notes)
    }
}

/// What was changed of the injection after the webhook's last call.
fn changes(pod: &Pod) -> Vec<String> {
    let json = serde_json::to_string(pod).unwrap_or_default();
    let changes = match PodView::decode(&json) {
        Ok(view) => admission::changes(&view),
        Err(error) => vec![Code::NotAPod.diagnostic(error.to_string())],
    };
    changes.iter().map(|it| format!("{it:#}")).collect()
}

/// The annotations under our prefix that are unknown.
fn unknown_annotations(pod: &Pod) -> Vec<String> {
    let keys = pod.annotations().keys();
    let unknown = lint_names(keys.filter_map(|key| key.strip_prefix(PREFIX)));
    unknown.iter().map(ToString::to_string).collect()
}

/// Why a pod has no drainer, by what was recorded when it was created.
fn no_drainer_note(pod: &Pod) -> String {
    let inject = pod.annotations().get(INJECT);
    if !inject.is_some_and(|inject| inject_requested(inject) == Ok(true)) {
        return "the pod does not request a drainer".to_owned();
    }
    let status = pod.annotations().get(STATUS);
    let reason = match status.map(|status| RecordedSkip::read(status)) {
        Some(Some(skip)) => format!("the pod was created without a drainer: {skip}"),
        Some(None) => {
            format!("the annotation `{STATUS}` has no known code, and the pod has no drainer")
        }
        None => format!(
            "the pod has no annotation `{STATUS}`: the webhook was not called when it was created"
        ),
    };
    format!("{reason}. Below is what admission would decide on such a pod now")
}

// === impl RunningDrainer ===

impl RunningDrainer {
    /// Reads the drainer in this container of the pod.
    ///
    /// # Errors
    /// If its arguments are not those of a drainer of this version.
    fn try_new(pod: &Pod, container: &Container) -> Result<Self, String> {
        let mut args = container.args.iter().flatten();
        let config = match manager_config(container) {
            Some(config) => config,
            None if args.next().is_none_or(|command| command != "serve") => {
                return Err("the first one is not `serve`".to_owned());
            }
            None => Config::parse(args.map(Into::into)).map_err(|errors| errors.join("; "))?,
        };
        let spec = pod.spec.as_ref();
        let mut plain = spec.iter().flat_map(|spec| &spec.containers);
        let sidecar = if plain.any(|other| other.name == container.name) {
            SidecarMode::Plain
        } else {
            SidecarMode::Native
        };
        let grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
        let status = pod.annotations().get(STATUS).map(String::as_str);
        Ok(Self {
            settings: settings(pod, &config),
            recorded: RecordedInjection::read(status.unwrap_or_default()),
            config,
            sidecar,
            image: container.image.clone().unwrap_or_default(),
            grace: grace.unwrap_or(DEFAULT_GRACE_PERIOD),
        })
    }

    /// Says which settings new pods get otherwise, by the plan of one, apart from those with a note of their own. A free
    /// port and the grace period may be due to what later webhooks changed.
    pub fn other_values(&self, plan: &DrainPlan) -> Vec<String> {
        let left_out = [SettingSource::NextFree, SettingSource::GracePeriod];
        let mut rows = plan.settings.rows();
        rows.retain(|row| !left_out.contains(&row.source));
        let other = |setting: &RunningSetting| {
            let RunningSetting { name, value, .. } = setting;
            let new = rows.iter().find(|row| row.name == *name)?;
            let is_unnoted = setting.annotation.as_ref().is_none_or(|it| it == value);
            (is_unnoted && new.value != *value)
                .then(|| format!("its `{name}` is {value}, and new pods get {}", new.value))
        };
        self.settings.iter().filter_map(other).collect()
    }

    /// Says that the drainer took the place of a shutdown manager, if it did.
    fn adoption_note(&self) -> Option<String> {
        let manager = self.recorded.adopted?;
        Some(format!(
            "the pod was adopted when it was created: the drainer takes the place of the shutdown manager of {manager}, \
             whose values are defaults of its settings"
        ))
    }

    /// Says that an earlier version injected the drainer.
    fn version_note(&self) -> Option<String> {
        let version = self.recorded.other_version()?;
        Some(format!("version {version} injected its drainer"))
    }

    /// Says that the pod waits for no replacement although it is annotated.
    fn left_out_wait(&self) -> Option<String> {
        let RunningSetting { name, .. } = self.settings.iter().find(|it| it.is_left_out_wait())?;
        let code = Code::NoReplacementWait;
        Some(format!(
            "{code}: `{name}` had no effect when the pod was created, since drainers could not call the webhook: turn \
             the drainer API on, if it is off, and then replace the pod"
        ))
    }

    /// How the annotations differ from the arguments; `None` if they do not.
    fn difference(&self) -> Option<String> {
        let differing = self.settings.iter().filter_map(|setting| {
            let RunningSetting { name, value, .. } = setting;
            let annotation = setting.annotation.as_ref().filter(|it| *it != value)?;
            (!setting.is_left_out_wait())
                .then(|| format!("`{name}` is annotated {annotation}, and runs with {value}"))
        });
        let differing = differing.collect::<Vec<_>>().join("; ");
        (!differing.is_empty()).then(|| {
            format!(
                "the annotations differ from what was injected: {differing}. They are read only when a pod is created: replace the pod"
            )
        })
    }
}

// === impl RunningSetting ===

impl RunningSetting {
    /// Returns true for a wait for a replacement that is annotated, validly, and was left out.
    fn is_left_out_wait(&self) -> bool {
        let wait = self.annotation.as_deref().map(duration::parse);
        let is_requested = wait.is_some_and(|wait| wait.is_ok_and(|wait| !wait.is_zero()));
        self.name == "wait-for-replacement" && !self.is_changed && is_requested
    }
}

/// The configuration of a drainer in the place of a shutdown manager, with the flags of its hook; `None` for another one.
fn manager_config(container: &Container) -> Option<Config> {
    use ManagerCommand::{Serve, Shutdown};
    let program = container.command.as_ref().and_then(|it| it.first());
    let args = container.args.as_deref()?;
    let command = ManagerCommand::recognize(program.map_or("", String::as_str), args)?;
    let lifecycle = container.lifecycle.as_ref();
    let hook = lifecycle.and_then(|it| it.pre_stop.as_ref()?.exec.as_ref());
    let hook = hook.and_then(|it| it.command.as_ref()?.split_first());
    let hook = hook.and_then(|(program, args)| ManagerCommand::recognize(program, args));
    match (command, hook) {
        (Serve(manager, flags), Some(Shutdown(_, of_hook))) => {
            Some(Config::for_manager(manager, &[flags, of_hook].concat()))
        }
        (Serve(manager, flags), _) => Some(Config::for_manager(manager, flags)),
        (Shutdown(..), _) => None,
    }
}

/// The settings of a drainer with this configuration, beside the annotations of its pod.
fn settings(pod: &Pod, config: &Config) -> Vec<RunningSetting> {
    let (mut built_in, mut running) = (Config::new(config.token), config.clone());
    let setting = |definition: SettingDefinition<Config>| {
        let name = definition.name;
        let value = (definition.value)(&mut running).format();
        let annotation = pod.annotations().get(&format!("{PREFIX}{name}"));
        let annotation = annotation.map(|text| {
            let mut annotated = Config::new(config.token);
            let annotated = (definition.value)(&mut annotated);
            let set = |text: &str| annotated.set(text).map_err(|error| error.to_string());
            match parse_value(name, text, set) {
                Ok(()) => annotated.format(),
                Err(error) => format!("invalidly: {}", error.detail),
            }
        });
        RunningSetting {
            is_changed: value != (definition.value)(&mut built_in).format(),
            name,
            value,
            annotation,
        }
    };
    let definitions = drain_setting_definitions().into_iter();
    definitions.map(setting).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod with these annotations under the prefix, and a drainer with these arguments.
    fn running(annotations: &[(&str, &str)], args: &Value) -> RunningPod {
        let annotations: Value = annotations
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)))
            .collect();
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": 75,
                "initContainers": [{"name": "envoy-drainer", "image": "drainer:1", "args": args}],
                "containers": [{"name": "envoy"}],
            },
        });
        RunningPod::new(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn drainer_as_a_shutdown_manager_has_the_settings_of_its_flags() {
        let hook = ["envoy-gateway", "envoy", "shutdown", "--drain-timeout=90s"];
        let pod = json!({"metadata": {"name": "web-0"}, "spec": {"containers": [
            {"name": "envoy"},
            {
                "name": "shutdown-manager", "image": "r/drainer:1", "command": ["envoy-gateway"],
                "args": ["envoy", "shutdown-manager", "--ready-timeout=100s"],
                "lifecycle": {"preStop": {"exec": {"command": hook}}},
            },
        ]}});
        let running = RunningPod::new(&serde_json::from_value(pod).unwrap());
        assert!(running.has_drainer && !running.is_changed);
        assert_eq!(running.all_notes().count(), 0);
        let settings = running.drainer.unwrap().settings;
        let changed = settings.iter().filter(|it| it.is_changed);
        let changed: Vec<_> = changed
            .map(|it| format!("{}={}", it.name, it.value))
            .collect();
        assert_eq!(
            changed,
            [
                "port=19002",
                "drain-timeout=90s",
                "ignore-listeners=19001,19003"
            ]
        );
    }

    #[test]
    fn changes_of_the_injection_and_its_version_are_noted() {
        let status =
            r#"{"version":"0.0.9","sidecar":"native","container":"envoy","grace":{"to":75}}"#;
        let running = running(&[("status", status), ("drain-timeout", "600s")], &args());
        assert!(running.is_changed);
        let notes = running.annotation_notes;
        let of = ", which version 0.0.9 injected; exclude pods";
        for (note, want) in notes.iter().zip([
            "DRN089: the preStop hook of container `envoy` was removed",
            "DRN089: `restartPolicy` of container `envoy-drainer` was changed",
        ]) {
            assert!(note.starts_with(&format!("{want}{of}")), "{note}");
        }
        assert_eq!(notes[2], "version 0.0.9 injected its drainer");
    }

    fn args() -> Value {
        json!([
            "serve",
            "--admin-address=127.0.0.1:9901",
            "--token=0123456789abcdef",
            "--drain-timeout=90s"
        ])
    }

    fn pod_without_drainer(annotations: &Value) -> RunningPod {
        let pod = json!({
            "metadata": {"name": "web-0", "annotations": annotations},
            "spec": {"containers": [{"name": "envoy"}]},
        });
        RunningPod::new(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn settings_are_those_of_the_arguments() {
        let pod = running(&[("inject", "true"), ("drain-timeout", "1m30s")], &args());
        assert_eq!((pod.has_drainer, &*pod.notes), (true, &[][..]));
        let drainer = pod.drainer.unwrap();
        assert_eq!((drainer.grace, drainer.sidecar), (75, SidecarMode::Native));
        let timeout = RunningSetting {
            name: "drain-timeout",
            value: "90s".to_owned(),
            annotation: Some("90s".to_owned()),
            is_changed: true,
        };
        assert!(
            drainer.settings.contains(&timeout),
            "{:?}",
            drainer.settings
        );
    }

    #[test]
    fn annotations_that_differ_are_noted() {
        let annotations = [
            ("drain-timeout", "45s"),
            ("idle-exit", "never"),
            ("port", "15902"),
            ("drain-timout", "45s"),
        ];
        let pod = running(&annotations, &args());
        let [note, unknown] = &pod.annotation_notes[..] else {
            panic!("{:?}", pod.annotation_notes)
        };
        let want = "DRN050: unknown annotation `envoy-drainer.dev/drain-timout`: did you mean `drain-timeout`?";
        assert_eq!(unknown, want);
        for part in [
            "`drain-timeout` is annotated 45s, and runs with 90s",
            "`idle-exit` is annotated invalidly: ",
            "and runs with 7s. They are read only when a pod is created: replace the pod",
        ] {
            assert!(note.contains(part), "{note}");
        }
        assert!(!note.contains("`port`"), "{note}");
    }

    #[test]
    fn wait_that_was_left_out_is_noted() {
        for (wait, args, want) in [
            ("60s", args(), true),
            ("0s", args(), false),
            ("soon", args(), false),
        ] {
            let pod = running(&[("wait-for-replacement", wait)], &args);
            let mut notes = pod.annotation_notes.iter();
            let found = notes.any(|note| note.starts_with("DRN070: `wait-for-replacement` "));
            assert_eq!(found, want, "{wait}: {:?}", pod.annotation_notes);
        }
        let mut args = args();
        args.as_array_mut()
            .unwrap()
            .push(json!("--wait-for-replacement=30s"));
        let notes = running(&[("wait-for-replacement", "60s")], &args).annotation_notes;
        let [note] = &notes[..] else {
            panic!("{notes:?}")
        };
        assert!(
            note.contains("is annotated 60s, and runs with 30s"),
            "{note}"
        );
    }

    #[test]
    fn adoption_is_noted() {
        for (status, want) in [
            (
                r#"{"version":"0.1.0","adopted":"contour"}"#,
                Some("Contour"),
            ),
            (r#"{"version":"0.1.0"}"#, None),
            (r#"{"adopted":"other"}"#, None),
            ("", None),
        ] {
            let notes = running(&[("status", status)], &args()).notes;
            let wanted = want.map(|name| format!("the shutdown manager of {name}, "));
            assert_eq!(notes.len(), wanted.iter().len(), "{notes:?}");
            for (note, want) in notes.iter().zip(wanted) {
                assert!(note.contains(&want), "{note}");
            }
        }
    }

    #[test]
    fn unreadable_arguments_are_noted() {
        for args in [json!(["serve", "--new=1"]), json!([]), json!(["drain"])] {
            let pod = running(&[], &args);
            assert!(pod.has_drainer && pod.drainer.is_none());
            assert!(
                pod.notes[0].starts_with("the drainer's arguments cannot be read: "),
                "{:?}",
                pod.notes
            );
        }
    }

    #[test]
    fn missing_drainer_is_explained() {
        for (annotations, want) in [
            (json!(null), "does not request a drainer"),
            (json!({INJECT: "false"}), "does not request a drainer"),
            (json!({INJECT: "true"}), "the webhook was not called"),
            (
                json!({INJECT: "true", STATUS: r#"{"skipped":"DRN008"}"#}),
                "created without a drainer: DRN008: Envoy's container has a preStop hook already.",
            ),
            (
                json!({INJECT: "true", STATUS: r#"{"skipped":"DRN014","reason":"the pod is not as Contour makes it"}"#}),
                "created without a drainer: DRN014: the pod is not as Contour makes it.",
            ),
            (
                json!({INJECT: "true", STATUS: "{}"}),
                "has no known code, and the pod has no drainer",
            ),
        ] {
            let pod = pod_without_drainer(&annotations);
            assert!(!pod.has_drainer);
            assert!(pod.notes[0].contains(want), "{:?}", pod.notes);
        }
    }
}
