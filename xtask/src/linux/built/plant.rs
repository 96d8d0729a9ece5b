//! Defects on purpose: one rule, or one part of our own files, is left out of the kernel with
//! Freehold, and the load that is there to notice must fail. A load that does not is no test.
//!
//! ```text
//! {"name", "load", "why"}                 the rule of that name is left out
//! {..., "rules": [NAMES]}                 those rules are, together
//! {..., "part": {"file", "find", ...}}    a part of one of our own files is, or is another
//! ```

use serde::Deserialize;

use super::super::Trouble;
use super::rules::{Part, list};
use crate::build;

/// What is left out, and who must notice.
#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Plant {
    pub(super) name: String,
    /// The load that fails; what it does to the accounts afterwards counts, too. Where it needs
    /// what another leaves behind, that one and a comma come first.
    load: String,
    /// What the kernel does then.
    pub(super) why: String,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    pub(super) part: Option<Part>,
}

impl Plant {
    pub(super) fn of(name: &str) -> Result<Self, Trouble> {
        let plants = all()?;
        let names: Vec<String> = plants.iter().map(|plant| plant.name.clone()).collect();
        plants.into_iter().find(|plant| plant.name == name).ok_or_else(|| {
            let names = names.join(", ");
            Trouble::Wrong(format!("--plant {name}: what a built kernel can do without is {names}"))
        })
    }

    pub(super) fn loads(&self) -> Vec<String> {
        self.load.split(',').map(str::to_owned).collect()
    }

    /// Whether a rule of that name is left out.
    pub(super) fn leaves_out(&self, rule: &str) -> bool {
        if self.rules.is_empty() && self.part.is_none() {
            return rule == self.name;
        }
        self.rules.iter().any(|name| name == rule)
    }
}

fn all() -> Result<Vec<Plant>, Trouble> {
    list(&build::root().join("os/linux/built/plants.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::built::rules::Rules;
    use crate::linux::built::{Design, loads, tree};

    #[test]
    fn each_leaves_out_something_that_is_there() {
        let folder = build::root().join("os/linux/built");
        let rules = ["freehold.json", "walkers.json"].map(|name| Rules::read(&folder.join(name)));
        let names: Vec<String> =
            rules.iter().flat_map(|rules| rules.as_ref().unwrap().names()).collect();
        for plant in all().unwrap() {
            let left_out = names.iter().filter(|name| plant.leaves_out(name)).count();
            let wanted = if plant.part.is_some() { 0 } else { plant.rules.len().max(1) };
            assert_eq!(left_out, wanted, "{}", plant.name);
            if let Some(part) = &plant.part {
                tree::leave_out(part, &mut tree::added(Design::Freehold).unwrap()).unwrap();
            }
            assert!(!plant.why.is_empty());
            let loads = plant.loads();
            assert!(loads::chosen(&loads, 2, false).is_ok(), "{}: {loads:?}", plant.name);
        }
    }

    #[test]
    fn a_name_that_is_nothing_is_refused_with_those_that_are() {
        assert!(Plant::of("free-scanner").unwrap().leaves_out("free-scanner"));
        let counting = Plant::of("count-allocated").unwrap();
        assert!(!counting.leaves_out("count-allocated"));
        let marks = Plant::of("marks-lock").unwrap();
        assert!(marks.leaves_out("marks-lock") && marks.leaves_out("marks-unlock"));
        let refused = Plant::of("everything").unwrap_err().to_string();
        assert!(refused.contains("--plant everything: ") && refused.contains("isolate, restore"));
    }
}
