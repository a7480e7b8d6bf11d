//! Functions of f32, element by element: the canonical sequence itself, which the compiler
//! vectorises where it is inlined into a loop that is compiled for an instruction set.

use super::lanes::Lanes;
use super::{Kernel, Simd};
use rayon::prelude::*;

/// A function of `N` f32. It must be `#[inline(always)]` down to the last operation.
pub(crate) trait Function<const N: usize>: Copy + Sync {
    /// Its value.
    fn of(self, x: [f32; N]) -> f32;
}

/// Elements of a task: enough to hide its cost, few enough to stay in the cache.
const CHUNK: usize = 1 << 14;

/// The canonical NaN, which no processor makes of itself.
const NAN: f32 = f32::from_bits(0x7fff_ffff);

struct Loop<'a, F, const N: usize> {
    function: F,
    x: [&'a [f32]; N],
    y: &'a mut [f32],
}

impl<F: Function<N>, const N: usize> Kernel for Loop<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let count = self.y.len();
        let mut x = self.x;
        for x in &mut x {
            *x = &x[..count];
        }
        for i in 0..count {
            let mut arguments = [0.0; N];
            for (argument, x) in arguments.iter_mut().zip(x) {
                *argument = x[i];
            }
            let y = self.function.of(arguments);
            self.y[i] = if y.is_nan() { NAN } else { y };
        }
    }
}

/// The function's value of each element, NaN canonical, on rayon's threads.
pub(crate) fn map<F: Function<N>, const N: usize>(simd: Simd, function: F, x: [&[f32]; N], y: &mut [f32]) {
    y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
        let x = x.map(|x| &x[chunk * CHUNK..][..y.len()]);
        simd.run(Loop { function, x, y });
    });
}
