//! cuBLASLt.

use super::layout::alignment;
use super::product::{Algorithm, Operand, Product, is_fp8, numbered};
use super::{Refusal, WORKSPACE, library_types, pointer, scalar};
use crate::error::{CudaError, Named};
use crate::memory::Memory;
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::{result, sys};
use cudarc::driver::{CudaContext, CudaStream};
use plumbline_reference::backend::Unsupported;
use plumbline_reference::ops::Compute;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use sys::cublasLtMatmulAlgoConfigAttributes_t as Config;
use sys::cublasLtMatmulDescAttributes_t as Attribute;
use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use sys::cublasLtMatrixLayoutAttribute_t as LayoutAttribute;

library_types!();

/// The function that queues a product.
pub(super) const FUNCTION: &str = "cublasLtMatmul";

/// Algorithms that are asked for at most, more than were ever offered.
const MOST: usize = 256;

/// A handle. It belongs to no stream.
pub(crate) struct Lt {
    handle: sys::cublasLtHandle_t,
    context: Arc<CudaContext>,
}

// SAFETY: cuBLASLt's functions may be called by several threads with one handle.
unsafe impl Send for Lt {}
// SAFETY: as above.
unsafe impl Sync for Lt {}

impl Lt {
    /// A handle in a context that is current.
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Self, CudaError> {
        let handle = result::create_handle().named("cublasLtCreate")?;
        Ok(Self { handle, context: context.clone() })
    }

    /// The variants of all algorithms that are offered for a product.
    pub(crate) fn offered(&self, product: &Product) -> Result<Vec<String>, Refusal> {
        let offered = Descriptors::new(product)?.offered(self, product, WORKSPACE, MOST)?;
        Ok((0..offered.len()).map(numbered).collect())
    }
}

impl Drop for Lt {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: created once and destroyed once. There is nobody to tell of an error.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

/// A product with its descriptors and its algorithm.
pub(crate) struct Call {
    lt: Arc<Lt>,
    product: Product,
    descriptors: Descriptors,
    algorithm: sys::cublasLtMatmulHeuristicResult_t,
    /// Bytes of the workspace that it may use.
    workspace: usize,
}

impl Call {
    /// A product by one of the algorithms that the heuristic offers.
    pub(super) fn new(lt: Arc<Lt>, product: Product, algorithm: Algorithm) -> Result<Self, Refusal> {
        let descriptors = Descriptors::new(&product)?;
        let (workspace, most, number) = match algorithm {
            Algorithm::First => (WORKSPACE, 1, 0),
            Algorithm::NoWorkspace => (0, 1, 0),
            Algorithm::Numbered(number) => (WORKSPACE, MOST, number),
        };
        let offered = descriptors.offered(&lt, &product, workspace, most)?;
        let Some(algorithm) = offered.get(number).copied() else {
            let count = offered.len();
            return Err(
                Unsupported(format!("cuBLASLt offers {count} algorithms for it, counted from 0")).into()
            );
        };
        Ok(Self { lt, product, descriptors, algorithm, workspace })
    }

    /// Queues it.
    pub(super) fn queue(&self, stream: &CudaStream, workspace: &Memory) -> Result<(), CudaError> {
        let Product { a, b, c, d, .. } = &self.product;
        let [alpha, beta] =
            [self.product.alpha, self.product.beta].map(|value| scalar(self.product.compute, value));
        let workspace = if self.workspace == 0 { ptr::null_mut() } else { pointer(workspace.address) };
        // Where beta is zero, c is not read. The library takes c in place only with d's layout.
        let c = c.map_or(if is_fp8(d.format) { 0 } else { d.address }, |c| c.address);
        // SAFETY: handle and descriptors are valid, the addresses are those of the matrices that
        // the descriptors tell of, the workspace is large enough for the algorithm, and alpha and
        // beta are read before the call returns.
        unsafe {
            result::matmul(
                self.lt.handle,
                self.descriptors.operation.raw,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                pointer(a.address),
                self.descriptors.a.raw,
                pointer(b.address),
                self.descriptors.b.raw,
                pointer(c),
                self.descriptors.c.raw,
                pointer(d.address),
                self.descriptors.d.raw,
                &raw const self.algorithm.algo,
                workspace,
                self.workspace,
                stream.cu_stream().cast(),
            )
        }
        .named(FUNCTION)
    }

