//! Rows: what was decoded, column beside column, as events whose every value is checked.

use freehold::{CpuId, Migratetype, Order, Pfn};

use super::super::gfp;
use super::super::line::{CPU_MAX, PFN_MAX};
use super::super::meaning::{Flags, Meaning};
use super::super::schema::{COLUMNS, Column, FLAG_NONE, GFP_NONE, NONE, PFN_FAILED};
use super::super::{Event, EventKind};
use super::ParquetReader;
use super::column::NULL;

/// What is wrong with a row.
pub(super) struct BadValue {
    pub(super) column: Column,
    pub(super) value: String,
    pub(super) why: &'static str,
}

impl BadValue {
    #[cold]
    fn new(column: Column, value: u64, why: &'static str) -> Self {
        let value = if value == NULL { "null".to_owned() } else { value.to_string() };
        Self { column, value, why }
    }
}

impl ParquetReader {
    /// Row `i` of what was decoded last, also held against what the file says of itself.
    #[inline]
    pub(super) fn checked_event(&mut self, i: usize) -> Result<Event, BadValue> {
        let row = Row {
            values: &self.values,
            i,
            meaning: &self.meaning,
            has_types: self.columns[Column::Migratetype as usize].is_some(),
        };
        let event = row.event()?;
        let cpu = self.values[Column::Cpu as usize][i];
        if !self.integrity.has_cpu(cpu) {
            return Err(BadValue::new(
                Column::Cpu,
                cpu,
                "is more than the CPUs that the file says the machine has",
            ));
        }
        self.integrity.event(self.values[Column::Event as usize][i]);
        Ok(event)
    }
}

const NO_REQUEST: &str = "is not a type of a request (0 to 2)";
const CONTRADICTS: &str = "is not the type that the row's gfp_flags name; --kernel VERSION names a kernel with other numbers";

/// A row of what was decoded last.
#[derive(Clone, Copy)]
struct Row<'a> {
    values: &'a [Vec<u64>; COLUMNS.len()],
    i: usize,
    meaning: &'a Meaning,
    /// The file has migratetypes.
    has_types: bool,
}

