//! Scores, as text and as lines of JSON.

use super::equal::EQUALS;
use super::run::{Fate, Judged, Run};
use crate::case::Profile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The version of the lines of JSON.
const SCHEMA: &str = "plumbline.mutants/1";

/// How many mutants the cases kill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Killed ones.
    pub killed: usize,
    /// All that are not broken.
    pub total: usize,
}

impl Score {
    fn add(&mut self, judged: &Judged) {
        self.killed += usize::from(judged.fate == Fate::Killed);
        self.total += usize::from(judged.fate != Fate::Broken);
    }

    /// Whether a profile's share is killed, of at least one: 95% by the quick profile, all by larger ones.
    #[must_use]
    pub const fn suffices(self, profile: Profile) -> bool {
        let percent = match profile {
            Profile::Quick => 95,
            Profile::Full | Profile::Exhaustive => 100,
        };
        self.total > 0 && self.killed * 100 >= self.total * percent
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.killed, self.total))
    }
}

/// A run in the light of a profile.
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// The profile.
    pub profile: Profile,
    /// What was compared to prove each of [`EQUALS`].
    pub proven: Vec<usize>,
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Line<'a> {
    Run { schema: &'static str, version: &'static str, profile: Profile, seconds: f64 },
    Mutant(&'a Judged),
    Equal { mutant: &'static str, why: &'static str, results: usize },
    Score { operation: &'a str, score: Score },
    Summary { score: Score, survived: usize, broken: usize, equal: usize },
}

impl Report<'_> {
    /// The score of all.
    #[must_use]
    pub fn score(&self) -> Score {
        self.run.judged.iter().fold(Score::default(), |mut score, judged| {
            score.add(judged);
            score
        })
    }

    fn scores(&self, key: impl Fn(&Judged) -> &'static str) -> BTreeMap<&'static str, Score> {
        let mut scores: BTreeMap<_, Score> = BTreeMap::new();
        self.run.judged.iter().for_each(|judged| scores.entry(key(judged)).or_default().add(judged));
        scores
    }

    fn of(&self, fate: Fate) -> impl Iterator<Item = &Judged> {
        self.run.judged.iter().filter(move |judged| judged.fate == fate)
    }

    /// 0 where enough are killed, 1 where not, 2 where a mutant did something that is not its fault.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.score().suffices(self.profile) {
            _ if self.of(Fate::Broken).next().is_some() => 2,
            true => 0,
            false => 1,
        }
    }

    /// Writes every mutant, every score and a summary to a file of a folder.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = BufWriter::new(File::create(folder.join(name))?);
        let mut write = |line: Line<'_>| writeln!(file, "{}", serde_json::to_string(&line)?);
        let (version, seconds) = (env!("CARGO_PKG_VERSION"), self.run.seconds);
        write(Line::Run { schema: SCHEMA, version, profile: self.profile, seconds })?;
        self.run.judged.iter().try_for_each(|judged| write(Line::Mutant(judged)))?;
        for (equal, &results) in EQUALS.iter().zip(&self.proven) {
            write(Line::Equal { mutant: equal.name, why: equal.why, results })?;
        }
        for (operation, score) in self.scores(|judged| judged.operation) {
            write(Line::Score { operation, score })?;
        }
        write(Line::Summary {
            score: self.score(),
            survived: self.of(Fate::Survived).count(),
            broken: self.of(Fate::Broken).count(),
            equal: self.proven.len(),
        })?;
        file.flush()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "killed, and the cheapest case that kills each:")?;
        for judged in self.of(Fate::Killed) {
            writeln!(f, "  {:<44} {}", judged.mutant, judged.case.as_deref().unwrap_or_default())?;
        }
        writeln!(f, "\nproven to change nothing:")?;
        for (equal, results) in EQUALS.iter().zip(&self.proven) {
            writeln!(f, "  {:<44} {results} results: {}", equal.name, equal.why)?;
        }
        writeln!(f, "\nby operation:")?;
        for (operation, score) in self.scores(|judged| judged.operation) {
            writeln!(f, "  {operation:<44} {score:>9}")?;
        }
        writeln!(f, "\nby kind:")?;
        for (kind, score) in self.scores(|judged| judged.kind) {
            writeln!(f, "  {kind:<44} {score:>9}")?;
        }
        for (fate, title) in [(Fate::Survived, "survivors"), (Fate::Broken, "broken")] {
            if self.of(fate).next().is_some() {
                writeln!(f, "\n{title}:")?;
            }
            for judged in self.of(fate) {
                let Judged { mutant, cases, touched, .. } = judged;
                write!(f, "  {mutant:<44} of {cases} cases it changes {touched}")?;
                match (&judged.case, &judged.why) {
                    (Some(case), Some(why)) => writeln!(f, "; {case}: {why}")?,
                    _ => writeln!(f)?,
                }
            }
        }
        for (operation, cases) in &self.run.left_out {
            writeln!(f, "left out: {cases} cases of {operation} that are for devices, or too large")?;
        }
        let score = self.score();
        let percent = 100.0 * score.killed as f64 / score.total.max(1) as f64;
        let verdict = if score.suffices(self.profile) { "enough" } else { "too few" };
        let Self { profile, run, .. } = self;
        write!(
            f,
            "\n{score} mutants killed ({percent:.1}%) in {:.0} s: {verdict} for the {profile} profile",
            run.seconds
        )
    }
}
