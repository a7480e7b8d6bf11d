//! Who converts: the reference's fast path and other crates, all given the same values and
//! each its own memory for results.

use plumbline_reference::fast::{Conversion, Simd};
use rayon::prelude::*;

/// Elements of one task of a peer, as many as the reference takes.
const CHUNK: usize = 1 << 15;

/// One way to convert, with its input and its output.
pub trait Contender: Send {
    /// Converts all elements on rayon's current threads.
    fn convert(&mut self);
    /// The code of element `i` of the result.
    fn code(&self, i: usize) -> u64;
}

/// The fast path of the reference.
pub struct Fast<'a> {
    pub conversion: Conversion,
    pub simd: Simd,
    pub x: &'a [u8],
    pub y: Vec<u8>,
    pub width: usize,
}

impl Contender for Fast<'_> {
    fn convert(&mut self) {
        self.conversion.convert_parallel(self.simd, self.x, &[], &mut self.y);
    }

    fn code(&self, i: usize) -> u64 {
        let mut code = [0; 8];
        code[..self.width].copy_from_slice(&self.y[i * self.width..][..self.width]);
        u64::from_le_bytes(code)
    }
}

/// A conversion of slices, in chunks on rayon's threads.
pub struct Slices<X, Y, F> {
    x: Vec<X>,
    y: Vec<Y>,
    convert: F,
    code: fn(&Y) -> u64,
    chunk: usize,
}

impl<X: Sync + Send, Y: Send + Sync, F: Fn(&[X], &mut [Y]) + Sync + Send> Contender for Slices<X, Y, F> {
    fn convert(&mut self) {
        let Self { x, y, convert, chunk, .. } = self;
        y.par_chunks_mut(*chunk).zip(x.par_chunks(*chunk)).for_each(|(y, x)| convert(x, y));
    }

    fn code(&self, i: usize) -> u64 {
        (self.code)(&self.y[i])
    }
}

/// By a crate's function for slices.
pub fn slices<'a, X, Y>(
    x: Vec<X>,
    zero: Y,
    convert: impl Fn(&[X], &mut [Y]) + Sync + Send + 'a,
    code: fn(&Y) -> u64,
) -> Box<dyn Contender + 'a>
where
    X: Sync + Send + 'a,
    Y: Clone + Send + Sync + 'a,
{
    let y = vec![zero; x.len()];
    Box::new(Slices { x, y, convert, code, chunk: CHUNK })
}

/// By a crate's function for one element, in a loop that the compiler is free to vectorise.
pub fn elements<'a, X, Y>(
    x: Vec<X>,
    zero: Y,
    one: impl Fn(X) -> Y + Sync + Send + 'a,
    code: fn(&Y) -> u64,
) -> Box<dyn Contender + 'a>
where
    X: Copy + Sync + Send + 'a,
    Y: Clone + Send + Sync + 'a,
{
    let convert = move |x: &[X], y: &mut [Y]| {
        for (y, x) in y.iter_mut().zip(x) {
            *y = one(*x);
        }
    };
    slices(x, zero, convert, code)
}

/// A copy, in tasks of `chunk` elements.
pub fn copy<'a>(x: Vec<u32>, chunk: usize) -> Box<dyn Contender + 'a> {
    let y = vec![0; x.len()];
    Box::new(Slices {
        x,
        y,
        convert: |x: &[u32], y: &mut [u32]| y.copy_from_slice(x),
        code: |&y| y.into(),
        chunk,
    })
}
