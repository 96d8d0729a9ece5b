//! Whether two engines' figures differ by more than chance: the two-sided Mann-Whitney U test at 5
//! %.
//!
//! Why this test: it asks only whether the runs of one engine tend to lie above those of the other,
//! so that one run in which the machine was busy, which ruins a mean and its t test, counts as no
//! more than one run. Source: Mann and Whitney, "On a test of whether one of two random variables
//! is stochastically larger than the other", 1947.
//!
//! ```text
//!   runs of both, sorted  a a b a a b b b
//!   rank                  1 2 3 4 5 6 7 8   W = sum of a's ranks = 12, of 10 (all below) to 26
//!                                           (all above)
//!   p = share of all ways to choose 4 ranks of 8 whose sum lies as far from the middle (18) as W
//!       does
//! ```
//!
//! The ways are counted, ties included (equal figures share the mean of their ranks): nothing is
//! approximated. That takes time, and numbers that a float holds up to some 500 runs of each:
//! `--runs` is 100 at most.
//!
//! With few runs nothing can be significant, however large the difference: the least p of 3 runs
//! against 3 is 10 %. 4 against 4 can reach 2.9 %, 7 against 7 0.06 %. A star stands for one
//! comparison: of a hundred comparisons of equals, five would get one.

/// The level: the share of comparisons of equals that would be called different.
pub const LEVEL: f64 = 0.05;

/// What the table and the JSON say of the test.
pub const NAME: &str = "Mann-Whitney U, two-sided";

/// The probability of a difference as clear as this one, in either direction, between runs of the
/// same thing; `None` without a run on either side.
///
/// Takes time proportional to the fourth power of the runs: microseconds for 7 of each, half a
/// second for 100.
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    Some(share_as_far(&doubled_ranks(a, b), a.len()))
}

/// Twice the rank of each figure, those of `a` first. Doubled, because ties share a mean that may
/// end in a half.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all = || a.iter().chain(b);
    let rank = |figure: &f64| {
        let below = all().filter(|other| other.total_cmp(figure).is_lt()).count();
        let equal = all().filter(|other| other.total_cmp(figure).is_eq()).count();
        // Ranks below + 1 to below + equal: their mean, twice.
        2 * below + equal + 1
    };
    all().map(rank).collect()
}

/// Counts the ways: `ways[k][s]` choices of k ranks with sum s, one rank after the other.
fn share_as_far(ranks: &[usize], n: usize) -> f64 {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    let mut reached = 0;
    for &rank in ranks {
        reached += rank;
        for k in (1..=n).rev() {
            for sum in (rank..=reached).rev() {
                ways[k][sum] += ways[k - 1][sum - rank];
            }
        }
    }
    // Twice the mean of the sum, so that it is a whole number: n of len ranks that add up to
    // `most`.
    let far = |sum: usize| (sum * ranks.len()).abs_diff(n * most);
    let found = far(ranks.iter().take(n).sum());
    let chosen = &ways[n];
    let as_far: f64 =
        chosen.iter().enumerate().filter(|&(sum, _)| far(sum) >= found).map(|(_, ways)| ways).sum();
    as_far / chosen.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(a: &[f64], b: &[f64]) -> f64 {
        p_value(a, b).unwrap()
    }

    fn close(p: f64, to: f64) {
        assert!((p - to).abs() < 1e-6, "{p} is not {to}");
    }

    /// Runs that do not overlap: 2 of the ways to choose, which everybody can count.
    #[test]
    fn runs_that_do_not_overlap() {
        for (n, ways) in
            [(1, 2.0), (2, 6.0), (3, 20.0), (4, 70.0), (5, 252.0), (7, 3432.0), (10, 184_756.0)]
        {
            let below: Vec<f64> = (0..n).map(f64::from).collect();
            let above: Vec<f64> = (n..2 * n).map(f64::from).collect();
            close(p(&below, &above), 2.0 / ways);
            close(p(&above, &below), 2.0 / ways);
        }
    }

    /// From the tables of Mann and Whitney: P(U <= u) for 5 and 5 runs is 0.008, 0.016, 0.028 for u
    /// = 1, 2, 3.
    #[test]
    fn the_published_table_for_five_and_five() {
        let a = [1.0, 2.0, 3.0, 4.0, 6.0];
        let b = [5.0, 7.0, 8.0, 9.0, 10.0];
        close(p(&a, &b), 2.0 * 2.0 / 252.0);
        let b = [4.5, 7.0, 8.0, 9.0, 10.0];
        let a = [1.0, 2.0, 3.0, 5.0, 6.0];
        close(p(&a, &b), 2.0 * 4.0 / 252.0);
    }

    /// Both by hand: of the 6 ways to choose 2 of the ranks 1.5, 1.5, 3.5, 3.5, two are as far out
    /// as {1.5, 1.5}.
    #[test]
    fn ties_share_their_ranks() {
        close(p(&[1.0, 1.0], &[2.0, 2.0]), 2.0 / 6.0);
        close(p(&[5.0; 6], &[5.0; 7]), 1.0);
        close(p(&[5.0; 30], &[5.0; 30]), 1.0);
    }

    /// By whole numbers, in another language.
    #[test]
    fn many_runs() {
        let a: Vec<f64> = (0..50).map(f64::from).collect();
        let b: Vec<f64> = (0..50).map(|n| f64::from(n) + 9.5).collect();
        assert!((p(&a, &b) / 0.002808316638770783 - 1.0).abs() < 1e-9, "{}", p(&a, &b));
    }

    #[test]
    fn nothing_to_compare() {
        assert_eq!(p_value(&[], &[1.0]), None);
        close(p(&[1.0], &[2.0]), 1.0);
    }
}
