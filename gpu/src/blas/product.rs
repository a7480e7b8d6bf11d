//! A library's matrix product as data.

use super::layout::{Stored, alignment};
use crate::device::Component;
use plumbline_reference::format::{BF16, E4M3FN, E5M2, Format};
use plumbline_reference::ops::Compute;

/// Which library does a product, and by which of its algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// cuBLAS, which chooses by itself.
    Cublas,
    /// cuBLASLt.
    CublasLt(Algorithm),
}

/// An algorithm of cuBLASLt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The heuristic's first choice.
    First,
    /// The first among those that need no workspace.
    NoWorkspace,
    /// One of all that the heuristic offers, counted from 0.
    Numbered(usize),
}

/// The variant of cuBLAS.
pub(crate) const CUBLAS: &str = "cublas";
/// The variant of cuBLASLt.
pub(crate) const CUBLASLT: &str = "cublaslt";
/// The same without workspace.
pub(crate) const NO_WORKSPACE: &str = "cublaslt/no_workspace";

impl Way {
    /// The way of a variant's name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            CUBLAS => Some(Self::Cublas),
            CUBLASLT => Some(Self::CublasLt(Algorithm::First)),
            NO_WORKSPACE => Some(Self::CublasLt(Algorithm::NoWorkspace)),
            _ => {
                let number = name.strip_prefix(CUBLASLT)?.strip_prefix('/')?.parse().ok()?;
                (numbered(number) == name).then_some(Self::CublasLt(Algorithm::Numbered(number)))
            }
        }
    }

    /// The library.
    pub(crate) fn component(self) -> Component {
        match self {
            Self::Cublas => Component::Cublas,
            Self::CublasLt(_) => Component::CublasLt,
        }
    }
}

/// The variant of a numbered algorithm.
pub(crate) fn numbered(number: usize) -> String {
    format!("{CUBLASLT}/{number}")
}

/// `d = scale_d * (alpha * scale_a * scale_b * op(a) * op(b) + beta * c + bias)` with matrices in
/// column-major order: `op(a)` is m times k, `op(b)` k times n, c and d are m times n.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// How it is done.
    pub way: Way,
    /// What it is computed in.
    pub compute: Compute,
    /// FP8: whether sums may stay in the tensor core's short accumulator.
    pub fast_accumulation: bool,
    /// m, n and k.
    pub extents: [usize; 3],
    /// How many there are, where there is a batch.
    pub batch: Option<usize>,
    /// The first operand.
    pub a: Operand,
    /// The second operand.
    pub b: Operand,
    /// What is added; absent where beta is zero.
    pub c: Option<Operand>,
    /// The output.
    pub d: Operand,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of c.
    pub beta: f32,
    /// Scale of a.
    pub scale_a: Option<Scale>,
    /// Scale of b.
    pub scale_b: Option<Scale>,
    /// Address of the scale of d.
    pub scale_d: Option<u64>,
    /// A value for each row of d.
    pub bias: Option<Bias>,
}

/// A matrix in the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Address of the first element.
    pub address: u64,
    /// The elements' format.
    pub format: Format,
    /// How they lie there.
    pub stored: Stored,
}

impl Operand {
    /// Rows and columns of the matrix that is stored, where its use is of these.
    pub(crate) fn extents(&self, rows: usize, columns: usize) -> [usize; 2] {
        if self.stored.transposed { [columns, rows] } else { [rows, columns] }
    }
}

/// Factors in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Address of the first.
    pub address: u64,
    /// Whether there is one per row of `op(a)` or column of `op(b)`.
    pub is_vector: bool,
}

/// A vector that is added to each column of d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bias {
    /// Address of the first element.
    pub address: u64,
    /// The elements' format.
    pub format: Format,
}

/// Whether a format has 8 bits.
pub(crate) fn is_fp8(format: Format) -> bool {
    [E4M3FN, E5M2].contains(&format)
}

impl Product {
    /// The format of c, which cuBLASLt wants to know even where there is none.
    pub(crate) fn addend(&self) -> Format {
        match (self.c, self.bias) {
            (Some(c), _) => c.format,
            (None, _) if !is_fp8(self.d.format) => self.d.format,
            (None, Some(bias)) => bias.format,
            (None, None) => BF16,
        }
    }

    /// What FP8 kernels ask for and this product has not.
    pub(crate) fn unmet(&self) -> Vec<String> {
        if !is_fp8(self.a.format) {
            return Vec::new();
        }
        let [m, _, k] = self.extents;
        let mut unmet = Vec::new();
        if !self.a.stored.transposed || self.b.stored.transposed {
            unmet.push("K side by side in both operands".to_owned());
        }
        let matrices = [("first operand", self.a, k), ("second operand", self.b, k), ("output", self.d, m)];
        for (name, Operand { address, format, stored }, extent) in matrices {
            let width = format.storage_bits as usize / 8;
            if alignment(address) < 16 {
                unmet.push(format!("the {name} aligned to 16 bytes"));
            }
            if [extent, stored.ld].iter().any(|elements| !(elements * width).is_multiple_of(16)) {
                unmet.push(format!("columns of the {name} of whole 16 bytes"));
            }
        }
        unmet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let numbered = |number| Some(Way::CublasLt(Algorithm::Numbered(number)));
        for (name, way) in [
            ("cublas", Some(Way::Cublas)),
            ("cublaslt", Some(Way::CublasLt(Algorithm::First))),
            ("cublaslt/no_workspace", Some(Way::CublasLt(Algorithm::NoWorkspace))),
            ("cublaslt/0", numbered(0)),
            ("cublaslt/12", numbered(12)),
            ("cublaslt/012", None),
            ("cublaslt/+1", None),
            ("cublaslt/-1", None),
            ("cublaslt/", None),
            ("cublaslt0", None),
            ("cublas/0", None),
            ("kernel/tiled", None),
        ] {
            assert_eq!(Way::by_name(name), way, "{name}");
        }
    }
}
