//! Ranks of one model as processes, which meet over TCP, on the software driver.
#![allow(dead_code)]

use crate::device;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use warpsmith_driver_api::software;
use warpsmith_host::collectives::{Error, PeerOptions, Peers, SocketOptions, Sockets, World};
use warpsmith_host::decode::{DecodeError, KvType, Mode, Model, Session, Split};
use warpsmith_host::model::ModelFile;
use warpsmith_host::{Device, builtin_image};

pub const OPTIONS: SocketOptions = SocketOptions { capacity: 1 << 16, timeout: Duration::from_secs(60) };

/// What one of the processes is, and how it gets its part of a model.
pub struct Rank {
    pub world: World,
    pub device: Device,
    pub rank: usize,
}

impl Rank {
    /// Meets the others over peer memory.
    pub fn peers(&self, options: PeerOptions) -> Result<Peers, Error> {
        Peers::join(&self.world, &self.device, builtin_image(), options)
    }

    /// Meets the others, at the same place again and again.
    pub fn model(&self, file: &ModelFile, split: Split) -> Result<Model, DecodeError> {
        let member = Sockets::join(&self.world, &self.device, OPTIONS).unwrap();
        Model::load_rank(&self.device, file, member, split)
    }
}

/// Runs `f` of the test `name` in so many processes under all checks; nothing in them of what else the test does like this. All must pass.
pub fn in_processes(name: &str, ranks: usize, f: impl FnOnce(&Rank)) {
    let own = format!("{name} {ranks}");
    if let Some((task, world)) = task() {
        if task == own {
            let (device, rank) = (Device::open(0).unwrap(), world.rank as usize);
            f(&Rank { world, device, rank });
        }
        return;
    }
    let all: Vec<(usize, usize)> = (0..ranks).map(|rank| (rank, ranks)).collect();
    for child in start_with(name, &own, &all, &World::free_address().unwrap(), &[("WARPSMITH_CHECK", "1")]) {
        let Output { stdout, stderr, status } = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&stdout);
        let passed = status.success() && text.contains("1 passed");
        assert!(passed, "{own}: {text}\n{}", String::from_utf8_lossy(&stderr));
    }
}

const TASK: &str = "WARPSMITH_TEST_TASK";

/// Who a child process is among its siblings, and what it is to do; nothing in the process that runs the tests.
pub fn task() -> Option<(String, World)> {
    let task = std::env::var(TASK).ok()?;
    Some((task, World::from_environment().unwrap()))
}

/// The processes of a task, which run the test `name` of this binary, as `torchrun` would start them; `ranks` may be what only some of them
/// are told.
pub fn start(name: &str, task: &str, ranks: &[(usize, usize)], address: &str) -> Vec<Child> {
    start_with(name, task, ranks, address, &[])
}

fn start_with(
    name: &str,
    task: &str,
    ranks: &[(usize, usize)],
    address: &str,
    environment: &[(&str, &str)],
) -> Vec<Child> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let before = (port.parse::<u16>().unwrap() - 1).to_string();
    let one = |&(rank, ranks): &(usize, usize)| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .env("WARPSMITH_DRIVER", "software")
            .env("WARPSMITH_DEVICES", "1")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("MASTER_ADDR", host)
            .env("MASTER_PORT", &before)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    ranks.iter().map(one).collect()
}

/// What the processes have printed behind `said: `, in order.
pub fn said(children: Vec<Child>) -> Vec<Vec<String>> {
    let start = Instant::now();
    let lines = |child: Child| {
        let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&stdout).into_owned();
        let said: Vec<String> = text.lines().filter_map(|l| l.split_once("said: ").map(|l| l.1.to_owned())).collect();
        assert!(!said.is_empty(), "{text}\n{}", String::from_utf8_lossy(&stderr));
        said
    };
    let all = children.into_iter().map(lines).collect();
    assert!(start.elapsed() < Duration::from_secs(300), "{:?}", start.elapsed());
    all
}

/// Steps of a rank, in the fifth of which it goes if it `goes`, as the task says how. What is said of the others tells who noticed it, and when.
pub fn steps(model: &Model, task: &str, goes: bool) {
    let mut session = Session::new(model, device::options(Mode::Graph, KvType::F16)).unwrap();
    for p in 0..6 {
        if task.starts_with("death") && p == 4 && goes {
            println!("said: dies");
            std::process::exit(3);
        }
        let fails = task.starts_with("failure") && p == 4 && goes;
        let injected = fails.then(|| software::inject_failure(Some("cuGraphLaunch"), 0, 719));
        let start = Instant::now();
        if let Err(error) = session.feed(device::token(p, 98)) {
            drop(injected);
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
            println!("said: {p} {} {error}", session.len());
            let again = session.feed(1).unwrap_err();
            assert!(matches!(again, DecodeError::Collective(Error::Broken { .. })), "{again}");
            return;
        }
    }
    println!("said: nothing went wrong");
}