impl Row<'_> {
    #[inline]
    fn event(self) -> Result<Event, BadValue> {
        if self.value(Column::TsNs) == NULL {
            return Err(self.bad(Column::TsNs, "is not a time"));
        }
        let cpu = self.value(Column::Cpu);
        if cpu > CPU_MAX {
            return Err(self.bad(Column::Cpu, "is above 4095, the largest CPU number"));
        }
        let kind = match self.value(Column::Event) {
            0 => self.alloc()?,
            1 => EventKind::Free { pfn: self.pfn()?, order: self.order(Column::Order)? },
            2 => EventKind::FreeBatched { pfn: self.pfn()? },
            3 => EventKind::PcpuDrain {
                pfn: self.pfn()?,
                order: self.order(Column::Order)?,
                migratetype: self.list_type()?,
            },
            4 => self.extfrag()?,
            5 => {
                let order = self.order(Column::Order)?;
                EventKind::ZoneLocked {
                    pfn: self.pfn()?,
                    order,
                    migratetype: self.list_type()?,
                    percpu_refill: self
                        .flag(order <= Order::COSTLY || order == Order::PAGEBLOCK)?,
                }
            }
            _ => return Err(self.bad(Column::Event, "is not an event number (0 to 5)")),
        };
        let pid = u32::try_from(self.value(Column::Pid))
            .map_err(|_| self.bad(Column::Pid, "is not a thread id"))?;
        Ok(Event { ts_ns: self.value(Column::TsNs), cpu: CpuId::new(cpu as u16), pid, kind })
    }

    #[inline]
    fn alloc(self) -> Result<EventKind, BadValue> {
        let plain = |mt: u64| {
            let found = self.meaning.numbers.get(mt).filter(|mt| Migratetype::PCP.contains(mt));
            found.map(|mt| mt as usize)
        };
        let pfn = if self.value(Column::Pfn) == PFN_FAILED { None } else { Some(self.pfn()?) };
        let (migratetype, gfp_flags) =
            match (self.value(Column::Migratetype), self.value(Column::GfpFlags)) {
                (NONE, GFP_NONE) => (Migratetype::Unmovable as u8, gfp::GFP_KERNEL),
                (NONE, gfp_flags) => {
                    let gfp_flags = self.gfp(gfp_flags)?;
                    (gfp::migratetype(gfp_flags) as u8, gfp_flags)
                }
                // Without flags: an ordinary request of that type, which may wait.
                (mt, GFP_NONE) => {
                    let mt = plain(mt).ok_or_else(|| self.bad(Column::Migratetype, NO_REQUEST))?;
                    let own = [0, gfp::GFP_MOVABLE, gfp::GFP_RECLAIMABLE];
                    (mt as u8, gfp::GFP_KERNEL | own[mt])
                }
                (mt, gfp_flags) => {
                    let gfp_flags = self.gfp(gfp_flags)?;
                    let mt = self.meaning.request(mt, gfp_flags).map_err(|_| {
                        let why = if plain(mt).is_some() { CONTRADICTS } else { NO_REQUEST };
                        self.bad(Column::Migratetype, why)
                    })?;
                    (mt, gfp_flags)
                }
            };
        Ok(EventKind::Alloc { pfn, order: self.order(Column::Order)?, migratetype, gfp_flags })
    }

    fn extfrag(self) -> Result<EventKind, BadValue> {
        let (order, migratetype) = (self.order(Column::Order)?, self.list_type()?);
        // Not given: the least that can have happened, a chunk of the size asked for from the first
        // other type.
        let fallback_order = if self.value(Column::FallbackOrder) == NONE {
            order
        } else {
            self.order(Column::FallbackOrder)?
        };
        let fallback = self.value(Column::FallbackMigratetype);
        let fallback_migratetype = match (self.meaning.numbers.get(fallback), fallback) {
            (Some(mt), _) => mt as u8,
            (None, NONE) => Migratetype::from_index(usize::from(migratetype))
                .and_then(|mt| mt.fallbacks().first().copied())
                .unwrap_or(Migratetype::Movable) as u8,
            _ => return Err(self.bad(Column::FallbackMigratetype, "is not a type (0 to 5)")),
        };
        let (pfn, change_ownership) = (self.pfn()?, self.flag(false)?);
        Ok(EventKind::Extfrag {
            pfn,
            order,
            migratetype,
            fallback_order,
            fallback_migratetype,
            change_ownership,
        })
    }

    #[inline]
    fn value(self, column: Column) -> u64 {
        self.values[column as usize][self.i]
    }

    #[cold]
    fn bad(self, column: Column, why: &'static str) -> BadValue {
        BadValue::new(column, self.value(column), why)
    }

    #[inline]
    fn order(self, column: Column) -> Result<Order, BadValue> {
        let narrow = u8::try_from(self.value(column)).ok();
        narrow.and_then(Order::new).ok_or_else(|| self.bad(column, "is not an order (0 to 18)"))
    }

    #[inline]
    fn pfn(self) -> Result<Pfn, BadValue> {
        match self.value(Column::Pfn) {
            pfn @ 0..=PFN_MAX => Ok(Pfn::new(pfn)),
            _ => Err(self.bad(Column::Pfn, "is not a frame number (0 to 2^52 - 1)")),
        }
    }

    /// The type of a list or a block, not of a request.
    #[inline]
    fn list_type(self) -> Result<u8, BadValue> {
        let number = self.value(Column::Migratetype);
        match self.meaning.numbers.get(number) {
            Some(mt) => Ok(mt as u8),
            // Without the column nothing is known; most memory is movable.
            None if number == NONE && !self.has_types => Ok(Migratetype::Movable as u8),
            None => Err(self.bad(Column::Migratetype, "is not a type (0 to 5)")),
        }
    }

    #[inline]
    fn flag(self, default: bool) -> Result<bool, BadValue> {
        match self.value(Column::Flag) {
            0 => Ok(false),
            1 => Ok(true),
            FLAG_NONE => Ok(default),
            _ => Err(self.bad(Column::Flag, "is neither 0 nor 1")),
        }
    }

    #[inline]
    fn gfp(self, value: u64) -> Result<u32, BadValue> {
        let bits = u32::try_from(value)
            .map_err(|_| BadValue::new(Column::GfpFlags, value, "does not fit into 32 bits"))?;
        Ok(match &self.meaning.flags {
            Flags::Other(translation) => translation.apply(bits),
            Flags::Own | Flags::Unknown => bits,
        })
    }
}
