//! A program that drains an Envoy, and its preStop hooks, as the kubelet runs them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use drainer::AdminAddress;
use http_body_util::Full;
use hyper::Request;
use tempfile::TempDir;
use tests::envoy::{Envoy, envoy_with_upstream};
use tests::http::{Client, exchange};
use tests::listener::http;
use tests::peers_report::Program;
use tests::port::Port;
use tests::process::Process;
use tests::timing::{SECOND, TIMEOUT};
use tests::until::wait_until;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Number of runs of each measure; the figures are their medians.
pub(crate) const RUNS: u32 = 5;

/// A program that drains an Envoy from a container beside it.
pub(crate) struct Manager {
    pub(crate) program: Program,
    pub(crate) version: String,
    pub(crate) path: PathBuf,
    /// How often it reads Envoy's statistics in a drain, by default.
    pub(crate) poll_interval: Duration,
    /// `terminationGracePeriodSeconds` of the pods that it comes in.
    pub(crate) grace_period: Duration,
    /// The paths that the kubelet calls every ten seconds, for the probes of its container.
    pub(crate) probes: &'static [&'static str],
    /// The port of 127.0.0.1 where it expects Envoy's admin interface; `None` if it takes a Unix socket.
    pub(crate) admin_port: Option<u16>,
    /// The port that it serves; `None` if a flag sets it.
    pub(crate) port: Option<u16>,
    pub(crate) commands: fn(&Addresses<'_>, Minimum) -> Result<Commands>,
}

/// Where one process of a manager finds Envoy and is found.
pub(crate) struct Addresses<'a> {
    pub(crate) admin: &'a AdminAddress,
    pub(crate) port: u16,
    /// For its files.
    pub(crate) dir: &'a Path,
}

/// The arguments of a manager's container and the paths of its hooks.
pub(crate) struct Commands {
    pub(crate) serve: Vec<String>,
    /// Of the preStop hook in its own container.
    pub(crate) own_hook: Vec<String>,
    /// Of the preStop hook of Envoy's container, an HTTP GET.
    pub(crate) envoy_hook: String,
    /// The file by which the own hook releases Envoy's, if it outlives the process.
    pub(crate) ready_file: Option<&'static str>,
}

/// Whether a drain lasts a while even without connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Minimum {
    Default,
    None,
}

/// A manager's container, which is killed when this is dropped.
pub(crate) struct Container<'a> {
    manager: &'a Manager,
    pub(crate) process: Process,
    own_hook: Vec<String>,
    envoy_hook: String,
    ready_file: Option<&'static str>,
    port: Port,
    dir: TempDir,
}

/// Both hooks of a pod's termination.
pub(crate) struct Hooks {
    called_at: Instant,
    /// The process of the hook in the manager's container.
    pub(crate) own: Process,
    envoy: JoinSet<Instant>,
    grace_period: Duration,
}

/// How long a run waits for the fixed ports of another one, which lasts a minute and of which there are five.
const PORT_TIMEOUT: Duration = Duration::from_secs(600);

/// Waits until no other run has this port.
async fn claim(number: u16) -> Result<Port> {
    let claim = async {
        loop {
            let port = Port::prefer(number)?;
            if port.number() == number {
                return Ok(port);
            }
            sleep(SECOND).await;
        }
    };
    let claimed = timeout(PORT_TIMEOUT, claim).await;
    claimed.with_context(|| format!("port {number} stays in use"))?
}

/// Removes a file, if it is there.
fn remove(file: Option<&str>) -> Result<()> {
    if let Some(file) = file
        && let Err(error) = fs::remove_file(file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error).context(file.to_owned());
    }
    Ok(())
}

// === impl Manager ===

impl Manager {
    /// Starts an Envoy with an HTTP listener `web`, and its admin interface where this manager expects it.
    pub(crate) async fn start_envoy(&self) -> Result<Envoy> {
        let envoy = envoy_with_upstream().await?.listener(http("web")?);
        let envoy = match self.admin_port {
            Some(number) => envoy.admin_port(claim(number).await?),
            None => envoy.admin_unix(),
        };
        envoy.start().await
    }

    /// Starts its container beside this Envoy, and waits until it serves.
    pub(crate) async fn start(&self, envoy: &Envoy, minimum: Minimum) -> Result<Container<'_>> {
        let dir = TempDir::with_prefix("manager-")?;
        let port = match self.port {
            Some(number) => claim(number).await?,
            None => Port::free()?,
        };
        let addresses = Addresses {
            admin: envoy.admin_address(),
            port: port.number(),
            dir: dir.path(),
        };
        let commands = (self.commands)(&addresses, minimum)?;
        remove(commands.ready_file)?;
        let container = Container {
            manager: self,
            process: self.run(&commands.serve, dir.path())?,
            own_hook: commands.own_hook,
            envoy_hook: commands.envoy_hook,
            ready_file: commands.ready_file,
            port,
            dir,
        };
        let serves = || async { Ok(TcpStream::connect(container.address()).await.is_ok()) };
        wait_until(&format!("{} serves", self.program.name()), TIMEOUT, serves)
            .await
            .with_context(|| container.process.log())?;
        Ok(container)
    }

    fn run(&self, args: &[String], dir: &Path) -> Result<Process> {
        let mut command = Command::new(&self.path);
        command.args(args).env_clear();
        Process::start(self.program.name(), command, &dir.join("log"))
    }
}

// === impl Container ===

impl Container<'_> {
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// Calls the probes once, each on a connection of its own, as the kubelet does.
    pub(crate) async fn probe(&self) -> Result<()> {
        let client = Client::from(self.address());
        for path in self.manager.probes {
            client.get(path).await?;
        }
        Ok(())
    }

    /// Calls both hooks, as the kubelet does when the pod is deleted.
    pub(crate) fn call_hooks(&self) -> Result<Hooks> {
        let address = AdminAddress::Tcp(self.address());
        let request = Request::get(&self.envoy_hook)
            .header("host", address.to_string())
            .body(Full::default())?;
        let called_at = Instant::now();
        let own = self.manager.run(&self.own_hook, self.dir.path())?;
        let name = self.manager.program.name();
        let mut envoy = JoinSet::new();
        envoy.spawn(async move {
            // The kubelet ends the container after a hook that fails, too.
            if let Err(error) = exchange(&address, request).await {
                eprintln!("{name}: Envoy's hook failed: {error:#}");
            }
            Instant::now()
        });
        Ok(Hooks {
            called_at,
            own,
            envoy,
            grace_period: self.manager.grace_period,
        })
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Err(error) = remove(self.ready_file) {
            eprintln!("{error:#}");
        }
    }
}

// === impl Hooks ===

impl Hooks {
    /// When the hooks were called.
    pub(crate) fn called_at(&self) -> Instant {
        self.called_at
    }

    /// Waits until Envoy's hook has returned, after which the kubelet ends Envoy. Returns when that was; `None` if it
    /// had not at the end of the pod's grace period.
    ///
    /// # Errors
    /// When the hook in the manager's container has failed.
    pub(crate) async fn wait_for_return(mut self) -> Result<Option<Instant>> {
        let end = self.called_at + self.grace_period;
        let Ok(returned) = timeout_at(end, self.envoy.join_next()).await else {
            return Ok(None);
        };
        let status = self.own.wait_within(TIMEOUT).await?;
        ensure!(status.success(), "{}: {status}", self.own.log());
        Ok(Some(returned.context("the hook has a task")??))
    }
}
