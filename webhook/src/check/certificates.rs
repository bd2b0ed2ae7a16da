//! Whether API servers trust what the replicas show them, and for how long they will.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;

use super::report::{CheckResult, Section, Subject};
use super::text::{format_duration, remaining};
use crate::certificates::lifetimes::Lifetimes;
use crate::certificates::pki::bundle::Bundle;
use crate::certificates::pki::x509::CertificateInfo;
use crate::certificates::pki::{issuer, verify};
use crate::kubernetes::{ReadError, Shown};

/// Whoever keeps certificates for others replaces them when more than this is left, or an eighth of their
/// life.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The name of the points about replicas.
const REPLICA: &str = "replica";

/// A replica, and what it showed to a caller.
#[derive(Debug)]
pub struct ServingReplica {
    /// Its pod.
    pub pod: Subject,
    /// The chain that it showed, leaf first.
    pub chain: Result<Shown, ReadError>,
}

/// Who keeps the certificate that the replicas show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateMode {
    /// They themselves, for so long at a time.
    SelfManaged(Lifetimes),
    /// Somebody else, in a Secret of this name.
    Secret(String),
}

/// What replicas are called, and who keeps their certificates.
#[derive(Debug, Clone, Copy)]
pub struct ServerIdentity<'a> {
    /// The name by which API servers call.
    pub host: &'a str,
    /// Who keeps the certificates, if that is known and the same for all replicas.
    pub mode: Option<&'a CertificateMode>,
}

/// Judges what the entries of the configuration trust, and what the replicas show.
#[must_use]
pub fn section(
    entries: &[MutatingWebhook],
    replicas: &Result<Vec<ServingReplica>, ReadError>,
    server: ServerIdentity<'_>,
    now: SystemTime,
) -> Section {
    let bundles: Vec<_> = entries
        .iter()
        .map(|entry| (&*entry.name, bundle(entry)))
        .collect();
    let mut points = vec![server.bundles(&bundles, now)];
    // What all of them trust.
    let common = |bundle: Bundle, (_, other): &(&str, Bundle)| {
        bundle.filter(|certificate| other.contains(certificate))
    };
    let trusted = bundles.first().map(|(_, bundle)| bundle.clone());
    let trusted = bundles.iter().fold(trusted.unwrap_or_default(), common);
    match readable_replicas(replicas) {
        Ok(replicas) => {
            let replicas = replicas.iter();
            points.extend(replicas.map(|replica| server.replica(replica, &trusted, now)));
        }
        Err(unseen) => points.push(CheckResult::unknown_blocking(
            REPLICA,
            "whether API servers trust what the replicas show",
            unseen,
        )),
    }
    Section {
        name: "certificates",
        results: points,
    }
}

/// The replicas, unless none of them can be seen: whoever may not call one may call no other.
fn readable_replicas(
    replicas: &Result<Vec<ServingReplica>, ReadError>,
) -> Result<&[ServingReplica], &ReadError> {
    let replicas = replicas.as_ref()?;
    let mut unseen = replicas
        .iter()
        .filter_map(|replica| replica.chain.as_ref().err());
    match unseen.find(|unseen| matches!(unseen, ReadError::Forbidden(_))) {
        Some(unseen) => Err(unseen),
        None => Ok(replicas),
    }
}

fn bundle(entry: &MutatingWebhook) -> Bundle {
    let pem = entry.client_config.ca_bundle.as_ref();
    pem.map_or_else(Bundle::default, |ByteString(pem)| Bundle::read(pem))
}

fn certificate_info(certificate: &CertificateDer<'_>) -> Option<CertificateInfo> {
    CertificateInfo::read(certificate).ok()
}

// === impl ServerIdentity ===

