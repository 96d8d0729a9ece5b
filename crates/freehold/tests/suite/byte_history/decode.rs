//! From bytes to calls. Operands are read as they are needed; where the string ends they are 0, so
//! any string of bytes is a history and a prefix of one is one too.

use super::machines::{CPUS, Which};

/// Calls in a history; what comes after them is ignored, so that no input takes long.
const MOST_CALLS: usize = 192;

/// A machine and what is done to it.
#[derive(Clone, Debug)]
pub struct History {
    pub machine: Which,
    pub barrier: bool,
    pub calls: Vec<Call>,
}

/// Through what a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// `Freehold::on`.
    On(u16),
    /// The CPU's owner where there is one, `Freehold::on` otherwise.
    Owner(u16),
    /// The calls that name no CPU, with the host saying that it is this one.
    Here(u16),
}

impl Via {
    pub fn cpu(self) -> u16 {
        match self {
            Self::On(cpu) | Self::Owner(cpu) | Self::Here(cpu) => cpu,
        }
    }
}

/// A frame, spelled so that every machine has some of it: 16 bits of a distance from just below its
/// memory, or from the end of the number space.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Near(u16),
    /// A frame of the live allocation of that number, so far behind its start.
    Live(u8, u16),
    Last(u8),
}

#[derive(Clone, Debug)]
pub enum Call {
    Alloc {
        via: Via,
        order: u8,
        migratetype: u8,
        flags: u8,
        demand: Option<Demand>,
    },
    AllocBulk {
        via: Via,
        frames: u16,
        order: u8,
        migratetype: u8,
    },
    /// A whole live allocation or what is left of one, by its largest chunks.
    FreeLive {
        via: Via,
        live: u8,
    },
    /// A whole live allocation from its other end, frame by frame.
    FreeSingly {
        via: Via,
        live: u8,
    },
    /// Whatever is there.
    Free {
        via: Via,
        place: Place,
        order: u8,
    },
    FreeRange {
        via: Via,
        place: Place,
        frames: u16,
    },
    /// Frames of live allocations, `step` apart in their list, and perhaps one that does not belong
    /// there.
    FreeBulk {
        via: Via,
        live: u8,
        frames: u8,
        step: u8,
        wrong: Option<Place>,
    },
    /// One frame by two CPUs, with nothing in between.
    FreeTwice {
        first: Via,
        second: Via,
        live: u8,
    },
    Tick {
        via: Via,
    },
    Flush {
        via: Via,
    },
    DrainAll,
    ContigRange {
        place: Place,
        frames: u16,
        moving: bool,
    },
    Contig {
        frames: u16,
        align: u8,
        place: Place,
        window: u16,
    },
    Own {
        cpu: u16,
    },
    Disown {
        cpu: u16,
    },
    CpuOffline {
        cpu: u16,
    },
    CpuOnline {
        cpu: u16,
    },
    RemoveMemory {
        place: Place,
        frames: u16,
    },
    AddMemory {
        place: Place,
        frames: u16,
    },
    SetWatermarks {
        zone: u8,
        marks: [u8; 3],
    },
    Look {
        cpu: u16,
        zone: u8,
        place: Place,
    },
}

/// What a request may ask for besides.
#[derive(Clone, Copy, Debug)]
pub enum Demand {
    Align(u8),
    Below(Place),
    From(Place),
    Node(u8),
}

struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// One CPU more than there are: wrong calls are calls too.
    fn cpu(&mut self) -> u16 {
        u16::from(self.u8()) % (CPUS + 1)
    }

    fn via(&mut self) -> Via {
        let byte = u16::from(self.u8());
        let cpu = byte / 4 % (CPUS + 1);
        match byte % 4 {
            0 => Via::On(cpu),
            1 => Via::Here(cpu),
            _ => Via::Owner(cpu),
        }
    }

    fn place(&mut self) -> Place {
        match self.u8() {
            0..128 => Place::Near(self.u16()),
            128..250 => Place::Live(self.u8(), self.u16()),
            last => Place::Last(last - 250),
        }
    }

    /// Small orders mostly, as in life; all up to the largest.
    fn order(&mut self) -> u8 {
        match self.u8() {
            byte @ 0..96 => byte % 4,
            byte @ 96..224 => byte % 11,
            byte => byte % 19,
        }
    }

    /// A length of a range: whole blocks often, wherever they start.
    fn frames(&mut self) -> u16 {
        match self.u16() {
            value if value % 8 == 0 => 512 * (value / 8 % 4),
            value => value % 1200,
        }
    }

    fn call(&mut self) -> Call {
        match self.u8() % 32 {
            0..6 => {
                let (via, order, kind) = (self.via(), self.order(), self.u8());
                let demand = match kind / 8 % 16 {
                    0 => Some(Demand::Align(self.order())),
                    1 => Some(Demand::Below(self.place())),
                    2 => Some(Demand::From(self.place())),
                    3 => Some(Demand::Node(self.u8() % 4)),
                    _ => None,
                };
                let flags = if kind & 128 == 0 { 0 } else { self.u8() };
                Call::Alloc { via, order, migratetype: kind % 8, flags, demand }
            }
            6..8 => {
                let (via, frames, kind) = (self.via(), self.u16() % 1500, self.u8());
                Call::AllocBulk { via, frames, order: u8::from(kind >= 250), migratetype: kind % 8 }
            }
            8..11 => Call::FreeLive { via: self.via(), live: self.u8() },
            11 => Call::FreeSingly { via: self.via(), live: self.u8() },
            12 => Call::Free { via: self.via(), place: self.place(), order: self.order() },
            13..16 => {
                Call::FreeRange { via: self.via(), place: self.place(), frames: self.frames() }
            }
            16..18 => {
                let (via, live, frames, step) = (self.via(), self.u8(), self.u8(), self.u8() % 8);
                let wrong = (step == 0).then(|| self.place());
                Call::FreeBulk { via, live, frames, step: step.max(1), wrong }
            }
            18 => Call::FreeTwice { first: self.via(), second: self.via(), live: self.u8() },
            19 => Call::Tick { via: self.via() },
            20 => Call::Flush { via: self.via() },
            21 => Call::DrainAll,
            22 => Call::ContigRange {
                place: self.place(),
                frames: self.u16() % 2500,
                moving: self.u8() % 2 == 1,
            },
            23 => Call::Contig {
                frames: self.u16() % 3000,
                align: self.order(),
                place: self.place(),
                window: self.u16(),
            },
            24..26 => Call::Own { cpu: self.cpu() },
            26 => Call::Disown { cpu: self.cpu() },
            27 => Call::CpuOffline { cpu: self.cpu() },
            28 => Call::CpuOnline { cpu: self.cpu() },
            29 => Call::RemoveMemory { place: self.place(), frames: self.u16() },
            30 => Call::AddMemory { place: self.place(), frames: self.u16() },
            _ => {
                let kind = self.u8();
                if kind < 128 {
                    Call::SetWatermarks { zone: kind % 4, marks: [self.u8(), self.u8(), self.u8()] }
                } else {
                    Call::Look { cpu: self.cpu(), zone: kind % 4, place: self.place() }
                }
            }
        }
    }
}

pub fn decode(bytes: &[u8]) -> History {
    let mut bytes = Bytes(bytes);
    let byte = bytes.u8();
    let machine = Which::of(byte, || (0..4).fold(0, |seed, _| seed << 16 | u64::from(bytes.u16())));
    let barrier = bytes.u8() % 2 == 1;
    let mut calls = Vec::new();
    while !bytes.0.is_empty() && calls.len() < MOST_CALLS {
        calls.push(bytes.call());
    }
    History { machine, barrier, calls }
}
