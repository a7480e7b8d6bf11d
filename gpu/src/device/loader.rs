//! Loads the CUDA libraries and asks each who it is.
//!
//! Functions are looked up here and not called through cudarc, for two reasons:
//! cudarc panics on one that is missing, and it returns a status as a Rust enum,
//! which a status newer than its bindings must never become.
#![allow(unsafe_code)]

use super::{
    COMPAT_NOT_SUPPORTED_ON_DEVICE, Component, ComputeCapability, DeviceInfo, DriverInfo, Fault, Library,
    NO_DEVICE, STUB_LIBRARY, SYSTEM_DRIVER_MISMATCH, Version,
};
use cudarc::cublas::sys::libraryPropertyType_t as Property;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::ManuallyDrop;
use std::ptr;

/// A loaded library. It is never unloaded: CUDA's libraries are not made for it,
/// and functions taken from it stay valid.
struct Handle {
    component: Component,
    file: String,
    library: ManuallyDrop<libloading::Library>,
}

impl Handle {
    fn open(component: Component) -> Result<Self, Fault> {
        let tried = component.candidates();
        let mut refused = None;
        for file in &tried {
            // SAFETY: loading runs the library's initialisers. The names are those
            // of NVIDIA's libraries, which are made to be loaded in this way.
            match unsafe { libloading::Library::new(file) } {
                Ok(library) => {
                    return Ok(Handle { component, file: file.clone(), library: ManuallyDrop::new(library) });
                }
                Err(error) => {
                    let reason = match error.source() {
                        Some(source) => source.to_string(),
                        None => error.to_string(),
                    };
                    if refused.is_none() && !is_absence(file, &reason) {
                        refused = Some((file.clone(), reason));
                    }
                }
            }
        }
        Err(match refused {
            Some((file, reason)) => Fault::NotLoadable { component, file, reason },
            None => Fault::NotFound { component, tried },
        })
    }

    /// # Safety
    /// `F` is a function pointer of the type that `symbol` has in the library.
    unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, Fault> {
        // SAFETY: by the caller. A symbol may have the address zero; as an
        // `Option` of a function pointer that is `None`.
        let found = unsafe { self.library.get::<Option<F>>(symbol) };
        found.ok().and_then(|symbol| *symbol).ok_or_else(|| Fault::NoSymbol {
            component: self.component,
            file: self.file.clone(),
            symbol,
        })
    }

    fn check(&self, call: &'static str, device: Option<u32>, status: c_int) -> Result<(), Fault> {
        if status == 0 {
            return Ok(());
        }
        Err(Fault::Call {
            component: self.component,
            call,
            device,
            code: status,
            error: self.error_name(status),
        })
    }

    fn error_name(&self, status: c_int) -> String {
        self.own_error_name(status).unwrap_or_else(|| match (self.component, status) {
            // A stub names nothing, and these say the most.
            (Component::Driver, STUB_LIBRARY) => "CUDA_ERROR_STUB_LIBRARY".into(),
            (Component::Driver, NO_DEVICE) => "CUDA_ERROR_NO_DEVICE".into(),
            (Component::Driver, SYSTEM_DRIVER_MISMATCH) => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".into(),
            (Component::Driver, COMPAT_NOT_SUPPORTED_ON_DEVICE) => {
                "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE".into()
            }
            _ => format!("status {status}"),
        })
    }

