//! The fields of an event, `name=value`, and what their values must be.

use freehold::{Migratetype, Order, Pfn};

use super::super::EventKind;
use super::super::error::Bad;
use super::super::kernel::TypeNumbers;
use super::token::{decimal, lossy, next_token, number};

/// The largest frame number of a 64-bit address space with 4 KiB frames.
pub(crate) const PFN_MAX: u64 = (1 << 52) - 1;

/// The fields that an event's text may have; all others are of no interest here.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) pfn: Option<&'a [u8]>,
    pub(super) order: Option<&'a [u8]>,
    pub(super) migratetype: Option<&'a [u8]>,
    pub(super) gfp_flags: Option<&'a [u8]>,
    pub(super) percpu_refill: Option<&'a [u8]>,
    pub(super) fallback_order: Option<&'a [u8]>,
    pub(super) fallback_migratetype: Option<&'a [u8]>,
    pub(super) change_ownership: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(text: &'a [u8]) -> Result<Self, Bad> {
        let mut fields = Self::default();
        let mut rest = text;
        loop {
            let token = next_token(&mut rest);
            if token.is_empty() {
                return Ok(fields);
            }
            if token.starts_with(b"page=") {
                continue;
            }
            let Some(equals) = token.iter().position(|&b| b == b'=') else { continue };
            let (name, value) = (&token[..equals], &token[equals + 1..]);
            let field = match name {
                b"pfn" => &mut fields.pfn,
                b"order" | b"alloc_order" => &mut fields.order,
                b"migratetype" | b"alloc_migratetype" => &mut fields.migratetype,
                b"gfp_flags" => &mut fields.gfp_flags,
                b"percpu_refill" => &mut fields.percpu_refill,
                b"fallback_order" => &mut fields.fallback_order,
                b"fallback_migratetype" => &mut fields.fallback_migratetype,
                b"change_ownership" => &mut fields.change_ownership,
                _ => continue,
            };
            if field.replace(value).is_some() {
                return Err(Bad::because(format!(
                    "`{}` is given twice: two lines run together?",
                    lossy(name)
                )));
            }
        }
    }

    pub(super) fn pfn(&self) -> Result<Pfn, Bad> {
        let value = required("pfn", self.pfn)?;
        match number(value) {
            Some(pfn) if pfn <= PFN_MAX => Ok(Pfn::new(pfn)),
            // 1c2ab3 could be guessed at, 123456 not: so neither is.
            _ if value.iter().all(u8::is_ascii_hexdigit) && decimal(value).is_none() => {
                Err(Bad::because(format!(
                    "pfn `{}` is not a decimal number; hexadecimal ones begin with 0x",
                    lossy(value)
                )))
            }
            _ => Err(Bad::because(format!("pfn `{}` is not a frame number", lossy(value)))),
        }
    }

    pub(super) fn order(&self) -> Result<Order, Bad> {
        order_of("order", self.order)
    }

    /// All of `mm_page_alloc_extfrag`.
    pub(super) fn extfrag(&self, numbers: &TypeNumbers) -> Result<EventKind, Bad> {
        Ok(EventKind::Extfrag {
            pfn: self.pfn()?,
            order: self.order()?,
            migratetype: self.list_type(numbers)?,
            fallback_order: order_of("fallback_order", self.fallback_order)?,
            fallback_migratetype: list_type_of(
                "fallback_migratetype",
                self.fallback_migratetype,
                numbers,
            )?,
            change_ownership: truth("change_ownership", self.change_ownership)?,
        })
    }

    /// The type of a list.
    pub(super) fn list_type(&self, numbers: &TypeNumbers) -> Result<u8, Bad> {
        list_type_of("migratetype", self.migratetype, numbers)
    }
}

pub(super) fn required<'a>(name: &str, value: Option<&'a [u8]>) -> Result<&'a [u8], Bad> {
    value.ok_or_else(|| Bad::because(format!("no `{name}=`")))
}

fn order_of(name: &str, value: Option<&[u8]>) -> Result<Order, Bad> {
    let value = required(name, value)?;
    number(value).and_then(|order| Order::new(u8::try_from(order).ok()?)).ok_or_else(|| {
        Bad::because(format!(
            "{name} `{}` is not an order (0 to {})",
            lossy(value),
            Order::MAX.get()
        ))
    })
}

/// A type by its name; Reserve is what HighAtomic became.
pub(super) fn named_type(value: &[u8]) -> Option<Migratetype> {
    if value.eq_ignore_ascii_case(b"Reserve") {
        return Some(Migratetype::HighAtomic);
    }
    Migratetype::ALL.into_iter().find(|mt| mt.name().as_bytes().eq_ignore_ascii_case(value))
}

/// A list's type by the kernel's number or by name.
fn list_type_of(name: &str, value: Option<&[u8]>, numbers: &TypeNumbers) -> Result<u8, Bad> {
    let value = required(name, value)?;
    let found = match number(value) {
        Some(number) => numbers.get(number),
        None => named_type(value),
    };
    let most = Migratetype::ALL.len() - 1;
    found.map(|mt| mt as u8).ok_or_else(|| {
        Bad::because(format!("{name} `{}` is not a type (0 to {most})", lossy(value)))
    })
}

pub(super) fn truth(name: &str, value: Option<&[u8]>) -> Result<bool, Bad> {
    match required(name, value)? {
        b"0" => Ok(false),
        b"1" => Ok(true),
        value => Err(Bad::because(format!("{name} `{}` is neither 0 nor 1", lossy(value)))),
    }
}