    /// The algorithm that was chosen.
    pub(super) fn describe(&self) -> Result<BTreeMap<String, String>, CudaError> {
        let facts = [
            ("library", "cublaslt".to_owned()),
            ("function", FUNCTION.to_owned()),
            ("compute", format!("{:?}", compute_type(self.product.compute))),
            ("workspace", self.algorithm.workspaceSize.to_string()),
            ("workspace offered", self.workspace.to_string()),
            ("waves", self.algorithm.wavesCount.to_string()),
        ];
        let facts = facts.into_iter().chain(configuration(&self.algorithm.algo)?);
        Ok(facts.map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// An algorithm's configuration, in the library's own numbers.
fn configuration(algorithm: &sys::cublasLtMatmulAlgo_t) -> Result<[(&'static str, String); 9], CudaError> {
    let words = |attribute| config::<4>(algorithm, attribute);
    let halves = |attribute| config::<2>(algorithm, attribute);
    Ok([
        ("algorithm", words(Config::CUBLASLT_ALGO_CONFIG_ID)?.to_string()),
        ("tile", words(Config::CUBLASLT_ALGO_CONFIG_TILE_ID)?.to_string()),
        ("stages", words(Config::CUBLASLT_ALGO_CONFIG_STAGES_ID)?.to_string()),
        ("split_k", words(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM)?.cast_signed().to_string()),
        ("reduction", reduction_name(words(Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)?)),
        ("swizzle", words(Config::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING)?.to_string()),
        ("custom", words(Config::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)?.to_string()),
        ("inner_shape", halves(Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)?.to_string()),
        ("cluster", halves(Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)?.to_string()),
    ])
}

/// The value of an attribute of so many bytes.
fn config<const BYTES: usize>(
    algorithm: &sys::cublasLtMatmulAlgo_t,
    attribute: Config,
) -> Result<u32, CudaError> {
    let (mut value, mut written) = (0u32.to_le_bytes(), 0);
    // SAFETY: the function writes at most that many bytes, which there are.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigGetAttribute(
            algorithm,
            attribute,
            value.as_mut_ptr().cast(),
            BYTES,
            &raw mut written,
        )
    };
    status.result().named(format!("cublasLtMatmulAlgoConfigGetAttribute of {attribute:?}"))?;
    Ok(u32::from_le_bytes(value))
}

/// How partial sums of a split K meet.
fn reduction_name(scheme: u32) -> String {
    match scheme {
        0 => "none".to_owned(),
        1 => "in place".to_owned(),
        2 => "compute type".to_owned(),
        4 => "output type".to_owned(),
        other => other.to_string(),
    }
}

/// A descriptor of the library's.
struct Owned<T> {
    raw: *mut T,
    destroy: unsafe fn(*mut T) -> Result<(), CublasError>,
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: created once and destroyed once. There is nobody to tell of an error.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

impl Owned<sys::cublasLtMatmulDescOpaque_t> {
    fn set<T: Copy>(&self, attribute: Attribute, value: T) -> Result<(), CudaError> {
        let bytes = size_of::<T>();
        // SAFETY: the descriptor is valid and the value has that many bytes.
        unsafe { result::set_matmul_desc_attribute(self.raw, attribute, (&raw const value).cast(), bytes) }
            .named(format!("cublasLtMatmulDescSetAttribute of {attribute:?}"))
    }
}

impl Owned<sys::cublasLtMatmulPreferenceOpaque_t> {
    fn set<T: Copy>(&self, attribute: Preference, value: T) -> Result<(), CudaError> {
        let bytes = size_of::<T>();
        // SAFETY: the descriptor is valid and the value has that many bytes.
        unsafe { result::set_matmul_pref_attribute(self.raw, attribute, (&raw const value).cast(), bytes) }
            .named(format!("cublasLtMatmulPreferenceSetAttribute of {attribute:?}"))
    }
}

type Layout = Owned<sys::cublasLtMatrixLayoutOpaque_t>;

impl Layout {
    /// The layout of a matrix that is stored with these extents.
    fn new(
        data_type: sys::cudaDataType,
        [rows, columns]: [usize; 2],
        operand: &Operand,
        batch: Option<usize>,
    ) -> Result<Self, Refusal> {
        let stored = operand.stored;
        let raw = result::create_matrix_layout(data_type, rows as u64, columns as u64, stored.ld as i64)
            .named("cublasLtMatrixLayoutCreate")?;
        let layout = Self { raw, destroy: result::destroy_matrix_layout };
        if let Some(batch) = batch {
            let too_many = |_| Unsupported(format!("cuBLASLt takes batches of up to {}", i32::MAX));
            layout.set(
                LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                i32::try_from(batch).map_err(too_many)?,
            )?;
            layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stored.stride as i64)?;
        }
        Ok(layout)
    }

    fn set<T: Copy>(&self, attribute: LayoutAttribute, value: T) -> Result<(), CudaError> {
        let bytes = size_of::<T>();
        // SAFETY: the descriptor is valid and the value has that many bytes.
        unsafe { result::set_matrix_layout_attribute(self.raw, attribute, (&raw const value).cast(), bytes) }
            .named(format!("cublasLtMatrixLayoutSetAttribute of {attribute:?}"))
    }
}

/// What describes a product to the library.
struct Descriptors {
    operation: Owned<sys::cublasLtMatmulDescOpaque_t>,
    a: Layout,
    b: Layout,
    c: Layout,
    d: Layout,
}

impl Descriptors {
    fn new(product: &Product) -> Result<Self, Refusal> {
        let [m, n, k] = product.extents;
        let layout = |operand: &Operand, rows, columns| {
            let extents = operand.extents(rows, columns);
            Layout::new(data_type(operand.format), extents, operand, product.batch)
        };
        let c = Operand { format: product.addend(), ..product.c.unwrap_or(product.d) };
        Ok(Self {
            operation: operation(product)?,
            a: layout(&product.a, m, k)?,
            b: layout(&product.b, k, n)?,
            c: layout(&c, m, n)?,
            d: layout(&product.d, m, n)?,
        })
    }

    /// The algorithms that the heuristic offers, the fastest by its estimate first: at least one
    /// and at most that many, none of which needs more workspace than that.
    fn offered(
        &self,
        lt: &Lt,
        product: &Product,
        workspace: usize,
        most: usize,
    ) -> Result<Vec<sys::cublasLtMatmulHeuristicResult_t>, Refusal> {
        let preference = Owned {
            raw: result::create_matmul_pref().named("cublasLtMatmulPreferenceCreate")?,
            destroy: result::destroy_matmul_pref,
        };
        preference.set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace as u64)?;
        let c = product.c.unwrap_or(product.d);
        for (attribute, operand) in [
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &product.a),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &product.b),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &product.d),
        ] {
            preference.set(attribute, alignment(operand.address))?;
        }
        let mut results = Vec::with_capacity(most);
        results.resize_with(most, MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::zeroed);
        let mut count: c_int = 0;
        // SAFETY: handle and descriptors are valid; there is room for that many results.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                lt.handle,
                self.operation.raw,
                self.a.raw,
                self.b.raw,
                self.c.raw,
                self.d.raw,
                preference.raw,
                most as c_int,
                results.as_mut_ptr().cast(),
                &raw mut count,
            )
        };
        let count = usize::try_from(count).unwrap_or(0).min(most);
        let call = "cublasLtMatmulAlgoGetHeuristic";
        // What FP8 lacks may show as one status or the other; else an invalid value is a mistake.
        let is_refused = status == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED
            || status == sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE && !product.unmet().is_empty();
        if is_refused {
            return Err(refused(product, format!("{call} gave {status:?}")).into());
        }
        status.result().named(call)?;
        // SAFETY: all bytes are initialised, with zeros or by the library, and zeros are a value
        // of every field.
        let results = results.into_iter().take(count).map(|result| unsafe { result.assume_init() });
        let offered: Vec<_> =
            results.filter(|result| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).collect();
        if offered.is_empty() {
            return Err(refused(product, format!("{call} offers no algorithm")).into());
        }
        Ok(offered)
    }
}

