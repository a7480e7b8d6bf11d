//! The variants of `gemm` by cuBLAS and cuBLASLt.

use crate::blas::layout::{Arranged, Matrix, arrange, runs};
use crate::blas::product::{Bias, CUBLAS, CUBLASLT, NO_WORKSPACE, Operand, Scale};
use crate::blas::{Product, Way, layout, support};
use crate::device::ComputeCapability;
use crate::plan::{Step, View};
use plumbline_reference::DType;
use plumbline_reference::backend::Unsupported;
use plumbline_reference::format::{F32, Format};
use plumbline_reference::ops::gemm::Geometry;
use plumbline_reference::ops::{Gemm, GemmScale, Operation};

/// Bytes by which scales per row are aligned: what cuBLASLt asks of others that are no scalars,
/// and its heuristic is not told of their alignment.
const SCALE_ALIGNMENT: u32 = 16;

/// The variants of libraries; cuBLASLt's numbered algorithms are known by shape only.
const LIBRARIES: [&str; 3] = [CUBLAS, CUBLASLT, NO_WORKSPACE];

/// The ways to do it.
pub(super) fn variants(gemm: &Gemm, arch: ComputeCapability) -> Result<Vec<&'static str>, Unsupported> {
    let mut variants = Vec::new();
    let mut reasons = Vec::new();
    for name in LIBRARIES {
        let is_there = |way| support::check(way, gemm).and_then(|()| support::device(gemm, arch));
        match way(name).and_then(is_there) {
            Ok(()) => variants.push(name),
            Err(why) if !reasons.contains(&why) => reasons.push(why),
            Err(_) => {}
        }
    }
    if variants.is_empty() { Err(Unsupported(reasons.join("; "))) } else { Ok(variants) }
}

fn way(variant: &str) -> Result<Way, String> {
    Way::by_name(variant).ok_or_else(|| format!("has no kernel of gemm named {variant}"))
}

/// The steps of one of the variants.
pub(super) fn plan(
    gemm: &Gemm,
    variant: &str,
    inputs: &[View],
    outputs: &[View],
) -> Result<Vec<Step>, Unsupported> {
    let way = way(variant).map_err(Unsupported)?;
    support::check(way, gemm).map_err(Unsupported)?;
    Call { gemm, way, inputs, y: &outputs[0] }.steps().map_err(Unsupported)
}

/// Where an input is among those given.
pub(in crate::ops) fn position(gemm: &Gemm, name: &str) -> Option<usize> {
    gemm.input_names().iter().position(|own| *own == name)
}

/// A call on tensors.
struct Call<'a> {
    gemm: &'a Gemm,
    way: Way,
    inputs: &'a [View],
    y: &'a View,
}

