//! Both engines side by side, and what one call means for them.

use freehold::{AllocFlags, CpuId, Freehold, Migratetype, Order, Pfn};
use freehold_classic::Classic;
use freehold_lab::trials::threads::InitialThread;

use super::CPUS;
use super::calls::Call;
use super::shape::Shape;
use super::used::Used;

/// Which of the two: index 0 and 1 everywhere.
pub const NAMES: [&str; 2] = ["freehold", "the kernel's design"];

/// An allocation that both have made.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub order: Order,
    /// Where it is in each engine.
    pub at: [Pfn; 2],
}

pub struct Both {
    pub ours: Freehold<'static, InitialThread>,
    pub theirs: Classic,
    pub used: [Used; 2],
    pub live: Vec<Live>,
    pub online: [bool; CPUS as usize],
    pub managed: u64,
    pub in_use: u64,
    /// Free frames that a single frame may be refused with, by each engine.
    pub reserves: [u64; 2],
}

pub type Checked<T = ()> = Result<T, String>;

pub fn blame<T>(engine: usize, what: impl std::fmt::Display) -> Checked<T> {
    Err(format!("{}: {what}", NAMES[engine]))
}

impl Both {
    pub fn new(shape: &Shape, design: &str) -> Self {
        let used = [Used::new(shape), Used::new(shape)];
        // The kernel holds back more for a while where types had to mix: at most one and a half
        // times the high mark (`boost_watermark`).
        let reserve = |boost: u64| (shape.min + boost) * shape.zones.len() as u64;
        let managed = used[0].memory.iter().map(|(start, end)| end - start).sum();
        Self {
            ours: shape.freehold(),
            theirs: shape.classic(design),
            used,
            live: Vec::new(),
            online: [true; CPUS as usize],
            managed,
            in_use: 0,
            reserves: [reserve(0), reserve(3 * shape.min * 3 / 2)],
        }
    }

    pub fn free(&self) -> u64 {
        self.managed - self.in_use
    }

    /// That CPU, or the next one that is online: hotplug must not make most calls pointless.
    pub fn cpu(&self, cpu: u16) -> CpuId {
        let all = (cpu..CPUS).chain(0..cpu);
        CpuId::new(all.into_iter().find(|&cpu| self.online[usize::from(cpu)]).unwrap())
    }

    pub fn pick(&self, pick: usize) -> Option<usize> {
        (!self.live.is_empty()).then(|| pick % self.live.len())
    }

    pub fn play(&mut self, call: Call) -> Checked {
        match call {
            Call::Alloc { cpu, order, migratetype, no_fragment } => {
                let flags = if no_fragment { AllocFlags::NO_FRAGMENT } else { AllocFlags::empty() };
                self.alloc(
                    self.cpu(cpu),
                    Order::new(order).unwrap(),
                    Migratetype::PCP[migratetype],
                    flags,
                )
            }
            Call::Bulk { cpu, frames, migratetype } => {
                self.bulk(self.cpu(cpu), frames, Migratetype::PCP[migratetype])
            }
            Call::Free { cpu, pick } => match self.pick(pick) {
                Some(at) => {
                    let live = self.live.swap_remove(at);
                    self.give(self.cpu(cpu), live, cpu % 2 == 0)
                }
                None => Ok(()),
            },
            Call::Split { pick, to } => match self.pick(pick) {
                Some(at) => self.split(at, Order::new(to).unwrap()).map(drop),
                None => Ok(()),
            },
            Call::FreeRange { cpu, pick, from, len, keep } => match self.pick(pick) {
                Some(at) => self.free_range(self.cpu(cpu), at, from, len, keep),
                None => Ok(()),
            },
            Call::FreeBulk { cpu, pick, frames, step } => {
                self.free_bulk(self.cpu(cpu), pick, frames, step)
            }
            Call::WrongFree { cpu, frame } => self.wrong_free(self.cpu(cpu), frame),
            Call::Contig { cpu, frame, len } => self.contig(self.cpu(cpu), frame, len),
            Call::Tick { cpu } => {
                self.theirs.tick(self.cpu(cpu));
                self.ours.on(self.cpu(cpu)).tick().or_else(|error| blame(0, error))
            }
            Call::Drain => {
                self.ours.drain_all();
                self.theirs.drain_all();
                Ok(())
            }
            Call::Offline { cpu } => {
                // The kernel's last CPU stays.
                if self.online[usize::from(cpu)]
                    && self.online.iter().filter(|&&online| online).count() > 1
                {
                    self.online[usize::from(cpu)] = false;
                    self.ours.cpu_offline(CpuId::new(cpu)).or_else(|error| blame(0, error))?;
                    self.theirs.cpu_dead(CpuId::new(cpu)).or_else(|error| blame(1, error))?;
                }
                Ok(())
            }
            Call::Online { cpu } => {
                if !self.online[usize::from(cpu)] {
                    self.online[usize::from(cpu)] = true;
                    self.ours.cpu_online(CpuId::new(cpu)).or_else(|error| blame(0, error))?;
                    self.theirs.cpu_online(CpuId::new(cpu)).or_else(|error| blame(1, error))?;
                }
                Ok(())
            }
        }
    }
}
