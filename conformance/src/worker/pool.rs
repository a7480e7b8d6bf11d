//! The workers of a run.

use super::process::{Failed, Failure, Process};
use super::sanitizer::{self, Sanitizer};
use super::{Answer, Isolation, IsolationError, Request};
use crate::registry::{Registry, Trial};
use crate::replay::{INVOKED_AS, Needs, invoked_as};
use crate::setup::Selection;
use crate::verdict::{Outcome, Verdict};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often in a row a worker may fail to start.
const STARTS: usize = 3;
/// How long a worker may take to start: it reads the cases and finds its device.
const STARTUP: Duration = Duration::from_secs(60);

/// Runs trials, in this process or in workers: one for each device, or for backends
/// without devices as many as there are trials at once.
pub struct Pool {
    program: PathBuf,
    selection: Selection,
    isolation: Isolation,
    several_devices: bool,
    /// Whether any worker has started.
    has_started: AtomicBool,
    sanitizer: Option<Sanitizer>,
    /// The trials that workers are told to prepare for; none where calls are sent whole.
    names: Vec<String>,
    idle: Mutex<Vec<Slot>>,
    freed: Condvar,
}

/// A place for a worker.
struct Slot {
    device: Option<u32>,
    /// The worker, or why none can be started, where none ever was; that is not tried again.
    worker: Option<Result<Process, Failed>>,
}

/// A slot that is in use.
struct Lease<'a> {
    pool: &'a Pool,
    slot: Slot,
}

impl Pool {
    /// The workers for a registry. `program` is the `plumbline` executable, `selection`
    /// what the registry was made from. No worker is started before it is needed.
    pub fn new(
        program: impl Into<PathBuf>,
        registry: &Registry,
        selection: &Selection,
        isolation: Isolation,
    ) -> Result<Self, IsolationError> {
        isolation.check(selection)?;
        let devices: BTreeSet<u32> =
            registry.subjects.iter().flat_map(|subject| &subject.devices).copied().collect();
        let isolated = registry.trials.iter().filter(|trial| isolation.holds(&trial.subject));
        let names = isolated.map(|trial| trial.name.clone()).collect();
        if isolation.sanitize.is_some() && devices.is_empty() {
            return Err(IsolationError::NothingToSanitize);
        }
        let sanitizer = isolation.sanitize.map(Sanitizer::find).transpose()?;
        Ok(Self {
            sanitizer,
            names,
            program: program.into(),
            selection: selection.clone(),
            isolation,
            several_devices: devices.len() > 1,
            has_started: AtomicBool::new(false),
            idle: Mutex::new(devices.into_iter().map(|device| Slot::new(Some(device))).collect()),
            freed: Condvar::new(),
        })
    }

    /// Workers need not prepare for these trials.
    pub fn leave_out(&mut self, trials: &BTreeSet<String>) {
        self.names.retain(|name| !trials.contains(name));
    }

    /// Runs a trial where it belongs; its verdict.
    #[must_use]
    pub fn run(&self, trial: &Trial) -> Verdict {
        if !self.isolation.holds(&trial.subject) {
            return trial.run();
        }
        let mut lease = self.lease(&trial.subject.devices);
        let number = lease.slot.device.filter(|_| self.several_devices);
        let mut verdict = match &self.sanitizer {
            Some(sanitizer) if self.isolation.sanitizes(&trial.subject) => {
                lease.slot.run_under(sanitizer, self, trial)
            }
            _ => lease.slot.run(self, trial),
        };
        drop(lease);
        if let Some(number) = number {
            verdict.device += &format!(" (device {number})");
        }
        trial.settle(verdict)
    }

    /// A slot on one of the devices, with a worker if there is such a one; waits until one
    /// is free.
    fn lease(&self, devices: &[u32]) -> Lease<'_> {
        let suits = |slot: &Slot| match slot.device {
            None => devices.is_empty(),
            Some(device) => devices.contains(&device),
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let started = idle.iter().position(|slot| suits(slot) && slot.is_running());
            if let Some(found) = started.or_else(|| idle.iter().position(suits)) {
                return Lease { pool: self, slot: idle.swap_remove(found) };
            }
            if devices.is_empty() {
                return Lease { pool: self, slot: Slot::new(None) };
            }
            idle = self.freed.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&self, device: Option<u32>) -> Result<Process, Failed> {
        self.start_as(self.command(device), &self.names)
    }

    fn start_as(&self, mut command: Command, names: &[String]) -> Result<Process, Failed> {
        let mut attempt = 1;
        loop {
            let started = Process::start(&mut command, STARTUP).and_then(|mut process| {
                process.tell(&Request::Prepare(names.to_vec()))?;
                Ok(process)
            });
            match started {
                Err(_) if attempt < STARTS => attempt += 1,
                result => {
                    self.has_started.fetch_or(result.is_ok(), Ordering::Relaxed);
                    return result;
                }
            }
        }
    }

    fn command(&self, device: Option<u32>) -> Command {
        let mut command = Command::new(&self.program);
        for variable in Selection::variables() {
            command.env_remove(variable);
        }
        let device = device.filter(|_| self.several_devices);
        command.env(INVOKED_AS, invoked_as()).arg("worker").args(self.selection.arguments(device));
        if self.names.is_empty() {
            command.arg("--calls");
        }
        command
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut self.slot, Slot::new(None));
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.pool.freed.notify_all();
    }
}

impl Slot {
    const fn new(device: Option<u32>) -> Self {
        Self { device, worker: None }
    }

    const fn is_running(&self) -> bool {
        matches!(self.worker, Some(Ok(_)))
    }

