//! What a scenario stands on: it makes what it needs here, and all of that is gone afterwards.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use serde_json::{Value, json};
use tests::load::Report;

use crate::PREFIX;
use crate::admissions::AdmissionCounts;
use crate::helm::Helm;
use crate::kubectl::kubectl;
use crate::namespace::Namespace;
use crate::release::Release;
use crate::report::ScenarioReport;

/// A scenario's own part of the cluster, and of the table.
#[derive(Debug)]
pub(crate) struct ClusterFixture<'a> {
    slug: &'static str,
    helm: &'a Helm,
    /// The namespaces that are not for its webhook, if it has one.
    other_namespaces: &'a [String],
    /// What it saw.
    pub(crate) report: RefCell<ScenarioReport>,
    /// The names of namespaces that may be there.
    namespace_names: RefCell<Vec<String>>,
    namespaces: RefCell<Vec<Rc<Namespace>>>,
    releases: RefCell<Vec<Rc<Release>>>,
}

/// The name of the namespace of the scenario that is called so.
pub(crate) fn namespace_of(about: &str) -> String {
    format!("{PREFIX}-{about}")
}

/// The name of the second namespace of a scenario, for pods of another tenant.
fn neighbor_of(about: &str) -> String {
    format!("{}-neighbor", namespace_of(about))
}

/// The names of all namespaces of a scenario whose pods its own release may see.
pub(crate) fn namespaces_of(about: &str) -> [String; 2] {
    [namespace_of(about), neighbor_of(about)]
}

/// The labels of a namespace that is opted in and enforces this Pod Security Standard.
fn opt_in_labels(standard: &str) -> Value {
    json!({
        "envoy-drainer.dev/injection": "enabled",
        "pod-security.kubernetes.io/enforce": standard,
    })
}

// === impl Stage ===

impl<'a> ClusterFixture<'a> {
    /// An empty one.
    pub(crate) fn new(about: &'static str, helm: &'a Helm, others: &'a [String]) -> Self {
        Self {
            slug: about,
            helm,
            other_namespaces: others,
            report: RefCell::new(ScenarioReport::new(about)),
            namespace_names: RefCell::default(),
            namespaces: RefCell::default(),
            releases: RefCell::default(),
        }
    }

    /// Makes the scenario's namespace, which is opted in and enforces Pod Security *restricted*.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn namespace(&self) -> Result<Rc<Namespace>> {
        self.namespace_enforcing("restricted").await
    }

    /// The same, with another of the Pod Security Standards.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn namespace_enforcing(&self, standard: &str) -> Result<Rc<Namespace>> {
        self.create_namespace(&namespace_of(self.slug), opt_in_labels(standard))
            .await
    }

    /// Makes a second namespace, for pods of another tenant. It is opted in and enforces the same.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn neighbor(&self) -> Result<Rc<Namespace>> {
        self.create_namespace(&neighbor_of(self.slug), opt_in_labels("restricted"))
            .await
    }

    /// Makes the scenario's namespace, and installs the chart once more, for that alone.
    ///
    /// # Errors
    /// When it cannot be made, or the webhook does not become ready.
    pub(crate) async fn release(&self, values: Value) -> Result<(Rc<Namespace>, Rc<Release>)> {
        let namespace = self.namespace().await?;
        let name = format!("{}-webhook", namespace.name());
        let release = self.prepare_release(self.helm, &name).await?;
        release.install(values, &namespace).await?;
        Ok((namespace, release))
    }

    /// Makes the namespace of a release of this name, which is not installed yet.
    ///
    /// # Errors
    /// When that cannot be made.
    pub(crate) async fn prepare_release(&self, helm: &Helm, name: &str) -> Result<Rc<Release>> {
        // The webhook itself has to pass what it makes its sidecars pass.
        let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
        let namespace = self.create_namespace(name, labels).await?;
        let release = Release::new(helm.clone(), namespace, self.other_namespaces);
        let release = Rc::new(release);
        self.releases.borrow_mut().push(Rc::clone(&release));
        Ok(release)
    }

    async fn create_namespace(&self, name: &str, labels: Value) -> Result<Rc<Namespace>> {
        // Beforehand: it may be there although this was interrupted.
        self.namespace_names.borrow_mut().push(name.to_owned());
        let namespace = Rc::new(Namespace::create(name, labels).await?);
        self.namespaces.borrow_mut().push(Rc::clone(&namespace));
        Ok(namespace)
    }

    /// Adds what was seen.
    pub(crate) fn add_row(&self, what: &str, seen: impl Into<String>) {
        self.report.borrow_mut().add_row(what, seen);
    }

    /// Adds what became of a load's requests.
    pub(crate) fn add_load(&self, report: &Report) {
        self.report.borrow_mut().add_load(report);
    }

    /// Adds how the drains in a namespace ended.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn add_drains(&self, namespace: &Namespace) -> Result<()> {
        let heard = namespace.termination_messages.read_all()?;
        self.report.borrow_mut().add_drains(&heard);
        Ok(())
    }

    /// Adds what became of pods that were created in a loop.
    pub(crate) fn add_admissions(&self, admitted: &AdmissionCounts) {
        self.report.borrow_mut().add_admissions(admitted);
    }

    /// All that its namespaces can tell of why it failed.
    pub(crate) async fn diagnostics(&self) -> String {
        let namespaces = self.namespaces.borrow().clone();
        let mut all = String::new();
        for namespace in namespaces {
            all.push_str(&namespace.diagnostics().await);
        }
        all
    }

    /// Uninstalls its releases, and has its namespaces deleted, which goes on by itself.
    ///
    /// # Errors
    /// The first thing that could not be removed; the others are.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        let releases = self.releases.take();
        let mut cleared = Ok(());
        for release in releases.iter().rev() {
            cleared = cleared.and(release.uninstall().await);
        }
        for name in self.namespace_names.take() {
            let missing = "--ignore-not-found";
            let delete = ["delete", "namespace", &name, missing, "--wait=false"];
            cleared = cleared.and(kubectl(&delete).await.map(drop));
        }
        cleared
    }
}
