//! Known faults of backends: expected to fail, asserted to fail.

use crate::judge::Fault;
use crate::verdict::{Outcome, Verdict};
use jiff::civil::Date;
use plumbline_reference::backend::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A fault that is known. A trial that it covers must fail; one that passes is an
/// error, so that a waiver goes when its fault goes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// Name of the backend.
    pub backend: String,
    /// Name of the device it is known on; left out, any. `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Versions it is known in: properties of the device, as `results.jsonl` lists them, each with a
    /// text in which `*` stands for any: `{driver: "580.*"}`. Left out, any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// Variant of the backend; left out, any. `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Name of the case; `*` stands for any text.
    pub case: String,
    /// Kinds of mismatch that the fault shows; left out, any. Another kind fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// What is wrong.
    pub reason: String,
    /// Where it is reported.
    pub link: String,
    /// The last day on which it holds.
    #[schemars(with = "String")]
    pub expires: Date,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaiverFile {
    waivers: Vec<Waiver>,
}

/// Why waivers cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaiverError {
    /// The file cannot be read or understood.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// A waiver is past its last day.
    #[error(
        "{file}: the waiver of `{case}` on {backend} expired on {expires}; look whether the fault is still there, \
         then remove the waiver or set a new date"
    )]
    Expired {
        /// The file.
        file: String,
        /// The waiver's case.
        case: String,
        /// The waiver's backend.
        backend: String,
        /// The day.
        expires: Date,
    },
    /// A waiver is of versions of something that its device does not have.
    #[error(
        "waivers.yaml: the waiver of `{case}` on {backend} is of versions of `{property}`, which is no property there; those \
         are {known}"
    )]
    UnknownProperty {
        /// The waiver's case.
        case: String,
        /// The waiver's backend.
        backend: String,
        /// What the versions are of.
        property: String,
        /// What the device has.
        known: String,
    },
    /// A waiver covers no trial.
    #[error(
        "waivers.yaml: the waiver of `{case}` on {backend} covers no trial; remove it or correct the name"
    )]
    Unused {
        /// The waiver's case.
        case: String,
        /// The waiver's backend.
        backend: String,
    },
}

/// Properties that a device has where what they are of is found.
const IF_FOUND: [&str; 5] = ["cuda", "driver", "nvrtc", "cublas", "cublaslt"];

impl Waiver {
    /// Whether it covers a trial.
    #[must_use]
    pub fn covers(&self, case: &str, backend: &str, variant: &str, device: &Device) -> bool {
        self.is_of(backend, device)
            && matches(&self.case, case)
            && self.variant.as_ref().is_none_or(|pattern| matches(pattern, variant))
    }

    /// Whether it is about a backend on a device, in the versions that are there.
    #[must_use]
    pub fn is_of(&self, backend: &str, device: &Device) -> bool {
        let is_there = |(name, pattern): (&String, &String)| {
            device.properties.get(name).is_some_and(|it| matches(pattern, it))
        };
        self.is_on(backend, device) && self.versions.iter().all(is_there)
    }

    /// Whether it is about a backend on a device, in some version.
    fn is_on(&self, backend: &str, device: &Device) -> bool {
        self.backend == backend && self.device.as_ref().is_none_or(|pattern| matches(pattern, &device.name))
    }

