//! What is counted of workloads. Nothing here looks at a time; `cargo xtask docs` checks the exact
//! figures of `producer-consumer`.

use freehold::{CpuId, Order, Pfn};
use freehold_lab::bench::calls::{Calls, Machine, Refused};
use freehold_lab::bench::clock::Cpus;
use freehold_lab::bench::engines::ClassicMachine;
use freehold_lab::bench::figures::Figures;
use freehold_lab::bench::workloads::{self, Run};
use freehold_lab::bench::{Kind, Scale};

fn classic(design: &str, kind: Kind) -> ClassicMachine {
    ClassicMachine::new(design, kind.cpus(2), kind.frames()).unwrap()
}

fn get(figures: &Figures, metric: &str) -> f64 {
    figures.get(metric).unwrap_or_else(|| panic!("{metric} is counted"))
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