impl Call<'_> {
    fn input(&self, name: &str) -> Option<&View> {
        position(self.gemm, name).map(|i| &self.inputs[i])
    }

    fn steps(&self) -> Result<Vec<Step>, String> {
        let (gemm, [a, b]) = (self.gemm, [&self.inputs[0], &self.inputs[1]]);
        if self.y.count() == 0 {
            return Ok(Vec::new());
        }
        let geometry = Geometry::of_shapes(gemm, &a.ty.shape, &b.ty.shape);
        let c = self.input("c").filter(|_| gemm.reads_c());
        let matrix = |view, transpose| {
            let matrix = Matrix::of(view);
            if transpose { matrix.transposed() } else { matrix }
        };
        let arranged = arrange(
            matrix(a, gemm.transpose_a),
            matrix(b, gemm.transpose_b),
            c.map(|c| matrix(c, false)),
            matrix(self.y, false),
        )?;
        if geometry.k == 0 && self.way != Way::Cublas {
            return self.empty_sum(&geometry, &arranged);
        }
        let mut product = self.product(&geometry, &arranged, c)?;
        let mut steps = Vec::new();
        // cuBLAS reads c where it writes d.
        if self.way == Way::Cublas
            && let Some(c) = product.c.take()
            && c.address != product.d.address
        {
            steps = copies(&geometry, &arranged, c, product.d);
        }
        steps.push(Step::Product(Box::new(product)));
        Ok(steps)
    }

    fn product(&self, geometry: &Geometry, arranged: &Arranged, c: Option<&View>) -> Result<Product, String> {
        let (gemm, &Geometry { m, n, k, .. }) = (self.gemm, geometry);
        let y = Operand { address: self.y.address, format: gemm.out, stored: arranged.d };
        let operand = |view: &View, format, stored| {
            // Without elements there may be no memory either.
            let address = if view.count() == 0 { y.address } else { view.address };
            Operand { address, format, stored }
        };
        let [a, b] = [(&self.inputs[0], gemm.a), (&self.inputs[1], gemm.b)];
        let scales = [("scale_a", gemm.scale_a), ("scale_b", gemm.scale_b)].map(|(name, scale)| {
            let view = self.input(name)?;
            Some((name, view, scale == GemmScale::Row))
        });
        let scale = |scale: Option<(&str, &View, bool)>| -> Result<Option<Scale>, String> {
            let Some((name, view, is_vector)) = scale else { return Ok(None) };
            if is_vector {
                side_by_side(name, view)?;
                if layout::alignment(view.address) < SCALE_ALIGNMENT {
                    return Err(format!("{name} is aligned to less than {SCALE_ALIGNMENT} bytes"));
                }
            }
            Ok(Some(Scale { address: view.address, is_vector }))
        };
        let [scale_a, scale_b] = scales;
        let swap = arranged.swapped;
        let [first, second] = if swap { [b, a] } else { [a, b] };
        let [first_scale, second_scale] = if swap { [scale_b, scale_a] } else { [scale_a, scale_b] };
        Ok(Product {
            way: self.way,
            compute: gemm.compute,
            fast_accumulation: gemm.fast_accumulation,
            extents: if swap { [n, m, k] } else { [m, n, k] },
            batch: geometry.is_batched.then_some(geometry.batch),
            a: operand(first.0, first.1, arranged.first),
            b: operand(second.0, second.1, arranged.second),
            c: c.zip(arranged.c).map(|(c, stored)| Operand { address: c.address, format: format(c), stored }),
            d: y,
            alpha: gemm.alpha.0,
            beta: if c.is_some() { gemm.beta.0 } else { 0.0 },
            scale_a: scale(first_scale)?,
            scale_b: scale(second_scale)?,
            scale_d: self.input("scale_out").map(|view| view.address),
            bias: self.bias(arranged)?,
        })
    }

    fn bias(&self, arranged: &Arranged) -> Result<Option<Bias>, String> {
        let Some(view) = self.input("bias") else { return Ok(None) };
        if !arranged.swapped {
            return Err(
                "cuBLASLt adds a bias along the columns of a column-major output, not its rows".to_owned()
            );
        }
        side_by_side("bias", view)?;
        Ok(Some(Bias { address: view.address, format: format(view) }))
    }

    /// A product without products, which is zero. cuBLASLt has no matrices without elements.
    fn empty_sum(&self, geometry: &Geometry, arranged: &Arranged) -> Result<Vec<Step>, String> {
        let gemm = self.gemm;
        let plain = [gemm.scale_a, gemm.scale_b] == [GemmScale::None; 2] && !gemm.scale_out;
        if gemm.reads_c() || gemm.bias.is_some() || !plain {
            return Err(
                "cuBLASLt has no product with K = 0, and c, bias and scales would still count".to_owned()
            );
        }
        if !(gemm.alpha.0.is_finite() && gemm.alpha.0.is_sign_positive()) {
            return Err("cuBLASLt has no product with K = 0, and alpha times zero is not +0".to_owned());
        }
        let width = self.y.width();
        let (len, starts) = runs(extents(geometry, arranged), [arranged.d]);
        let zero = |[start]: [usize; 1]| Step::Zero {
            address: self.y.address + start as u64 * width,
            bytes: len * width as usize,
        };
        Ok(starts.into_iter().map(zero).collect())
    }
}

/// Extents of the output as it is stored: of a column, how many of these, how many matrices.
fn extents(geometry: &Geometry, arranged: &Arranged) -> [usize; 3] {
    let &Geometry { m, n, batch, .. } = geometry;
    if arranged.swapped { [n, m, batch] } else { [m, n, batch] }
}

/// c copied to where d will be.
fn copies(geometry: &Geometry, arranged: &Arranged, c: Operand, d: Operand) -> Vec<Step> {
    let width = d.format.storage_bits as usize / 8;
    let (len, starts) = runs(extents(geometry, arranged), [c.stored, d.stored]);
    let copy = |[from, to]: [usize; 2]| Step::Copy {
        from: c.address + (from * width) as u64,
        to: d.address + (to * width) as u64,
        bytes: len * width,
    };
    starts.into_iter().map(copy).collect()
}

/// Requires the elements of a vector to be where cuBLASLt reads them.
fn side_by_side(name: &str, view: &View) -> Result<(), String> {
    if view.is_contiguous() || view.count() <= 1 {
        return Ok(());
    }
    Err(format!("cuBLASLt takes the elements of {name} side by side"))
}

fn format(view: &View) -> Format {
    match view.ty.dtype {
        DType::Float(format) => format,
        DType::U8 | DType::U32 => F32,
    }
}

#[cfg(test)]
mod tests;
