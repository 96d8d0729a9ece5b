//! Whether two engines' figures differ by more than chance: the two-sided Mann-Whitney U test at 5 %.
//!
//! Why this test: it asks only whether the runs of one engine tend to lie above those of the other, so that one run in
//! which the machine was busy, which ruins a mean and its t test, counts as no more than one run. Source: Mann and
//! Whitney, "On a test of whether one of two random variables is stochastically larger than the other", 1947.
//!
//! ```text
//!   runs of both, sorted      a a b a a b b b
//!   rank                      1 2 3 4 5 6 7 8        W = sum of a's ranks = 12, of 10 (all below) to 26 (all above)
//!   p = share of all ways to choose 4 ranks of 8 whose sum lies as far from the middle (18) as W does
//! ```
//!
//! Up to [`EXACT`] runs in all, the ways are counted, ties included (equal figures share the mean of their ranks); above,
//! the normal approximation is used, with the corrections for ties and continuity.
//!
//! With few runs nothing can be significant, however large the difference: the least p of 3 runs against 3 is 10 %. 4
//! against 4 can reach 2.9 %, 7 against 7 0.06 %. A star stands for one comparison: of a hundred comparisons of equals,
//! five would get one.

/// The level: the share of comparisons of equals that would be called different.
pub const LEVEL: f64 = 0.05;

/// What the table and the JSON say of the test.
pub const NAME: &str = "Mann-Whitney U, two-sided";

/// Runs of both engines together up to which p is exact. At 40 the counts of ways stay far below 2^53.
pub const EXACT: usize = 40;

/// The probability of a difference as clear as this one, in either direction, between runs of the same thing; `None`
/// without a run on either side.
///
/// Takes time proportional to the fourth power of the runs up to [`EXACT`]: microseconds.
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let ranks = doubled_ranks(a, b);
    if ranks.len() <= EXACT { Some(exact(&ranks, a.len())) } else { Some(approximate(&ranks, a.len())) }
}

/// Whether so many runs on each side can be significant at all.
pub fn can_tell(a: usize, b: usize) -> bool {
    let below: Vec<f64> = (0..a).map(|n| n as f64).collect();
    let above: Vec<f64> = (0..b).map(|n| (a + n) as f64).collect();
    p_value(&below, &above).is_some_and(|p| p < LEVEL)
}

/// Twice the rank of each figure, those of `a` first. Doubled, because ties share a mean that may end in a half.
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
fn exact(ranks: &[usize], n: usize) -> f64 {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0f64; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for k in (1..=n).rev() {
            for sum in (rank..=most).rev() {
                ways[k][sum] += ways[k - 1][sum - rank];
            }
        }
    }
    // Twice the mean of the sum, so that it is a whole number: n of len ranks that add up to `most`.
    let far = |sum: usize| (sum * ranks.len()).abs_diff(n * most);
    let found = far(ranks.iter().take(n).sum());
    let chosen = &ways[n];
    let as_far: f64 = chosen.iter().enumerate().filter(|&(sum, _)| far(sum) >= found).map(|(_, ways)| ways).sum();
    as_far / chosen.iter().sum::<f64>()
}

fn approximate(ranks: &[usize], n: usize) -> f64 {
    let (all, n) = (ranks.len() as f64, n as f64);
    let m = all - n;
    let sum: f64 = ranks.iter().take(n as usize).map(|&rank| rank as f64 / 2.0).sum();
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64).sum();
    let variance = n * m / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((sum - n * (all + 1.0) / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    erfc(z / std::f64::consts::SQRT_2)
}

/// The complementary error function for x >= 0, relative error below 1.2e-7. Source: the Chebyshev fit in Press et al.,
/// Numerical Recipes, section 6.2.
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + x / 2.0);
    let fit = FIT.iter().rev().fold(0.0, |sum, &term| sum * t + term);
    t * (fit - x * x).exp()
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
        for (n, ways) in [(1, 2.0), (2, 6.0), (3, 20.0), (4, 70.0), (5, 252.0), (7, 3432.0), (10, 184_756.0)] {
            let below: Vec<f64> = (0..n).map(f64::from).collect();
            let above: Vec<f64> = (n..2 * n).map(f64::from).collect();
            close(p(&below, &above), 2.0 / ways);
            close(p(&above, &below), 2.0 / ways);
        }
        assert!(!can_tell(3, 3) && can_tell(4, 4) && can_tell(3, 5) && !can_tell(0, 9));
    }

    /// From the tables of Mann and Whitney: P(U <= u) for 5 and 5 runs is 0.008, 0.016, 0.028 for u = 1, 2, 3.
    #[test]
    fn the_published_table_for_five_and_five() {
        let a = [1.0, 2.0, 3.0, 4.0, 6.0];
        let b = [5.0, 7.0, 8.0, 9.0, 10.0];
        close(p(&a, &b), 2.0 * 2.0 / 252.0);
        let b = [4.5, 7.0, 8.0, 9.0, 10.0];
        let a = [1.0, 2.0, 3.0, 5.0, 6.0];
        close(p(&a, &b), 2.0 * 4.0 / 252.0);
    }

    /// Both by hand: of the 6 ways to choose 2 of the ranks 1.5, 1.5, 3.5, 3.5, two are as far out as {1.5, 1.5}.
    #[test]
    fn ties_share_their_ranks() {
        close(p(&[1.0, 1.0], &[2.0, 2.0]), 2.0 / 6.0);
        close(p(&[5.0; 6], &[5.0; 7]), 1.0);
        close(p(&[5.0; 30], &[5.0; 30]), 1.0);
    }

    /// Where both can be computed they agree.
    #[test]
    fn the_approximation_meets_the_exact_value() {
        let a: Vec<f64> = (0..20).map(|n| f64::from(n) * 1.7).collect();
        for shift in [0.0, 3.3, 6.1, 9.9] {
            let b: Vec<f64> = (0..20).map(|n| f64::from(n) * 1.6 + shift).collect();
            let ranks = doubled_ranks(&a, &b);
            let (exact, near) = (exact(&ranks, 20), approximate(&ranks, 20));
            assert!((exact - near).abs() < 0.01, "{shift}: {exact} and {near}");
        }
    }

    /// erfc(1) and erfc(2) from any table.
    #[test]
    fn error_function() {
        assert!((erfc(0.0) - 1.0).abs() < 1e-6);
        assert!((erfc(1.0) - 0.157_299_207).abs() < 1e-7);
        assert!((erfc(2.0) - 0.004_677_735).abs() < 1e-8);
    }

    #[test]
    fn nothing_to_compare() {
        assert_eq!(p_value(&[], &[1.0]), None);
        close(p(&[1.0], &[2.0]), 1.0);
    }
}
