//! Which loads the guest runs, and how many rounds of each. A load's rounds are for two CPUs: most
//! loads do as much on each CPU, so on more of them there are fewer rounds, and a boot takes about
//! as long. A kernel that checks itself is some times as slow, and does as little as with eight.

use super::super::Trouble;

/// A load as the guest is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) rounds: u32,
}

/// Name, rounds on two CPUs, and the fewest that are a load; no rounds where it is run only by
/// name.
type Known = (&'static str, u32, u32);

/// All of them, in their order: at most some seconds each where two cores translate two CPUs. What
/// may leave a kernel broken comes last.
const LOADS: [Known; 32] = [
    ("exit", 4, 1),
    ("arena", 6, 2),
    ("huge", 4, 1),
    ("mixed", 300, 60),
    ("cache", 2, 1),
    ("shells", 64, 64),
    ("files", 1, 1),
    ("compact", 1, 1),
    ("ones", 1, 1),
    ("pinned", 1, 1),
    ("save", 1, 1),
    ("swap", 1, 1),
    ("contig", 100, 100),
    ("cma", 20, 20),
    ("poison", 8, 8),
    ("report", 1, 1),
    ("atomic", 1, 1),
    ("exercise", 1, 1),
    (COST, 0, 0),
    (ADDED, 0, 0),
    ("ranges", 0, 0),
    ("traffic", 0, 0),
    ("lazyfree", 0, 0),
    ("pairs", 0, 0),
    ("khugepaged", 0, 0),
    (BRIM, 0, 0),
    ("full3", 0, 0),
    ("full8", 0, 0),
    ("filled", 0, 0),
    ("chunks", 0, 0),
    ("memory", 8, 8),
    ("cpus", 20, 20),
];

/// What an allocation costs, printed.
pub(super) const COST: &str = "cost";

/// Adds as many sections of memory as it has rounds: the kernel is told of so much less at first.
pub(super) const ADDED: &str = "added";

/// MiB of a section of memory.
pub(super) const SECTION: u64 = 128;

/// Huge pages to the brim.
const BRIM: &str = "brim";

/// What needs a CMA area, as that does.
const CMA: &str = "cma";

/// The loads of a boot with so many CPUs: all, or those that `wanted` names, as `NAME` or
/// `NAME:ROUNDS`, in the order above. One that `checks` itself does less.
pub(super) fn chosen(wanted: &[String], cpus: u8, checks: bool) -> Result<Vec<Load>, Trouble> {
    let share = u32::from(if checks { cpus.max(8) } else { cpus.max(2) });
    let usual = LOADS.map(|(_, rounds, least)| {
        let rounds = (rounds * 2 / share).max(least);
        (rounds > 0).then_some(rounds)
    });
    let mut rounds = usual;
    if !wanted.is_empty() {
        rounds = [None; LOADS.len()];
        for word in wanted {
            let (name, number) = word.split_once(':').unwrap_or((word, ""));
            let Some(at) = LOADS.iter().position(|&(known, ..)| known == name) else {
                let names = LOADS.map(|(name, ..)| name).join(", ");
                return Err(Trouble::Wrong(format!("--loads {word}: the loads are {names}")));
            };
            rounds[at] = match number.parse() {
                _ if !word.contains(':') => usual[at].or(Some(1)),
                Ok(number) if number > 0 => Some(number),
                _ => {
                    let why = format!("rounds are a number from 1, as in {name}:4");
                    return Err(Trouble::Wrong(format!("--loads {word}: {why}")));
                }
            };
        }
    }
    let loads = LOADS.iter().zip(rounds);
    Ok(loads.filter_map(|(&(name, ..), rounds)| Some(Load { name, rounds: rounds? })).collect())
}

/// For the kernel's command line.
pub(super) fn word(loads: &[Load]) -> String {
    let words: Vec<String> =
        loads.iter().map(|load| format!("{}:{}", load.name, load.rounds)).collect();
    // Above 4 GiB where there is memory; of 4,096 pages, as the load asks for.
    let needs_area = loads.iter().any(|load| [CMA, BRIM].contains(&load.name));
    let area = if needs_area { " cma=16M" } else { "" };
    format!("built.loads={}{area}", words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cpus_have_fewer_rounds_and_every_load_stays() {
        let all = |cpus| chosen(&[], cpus, false).unwrap();
        let rounds = |cpus| all(cpus).iter().map(|load| load.rounds).collect::<Vec<_>>();
        assert_eq!(rounds(1), rounds(2));
        let first = [2, 4, 8].map(|cpus| rounds(cpus)[..5].to_vec());
        assert_eq!(first, [[4, 6, 4, 300, 2], [2, 3, 2, 150, 1], [1, 2, 1, 75, 1]]);
        let rest = [64, 1, 1, 1, 1, 1, 1, 100, 20, 8, 1, 1, 1, 8, 20];
        assert!([2, 4, 8].iter().all(|&cpus| rounds(cpus)[5..] == rest));
        assert_eq!(chosen(&[], 2, true).unwrap(), all(8), "a kernel that checks itself");
        assert!(word(&all(2)).starts_with("built.loads=exit:4,arena:6,"));
    }

    #[test]
    fn loads_are_chosen_by_name_and_rounds() {
        let words = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&words, 4, false).map(|it| word(&it)).map_err(|trouble| trouble.to_string())
        };
        // In the order that they are run in, whatever order they are named in.
        assert!(words(&["cma:3", "exit"]).unwrap().ends_with("exit:2,cma:3 cma=16M"));
        assert_eq!(words(&["cpus:20", "exit"]).unwrap(), "built.loads=exit:2,cpus:20");
        assert_eq!(words(&[COST]).unwrap(), "built.loads=cost:1");
        let unknown = words(&["exits"]).unwrap_err();
        assert!(unknown.contains("--loads exits: the loads are exit, arena"));
        for wrong in ["exit:", "exit:0", "exit:many"] {
            assert!(words(&[wrong]).unwrap_err().contains("a number from 1"), "{wrong}");
        }
    }
}
