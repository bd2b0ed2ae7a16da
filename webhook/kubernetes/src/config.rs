//! Where a cluster is, and the credentials for it: from a kubeconfig or the service account.

use std::error::Error as _;
use std::path::PathBuf;
use std::{env, fs};

use anyhow::{anyhow, bail};
use k8s_openapi::jiff::Timestamp;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use pki::clock::wall_clock;

/// Kubernetes sets it in each container.
/// <https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/>
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// The time, as the API's objects state it.
pub fn now() -> Timestamp {
    Timestamp::try_from(wall_clock()).unwrap_or_default()
}

/// Loads the URL of the cluster and the credentials: from this kubeconfig and context, where they are given, instead of
/// `KUBECONFIG`, `~/.kube/config`, or the cluster that this process runs in.
///
/// # Errors
/// When there are none. kube's errors print their sources themselves.
pub async fn load_config(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> anyhow::Result<Config> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let invalid = |error: KubeconfigError| anyhow!("cannot use the kubeconfig: {error}");
    let paths = kubeconfig.map_or_else(existing_paths, |path| vec![path]);
    if !paths.is_empty() {
        let mut read = paths.into_iter().map(Kubeconfig::read_from);
        let merge = |all: Kubeconfig, next: Result<Kubeconfig, _>| all.merge(next?);
        let kubeconfig = read.try_fold(Kubeconfig::default(), merge);
        let kubeconfig = kubeconfig.map_err(invalid)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        return config.map_err(invalid);
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&options).await.map_err(invalid);
    }
    let config = Config::infer().await;
    config.map_err(|error| match error.source() {
        // Outside of a cluster the error of the service account says nothing.
        Some(kubeconfig) if env::var_os(SERVICE_HOST).is_none() => {
            anyhow!("{kubeconfig}; name a kubeconfig with --kubeconfig or KUBECONFIG")
        }
        _ => anyhow!("found neither a service account nor a kubeconfig: {error}"),
    })
}

/// The files in `KUBECONFIG` that exist, if some do not: kubectl skips these, and kube does not.
fn existing_paths() -> Vec<PathBuf> {
    let all = env::var_os("KUBECONFIG").unwrap_or_default();
    let (existing, missing): (Vec<_>, Vec<_>) = env::split_paths(&all).partition(|it| it.exists());
    if missing.is_empty() {
        Vec::new()
    } else {
        existing
    }
}

/// Trims the token, as kubectl does: kube sends that of a file with the end of its line, and panics on one in the
/// kubeconfig.
fn trim_token(user: &mut AuthInfo) -> anyhow::Result<()> {
    let inline = &serde_json::to_value(&*user)?["token"];
    let inline = inline.as_str().map(ToOwned::to_owned);
    let of_file = || fs::read_to_string(user.token_file.as_ref()?).ok();
    let token = inline.or_else(of_file).unwrap_or_default();
    let trimmed = token.trim();
    if trimmed.contains(char::is_control) {
        bail!("the token of the kubeconfig's user has several lines, or a control character");
    }
    if trimmed.len() < token.len() {
        user.token = Some(trimmed.to_owned().into());
    }
    Ok(())
}

/// Creates a client. It does not connect yet.
///
/// # Errors
/// When the configuration is unusable, such as an invalid certificate.
pub fn connect(mut config: Config) -> anyhow::Result<Client> {
    trim_token(&mut config.auth_info)?;
    let plugin = config.auth_info.exec.clone().unwrap_or_default();
    Client::try_from(config).map_err(|error| {
        let mut message = format!("cannot create a client of the cluster: {error}");
        // The name of rustls' error.
        if message.contains("UnsupportedCertVersion") {
            message += "; X.509 version 1 is not supported: use a client certificate of version 3, or a token";
        } else if let Some(command) = plugin.command {
            let hint = plugin.install_hint.unwrap_or_default();
            message += &format!("; the credential plugin is `{command}`. {hint}");
        }
        anyhow!(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate of X.509 version 1, and its key.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGzCBwwIUNVpJKF9+k0cB3RVLlV8ZE6oAl1owCgYIKoZIzj0EAwIwEDEOMAwG
A1UEAwwFYWRtaW4wIBcNMjYxMTI5MDkxMTEwWhgPMjEyNjExMDUwOTExMTBaMBAx
DjAMBgNVBAMMBWFkbWluMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbkp2rVpI
xs9roojBNvTyc6xPljMn9RtaQinIx6EBnx+PSQ9FykY/NfntvRQTWkacjvDSn01m
KNAI1MJ6ThARUTAKBggqhkjOPQQDAgNHADBEAiAxbOU0DpiqDPTGLCtRi4FfklKw
qQjWwRNMKovIN5s+OQIgSCJLwToHTARt2BiQk1CZJhXst8bZ3CZj4Jcyo6Ypmis=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8JevxCuCqvtA6SSh
1myp0ArLfh8FicOk7nklp5l473OhRANCAARuSnatWkjGz2uiiME29PJzrE+WMyf1
G1pCKcjHoQGfH49JD0XKRj81+e29FBNaRpyO8NKfTWYo0AjUwnpOEBFR
-----END PRIVATE KEY-----
";

    /// A client with the credentials of this user.
    fn client(user: serde_json::Value) -> anyhow::Result<Client> {
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info = serde_json::from_value(user).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(async { connect(config) })
    }

    #[test]
    fn unusable_credentials_name_the_way_round() {
        let pem = k8s_openapi::ByteString(VERSION_1.into());
        let hint = "install it";
        for (user, want) in [
            (
                serde_json::json!({"client-certificate-data": pem, "client-key-data": pem}),
                "X.509 version 1 is not supported: use a client certificate of version 3, or a token",
            ),
            (
                serde_json::json!({"exec": {"command": "no-such-login", "installHint": hint}}),
                "; the credential plugin is `no-such-login`. install it",
            ),
            (serde_json::json!({"token": "a\nb"}), "has several lines"),
        ] {
            let error = client(user).err().unwrap().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn white_space_around_a_token_is_no_part_of_it() {
        for token in ["abc\n", " abc"] {
            assert!(client(serde_json::json!({ "token": token })).is_ok());
        }
    }
}
