//! What can only be tested on a machine of one's own: interrupts, page faults, translations, dirty
//! bits.

mod areas;
mod copy;
mod faults;
mod interrupts;
pub(crate) mod lazyfree;
mod race;
mod shootdown;

use freehold_kernel::suite::Test;

use crate::machine::Bare;

/// All of them.
pub(crate) fn tests() -> [Test<Bare>; 13] {
    [
        Test {
            name: "interrupts leave the red zone and the registers alone",
            run: interrupts::preserved,
        },
        Test { name: "the allocator in interrupt handlers", run: interrupts::allocator },
        Test { name: "the timer drives the allocator's periodic work", run: interrupts::ticks },
        Test { name: "guard pages, null pointers and rights fault", run: faults::faults },
        Test { name: "virtual areas show their frames on all CPUs", run: areas::areas },
        Test { name: "2 MiB entries, whole and split", run: areas::huge },
        Test { name: "stale translations are shot down", run: shootdown::stale },
        Test { name: "no CPU sees a frame after its flush", run: shootdown::racing },
        Test { name: "shootdowns go where the address space is", run: shootdown::targets },
        Test { name: "the processor sets accessed and dirty bits", run: lazyfree::bits },
        Test { name: "copy on write between two address spaces", run: copy::on_write },
        Test { name: "lazyfree folios go unless written to", run: lazyfree::lazyfree },
        Test { name: "lazyfree against writers on other CPUs", run: race::race },
    ]
}