    fn own_error_name(&self, status: c_int) -> Option<String> {
        type Name = unsafe extern "C" fn(c_int) -> *const c_char;
        type DriverName = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
        let symbol = match self.component {
            Component::Driver => "cuGetErrorName",
            Component::Nvrtc => "nvrtcGetErrorString",
            Component::Cublas => "cublasGetStatusName",
            Component::CublasLt => "cublasLtGetStatusName",
        };
        let name = if self.component == Component::Driver {
            let mut name = ptr::null();
            // SAFETY: the declared type; the function writes one pointer.
            let status = unsafe { self.function::<DriverName>(symbol).ok()?(status, &mut name) };
            if status == 0 { name } else { ptr::null() }
        } else {
            // SAFETY: the declared type, the same for these three.
            unsafe { self.function::<Name>(symbol).ok()?(status) }
        };
        if name.is_null() {
            return None;
        }
        // SAFETY: these functions return static, terminated strings.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }
}

/// Whether the loader's words for not loading `file` say that no such file is
/// there. A library that `file` needs and that is missing is told in the same
/// words about another name.
fn is_absence(file: &str, reason: &str) -> bool {
    if cfg!(target_os = "linux") {
        let about = reason.strip_prefix(file);
        about.is_some_and(|words| words.starts_with(": ") && words.contains("No such file"))
    } else {
        reason.contains("no such file") || reason.contains("os error 126")
    }
}

/// CUDA's counts are never negative.
fn count(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

type Devices = Result<(Vec<DeviceInfo>, Vec<Fault>), Fault>;

/// The driver, and its devices with what keeps others from being used.
pub(super) fn driver(kernel: Option<String>) -> Result<(DriverInfo, Devices), Fault> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

    let handle = Handle::open(Component::Driver)?;
    let mut version = 0;
    // SAFETY: the declared type; the function writes one int and needs no cuInit.
    let status = unsafe { handle.function::<GetVersion>("cuDriverGetVersion")?(&mut version) };
    handle.check("cuDriverGetVersion", None, status)?;
    let devices = devices(&handle);
    let driver = DriverInfo { cuda: Version::from_cuda(count(version)), kernel, file: handle.file };
    Ok((driver, devices))
}

fn devices(handle: &Handle) -> Devices {
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    type GetCount = unsafe extern "C" fn(*mut c_int) -> c_int;

    // SAFETY: the declared type; the flags must be zero.
    let status = unsafe { handle.function::<Init>("cuInit")?(0) };
    handle.check("cuInit", None, status)?;
    let mut devices = 0;
    // SAFETY: the declared type, after cuInit; the function writes one int.
    let status = unsafe { handle.function::<GetCount>("cuDeviceGetCount")?(&mut devices) };
    handle.check("cuDeviceGetCount", None, status)?;
    if devices == 0 {
        return Err(Fault::NoDevice);
    }
    let functions = DeviceFunctions::find(handle)?;
    let (mut usable, mut faults) = (Vec::new(), Vec::new());
    for ordinal in 0..count(devices) {
        match functions.describe(handle, ordinal) {
            Ok(device) => usable.push(device),
            Err(fault) => faults.push(fault),
        }
    }
    Ok((usable, faults))
}

type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type GetName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type TotalMem = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int;

struct DeviceFunctions {
    get: Get,
    name: GetName,
    attribute: GetAttribute,
    memory: TotalMem,
    uuid: Option<GetUuid>,
}

impl DeviceFunctions {
    fn find(handle: &Handle) -> Result<Self, Fault> {
        // SAFETY: each type is the declared one; a CUdevice and an attribute are
        // ints, a CUuuid is 16 bytes.
        unsafe {
            Ok(DeviceFunctions {
                get: handle.function("cuDeviceGet")?,
                name: handle.function("cuDeviceGetName")?,
                attribute: handle.function("cuDeviceGetAttribute")?,
                memory: handle.function("cuDeviceTotalMem_v2")?,
                uuid: handle.function("cuDeviceGetUuid_v2").ok(),
            })
        }
    }

