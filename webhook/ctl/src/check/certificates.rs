//! The caBundles of the MutatingWebhookConfiguration: present, equal, not expired, and with the next CA in time.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use pki::bundle::Bundle;
use pki::lifetimes::Lifetimes;
use pki::x509::CertificateInfo;

use super::report::{CheckResult, Section};
use crate::text::plural;

/// Issuers such as cert-manager renew a certificate while more than this is left, or an eighth of its
/// lifetime.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * DAY);

const NAME: &str = "ca-bundle";

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Where the webhook's certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateMode {
    /// The webhook issues it.
    SelfManaged(Lifetimes),
    /// The Secret of this name, which others write.
    Secret(String),
}

/// Checks the caBundles of all entries. `mode` is `None` where it is unknown, or not the same for all
/// replicas.
pub fn section(
    entries: &[MutatingWebhook],
    mode: Option<&CertificateMode>,
    now: SystemTime,
) -> Section {
    Section::new("certificates", vec![ca_bundle(entries, mode, now)])
}

fn ca_bundle(
    entries: &[MutatingWebhook],
    mode: Option<&CertificateMode>,
    now: SystemTime,
) -> CheckResult {
    let error = |message: String| CheckResult::error(NAME, message).with_remedy(remedy(mode));
    let warning = |message: String| CheckResult::warning(NAME, message).with_remedy(remedy(mode));
    let bundles = entries.iter().map(|entry| (&entry.name, bundle(entry)));
    let bundles: Vec<_> = bundles.collect();
    if let Some((entry, _)) = bundles.iter().find(|(_, bundle)| bundle.is_empty()) {
        return error(format!(
            "`{entry}` has no caBundle, so API servers trust no replica"
        ));
    }
    let mut pairs = bundles.windows(2);
    if let Some([(one, _), (other, _)]) = pairs.find(|pair| pair[0].1 != pair[1].1) {
        return warning(format!("`{one}` and `{other}` have different caBundles"));
    }
    let first = bundles.into_iter().next();
    let bundle = first.map_or_else(Bundle::default, |(_, bundle)| bundle);
    let cas = match mode {
        // After a change of mode, a foreign CA stays for a while, and may expire later than ours.
        Some(CertificateMode::SelfManaged(_)) => bundle.issued_by_us(),
        Some(CertificateMode::Secret(_)) | None => bundle,
    };
    let cas = cas.iter().filter_map(|ca| CertificateInfo::read(ca).ok());
    let Some(newest) = cas.max_by_key(|ca| ca.not_after) else {
        return warning("the caBundle contains no CA of the webhook".to_owned());
    };
    let Some(left) = remaining(now, newest.not_after) else {
        return error("the webhook's CA has expired".to_owned());
    };
    if newest.not_after < now + replacement_margin(mode, &newest) {
        let next = "the caBundle contains no CA to follow it";
        return warning(format!("the webhook's CA expires in {left}, and {next}"));
    }
    CheckResult::ok(
        NAME,
        format!("API servers trust the webhook's CA for another {left}"),
    )
}

fn bundle(entry: &MutatingWebhook) -> Bundle {
    let pem = entry.client_config.ca_bundle.as_ref();
    pem.map_or_else(Bundle::default, |ByteString(pem)| Bundle::read(pem))
}

/// If less than this is left of a CA, the caBundle should contain the next one: the webhook rotates its own when a
/// third is left.
fn replacement_margin(mode: Option<&CertificateMode>, ca: &CertificateInfo) -> Duration {
    match mode {
        Some(CertificateMode::SelfManaged(lifetimes)) => lifetimes.ca() / 6,
        Some(CertificateMode::Secret(_)) => {
            let lifetime = ca.not_after.duration_since(ca.not_before);
            EXPIRY_WARNING.min(lifetime.unwrap_or_default() / 8)
        }
        None => Duration::ZERO,
    }
}