impl ServerIdentity<'_> {
    fn bundles(&self, bundles: &[(&str, Bundle)], now: SystemTime) -> CheckResult {
        const NAME: &str = "ca-bundle";
        if let Some((entry, _)) = bundles.iter().find(|(_, bundle)| bundle.is_empty()) {
            let message = format!("`{entry}` has no caBundle, so that API servers trust nobody");
            return CheckResult::error(NAME, message).remedy(self.bundle_remedy());
        }
        let differs = |(one, other): (&(&str, Bundle), &(&str, Bundle))| {
            (one.1 != other.1).then(|| format!("`{}` and `{}`", one.0, other.0))
        };
        if let Some(entries) = bundles.iter().zip(bundles.iter().skip(1)).find_map(differs) {
            let message = format!("{entries} have different caBundles");
            return CheckResult::warning(NAME, message).remedy(self.bundle_remedy());
        }
        let bundle = bundles.first().map(|(_, bundle)| bundle.clone());
        let authorities = match (self.mode, bundle.unwrap_or_default()) {
            // Somebody else's stays for a while after a change of mode, and may outlive ours.
            (Some(CertificateMode::SelfManaged(_)), bundle) => bundle.issued_by_us(),
            (Some(CertificateMode::Secret(_)) | None, bundle) => bundle,
        };
        let facts = authorities.iter().filter_map(certificate_info);
        let Some(newest) = facts.max_by_key(|facts| facts.not_after) else {
            // Whether API servers trust what the replicas show nevertheless, is told of each.
            return CheckResult::warning(NAME, "the caBundle has no authority of the webhook's")
                .remedy(self.bundle_remedy());
        };
        match remaining(now, newest.not_after) {
            None => CheckResult::error(NAME, "the webhook's authority has expired")
                .remedy(self.bundle_remedy()),
            Some(left) if self.is_renewal_overdue(Lifetimes::ca, &newest, now) => {
                CheckResult::warning(
                    NAME,
                    format!("the webhook's authority ends in {left}, and there is no next one"),
                )
                .remedy(self.bundle_remedy())
            }
            Some(left) => CheckResult::ok(
                NAME,
                format!("API servers trust the webhook's authority, for {left} more"),
            ),
        }
    }

    fn replica(&self, replica: &ServingReplica, trusted: &Bundle, now: SystemTime) -> CheckResult {
        let ServingReplica { pod, chain: shown } = replica;
        let about = pod.clone();
        let chain = match shown {
            Err(unseen) => {
                let what = format!("whether API servers trust `{}`", pod.name);
                return CheckResult::unknown_blocking(REPLICA, what, unseen).subject(about);
            }
            Ok(Shown::Nothing(why)) => {
                let message = format!("`{}` does not answer: {why}", pod.name);
                return CheckResult::error(REPLICA, message)
                    .remedy(
                        "see its log, and whether the Service leads to the port where it listens",
                    )
                    .command(logs_command(pod))
                    .subject(about);
            }
            Ok(Shown::Chain(chain)) => chain,
        };
        let host = self.host;
        let verified = verify::verify(chain, trusted, host, now)
            .map_err(|error| describe_error(&error, chain, now));
        let verified = verified.and_then(|()| {
            let checked = issuer::check(chain, trusted, now);
            checked.map_err(|bad| {
                format!("they refuse its certificate, or a CA that signed that: {bad}")
            })
        });
        if let Err(why) = verified {
            let message = format!(
                "API servers do not trust `{}`, which they call {host}: {why}",
                pod.name
            );
            return CheckResult::error(REPLICA, message)
                .remedy(self.certificate_remedy())
                .command(logs_command(pod))
                .subject(about);
        }
        let leaf = chain.first().and_then(certificate_info);
        let valid = leaf
            .as_ref()
            .and_then(|leaf| remaining(now, leaf.not_after));
        let valid = valid.unwrap_or_default();
        match leaf {
            Some(leaf) if self.is_renewal_overdue(Lifetimes::leaf, &leaf, now) => {
                let message = format!(
                    "`{}` has not replaced its certificate, which is valid for {valid} only",
                    pod.name
                );
                CheckResult::warning(REPLICA, message)
                    .remedy(self.certificate_remedy())
                    .command(logs_command(pod))
            }
            _ => CheckResult::ok(
                REPLICA,
                format!(
                    "`{}` shows a certificate that they trust, valid for {valid}{}",
                    pod.name,
                    match self.mode {
                        Some(CertificateMode::SelfManaged(_)) => " and replaced in time",
                        Some(CertificateMode::Secret(_)) | None => "",
                    }
                ),
            ),
        }
        .subject(about)
    }

    /// True if so little is left that replacing it must have failed: our own is replaced when a third
    /// is left.
    fn is_renewal_overdue(
        &self,
        own: fn(&Lifetimes) -> Duration,
        facts: &CertificateInfo,
        now: SystemTime,
    ) -> bool {
        let due = match self.mode {
            Some(CertificateMode::SelfManaged(lifetimes)) => own(lifetimes) / 6,
            Some(CertificateMode::Secret(_)) => {
                let life = facts.not_after.duration_since(facts.not_before);
                EXPIRY_WARNING.min(life.unwrap_or_default() / 8)
            }
            None => Duration::ZERO,
        };
        facts.not_after < now + due
    }

    /// What to do about a caBundle.
    fn bundle_remedy(&self) -> String {
        match self.mode {
            Some(CertificateMode::Secret(secret)) => format!(
                "the webhook copies it from `ca.crt` in the Secret `{secret}`; its log tells why it did not"
            ),
            Some(CertificateMode::SelfManaged(_)) | None => {
                "the webhook writes it when it runs; its log tells why it did not".to_owned()
            }
        }
    }

    /// What to do about a replica's certificate.
    fn certificate_remedy(&self) -> String {
        match self.mode {
            Some(CertificateMode::Secret(secret)) => format!(
                "renew the Secret `{secret}`: a `tls.crt` for {}, and its authority in `ca.crt`",
                self.host
            ),
            Some(CertificateMode::SelfManaged(_)) | None => {
                "the webhook replaces certificate and caBundle by itself; its log tells why it did not"
                    .to_owned()
            }
        }
    }
}