    /// To be called after cuInit.
    fn describe(&self, handle: &Handle, ordinal: u32) -> Result<DeviceInfo, Fault> {
        let check = |call, status| handle.check(call, Some(ordinal), status);

        let mut device = 0;
        // SAFETY: the function writes one int.
        let status = unsafe { (self.get)(&mut device, ordinal as c_int) };
        check("cuDeviceGet", status)?;

        let mut name = [0u8; 256];
        // SAFETY: the function writes at most the length given, which is one less
        // than the buffer's, so that the last byte stays zero.
        let status = unsafe { (self.name)(name.as_mut_ptr().cast(), 255, device) };
        check("cuDeviceGetName", status)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();

        let attribute = |attribute: Attribute| {
            let mut value = 0;
            // SAFETY: the function writes one int.
            let status = unsafe { (self.attribute)(&mut value, attribute as c_int, device) };
            check("cuDeviceGetAttribute", status)?;
            Ok(count(value))
        };

        let mut memory = 0;
        // SAFETY: the function writes one size_t.
        let status = unsafe { (self.memory)(&mut memory, device) };
        check("cuDeviceTotalMem_v2", status)?;

        let uuid = self.uuid.and_then(|get| {
            let mut uuid = [0; 16];
            // SAFETY: the function writes 16 bytes.
            let status = unsafe { get(&mut uuid, device) };
            (status == 0).then(|| format_uuid(uuid))
        });

        Ok(DeviceInfo {
            ordinal,
            name: name.to_string_lossy().into_owned(),
            compute_capability: ComputeCapability {
                major: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory_bytes: memory as u64,
            uuid,
        })
    }
}

fn format_uuid(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// The run-time compiler.
pub(super) fn nvrtc() -> Result<Library, Fault> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;

    let handle = Handle::open(Component::Nvrtc)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the declared type; the function writes two ints.
    let status = unsafe { handle.function::<GetVersion>("nvrtcVersion")?(&mut major, &mut minor) };
    handle.check("nvrtcVersion", None, status)?;
    Ok(Library {
        version: Version { major: count(major), minor: count(minor), patch: None },
        file: handle.file,
    })
}

/// cuBLAS or cuBLASLt. Its properties need no handle, hence no device.
pub(super) fn blas(component: Component) -> Result<Library, Fault> {
    type GetProperty = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;

    let call = match component {
        Component::CublasLt => "cublasLtGetProperty",
        _ => "cublasGetProperty",
    };
    let handle = Handle::open(component)?;
    // SAFETY: the declared type, the same for both; a property is an int.
    let get: GetProperty = unsafe { handle.function(call)? };
    let property = |property: Property| {
        let mut value = 0;
        // SAFETY: the function writes one int.
        let status = unsafe { get(property as c_int, &mut value) };
        handle.check(call, None, status)?;
        Ok(count(value))
    };
    let version = Version {
        major: property(Property::MAJOR_VERSION)?,
        minor: property(Property::MINOR_VERSION)?,
        patch: Some(property(Property::PATCH_LEVEL)?),
    };
    Ok(Library { version, file: handle.file })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What loads here is what cudarc finds: a library that the probe calls
    /// present is one that cudarc does not panic for.
    #[test]
    fn agrees_with_cudarc() {
        // SAFETY: these load and unload NVIDIA's libraries, as the probe does.
        let found = unsafe {
            [
                (Component::Driver, cudarc::driver::sys::is_culib_present()),
                (Component::Nvrtc, cudarc::nvrtc::sys::is_culib_present()),
                (Component::Cublas, cudarc::cublas::sys::is_culib_present()),
                (Component::CublasLt, cudarc::cublaslt::sys::is_culib_present()),
            ]
        };
        for (component, present) in found {
            assert_eq!(Handle::open(component).is_ok(), present, "{component}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn absence() {
        let missing = ": cannot open shared object file: No such file or directory";
        let file = "libcublas.so.13";
        assert!(is_absence(file, &format!("{file}{missing}")));
        assert!(!is_absence(file, &format!("libcublasLt.so.13{missing}")));
        assert!(!is_absence(file, "/opt/lib/libcublas.so.13: invalid ELF header"));
        assert!(!is_absence(file, "libcublas.so.13: invalid ELF header"));
    }

    #[test]
    fn uuid() {
        let bytes = std::array::from_fn(|index| 0x11 * index as u8);
        assert_eq!(format_uuid(bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
