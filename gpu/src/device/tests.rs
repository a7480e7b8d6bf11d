use super::*;

fn version(major: u32, minor: u32, patch: Option<u32>) -> Version {
    Version { major, minor, patch }
}

fn library(file: &str, version: Version) -> Result<Library, Fault> {
    Ok(Library { version, file: file.into() })
}

fn not_found(component: Component) -> Fault {
    Fault::NotFound { component, tried: component.candidates() }
}

fn cu_init(code: i32, error: &str) -> Fault {
    Fault::Call { component: Component::Driver, call: "cuInit", device: None, code, error: error.into() }
}

fn h200(ordinal: u32) -> DeviceInfo {
    DeviceInfo {
        ordinal,
        name: "NVIDIA H200".into(),
        compute_capability: ComputeCapability { major: 9, minor: 0 },
        multiprocessors: 132,
        memory_bytes: 150_000_000_000,
        uuid: Some("01234567-89ab-cdef-0123-456789abcdef".into()),
    }
}

fn present() -> Probe {
    Probe {
        driver: Ok(DriverInfo {
            cuda: version(13, 0, None),
            kernel: Some("580.159.04".into()),
            file: "libcuda.so.1".into(),
        }),
        devices: vec![h200(0)],
        device_faults: vec![],
        nvrtc: library("libnvrtc.so.13", version(13, 0, None)),
        cublas: library("libcublas.so.13", version(13, 1, Some(0))),
        cublaslt: library("libcublasLt.so.13", version(13, 1, Some(0))),
    }
}

fn absent() -> Probe {
    Probe {
        driver: Err(not_found(Component::Driver)),
        devices: vec![],
        device_faults: vec![],
        nvrtc: Err(not_found(Component::Nvrtc)),
        cublas: Err(not_found(Component::Cublas)),
        cublaslt: Err(not_found(Component::CublasLt)),
    }
}

