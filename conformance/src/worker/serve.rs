//! The worker's side of the protocol.

use super::{Answer, Call, Hello, Request};
use crate::registry::{Judged, Registry, Trial};
use crate::source::Case;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Why a worker ends early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A line that is no request.
    #[error("line {line} of standard input is no request: {why}; write one like {{\"run\":\"NAME\"}}")]
    Request {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: serde_json::Error,
    },
    /// A request for a trial that is not there.
    #[error("line {line} of standard input: no trial is named `{name}`; `conform --list` shows the names")]
    NoTrial {
        /// The line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A request for a call that cannot be made.
    #[error(
        "line {line} of standard input: {why}; a call takes a backend of the hello and a case with literal inputs"
    )]
    NoCall {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The parent's end of a pipe is closed or broken.
    #[error("{what}: {why}; a worker is started by a parent that speaks with it")]
    Pipe {
        /// Standard input or output.
        what: &'static str,
        /// What is wrong.
        why: io::Error,
    },
}

impl ServeError {
    fn output(why: io::Error) -> Self {
        Self::Pipe { what: "standard output", why }
    }
}

/// Where answers go: what standard output was when the process began.
pub struct Answers(Box<dyn Write>);

impl Answers {
    /// Takes standard output. Whatever else is printed from then on goes to standard
    /// error, also by foreign code and by kernels. To be called before any of them runs.
    pub fn take() -> Result<Self, ServeError> {
        #[cfg(unix)]
        let output = {
            let kept = io::stdout().lock();
            let output = rustix::io::dup(&kept).map_err(io::Error::from).map_err(ServeError::output)?;
            rustix::stdio::dup2_stdout(io::stderr()).map_err(io::Error::from).map_err(ServeError::output)?;
            std::fs::File::from(output)
        };
        #[cfg(not(unix))]
        let output = io::stdout();
        Ok(Self(Box::new(output)))
    }

    fn write(&mut self, answer: &Answer) -> Result<(), ServeError> {
        let mut line = serde_json::to_vec(answer).map_err(|why| ServeError::output(why.into()))?;
        line.push(b'\n');
        self.0.write_all(&line).and_then(|()| self.0.flush()).map_err(ServeError::output)
    }
}

/// Answers requests on standard input until it ends.
pub fn serve(registry: &Registry, mut answers: Answers) -> Result<(), ServeError> {
    let trials: HashMap<&str, &Trial> =
        registry.trials.iter().map(|trial| (trial.name.as_str(), trial)).collect();
    let lines = lines();
    answers.write(&Answer::Hello { hello: Hello::new(registry) })?;
    for (line, text) in (1..).zip(lines) {
        let text = text.map_err(|why| ServeError::Pipe { what: "standard input", why })?;
        let request = serde_json::from_slice(&text).map_err(|why| ServeError::Request { line, why })?;
        let Judged { verdict, lost } = match request {
            Request::Prepare(names) => {
                prepare(names.iter().filter_map(|name| trials.get(name.as_str()).copied()));
                continue;
            }
            Request::Run(name) => match trials.get(&*name) {
                Some(trial) => trial.judge(),
                None => return Err(ServeError::NoTrial { line, name }),
            },
            Request::Call(call) => {
                made(registry, *call).map_err(|why| ServeError::NoCall { line, why })?.judge()
            }
        };
        answers.write(&Answer::Judged { verdict: Box::new(verdict), retire: lost })?;
    }
    Ok(())
}

/// The trial that a call is.
fn made(registry: &Registry, call: Call) -> Result<Trial, String> {
    let Call { trial: name, backend, variant, case } = call;
    let subject = registry.subjects.iter().find(|subject| subject.backend.name() == backend);
    let subject = subject.ok_or_else(|| format!("there is no backend `{backend}`"))?;
    let case = Case::of_literal(case).map_err(|error| error.to_string())?;
    let mut trial = Trial::of(case, subject.clone(), &variant);
    trial.name = name;
    Ok(trial)
}

/// Lets each backend make ready what its trials need.
fn prepare<'a>(trials: impl Iterator<Item = &'a Trial>) {
    let mut of_backend: BTreeMap<&str, Vec<&Trial>> = BTreeMap::new();
    for trial in trials {
        of_backend.entry(trial.subject.backend.name()).or_default().push(trial);
    }
    for trials in of_backend.values() {
        let calls: Vec<_> = trials.iter().flat_map(|trial| trial.calls()).collect();
        let calls: Vec<_> = calls.iter().map(|(op, variant)| (*op, variant.as_str())).collect();
        trials[0].subject.backend.prepare(&calls);
    }
}

/// The lines of standard input, read on a thread that also ends a process whose parent is
/// gone: the main thread may be in a call that never returns.
fn lines() -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    let orphaned = orphaned();
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            if sender.send(line).is_err() {
                return;
            }
        }
        drop(sender);
        orphaned();
    });
    receiver
}

/// Waits until the process that is the parent now is gone, then ends this one.
#[cfg(unix)]
fn orphaned() -> impl FnOnce() + Send {
    use rustix::process::{Signal, getpid, kill_process};
    use std::os::unix::process::parent_id;
    use std::time::Duration;
    let parent = parent_id();
    move || {
        while parent_id() == parent {
            thread::sleep(Duration::from_millis(50));
        }
        // Handlers at exit are not run: a library's may wait for the device.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Elsewhere a worker in a call that never returns outlives a parent that is killed.
#[cfg(not(unix))]
fn orphaned() -> impl FnOnce() + Send {
    || ()
}
