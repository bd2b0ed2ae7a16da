//! A builder of Envoy's bootstrap configuration.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drainer::AdminAddress;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::envoy_versions::EnvoyBinary;
use crate::json::push;
use crate::listener::{Listener, seconds, socket_address};
use crate::port::Port;
use crate::upstream::Upstream;

/// The configuration of one Envoy, by default with an admin interface on a TCP port of 127.0.0.1 and without listeners.
/// Its ports, sockets and directory are not shared.
#[derive(Debug)]
pub struct Bootstrap {
    pub(crate) binary: Option<EnvoyBinary>,
    pub(crate) dir: TempDir,
    pub(crate) unresponsive_xds: bool,
    admin: AdminAddress,
    admin_port: Option<Port>,
    listeners: Vec<Listener>,
    upstream: Option<Upstream>,
    pub(crate) has_lds: bool,
    has_hot_restart: bool,
    flags: Vec<String>,
    /// The paths of further fields, which replace others.
    fields: Vec<(&'static [&'static str], Value)>,
}

/// A bootstrap with the defaults.
///
/// # Errors
/// When there is no free port, or the directory cannot be created.
pub fn envoy() -> io::Result<Bootstrap> {
    let port = Port::free()?;
    Ok(Bootstrap {
        binary: None,
        dir: TempDir::with_prefix("envoy-")?,
        unresponsive_xds: false,
        admin: AdminAddress::Tcp((Ipv4Addr::LOCALHOST, port.number()).into()),
        admin_port: Some(port),
        listeners: Vec::new(),
        upstream: None,
        has_lds: false,
        has_hot_restart: false,
        flags: Vec::new(),
        fields: Vec::new(),
    })
}

// === impl Bootstrap ===

impl Bootstrap {
    /// Runs this Envoy instead of the newest.
    pub fn binary(mut self, binary: &EnvoyBinary) -> Self {
        self.binary = Some(binary.clone());
        self
    }

    /// Adds a listener.
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Proxies requests and TCP connections to this upstream; without one, Envoy responds itself.
    pub fn upstream(mut self, upstream: &Upstream) -> Self {
        self.upstream = Some(upstream.clone());
        self
    }