/// On any machine.
#[test]
fn this_machine_is_consistent() {
    let probe = probe();
    match &probe.driver {
        Err(fault) => {
            assert!(probe.devices.is_empty());
            assert_eq!(probe.require().unwrap_err().fault, *fault);
        }
        Ok(driver) => {
            assert!(driver.cuda.major > 0);
            assert!(!probe.devices.is_empty() || !probe.device_faults.is_empty());
        }
    }
    match probe.require() {
        Ok(device) => {
            assert!(device.compute_capability.major > 0);
            assert!(device.multiprocessors > 0);
            assert!(device.memory_bytes > 0);
            assert!(!device.name.is_empty());
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("no CUDA device: "), "{text}");
            assert!(text.contains(error.fault.remedy()), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }
    assert!(!probe.to_string().contains('\n'));
}

#[test]
fn line_of_a_complete_machine() {
    let mut probe = present();
    assert_eq!(
        probe.to_string(),
        "NVIDIA H200, sm_90, 132 SMs, driver 580.159.04 (CUDA 13.0), NVRTC 13.0, \
         cuBLAS 13.1.0, cuBLASLt 13.1.0"
    );
    assert_eq!(probe.require(), Ok(&h200(0)));

    probe.devices.push(h200(1));
    assert!(probe.to_string().starts_with("2 x NVIDIA H200, sm_90, "));
    probe.devices[1].name = "NVIDIA H20".into();
    assert!(
        probe.to_string().starts_with("NVIDIA H200, sm_90, 132 SMs + NVIDIA H20, sm_90, 132 SMs, driver ")
    );
}

/// A device is of use only with a driver and a compiler, and if it is not too old.
#[test]
fn what_is_too_old_is_named() {
    assert_eq!(present().usable(), Ok(&h200(0)));
    let why = |change: fn(&mut Probe)| {
        let mut probe = present();
        change(&mut probe);
        probe.usable().unwrap_err().to_string()
    };
    let without = why(|probe| probe.nvrtc = Err(not_found(Component::Nvrtc)));
    assert!(
        without.starts_with("no CUDA device: libnvrtc.so.13 not found; install CUDA toolkit"),
        "{without}"
    );
    let old = why(|probe| probe.nvrtc = library("libnvrtc.so", version(12, 9, None)));
    assert!(old.contains("NVRTC 12.9 is older than 13.0; install"), "{old}");
    let old = why(|probe| {
        probe.driver =
            Ok(DriverInfo { cuda: version(12, 8, None), kernel: None, file: "libcuda.so.1".into() });
    });
    assert!(old.contains("CUDA driver 12.8 is older than 13.0; update the NVIDIA driver"), "{old}");
    let old = why(|probe| probe.devices[0].compute_capability = ComputeCapability { major: 7, minor: 5 });
    assert!(old.contains("NVIDIA H200 is sm_75, older than sm_80; use a GPU"), "{old}");
}

#[test]
fn line_without_kernel_version() {
    let mut probe = present();
    if let Ok(driver) = &mut probe.driver {
        driver.kernel = None;
    }
    assert!(probe.to_string().contains("132 SMs, driver for CUDA 13.0, NVRTC"));
}

#[test]
fn line_without_driver() {
    let remedy = not_found(Component::Driver).remedy();
    assert_eq!(absent().to_string(), format!("CUDA: no driver (libcuda.so.1 not found); {remedy}"));
    assert_eq!(
        absent().require().unwrap_err().to_string(),
        format!("no CUDA device: libcuda.so.1 not found; {remedy}")
    );
}

#[test]
fn line_without_device() {
    let mut probe = present();
    probe.devices.clear();
    probe.device_faults = vec![cu_init(NO_DEVICE, "CUDA_ERROR_NO_DEVICE")];
    assert_eq!(
        probe.to_string(),
        format!(
            "CUDA: no device (cuInit gave CUDA_ERROR_NO_DEVICE), driver 580.159.04 \
             (CUDA 13.0), NVRTC 13.0, cuBLAS 13.1.0, cuBLASLt 13.1.0; {MAKE_VISIBLE}"
        )
    );
    assert_eq!(
        probe.require().unwrap_err().to_string(),
        format!("no CUDA device: cuInit gave CUDA_ERROR_NO_DEVICE; {MAKE_VISIBLE}")
    );
}

#[test]
fn line_with_a_device_left_out() {
    let mut probe = present();
    probe.device_faults = vec![Fault::Call {
        component: Component::Driver,
        call: "cuDeviceGetName",
        device: Some(1),
        code: 999,
        error: "CUDA_ERROR_UNKNOWN".into(),
    }];
    assert!(probe.to_string().ends_with(
        "cuBLASLt 13.1.0, left out: cuDeviceGetName of device 1 gave CUDA_ERROR_UNKNOWN; \
         check the driver with `nvidia-smi`"
    ));
    assert_eq!(probe.require(), Ok(&h200(0)));
}

#[test]
fn line_without_libraries() {
    let mut probe = present();
    probe.nvrtc = absent().nvrtc;
    probe.cublas = absent().cublas;
    probe.cublaslt = absent().cublaslt;
    let remedies = [Component::Nvrtc, Component::Cublas].map(|c| not_found(c).remedy());
    let mut expected = "NVIDIA H200, sm_90, 132 SMs, driver 580.159.04 (CUDA 13.0), no NVRTC \
                        (libnvrtc.so.13 not found), no cuBLAS (libcublas.so.13 not found), no \
                        cuBLASLt (libcublasLt.so.13 not found)"
        .to_owned();
    // On macOS both remedies are the same, and said once.
    let count = if remedies[0] == remedies[1] { 1 } else { 2 };
    for remedy in &remedies[..count] {
        expected += "; ";
        expected += remedy;
    }
    assert_eq!(probe.to_string(), expected);
}

#[test]
fn json() {
    let json = serde_json::to_value(present()).unwrap();
    assert_eq!(json["driver"]["cuda"], "13.0");
    assert_eq!(json["devices"][0]["compute_capability"]["major"], 9);
    assert_eq!(json["cublas"]["version"], "13.1.0");

    let json = serde_json::to_value(absent()).unwrap();
    assert_eq!(json["driver"]["cause"], "libcuda.so.1 not found");
    assert_eq!(json["nvrtc"]["remedy"], not_found(Component::Nvrtc).remedy());
    assert!(json["cublas"]["tried"].as_array().unwrap().len() > 1);

    let json = serde_json::to_value(cu_init(NO_DEVICE, "CUDA_ERROR_NO_DEVICE")).unwrap();
    assert_eq!(json["call"], "cuInit");
    assert_eq!(json["error"], "CUDA_ERROR_NO_DEVICE");
    assert_eq!(json.get("device"), None);
}

/// What a user is told to look for is among the names that are tried.
#[cfg(target_os = "linux")]
#[test]
fn known_name_is_tried() {
    for component in [Component::Driver, Component::Nvrtc, Component::Cublas, Component::CublasLt] {
        let tried = component.candidates();
        assert!(tried.iter().any(|name| name == component.file()), "{tried:?}");
    }
}

#[test]
fn cuda_versions() {
    assert_eq!(Version::from_cuda(13000).to_string(), "13.0");
    assert_eq!(Version::from_cuda(12090).to_string(), "12.9");
    assert_eq!(Version::from_cuda(11040).to_string(), "11.4");
    assert!(version(12, 9, None) < version(13, 0, None));
}

#[test]
fn kernel_versions() {
    let parse = parse_kernel_version;
    let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  \
                  Sat Aug 19 01:15:15 UTC 2023\n\
                  GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n";
    assert_eq!(parse(closed).as_deref(), Some("535.104.05"));
    let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  \
                Release Build  (root@builder)  Tue Jan  6 00:00:00 UTC 2026\n";
    assert_eq!(parse(open).as_deref(), Some("580.159.04"));
    let two = "NVRM version: NVIDIA UNIX aarch64 Kernel Module  470.82  Wed Oct 27 2021";
    assert_eq!(parse(two).as_deref(), Some("470.82"));
    // The compiler's version is not the driver's.
    assert_eq!(parse("GCC version:  gcc version 11.4.0\n"), None);
    assert_eq!(parse("NVRM version: NVIDIA UNIX x86_64 Kernel Module\n"), None);
    assert_eq!(parse(""), None);
}
