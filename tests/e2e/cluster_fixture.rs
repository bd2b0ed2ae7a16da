//! The namespaces and releases that a scenario creates, which are removed after it.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use serde_json::{Value, json};
use tests::load::Report;

use crate::admissions::{AdmissionCounts, AdmissionLoad};
use crate::helm::Helm;
use crate::kubectl::kubectl;
use crate::namespace::{Namespace, PREFIX};
use crate::release::Release;
use crate::report::ScenarioReport;

/// The objects of a scenario in the cluster, and its report.
#[derive(Debug)]
pub(crate) struct ClusterFixture<'a> {
    slug: &'static str,
    helm: &'a Helm,
    /// The namespaces of other scenarios, which its release excludes if it installs one.
    other_namespaces: &'a [String],
    /// The results so far.
    pub(crate) report: RefCell<ScenarioReport>,
    /// The names of namespaces that may exist: recorded before they are created.
    namespace_names: RefCell<Vec<String>>,
    namespaces: RefCell<Vec<Rc<Namespace>>>,
    releases: RefCell<Vec<Rc<Release>>>,
}

/// Returns the name of a scenario's namespace.
pub(crate) fn namespace_of(slug: &str) -> String {
    format!("{PREFIX}-{slug}")
}

// === impl ClusterFixture ===

impl<'a> ClusterFixture<'a> {
    /// Creates a fixture without objects.
    pub(crate) fn new(slug: &'static str, helm: &'a Helm, other_namespaces: &'a [String]) -> Self {
        Self {
            slug,
            helm,
            other_namespaces,
            report: RefCell::new(ScenarioReport::new(slug)),
            namespace_names: RefCell::default(),
            namespaces: RefCell::default(),
            releases: RefCell::default(),
        }
    }

    /// Creates the scenario's namespace, which is opted in and enforces Pod Security *restricted*.
    pub(crate) async fn namespace(&self) -> Result<Rc<Namespace>> {
        self.namespace_with("enabled", "restricted").await
    }

    /// Creates the scenario's namespace, which is opted in with this value, and enforces a Pod Security Standard.
    pub(crate) async fn namespace_with(
        &self,
        injection: &str,
        standard: &str,
    ) -> Result<Rc<Namespace>> {
        let labels = json!({
            "envoy-drainer.dev/injection": injection,
            "pod-security.kubernetes.io/enforce": standard,
        });
        self.create_namespace(&namespace_of(self.slug), labels)
            .await
    }

    /// Creates another namespace for the scenario, as [`Self::namespace`] does, with this end of its name.
    pub(crate) async fn another_namespace(&self, end: &str) -> Result<Rc<Namespace>> {
        let labels = json!({
            "envoy-drainer.dev/injection": "enabled",
            "pod-security.kubernetes.io/enforce": "restricted",
        });
        let name = format!("{}-{end}", namespace_of(self.slug));
        self.create_namespace(&name, labels).await
    }

    /// Creates the scenario's namespace and installs a release for it.
    ///
    /// # Errors
    /// If the webhook does not become ready.
    pub(crate) async fn release(&self, values: Value) -> Result<(Rc<Namespace>, Rc<Release>)> {
        let namespace = self.namespace().await?;
        let name = format!("{}-webhook", namespace.name());
        let release = self.prepare_release(self.helm, &name).await?;
        release.install(values, &namespace).await?;
        Ok((namespace, release))
    }

    /// Creates the namespace of a release, and returns the release, which is not installed yet.
    pub(crate) async fn prepare_release(&self, helm: &Helm, name: &str) -> Result<Rc<Release>> {
        // Sidecars must comply with *restricted*, and so must the webhook itself.
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let namespace = self.create_namespace(name, labels).await?;
        let release = Release::new(helm.clone(), namespace, self.other_namespaces);
        let release = Rc::new(release);
        self.releases.borrow_mut().push(Rc::clone(&release));
        Ok(release)
    }

    async fn create_namespace(&self, name: &str, labels: Value) -> Result<Rc<Namespace>> {
        // Recorded first, since an interrupted call may have created it.
        self.namespace_names.borrow_mut().push(name.to_owned());
        let namespace = Rc::new(Namespace::create(name, labels).await?);
        self.namespaces.borrow_mut().push(Rc::clone(&namespace));
        Ok(namespace)
    }

    /// Adds a row to the report.
    pub(crate) fn add_row(&self, label: &str, value: impl Into<String>) {
        self.report.borrow_mut().add_row(label, value);
    }

    /// Adds the requests of a load to the report.
    pub(crate) fn report_load(&self, report: &Report) {
        self.report.borrow_mut().add_load(report);
    }

    /// Adds the outcomes of the drains in a namespace to the report.
    pub(crate) fn report_drains(&self, namespace: &Namespace) -> Result<()> {
        let messages = namespace.termination_messages.read_all()?;
        self.report.borrow_mut().add_drains(&messages);
        Ok(())
    }

    /// Stops a load of pod creations, adds it to the report, and returns its counts.
    pub(crate) async fn stop_admissions(&self, load: AdmissionLoad) -> Result<AdmissionCounts> {
        let counts = load.stop().await?;
        self.add_row("pods created in a loop", counts.to_string());
        Ok(counts)
    }

    /// Collects pods, Events, logs and termination messages of the namespaces, to explain a failure.
    pub(crate) async fn diagnostics(&self) -> String {
        let namespaces = self.namespaces.borrow().clone();
        let mut text = String::new();
        for namespace in namespaces {
            text.push_str(&namespace.diagnostics().await);
        }
        text
    }

    /// Uninstalls the releases and starts the deletion of the namespaces, without waiting for it.
    ///
    /// # Errors
    /// The first error; everything else is removed nevertheless.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        let releases = self.releases.take();
        let mut result = Ok(());
        for release in releases.iter().rev() {
            result = result.and(release.uninstall().await);
        }
        for name in self.namespace_names.take() {
            let ignore_missing = "--ignore-not-found";
            let delete = ["delete", "namespace", &name, ignore_missing, "--wait=false"];
            result = result.and(kubectl(&delete).await.map(drop));
        }
        result
    }
}