/// Why the library offers nothing.
fn refused(product: &Product, why: String) -> Unsupported {
    let [m, n, k] = product.extents;
    let of =
        format!("{} x {} into {}, m {m}, n {n}, k {k}", product.a.format, product.b.format, product.d.format);
    let unmet = product.unmet();
    let needs = if unmet.is_empty() { String::new() } else { format!("; FP8 needs {}", unmet.join(", ")) };
    Unsupported(format!("{why} for {of} in column-major order{needs}"))
}

/// The descriptor of the operation.
fn operation(product: &Product) -> Result<Owned<sys::cublasLtMatmulDescOpaque_t>, CudaError> {
    let scale_type = match product.compute {
        Compute::F16 => sys::cudaDataType::CUDA_R_16F,
        Compute::F32 | Compute::Tf32 => sys::cudaDataType::CUDA_R_32F,
    };
    let raw = result::create_matmul_desc(compute_type(product.compute), scale_type)
        .named("cublasLtMatmulDescCreate")?;
    let operation = Owned { raw, destroy: result::destroy_matmul_desc };
    // CUBLAS_OP_N and CUBLAS_OP_T.
    operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(product.a.stored.transposed))?;
    operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(product.b.stored.transposed))?;
    if is_fp8(product.a.format) {
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, i8::from(product.fast_accumulation))?;
    }
    for (scale, address, mode) in [
        (
            product.scale_a,
            Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
            Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        ),
        (
            product.scale_b,
            Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
            Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
        ),
    ] {
        let Some(scale) = scale else { continue };
        operation.set(address, scale.address)?;
        if scale.is_vector {
            let vector = sys::cublasLtMatmulMatrixScale_t::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
            operation.set(mode, vector as i32)?;
        }
    }
    if let Some(scale) = product.scale_d {
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, scale)?;
    }
    if let Some(bias) = product.bias {
        let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as u32)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.address)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(bias.format) as i32)?;
    }
    Ok(operation)
}

#[cfg(test)]
mod tests;
