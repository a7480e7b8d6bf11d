//! Functions of whole rows of f32, one after the other: written as loops over slices, which the
//! compiler vectorises where they are inlined into what is compiled for an instruction set.

use super::lanes::Lanes;
use super::{Kernel, Simd};
use rayon::prelude::*;

/// A function of a row. It must be `#[inline(always)]` and free of closures down to the last
/// operation.
pub(crate) trait Row: Copy + Sync {
    /// Writes its values; NaNs may be any.
    fn of(self, x: &[f32], y: &mut [f32]);
}

struct One<'a, F> {
    function: F,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<F: Row> Kernel for One<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        self.function.of(self.x, self.y);
    }
}

/// The function's values of each row of `n` elements, on rayon's threads.
pub(crate) fn rows<F: Row>(simd: Simd, function: F, x: &[f32], n: usize, y: &mut [f32]) {
    if n == 0 {
        return;
    }
    let rows = x.par_chunks_exact(n).zip(y.par_chunks_exact_mut(n));
    rows.for_each(|(x, y)| simd.run(One { function, x, y }));
}