    /// Listens for the admin interface on this port of 127.0.0.1.
    pub fn admin_port(self, port: Port) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port.number()).into();
        self.admin(AdminAddress::Tcp(address), Some(port))
    }

    /// Listens for the admin interface on `[::1]`.
    pub fn admin_ipv6(mut self) -> Self {
        if let AdminAddress::Tcp(address) = &mut self.admin {
            address.set_ip(Ipv6Addr::LOCALHOST.into());
        }
        self
    }

    /// As [`Bootstrap::admin_ipv6`], but on `[::]`, for IPv6 alone.
    pub fn admin_on_any_ipv6(self) -> Self {
        let path = &["admin", "address", "socket_address", "address"];
        self.admin_ipv6().field(path, json!("::"))
    }

    /// Listens for the admin interface on a Unix socket in its directory.
    pub fn admin_unix(self) -> Self {
        let path = self.dir.path().join("admin.sock");
        self.admin(AdminAddress::Path(path.display().to_string()), None)
    }

    /// As [`Bootstrap::admin_unix`], in a directory that everyone may read, with these rights of the socket.
    ///
    /// # Errors
    /// When the rights of the directory cannot be set.
    pub fn admin_unix_with_mode(self, mode: u32) -> io::Result<Self> {
        fs::set_permissions(self.dir.path(), Permissions::from_mode(0o755))?;
        let path = &["admin", "address", "pipe", "mode"];
        Ok(self.admin_unix().field(path, json!(mode)))
    }

    /// Listens for the admin interface on a Unix socket of the abstract namespace.
    pub fn admin_abstract(self) -> Self {
        let name = self.dir.path().display().to_string();
        self.admin(AdminAddress::Abstract(name), None)
    }

    /// Includes only the statistics with these prefixes; none for an empty list.
    pub fn include_stats(self, prefixes: &[&str]) -> Self {
        let matcher = match prefixes {
            [] => json!({ "reject_all": true }),
            prefixes => json!({ "inclusion_list": { "patterns": prefix_matchers(prefixes) } }),
        };
        self.field(&["stats_config", "stats_matcher"], matcher)
    }

    /// Excludes the statistics with these prefixes.
    pub fn exclude_stats(self, prefixes: &[&str]) -> Self {
        let matcher = json!({ "exclusion_list": { "patterns": prefix_matchers(prefixes) } });
        self.field(&["stats_config", "stats_matcher"], matcher)
    }

    /// Allows only these paths of the admin interface, as matchers of strings. From Envoy 1.37 on.
    pub fn allow_paths(self, matchers: Value) -> Self {
        self.field(&["admin", "allow_paths"], matchers)
    }

    /// Sets the interval at which `server.*` statistics are updated, which is 5 s by default.
    pub fn stats_flush_interval(self, interval: Duration) -> Self {
        self.field(&["stats_flush_interval"], json!(seconds(interval)))
    }

    /// Accepts no connection, as an Envoy whose memory is used up.
    pub fn stop_accepting_connections(self) -> Self {
        let manager = serde_json::from_str(include_str!("bootstrap/overload_manager.json"));
        self.field(&["overload_manager"], manager.expect("the file is JSON"))
    }

    /// Configures an xDS server that never responds, so that Envoy never becomes ready.
    pub fn unresponsive_xds(mut self) -> Self {
        self.unresponsive_xds = true;
        self
    }

    /// Reads more listeners from a file, at first none: see [`crate::envoy::Envoy::set_lds_listeners`].
    pub fn lds(mut self) -> Self {
        self.has_lds = true;
        self
    }

    /// Allows a hot restart: see [`crate::envoy::Envoy::hot_restart`]. The old process stays as long as any test.
    pub fn hot_restart(mut self) -> Self {
        self.has_hot_restart = true;
        self.flag("--drain-time-s 1 --parent-shutdown-time-s 600")
    }

    /// Routes requests to the server at this Unix socket; the upstream is only what makes Envoy a proxy.
    pub fn route_to_socket(self, path: &str) -> Self {
        let endpoint = json!({ "endpoint": { "address": { "pipe": { "path": path } } } });
        let endpoints = json!([{ "lb_endpoints": [endpoint] }]);
        let assignment = json!({ "cluster_name": "upstream", "endpoints": endpoints });
        let cluster = json!({ "name": "upstream", "load_assignment": assignment });
        self.field(&["static_resources", "clusters"], json!([cluster]))
    }

    /// Adds a command-line flag, such as `--drain-strategy immediate`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags
            .extend(flag.split_whitespace().map(str::to_owned));
        self
    }

    /// The address of the admin interface.
    pub fn admin_address(&self) -> &AdminAddress {
        &self.admin
    }

    /// The address of the listener of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn address(&self, listener: &str) -> SocketAddr {
        let mut listeners = self.listeners.iter();
        let Some(found) = listeners.find(|other| other.name() == listener) else {
            panic!("this Envoy has no listener `{listener}`");
        };
        found.address()
    }

    /// The configuration as JSON.
    pub fn json(&self) -> Value {
        let listeners: Vec<_> = self
            .listeners
            .iter()
            .map(|listener| listener.json(self.upstream.is_some()))
            .collect();
        let mut clusters = Vec::new();
        if let Some(upstream) = &self.upstream {
            clusters.push(cluster("upstream", upstream.http()));
            clusters.push(cluster("upstream_tcp", upstream.tcp()));
        }
        let mut bootstrap = json!({
            "node": { "id": "test", "cluster": "test" },
            "admin": { "address": address(&self.admin), "access_log": [admin_log(&self.admin_log_file())] },
            "static_resources": { "listeners": listeners, "clusters": clusters },
        });
        for (path, value) in &self.fields {
            let field = path
                .iter()
                .fold(&mut bootstrap, |json, name| &mut json[name]);
            *field = value.clone();
        }
        if self.has_lds {
            let source = json!({ "path_config_source": { "path": self.lds_file() } });
            bootstrap["dynamic_resources"] = json!({ "lds_config": source });
        }
        if self.unresponsive_xds {
            // Nothing listens on its port, and Envoy retries without end.
            let xds: Value =
                serde_json::from_str(include_str!("bootstrap/xds.json")).expect("the file is JSON");
            bootstrap["dynamic_resources"] = xds["dynamic_resources"].clone();
            push(
                &mut bootstrap["static_resources"]["clusters"],
                xds["cluster"].clone(),
            );
        }
        bootstrap
    }

    /// The command-line arguments for the configuration file `config`.
    pub fn args(&self, config: &str) -> Vec<String> {
        self.args_after_restarts(config, 0)
    }

    /// The same after so many hot restarts. Unless they are allowed, they are disabled, since the Envoys of one machine
    /// would share memory.
    pub(crate) fn args_after_restarts(&self, config: &str, epoch: u32) -> Vec<String> {
        let fixed = ["-c", config, "--concurrency", "2"].map(str::to_owned);
        let hot_restart = match &self.admin_port {
            Some(port) if self.has_hot_restart => vec![
                "--base-id".to_owned(),
                port.number().to_string(),
                "--restart-epoch".to_owned(),
                epoch.to_string(),
            ],
            _ => vec!["--disable-hot-restart".to_owned()],
        };
        let flags = self.flags.iter().cloned();
        fixed.into_iter().chain(hot_restart).chain(flags).collect()
    }

    /// The log of the paths that the admin interface was called with, a line each.
    pub(crate) fn admin_log_file(&self) -> PathBuf {
        self.dir.path().join("admin.log")
    }

    /// Writes the configuration, and the file of the listeners that LDS adds. Returns the path of the configuration.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self) -> io::Result<PathBuf> {
        fs::write(self.config_file(), self.json().to_string())?;
        if self.has_lds {
            self.write_lds_listeners(&[])?;
        }
        Ok(self.config_file())
    }

    /// Writes the listeners that LDS adds.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_lds_listeners(&self, listeners: &[Listener]) -> io::Result<()> {
        let resources = listeners.iter().map(|listener| {
            let mut json = listener.json(self.upstream.is_some());
            json["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
            json
        });
        let json = json!({ "resources": resources.collect::<Vec<_>>() });
        // Envoy notices a file that is moved there.
        let next = self.lds_file().with_extension("next");
        fs::write(&next, json.to_string())?;
        fs::rename(&next, self.lds_file())
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.dir.path().join("envoy.json")
    }

    fn lds_file(&self) -> PathBuf {
        self.dir.path().join("lds.json")
    }

    fn field(mut self, path: &'static [&'static str], value: Value) -> Self {
        self.fields.push((path, value));
        self
    }

    fn admin(mut self, address: AdminAddress, port: Option<Port>) -> Self {
        self.admin = address;
        self.admin_port = port;
        self
    }
}

fn prefix_matchers(prefixes: &[&str]) -> Vec<Value> {
    prefixes.iter().map(|it| json!({ "prefix": it })).collect()
}

/// An address of Envoy's configuration.
fn address(address: &AdminAddress) -> Value {
    match address {
        AdminAddress::Tcp(address) => socket_address(address.ip(), address.port()),
        AdminAddress::Path(path) => json!({ "pipe": { "path": path } }),
        AdminAddress::Abstract(name) => json!({ "pipe": { "path": format!("@{name}") } }),
    }
}

fn admin_log(file: &Path) -> Value {
    let format = json!({ "text_format_source": { "inline_string": "%REQ(:PATH)%\n" } });
    let config = json!({
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "path": file,
        "log_format": format,
    });
    json!({ "name": "file", "typed_config": config })
}

fn cluster(name: &str, endpoint: SocketAddr) -> Value {
    let endpoint = json!({ "address": socket_address(endpoint.ip(), endpoint.port()) });
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": endpoint }] }],
        },
    })
}