    /// Requires that a backend on a device that it is about has what its versions are of.
    pub fn check(&self, backend: &str, device: &Device) -> Result<(), WaiverError> {
        let is_known =
            |name: &&String| device.properties.contains_key(*name) || IF_FOUND.contains(&name.as_str());
        match self.versions.keys().find(|name| !is_known(name)) {
            Some(property) if self.is_on(backend, device) => Err(WaiverError::UnknownProperty {
                case: self.case.clone(),
                backend: backend.to_owned(),
                property: property.clone(),
                known: device.properties.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a verdict is the failure that it names: wrong elements of its kinds, and
    /// neither a crash nor a broken memory contract.
    #[must_use]
    pub fn excuses(&self, verdict: &Verdict) -> bool {
        let mut faults = verdict.outputs.iter().flat_map(|output| output.faults.keys());
        verdict.outcome == Outcome::Fail
            && verdict.memory.is_empty()
            && !verdict.outputs.is_empty()
            && verdict.outputs.iter().all(|output| output.shape.is_none())
            && (self.faults.is_empty() || faults.all(|fault| self.faults.contains(fault)))
    }
}

/// Reads a waiver file and checks that none has expired.
pub fn load(file: &Path, today: Date) -> Result<Vec<Waiver>, WaiverError> {
    let failed = |why: String| WaiverError::File { file: file.display().to_string(), why };
    let text = fs::read_to_string(file).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let WaiverFile { waivers } = serde_yaml::from_str(&text).map_err(|error| failed(error.to_string()))?;
    if waivers.iter().any(|waiver| waiver.reason.trim().is_empty() || waiver.link.trim().is_empty()) {
        return Err(failed("every waiver needs a reason and a link".to_owned()));
    }
    match waivers.iter().find(|waiver| waiver.expires < today) {
        None => Ok(waivers),
        Some(waiver) => Err(WaiverError::Expired {
            file: file.display().to_string(),
            case: waiver.case.clone(),
            backend: waiver.backend.clone(),
            expires: waiver.expires,
        }),
    }
}

/// Whether `text` is `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("cast/*/f64/*", "cast/edges/f64/f16"));
        assert!(matches("cast/*", "cast/"));
        assert!(!matches("cast/*/f64", "cast/edges/f64/f16"));
        assert!(!matches("cast", "casts"));
    }

    fn loaded(waiver: &str) -> Result<Vec<Waiver>, WaiverError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("waivers.yaml");
        fs::write(&file, format!("waivers: [{{backend: b, case: c, link: l, {waiver}}}]")).unwrap();
        load(&file, Date::constant(2030, 1, 31))
    }

    #[test]
    fn a_waiver_past_its_day_is_an_error() {
        assert_eq!(loaded("reason: r, expires: 2030-01-31").unwrap().len(), 1);
        let expired = loaded("reason: r, expires: 2030-01-30").unwrap_err();
        assert!(matches!(expired, WaiverError::Expired { .. }), "{expired}");
    }

    #[test]
    fn a_waiver_without_a_reason_is_refused() {
        for reason in ["reason: '', ", "reason: ' ', ", ""] {
            let error = loaded(&format!("{reason}expires: 2031-01-01")).unwrap_err();
            assert!(error.to_string().contains("reason"), "{error}");
        }
    }

    #[test]
    fn versions_are_of_properties_that_are_there() {
        let device = Device {
            name: "NVIDIA H200".to_owned(),
            properties: [("driver".to_owned(), "580.65".to_owned())].into(),
        };
        let check = |scope: &str, backend: &str| {
            loaded(&format!("reason: r, expires: 2031-01-01, {scope}")).unwrap()[0].check(backend, &device)
        };
        let error = check("versions: {drvier: '580.*'}", "b").unwrap_err().to_string();
        assert!(error.contains("`drvier`") && error.ends_with("those are driver"), "{error}");
        assert_eq!(check("versions: {drvier: '580.*'}", "other"), Ok(()));
        assert_eq!(check("device: A100, versions: {drvier: '580.*'}", "b"), Ok(()));
        assert_eq!(check("versions: {driver: '570.*', cublas: '12.*'}", "b"), Ok(()));
    }

    #[test]
    fn a_waiver_is_of_its_device_and_versions() {
        let device = |name: &str, driver: &str| Device {
            name: name.to_owned(),
            properties: [("driver".to_owned(), driver.to_owned())].into(),
        };
        let covers = |scope: &str, device: &Device| {
            let waivers = loaded(&format!("reason: r, expires: 2031-01-01, {scope}")).unwrap();
            assert!(!waivers[0].covers("c", "other", "v", device));
            waivers[0].covers("c", "b", "v", device)
        };
        let h200 = device("NVIDIA H200", "580.65");
        for (scope, right) in [
            ("device: '*'", true),
            ("device: '*H200'", true),
            ("device: H200", false),
            ("versions: {driver: '580.*'}", true),
            ("versions: {driver: '570.*'}", false),
            ("versions: {runtime: '*'}", false),
            ("device: '*', versions: {driver: '*'}", true),
        ] {
            assert_eq!(covers(scope, &h200), right, "{scope}");
        }
    }
}