fn remedy(mode: Option<&CertificateMode>) -> String {
    match mode {
        Some(CertificateMode::Secret(secret)) => format!(
            "the webhook should copy the caBundle from `ca.crt` in the Secret `{secret}`: look for errors in its log"
        ),
        Some(CertificateMode::SelfManaged(_)) | None => {
            "the webhook should write the caBundle: look for errors in its log".to_owned()
        }
    }
}

/// The time from `now` to `end`, rounded down: `6 days`. `None` if `end` has passed.
fn remaining(now: SystemTime, end: SystemTime) -> Option<String> {
    let remaining = end.duration_since(now).ok()?;
    (!remaining.is_zero()).then(|| format_duration(remaining))
}

/// Formats a duration in the largest unit of which it has at least two, rounded down.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")];
    let largest = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = largest.unwrap_or((1, "second"));
    plural(seconds / unit, name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;

    use super::*;
    use crate::check::Severity;
    use pki::ca::Ca;
    use pki::clock::wall_clock;

    fn days(count: u64) -> Duration {
        Duration::from_secs(count * DAY)
    }

    fn ca(now: SystemTime) -> Ca {
        Ca::try_new(now, days(365)).unwrap()
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

    fn self_managed(entries: &[MutatingWebhook], now: SystemTime) -> (Severity, String) {
        let mode = CertificateMode::SelfManaged(Lifetimes::default());
        let result = ca_bundle(entries, Some(&mode), now);
        (result.severity, result.message)
    }

    #[test]
    fn ca_bundles_must_be_present_equal_and_valid() {
        let now = wall_clock();
        let [ours, other] = [(); 2].map(|()| ca(now).pem());
        let table = [
            (ours.as_str(), Severity::Ok),
            ("", Severity::Error),
            ("no PEM", Severity::Error),
            (other.as_str(), Severity::Warning),
        ];
        for (second, want) in table {
            let entries = [entry("pods", &ours), entry("workloads", second)];
            let result = self_managed(&entries, now);
            assert_eq!(result.0, want, "{result:?}");
        }
        let entries = [entry("pods", &ours)];
        let result = self_managed(&entries, now + days(366));
        assert_eq!(result.0, Severity::Error, "{result:?}");
    }

    #[test]
    fn foreign_ca_does_not_hide_expiry_of_ours() {
        let now = wall_clock();
        let ours = ca(now);
        // It is valid for millennia.
        let foreign = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        let both = [entry(
            "pods",
            &format!("{}{}", foreign.cert.pem(), ours.pem()),
        )];
        for (later, want) in [
            (Duration::ZERO, Severity::Ok),
            (days(364), Severity::Warning),
            (days(366), Severity::Error),
        ] {
            let result = self_managed(&both, now + later);
            assert_eq!(result.0, want, "{result:?}");
        }
        let none_of_ours = [entry("pods", &foreign.cert.pem())];
        assert_eq!(
            self_managed(&none_of_ours, now),
            (
                Severity::Warning,
                "the caBundle contains no CA of the webhook".to_owned()
            )
        );
    }

    #[test]
    fn next_ca_is_overdue_only_where_the_mode_is_known() {
        let now = wall_clock();
        let entries = [entry("pods", &ca(now).pem())];
        let secret = CertificateMode::Secret("tls".to_owned());
        for (mode, want) in [(Some(&secret), Severity::Warning), (None, Severity::Ok)] {
            let result = ca_bundle(&entries, mode, now + days(360));
            assert_eq!(result.severity, want, "{result:?}");
        }
    }

    #[test]
    fn durations_are_formatted_in_largest_unit() {
        for (seconds, want) in [
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (7_199, "119 minutes"),
            (47 * HOUR + 59 * MINUTE, "47 hours"),
            (2 * DAY, "2 days"),
            (3_650 * DAY, "3650 days"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), want);
        }
    }

    #[test]
    fn remaining_is_none_after_the_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(DAY);
        assert_eq!(remaining(now, now), None);
        assert_eq!(remaining(now, SystemTime::UNIX_EPOCH), None);
        assert_eq!(
            remaining(SystemTime::UNIX_EPOCH, now).as_deref(),
            Some("24 hours")
        );
    }
}
