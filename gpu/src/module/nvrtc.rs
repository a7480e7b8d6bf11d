//! Calls of NVRTC.
#![allow(unsafe_code)]

use super::Unit;
use crate::error::CudaError;
use cudarc::nvrtc::result::NvrtcError;
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use std::ffi::{CString, c_char, c_int};
use std::ptr;

/// Why there is no code.
pub(super) enum Error {
    /// A call failed.
    Call(CudaError),
    /// The source has errors.
    Log(String),
}

fn check(call: &str, status: nvrtcResult) -> Result<(), Error> {
    status.result().map_err(|error: NvrtcError| Error::Call(CudaError::nvrtc(call, error)))
}

/// Owns a program.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created and is destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

/// Text without NUL, as the sources and options of this crate are.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("has no NUL")
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

/// Compiles a unit to a CUBIN. NVRTC has been probed.
pub(super) fn compile(unit: &Unit, options: &[String], headers: &[(&str, String)]) -> Result<Vec<u8>, Error> {
    let source = c_string(unit.source.text);
    let name = c_string(&format!("{}.cu", unit.source.name));
    let names: Vec<_> = headers.iter().map(|(name, _)| c_string(name)).collect();
    let texts: Vec<_> = headers.iter().map(|(_, text)| c_string(text)).collect();
    let options: Vec<_> = options.iter().map(|option| c_string(option)).collect();

    let mut program: nvrtcProgram = ptr::null_mut();
    // SAFETY: all strings live until the end of this function, and so does the program.
    let status = unsafe {
        sys::nvrtcCreateProgram(
            &raw mut program,
            source.as_ptr(),
            name.as_ptr(),
            headers.len() as c_int,
            pointers(&texts).as_ptr(),
            pointers(&names).as_ptr(),
        )
    };
    check("nvrtcCreateProgram", status)?;
    let program = Program(program);
    // SAFETY: the program was created; the options live through the call.
    let status =
        unsafe { sys::nvrtcCompileProgram(program.0, options.len() as c_int, pointers(&options).as_ptr()) };
    // An option may be an architecture that this NVRTC does not know; the log says so.
    if matches!(status, nvrtcResult::NVRTC_ERROR_COMPILATION | nvrtcResult::NVRTC_ERROR_INVALID_OPTION) {
        // SAFETY: each writes the number of bytes that the one before it said.
        let log = unsafe {
            read("nvrtcGetProgramLog", program.0, sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)
        }?;
        return Err(Error::Log(String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()));
    }
    check("nvrtcCompileProgram", status)?;
    // SAFETY: as above.
    unsafe { read("nvrtcGetCUBIN", program.0, sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN) }
}

/// What a program has for a pair of functions, one that tells its size and one that writes it.
///
/// # Safety
/// `get` writes as many bytes as `size` says.
unsafe fn read(
    call: &str,
    program: nvrtcProgram,
    size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
    get: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
) -> Result<Vec<u8>, Error> {
    let mut len = 0;
    // SAFETY: writes one size.
    check(call, unsafe { size(program, &raw mut len) })?;
    let mut bytes = vec![0u8; len];
    // SAFETY: by the caller.
    check(call, unsafe { get(program, bytes.as_mut_ptr().cast()) })?;
    Ok(bytes)
}
