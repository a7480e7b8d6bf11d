//! One worker process, from its parent's side.

use super::{Answer, Hello, PROTOCOL, Request};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a process may take to end by itself once its input or output is closed.
const END: Duration = Duration::from_secs(1);
/// How long a killed process is waited for: one whose device hangs may stay in the driver.
const KILLED: Duration = Duration::from_secs(5);
/// How much of standard error is kept, in bytes.
const TAIL: usize = 2048;

/// A worker that has said hello. Dropping it ends it.
pub(super) struct Process {
    child: Child,
    /// `None` once the worker has been told to end.
    requests: Option<ChildStdin>,
    answers: Receiver<Answer>,
    stderr: Stderr,
    pub(super) hello: Hello,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It did not come in time.
    Late,
    /// The process ended, or does not keep to the protocol.
    Ended(String),
}

impl Failure {
    /// What the process did; `silence` is what it did where it was late.
    pub(super) fn words(&self, silence: &str, within: Duration) -> String {
        match self {
            Self::Late => format!("{silence} for {} s and was killed", within.as_secs_f64()),
            Self::Ended(how) => how.clone(),
        }
    }
}

/// Why there is no answer, and what the process wrote to standard error before.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) stderr: Option<String>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, stderr: None }
    }
}

impl Process {
    /// Starts a worker and waits for its hello.
    pub(super) fn start(command: &mut Command, within: Duration) -> Result<Self, Failed> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| {
            let program = command.get_program().display();
            Failure::Ended(format!("cannot be started as {program}: {error}"))
        })?;
        let (sender, answers) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read_answers(stdout, &sender));
        }
        let stderr = Stderr::read(child.stderr.take());
        let hello = Hello { protocol: PROTOCOL, version: String::new(), backends: [].into() };
        let requests = child.stdin.take();
        let mut process = Self { child, requests, answers, stderr, hello };
        match process.answer(within) {
            Ok(Answer::Hello { hello })
                if hello.protocol == PROTOCOL && hello.version != env!("CARGO_PKG_VERSION") =>
            {
                let why = format!("is Plumbline {}, not {}", hello.version, env!("CARGO_PKG_VERSION"));
                Err(process.failed(Failure::Ended(why)))
            }
            Ok(Answer::Hello { hello }) if hello.protocol == PROTOCOL => {
                process.hello = hello;
                Ok(process)
            }
            Ok(Answer::Hello { hello }) => {
                let spoken = hello.protocol;
                let why = format!("speaks version {spoken} of the worker protocol, not {PROTOCOL}");
                Err(process.failed(Failure::Ended(why)))
            }
            Ok(Answer::Judged { .. }) => {
                Err(process.failed(Failure::Ended("gave a verdict before it was asked".to_owned())))
            }
            Err(failure) => Err(process.failed(failure)),
        }
    }

    /// Whether the process still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a request that has no answer.
    pub(super) fn tell(&mut self, request: &Request) -> Result<(), Failed> {
        self.send(request).map_err(|_| {
            let ended = Failure::Ended(self.end());
            self.failed(ended)
        })
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let requests = self.requests.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        requests.write_all(&line)
    }

    /// Sends a request and waits for its answer. After a failure the process is to be
    /// dropped.
    pub(super) fn ask(&mut self, request: &Request, within: Duration) -> Result<Answer, Failed> {
        self.stderr.forget();
        // A process that cannot be written to is about to end, and says more by its end.
        let answered = match self.send(request) {
            Ok(()) => self.answer(within),
            Err(_) => Err(Failure::Ended(self.end())),
        };
        answered.map_err(|failure| self.failed(failure))
    }

    fn answer(&mut self, within: Duration) -> Result<Answer, Failure> {
        match self.answers.recv_timeout(within) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Late),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Ended(self.end())),
        }
    }

    fn failed(&mut self, failure: Failure) -> Failed {
        self.kill();
        Failed { failure, stderr: self.stderr.text() }
    }

    /// Tells the worker to end, and how it did.
    pub(super) fn finish(mut self, within: Duration) -> Option<ExitStatus> {
        self.requests = None;
        wait(&mut self.child, within)
    }

    /// How a process ended whose standard output is closed.
    fn end(&mut self) -> String {
        match wait(&mut self.child, END) {
            Some(status) => describe(status),
            None => "closed its standard output and did not end".to_owned(),
        }
    }

    /// Ends the process whatever it is doing.
    fn kill(&mut self) {
        self.requests = None;
        let _ = self.child.kill();
        wait(&mut self.child, KILLED);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.requests = None;
        if wait(&mut self.child, END).is_none() {
            self.kill();
        }
    }
}

/// Waits for a process to end.
fn wait(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < within => thread::sleep(Duration::from_millis(2)),
            _ => return None,
        }
    }
}

/// `ended with exit code 0`, `was ended by signal: 6 (SIGABRT)`.
fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with exit code {code}"),
        None => format!("was ended by {status}"),
    }
}

/// Passes answers on, and to standard error what is none.
fn read_answers(stdout: impl Read, answers: &Sender<Answer>) {
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice(&line) {
            Ok(answer) => {
                // A parent that has stopped waiting is about to end the worker.
                if answers.send(answer).is_err() {
                    return;
                }
            }
            Err(_) => {
                let _ = io::stderr().write_all(&[&line[..], b"\n"].concat());
            }
        }
    }
}

/// Standard error of a worker: passed on, its end kept.
struct Stderr {
    tail: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stderr {
    fn read(stderr: Option<impl Read + Send + 'static>) -> Self {
        let tail = Arc::<Mutex<VecDeque<u8>>>::default();
        let kept = tail.clone();
        let reader = stderr.map(|mut stderr| {
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                    let _ = io::stderr().write_all(&bytes[..count]);
                    let mut tail = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    tail.extend(&bytes[..count]);
                    let excess = tail.len().saturating_sub(TAIL);
                    tail.drain(..excess);
                }
            })
        });
        Self { tail, reader }
    }

    /// Forgets what was written so far.
    fn forget(&self) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The end of what the process wrote, once it has ended.
    fn text(&self) -> Option<String> {
        // A process that the worker started may hold the pipe open.
        let start = Instant::now();
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) && start.elapsed() < END {
            thread::sleep(Duration::from_millis(2));
        }
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(tail.make_contiguous()).trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    }
}
