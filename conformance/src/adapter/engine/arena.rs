//! Memory with addresses that are used again.

use plumbline_reference::backend::Layout;
use plumbline_reference::{Tensor, TensorError};
use std::collections::BTreeMap;

/// What every address and length is a multiple of.
const GRAIN: u64 = 256;

/// One range of addresses. Freed blocks are kept as they are; the last freed of exactly the size
/// that is asked for is the first to be given out again, as caching allocators do.
#[derive(Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    allocations: BTreeMap<u64, Allocation>,
    /// Address and length, the last freed last.
    holes: Vec<(u64, u64)>,
    serial: u64,
}

struct Allocation {
    len: u64,
    stamp: Stamp,
}

/// What memory holds, as far as it can be told without looking at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    /// Which of all allocations.
    pub(super) serial: u64,
    /// How often something was written into it.
    pub(super) generation: u64,
}

/// A tensor in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) address: u64,
    pub(super) layout: Layout,
}

impl Arena {
    pub(super) fn allocate(&mut self, bytes: usize) -> u64 {
        let len = (bytes as u64).max(1).next_multiple_of(GRAIN);
        let exact = self.holes.iter().rposition(|&(_, hole)| hole == len);
        let lowest = || {
            let fits = self.holes.iter().enumerate().filter(|(_, (_, hole))| *hole >= len);
            fits.min_by_key(|(_, (address, _))| *address).map(|(i, _)| i)
        };
        let address = match exact.or_else(lowest) {
            Some(i) => {
                let (address, hole) = self.holes.remove(i);
                if hole > len {
                    self.holes.push((address + len, hole - len));
                }
                address
            }
            None => {
                // No block begins at 0, which is no address.
                let address = (self.bytes.len() as u64).max(GRAIN);
                self.bytes.resize((address + len) as usize, 0);
                address
            }
        };
        self.serial += 1;
        let stamp = Stamp { serial: self.serial, generation: 0 };
        self.allocations.insert(address, Allocation { len, stamp });
        address
    }

    pub(super) fn free(&mut self, address: u64) {
        if let Some(Allocation { len, .. }) = self.allocations.remove(&address) {
            self.holes.push((address, len));
        }
    }

    /// The stamp of the allocation around an address.
    pub(super) fn stamp(&self, address: u64) -> Option<Stamp> {
        let (first, allocation) = self.allocations.range(..=address).next_back()?;
        (address - first < allocation.len).then_some(allocation.stamp)
    }

    /// Bytes of the range, allocated or not: that is how a device's kernels see it.
    pub(super) fn bytes(&self, address: u64, len: usize) -> &[u8] {
        &self.bytes[address as usize..][..len]
    }

    /// The same to be written.
    pub(super) fn bytes_mut(&mut self, address: u64, len: usize) -> &mut [u8] {
        let around = self.allocations.range_mut(..=address).next_back();
        if let Some((first, allocation)) = around
            && address - first < allocation.len
        {
            allocation.stamp.generation += 1;
        }
        &mut self.bytes[address as usize..][..len]
    }

    pub(super) fn read(&self, operand: &Operand) -> Result<Tensor, TensorError> {
        operand.layout.gather(self.bytes(operand.address, operand.layout.total()?))
    }

    pub(super) fn write(&mut self, operand: &Operand, tensor: &Tensor) -> Result<(), TensorError> {
        let total = operand.layout.total()?;
        operand.layout.scatter(tensor, self.bytes_mut(operand.address, total));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_address_is_given_out_again_and_its_stamp_is_new() {
        let mut arena = Arena::default();
        let [first, second, _third] = [1000, 300, 1000].map(|bytes| arena.allocate(bytes));
        assert!(first > 0 && second > first && [first, second].iter().all(|it| it % GRAIN == 0));
        let before = arena.stamp(first + 999).unwrap();
        arena.free(first);
        arena.free(second);
        assert_eq!((arena.stamp(first), arena.stamp(second)), (None, None));
        // Exactly the size, before the lower address that has more.
        assert_eq!(arena.allocate(400), second);
        assert_eq!(arena.allocate(900), first);
        assert_ne!(arena.stamp(first).unwrap().serial, before.serial);
        // What is left of a larger hole.
        arena.free(first);
        assert_eq!(arena.allocate(256), first);
        assert_eq!(arena.allocate(700), first + 256);
    }

    #[test]
    fn writing_shows_in_the_stamp_and_reading_does_not() {
        let mut arena = Arena::default();
        let address = arena.allocate(10);
        let before = arena.stamp(address).unwrap();
        assert_eq!(arena.bytes(address, 10), [0; 10]);
        assert_eq!(arena.stamp(address), Some(before));
        arena.bytes_mut(address + 3, 1)[0] = 7;
        let after = Stamp { generation: before.generation + 1, ..before };
        assert_eq!((arena.stamp(address), arena.bytes(address, 5)), (Some(after), &[0, 0, 0, 7, 0][..]));
    }
}
