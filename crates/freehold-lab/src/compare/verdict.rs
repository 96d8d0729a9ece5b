//! What a difference means.

use std::collections::HashMap;

use serde::Serialize;

use super::figures::{Figure, Place};
use crate::tables::better::Better;

/// What became of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is worse by more than what is tolerated.
    Worse,
    /// It is better by more than that.
    Better,
    /// It differs by no more than that.
    Same,
    /// More of it is neither better nor worse, or it is too noisy to judge.
    Neither,
}

impl Verdict {
    /// In a table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::Same => "same",
            Self::Neither => "not judged",
        }
    }
}

/// A figure of both results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub place: Place,
    pub better: Better,
    /// The mean of the seeds where there are several.
    pub before: f64,
    pub after: f64,
    /// How much more, in per cent of the older; nothing where that is 0.
    pub percent: Option<f64>,
    /// Seeds that it is the mean of; 0 where there are none.
    pub seeds: usize,
    pub verdict: Verdict,
}

/// Pairs of what both have, and what only one has.
pub(super) fn pair(
    before: &[Figure],
    after: &[Figure],
    tolerance_percent: f64,
) -> (Vec<Compared>, Vec<Place>, Vec<Place>) {
    let mut older: HashMap<(&Place, Option<u64>), &Figure> =
        before.iter().map(|figure| ((&figure.place, figure.seed), figure)).collect();
    // In the order of the newer result; all seeds of a place are one pair.
    let mut pairs: Vec<Vec<(&Figure, &Figure)>> = Vec::new();
    let mut places: HashMap<&Place, usize> = HashMap::new();
    let mut only_after = Vec::new();
    for newer in after {
        match older.remove(&(&newer.place, newer.seed)) {
            None => only_after.push(newer.place.clone()),
            Some(older) => {
                let at = *places.entry(&newer.place).or_insert(pairs.len());
                if at == pairs.len() {
                    pairs.push(Vec::new());
                }
                pairs[at].push((older, newer));
            }
        }
    }
    let is_lone = |figure: &&Figure| older.contains_key(&(&figure.place, figure.seed));
    let only_before = before.iter().filter(is_lone).map(|figure| figure.place.clone()).collect();
    let compared = pairs.iter().map(|seeds| judge(seeds, tolerance_percent)).collect();
    (compared, only_before, only_after)
}

fn judge(seeds: &[(&Figure, &Figure)], tolerance_percent: f64) -> Compared {
    let mean = |value: fn(&(&Figure, &Figure)) -> f64| {
        seeds.iter().map(value).sum::<f64>() / seeds.len() as f64
    };
    let (before, after) = (mean(|pair| pair.0.value), mean(|pair| pair.1.value));
    let newer = seeds[0].1;
    let percent = (before != 0.0).then(|| (after - before) / before.abs() * 100.0);
    let differs = match percent {
        Some(percent) => percent.abs() > tolerance_percent,
        // Something where there was nothing is more than any share of it.
        None => after != 0.0,
    };
    let verdict = match (newer.better, differs) {
        (Better::Neither, _) => Verdict::Neither,
        (_, false) => Verdict::Same,
        (Better::Less, true) if after < before => Verdict::Better,
        (Better::More, true) if after > before => Verdict::Better,
        _ => Verdict::Worse,
    };
    Compared {
        place: newer.place.clone(),
        better: newer.better,
        before,
        after,
        percent,
        seeds: if newer.seed.is_some() { seeds.len() } else { 0 },
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(better: Better, seed: Option<u64>, value: f64) -> Figure {
        let (what, engine, metric) = ("make".into(), "x".into(), "ns".into());
        let place = Place { command: "replay", what, engine, metric };
        Figure { place, seed, better, value }
    }

    #[test]
    fn a_count_is_worse_by_more_than_is_tolerated_and_in_its_own_direction() {
        for (better, before, after, tolerance, expected) in [
            (Better::Less, 100.0, 105.0, 4.0, Verdict::Worse),
            (Better::Less, 100.0, 105.0, 5.0, Verdict::Same),
            (Better::Less, 100.0, 95.0, 4.0, Verdict::Better),
            (Better::More, 100.0, 95.0, 4.0, Verdict::Worse),
            (Better::More, 100.0, 105.0, 4.0, Verdict::Better),
            (Better::Neither, 100.0, 500.0, 0.0, Verdict::Neither),
            (Better::Less, 100.0, 100.0, 0.0, Verdict::Same),
            // There was none.
            (Better::Less, 0.0, 1.0, 900.0, Verdict::Worse),
            (Better::More, 0.0, 1.0, 900.0, Verdict::Better),
        ] {
            let [one, other] = [before, after].map(|value| figure(better, None, value));
            let found = pair(&[one], &[other], tolerance).0[0].verdict;
            assert_eq!(found, expected, "{better:?} {before} {after}");
        }
    }

    #[test]
    fn seeds_are_compared_each_with_itself_and_shown_as_their_mean() {
        let cell = |seed, value| figure(Better::Less, Some(seed), value);
        let (found, only_before, only_after) = pair(
            &[cell(1, 10.0), cell(2, 20.0), cell(3, 90.0)],
            &[cell(2, 22.0), cell(1, 14.0), cell(4, 0.0)],
            0.0,
        );
        assert_eq!((found.len(), only_before.len(), only_after.len()), (1, 1, 1));
        let one = &found[0];
        assert_eq!((one.before, one.after, one.seeds), (15.0, 18.0, 2));
        assert_eq!((one.percent, one.verdict), (Some(20.0), Verdict::Worse));
    }
}
