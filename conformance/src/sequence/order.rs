//! Which work is known to be done before which: vector clocks, one for each stream and one for
//! the host.

use std::collections::BTreeMap;

/// How much of each stream's work is known to be done.
type Clock = BTreeMap<u32, u64>;

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &time) in other {
        let own = clock.entry(stream).or_default();
        *own = time.max(*own);
    }
}

/// What was queued, and in what order it is done.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    streams: BTreeMap<u32, Clock>,
    host: Clock,
}

/// Work on a stream.
#[derive(Clone, Copy, Debug)]
struct Access {
    stream: u32,
    time: u64,
}

/// What uses a buffer's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    written: Option<Access>,
    read: Vec<Access>,
}

impl Order {
    /// New work on a stream.
    pub(super) fn queue(&mut self, stream: u32) {
        let host = self.host.clone();
        let clock = self.streams.entry(stream).or_default();
        join(clock, &host);
        *clock.entry(stream).or_default() += 1;
    }

    /// What is queued on `to` from now on waits for what is on `from`.
    pub(super) fn order(&mut self, from: u32, to: u32) {
        let clock = self.streams.entry(from).or_default().clone();
        join(self.streams.entry(to).or_default(), &clock);
    }

    /// The host waits for a stream, or for all.
    pub(super) fn wait(&mut self, stream: Option<u32>) {
        let clocks = self.streams.iter().filter(|(own, _)| stream.is_none_or(|stream| stream == **own));
        for (_, clock) in clocks {
            join(&mut self.host, clock);
        }
    }

    /// The host waits for the work on a buffer.
    pub(super) fn wait_for(&mut self, uses: &Uses) {
        for access in uses.read.iter().chain(&uses.written) {
            let own = self.host.entry(access.stream).or_default();
            *own = access.time.max(*own);
        }
    }

    /// The stream of an earlier use that the newest work on `stream` may run together with.
    pub(super) fn read(&self, uses: &mut Uses, stream: u32) -> Option<u32> {
        let race = uses.written.filter(|access| !self.is_before(*access, stream));
        uses.read.retain(|access| access.stream != stream);
        uses.read.push(self.newest(stream));
        race.map(|access| access.stream)
    }

    /// The same of work that writes.
    pub(super) fn write(&self, uses: &mut Uses, stream: u32) -> Option<u32> {
        let mut earlier = uses.read.iter().chain(&uses.written);
        let race = earlier.find(|access| !self.is_before(**access, stream)).map(|access| access.stream);
        *uses = Uses { written: Some(self.newest(stream)), read: Vec::new() };
        race
    }

    fn newest(&self, stream: u32) -> Access {
        let time = self.streams.get(&stream).and_then(|clock| clock.get(&stream)).copied().unwrap_or(0);
        Access { stream, time }
    }

    fn is_before(&self, access: Access, stream: u32) -> bool {
        let known = self.streams.get(&stream).and_then(|clock| clock.get(&access.stream));
        access.stream == stream || known.is_some_and(|&time| time >= access.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ordered_or_waited_for_is_done_before() {
        let written = || {
            let (mut order, mut uses) = (Order::default(), Uses::default());
            order.queue(0);
            assert_eq!(order.write(&mut uses, 0), None);
            (order, uses)
        };
        let read = |mut order: Order, mut uses: Uses| {
            order.queue(1);
            order.read(&mut uses, 1)
        };
        let (order, uses) = written();
        assert_eq!(read(order, uses), Some(0));
        let (mut order, uses) = written();
        order.order(1, 0);
        assert_eq!(read(order, uses), Some(0));
        let (mut order, uses) = written();
        order.order(0, 1);
        assert_eq!(read(order, uses), None);
        let (mut order, uses) = written();
        order.wait(Some(1));
        assert_eq!(read(order, uses), Some(0));
        for stream in [Some(0), None] {
            let (mut order, uses) = written();
            order.wait(stream);
            assert_eq!(read(order, uses), None);
        }
        let (mut order, uses) = written();
        order.wait_for(&uses);
        assert_eq!(read(order, uses), None);
    }

    #[test]
    fn order_goes_from_stream_to_stream_and_does_not_reach_later_work() {
        let (mut order, mut uses) = (Order::default(), Uses::default());
        order.queue(0);
        order.write(&mut uses, 0);
        order.order(0, 1);
        order.order(1, 2);
        order.queue(2);
        assert_eq!(order.read(&mut uses, 2), None);
        order.queue(0);
        assert_eq!(order.write(&mut uses, 0), Some(2));
        order.queue(2);
        assert_eq!(order.read(&mut uses, 2), Some(0));
    }
}