fn logs_command(pod: &Subject) -> String {
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    format!("kubectl logs {} --namespace {namespace}", pod.name)
}

/// In the words of a person, who may not know those of X.509.
fn describe_error(error: &rustls::Error, chain: &[CertificateDer<'_>], now: SystemTime) -> String {
    let rustls::Error::InvalidCertificate(error) = error else {
        return error.to_string();
    };
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is of an authority that is not in the caBundle".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            let end = chain
                .first()
                .and_then(certificate_info)
                .map(|facts| facts.not_after);
            let ago = end.and_then(|end| now.duration_since(end).ok());
            match ago {
                Some(ago) => format!("its certificate expired {} ago", format_duration(ago)),
                None => "its authority has expired".to_owned(),
            }
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: a clock is wrong".to_owned()
        }
        error => rustls::Error::InvalidCertificate(error.clone()).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::certificates::pki::ca::Ca;
    use crate::certificates::pki::leaf;
    use crate::check::Severity;
    use crate::clock::wall_clock;
    use crate::kubernetes::ApiCall;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const HOST: &str = "envoy-drainer.infra.svc";

    fn ca(now: SystemTime) -> Ca {
        Ca::try_new(now, 365 * DAY).unwrap()
    }

    fn entry(name: &str, bundle: &str) -> MutatingWebhook {
        MutatingWebhook {
            name: name.to_owned(),
            client_config: WebhookClientConfig {
                ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
                ..WebhookClientConfig::default()
            },
            ..MutatingWebhook::default()
        }
    }

    fn served_chain(
        ca: &Ca,
        name: &str,
        from: SystemTime,
        lifetime: Duration,
    ) -> Result<Shown, ReadError> {
        let leaf = leaf::issue(ca, &[name.to_owned()], from, lifetime).unwrap();
        Ok(Shown::Chain(leaf.chain().to_vec()))
    }

    fn results(
        entries: &[MutatingWebhook],
        shown: Result<Shown, ReadError>,
        now: SystemTime,
    ) -> Vec<(Severity, String)> {
        let pod = Subject::namespaced("Pod", "infra", "w-1");
        let replicas = Ok(vec![ServingReplica { pod, chain: shown }]);
        let keeper = CertificateMode::SelfManaged(Lifetimes::default());
        let caller = ServerIdentity {
            host: HOST,
            mode: Some(&keeper),
        };
        let points = section(entries, &replicas, caller, now).results;
        points
            .into_iter()
            .map(|point| (point.severity, point.message))
            .collect()
    }

    #[test]
    fn a_replica_is_judged_as_an_api_server_would() {
        let now = wall_clock();
        let [ours, other] = [(); 2].map(|()| ca(now));
        let entries = [entry("pods", ours.pem()), entry("workloads", ours.pem())];
        let call = ApiCall {
            verb: "create",
            resource: "pods/portforward",
            namespace: Some("infra".to_owned()),
        };
        let table = [
            (
                served_chain(&ours, HOST, now, 7 * DAY),
                Severity::Ok,
                "`w-1` shows a certificate that they trust, valid for 6 days and replaced in time",
            ),
            (
                served_chain(&ours, HOST, now - 155 * HOUR, 168 * HOUR),
                Severity::Warning,
                "`w-1` has not replaced its certificate, which is valid for 12 hours only",
            ),
            (
                served_chain(&other, HOST, now, 7 * DAY),
                Severity::Error,
                "API servers do not trust `w-1`, which they call envoy-drainer.infra.svc: its certificate is of an authority that is not in the caBundle",
            ),
            (
                served_chain(&ours, "envoy-drainer.other.svc", now, 7 * DAY),
                Severity::Error,
                "API servers do not trust `w-1`, which they call envoy-drainer.infra.svc: its certificate is for another name",
            ),
            (
                served_chain(&ours, HOST, now - 10 * DAY, 7 * DAY),
                Severity::Error,
                "API servers do not trust `w-1`, which they call envoy-drainer.infra.svc: its certificate expired 3 days ago",
            ),
            (
                Ok(Shown::Nothing("connection refused".to_owned())),
                Severity::Error,
                "`w-1` does not answer: connection refused",
            ),
            (
                Err(ReadError::Forbidden(call)),
                Severity::Unknown,
                "whether API servers trust what the replicas show is not known: you may not create pods/portforward in the namespace `infra`",
            ),
        ];
        for (shown, mark, message) in table {
            let told = results(&entries, shown, now);
            assert_eq!(told[1], (mark, message.to_owned()));
        }
    }

    #[test]
    fn a_ca_that_may_not_sign_is_named_with_its_reason() {
        let now = wall_clock();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::ExplicitNoCa;
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, key);
        let params = CertificateParams::new([HOST.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap();
        let shown = Ok(Shown::Chain(vec![leaf.der().clone()]));
        let told = results(&[entry("pods", &root)], shown, now);
        let (mark, message) = &told[1];
        assert_eq!(*mark, Severity::Error, "{message}");
        assert!(
            message.ends_with("its basicConstraints do not say CA:TRUE"),
            "{message}"
        );
    }

    #[test]
    fn a_certificate_is_not_due_where_nobody_knows_who_keeps_it() {
        let now = wall_clock();
        let ours = ca(now);
        let pod = Subject::namespaced("Pod", "infra", "w-1");
        let shown = served_chain(&ours, HOST, now - 155 * HOUR, 168 * HOUR);
        let replicas = Ok(vec![ServingReplica { pod, chain: shown }]);
        let caller = ServerIdentity {
            host: HOST,
            mode: None,
        };
        let told = section(&[entry("pods", ours.pem())], &replicas, caller, now).results;
        assert_eq!(
            told[1].message,
            "`w-1` shows a certificate that they trust, valid for 12 hours"
        );
    }

    #[test]
    fn entries_must_trust_somebody_and_all_the_same() {
        let now = wall_clock();
        let [ours, other] = [(); 2].map(|()| ca(now));
        let table = [
            (ours.pem(), ours.pem(), Severity::Ok),
            (ours.pem(), "", Severity::Error),
            (ours.pem(), "no PEM", Severity::Error),
            (ours.pem(), other.pem(), Severity::Warning),
        ];
        for (one, two, mark) in table {
            let entries = [entry("pods", one), entry("workloads", two)];
            let told = results(&entries, served_chain(&ours, HOST, now, 7 * DAY), now);
            assert_eq!(told[0].0, mark, "{told:?}");
            // One caller that does not trust it is one too many.
            let is_trusted = told[1].0 == Severity::Ok;
            assert_eq!(is_trusted, mark == Severity::Ok, "{told:?}");
        }
        let entries = [entry("pods", ours.pem())];
        let late = now + 366 * DAY;
        let told = results(&entries, served_chain(&ours, HOST, now, DAY), late);
        assert_eq!((told[0].0, told[1].0), (Severity::Error, Severity::Error));
    }

    #[test]
    fn a_strangers_authority_does_not_hide_that_ours_ends() {
        let now = wall_clock();
        let ours = ca(now);
        // It is valid for millennia.
        let stranger = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let both = [entry(
            "pods",
            &format!("{}{}", stranger.cert.pem(), ours.pem()),
        )];
        let chain = || served_chain(&ours, HOST, now, 365 * DAY);
        for (later, mark) in [
            (Duration::ZERO, Severity::Ok),
            (364 * DAY, Severity::Warning),
            (366 * DAY, Severity::Error),
        ] {
            let told = results(&both, chain(), now + later);
            assert_eq!(told[0].0, mark, "{told:?}");
        }
        let none_of_ours = [entry("pods", &stranger.cert.pem())];
        let told = results(&none_of_ours, chain(), now);
        assert_eq!(
            told[0],
            (
                Severity::Warning,
                "the caBundle has no authority of the webhook's".to_owned()
            )
        );
    }

    #[test]
    fn a_certificate_that_signed_itself_is_trusted_as_the_webhook_trusts_it() {
        let now = wall_clock();
        // As `openssl req -x509` makes it.
        let mut params = CertificateParams::new([HOST.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = now.into();
        params.not_after = (now + 365 * DAY).into();
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let chain = Ok(Shown::Chain(vec![made.der().clone()]));
        let told = results(&[entry("pods", &made.pem())], chain, now);
        assert_eq!(told[1].0, Severity::Ok, "{told:?}");
    }

    #[test]
    fn a_chain_that_is_none_is_not_trusted() {
        let now = wall_clock();
        let entries = [entry("pods", ca(now).pem())];
        for chain in [Vec::new(), vec![CertificateDer::from(vec![0x30, 0])]] {
            let told = results(&entries, Ok(Shown::Chain(chain)), now);
            assert_eq!(told[1].0, Severity::Error, "{told:?}");
        }
    }
}