    /// The verdict on a trial, before waivers, from a worker of its own under the sanitizer.
    fn run_under(&mut self, sanitizer: &Sanitizer, pool: &Pool, trial: &Trial) -> Verdict {
        let mut command = pool.command(self.device);
        command.arg(sanitizer::exact());
        let (command, report) = sanitizer.wrap(&command);
        let started = pool.start_as(command, std::slice::from_ref(&trial.name));
        let (verdict, end) = match started {
            Err(failed) => (not_started(trial, &failed), None),
            Ok(mut process) => {
                let (verdict, _) = self.ask(&mut process, pool, trial);
                (verdict, process.finish(pool.isolation.timeout))
            }
        };
        sanitizer.judge(verdict, end, &report)
    }

    /// The verdict on a trial, before waivers.
    fn run(&mut self, pool: &Pool, trial: &Trial) -> Verdict {
        let mut process = match self.process(pool) {
            Ok(process) => process,
            Err(failed) => {
                let verdict = not_started(trial, &failed);
                // Where workers do start, this one's end was an accident.
                if !pool.has_started.load(Ordering::Relaxed) {
                    self.worker = Some(Err(failed));
                }
                return verdict;
            }
        };
        let (verdict, of_use) = self.ask(&mut process, pool, trial);
        if of_use {
            self.worker = Some(Ok(process));
        }
        verdict
    }

    /// The verdict that a worker gives, and whether it can be used again.
    fn ask(&self, process: &mut Process, pool: &Pool, trial: &Trial) -> (Verdict, bool) {
        let (start, timeout) = (Instant::now(), pool.isolation.timeout);
        let device = process.hello.backends.get(trial.subject.backend.name()).cloned();
        let Failed { failure, stderr } = match process.ask(&trial.request(), timeout) {
            Ok(Answer::Judged { verdict, retire }) if verdict.trial == trial.name => {
                return (trial.of_worker(*verdict), !retire);
            }
            Ok(_) => Failure::Ended("answered something else than it was asked".to_owned()).into(),
            Err(failed) => failed,
        };
        let late = failure == Failure::Late;
        let outcome = if late { Outcome::TimedOut } else { Outcome::Crashed };
        let message = format!("the process {}", failure.words("gave no verdict", timeout));
        let needs = Needs {
            device: self.device.filter(|_| pool.several_devices),
            isolation: true,
            timeout: late.then_some(timeout),
        };
        let mut verdict = trial.unjudged(outcome, Some(message), needs);
        if let Some(device) = device {
            verdict.device = device.name;
        }
        verdict.stderr = stderr;
        verdict.millis = start.elapsed().as_millis() as u64;
        (verdict, false)
    }

    /// The worker, taken out of its place, and started if need be.
    fn process(&mut self, pool: &Pool) -> Result<Process, Failed> {
        match self.worker.take() {
            Some(Ok(mut process)) => {
                if process.is_alive() {
                    return Ok(process);
                }
                eprintln!(
                    "note: a worker ended after it had given its last verdict; another takes its place"
                );
                pool.start(self.device)
            }
            Some(Err(failed)) => Err(failed),
            None => pool.start(self.device),
        }
    }
}

fn not_started(trial: &Trial, Failed { failure, stderr }: &Failed) -> Verdict {
    let why = failure.words("said nothing", STARTUP);
    let message = format!("no worker could be started: the last of {STARTS} {why}");
    let verdict = trial.unjudged(Outcome::Crashed, Some(message), Needs::default());
    Verdict { stderr: stderr.clone(), ..verdict }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::{DemoFault, demo_fault};
    use crate::load::load;
    use crate::setup::{Subject, fixtures};
    use crate::worker::Isolate;
    use std::thread;

    fn pool(devices: &[u32]) -> Pool {
        let backend = demo_fault(DemoFault::Cast465ToNan);
        let subject = Subject { devices: devices.to_vec(), ..Subject::shared(backend) };
        let cases = load(&fixtures().unwrap().join("cases/cast.yaml")).unwrap();
        let selection = Selection::default();
        let registry = Registry::of(cases, vec![subject], Vec::new(), &selection).unwrap();
        let isolation =
            Isolation { isolate: Isolate::Always, timeout: Duration::from_secs(1), sanitize: None };
        Pool::new("plumbline", &registry, &selection, isolation).unwrap()
    }

    #[test]
    fn a_device_has_one_worker_at_a_time() {
        let pool = pool(&[3, 5]);
        let first = pool.lease(&[3, 5]);
        let second = pool.lease(&[3, 5]);
        let mut devices = [first.slot.device, second.slot.device];
        devices.sort();
        assert_eq!(devices, [Some(3), Some(5)]);
        assert_eq!(pool.lease(&[]).slot.device, None, "what needs no device waits for none");
        let freed = first.slot.device;
        thread::scope(|scope| {
            let third = scope.spawn(|| pool.lease(&[3, 5]).slot.device);
            thread::sleep(Duration::from_millis(50));
            assert!(!third.is_finished());
            drop(first);
            assert_eq!(third.join().unwrap(), freed);
        });
    }

    #[test]
    fn a_worker_is_told_its_device_where_there_are_several() {
        let arguments = |pool: &Pool| -> Vec<_> {
            pool.command(Some(3)).get_args().map(|arg| arg.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(arguments(&pool(&[3]))[0], "worker");
        assert!(!arguments(&pool(&[3])).contains(&"--device=3".to_owned()));
        assert!(arguments(&pool(&[3, 5])).contains(&"--device=3".to_owned()));
    }
}
