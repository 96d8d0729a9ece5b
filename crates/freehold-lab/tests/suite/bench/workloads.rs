//! What can be counted exactly of the proposals' workloads: the facts that the proposals argue
//! with. Nothing here looks at a time.

use freehold::{CpuId, Order, Pfn};
use freehold_lab::bench::calls::{Calls, Machine, Refused};
use freehold_lab::bench::clock::Cpus;
use freehold_lab::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads};
use freehold_lab::bench::figures::Figures;
use freehold_lab::bench::workloads::producer_consumer::CHUNK_LOCKS;
use freehold_lab::bench::workloads::{self, Run};
use freehold_lab::bench::{Kind, Scale};

fn freehold(kind: Kind) -> FreeholdMachine<HostThreads> {
    FreeholdMachine::new(kind.cpus(2), kind.frames(), HostThreads::new()).unwrap()
}

fn classic(design: &str, kind: Kind) -> ClassicMachine {
    ClassicMachine::new(design, kind.cpus(2), kind.frames()).unwrap()
}

fn counted<M: Machine>(machine: &M, kind: Kind) -> Figures {
    let figures = workloads::count(machine, kind).unwrap();
    machine.drain();
    machine.check(0).unwrap();
    figures
}

fn of(design: &str, kind: Kind) -> Figures {
    counted(&classic(design, kind), kind)
}

fn get(figures: &Figures, metric: &str) -> f64 {
    figures.get(metric).unwrap_or_else(|| panic!("{metric} is counted"))
}

#[test]
fn counts_are_the_same_every_time() {
    let kind = Kind::ProducerConsumer;
    let ours = || counted(&freehold(kind), kind).values;
    let theirs = || of("vanilla", kind).values;
    assert_eq!((ours(), theirs()), (ours(), theirs()));
}

/// The 2022 series's last patch, alone: chunks that are freed on another CPU come back sooner, so
/// fewer different ones are used and the one used most is used more often. Its own figures: 13,128
/// uses before, 166,950 after.
#[test]
fn chunks_that_go_back_at_once_are_reused_more() {
    let kind = Kind::ProducerConsumer;
    let (with, without) = (of("5.18", kind), of("5.18,-high-order-limit", kind));
    for depth in ["depth_1", "depth_16"] {
        let (most, distinct) = (format!("most_reused_{depth}"), format!("distinct_chunks_{depth}"));
        assert!(get(&with, &most) > 2.0 * get(&without, &most), "{depth}: {with:?} {without:?}");
        assert!(get(&with, &distinct) < get(&without, &distinct), "{depth}: {with:?} {without:?}");
    }
    let price = |figures| get(figures, CHUNK_LOCKS);
    assert!(price(&with) > price(&without), "the price: {with:?} {without:?}");
}

/// An engine that has no huge pages, ever.
struct NothingHuge(ClassicMachine);

struct NothingHugeCpu<'a>(<ClassicMachine as Machine>::Cpu<'a>);

impl Machine for NothingHuge {
    type Cpu<'a> = NothingHugeCpu<'a>;
    fn cpu(&self, cpu: CpuId) -> Result<NothingHugeCpu<'_>, Refused> {
        self.0.cpu(cpu).map(NothingHugeCpu)
    }
    fn drain(&self) {
        self.0.drain();
    }
}

impl Calls for NothingHugeCpu<'_> {
    fn alloc(&mut self, order: Order) -> Result<Pfn, Refused> {
        if order == Order::PAGEBLOCK { Err(Refused::NoMemory) } else { self.0.alloc(order) }
    }
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), Refused> {
        self.0.free(pfn, order)
    }
}

/// One allocation in 512 is of order 9; those of an engine that has none are counted, and the same
/// every time.
#[test]
fn failures_of_mixed_are_counted() {
    let failures = || {
        let machine = NothingHuge(classic("vanilla", Kind::Mixed));
        let frames = Kind::Mixed.frames();
        let run =
            Run { cpus: &Cpus::allowed(), threads: 1, scale: &Scale::QUICK, number: 0, frames };
        let figures = workloads::measure(&machine, Kind::Mixed, &run).unwrap();
        get(&figures, "failures_per_1000_50")
    };
    let huge = failures();
    assert!((1.2..2.8).contains(&huge), "{huge}");
    assert_eq!(huge, failures());
}
