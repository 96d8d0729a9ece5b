//! Sentences on top of a table of many machines: which engine does best, how often, and by how much
//! beside the first. Each question has its own: a range over one figure of which less is better and
//! another of which more is would say nothing.

use crate::tables::better::Better;
use crate::tables::{are_equal, percent, unique};

/// What is asked of every case.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the best engine has, as a sentence begins: `Most frames/s`.
    pub best: &'a str,
    /// Whether that is the greatest figure, or the least.
    pub better: Better,
}

/// The engines' figures of one case, in the order of the engines.
pub type Case = (Question<'static>, Vec<Option<f64>>);

/// How often an engine was best, and its changes beside the first engine.
#[derive(Clone, Default)]
struct Won {
    cases: usize,
    changes: Vec<(f64, f64)>,
}

/// The place of the engine that is best, unless another is practically as good or has no rival.
fn best((question, figures): &Case) -> Option<usize> {
    let known = figures.iter().enumerate().filter_map(|(at, figure)| Some((at, (*figure)?)));
    let sign = if question.better == Better::More { -1.0 } else { 1.0 };
    let mut known: Vec<(usize, f64)> = known.collect();
    known.sort_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign)));
    let [(first, best), (_, second), ..] = known[..] else { return None };
    (!are_equal(best, second)).then_some(first)
}

/// The least and the greatest change of one engine beside the first, in words.
fn range(won: &Won, baseline: &str) -> String {
    let mut changes: Vec<&(f64, f64)> =
        won.changes.iter().filter(|(base, _)| *base != 0.0).collect();
    changes.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let text = |&&(base, value): &&(f64, f64)| percent(base, value);
    match (changes.first().and_then(text), changes.last().and_then(text)) {
        (Some(least), Some(most)) if least == most => format!(" ({least} against {baseline})"),
        (Some(least), Some(most)) => format!(" ({least} to {most} against {baseline})"),
        _ => String::new(),
    }
}

/// A sentence for each question that is asked, or `None` where there is nothing to compare.
pub fn sentence(engines: &[&str], cases: &[Case]) -> Option<String> {
    let compared = |case: &&Case| case.1.iter().flatten().count() > 1;
    let all: Vec<&Case> = cases.iter().filter(compared).collect();
    let of = |asked| {
        let own: Vec<&Case> = all.iter().copied().filter(|case| case.0.best == asked).collect();
        of_question(engines, asked, &own)
    };
    let said: Vec<String> =
        unique(all.iter().map(|(question, _)| question.best)).into_iter().map(of).collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// The sentence of the cases that ask one question.
fn of_question(engines: &[&str], asked: &str, cases: &[&Case]) -> String {
    let baseline = engines.first().copied().unwrap_or_default();
    let mut won = vec![Won::default(); engines.len()];
    for case in cases {
        let Some(at) = best(case) else { continue };
        won[at].cases += 1;
        if let (Some(base), Some(value), true) = (case.1[0], case.1[at], at > 0) {
            won[at].changes.push((base, value));
        }
    }
    let mut order: Vec<usize> = (0..engines.len()).filter(|&at| won[at].cases > 0).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(won[at].cases));
    if order.is_empty() {
        return format!("{asked}: the engines do not differ.");
    }
    let total = cases.len();
    let parts = order.iter().enumerate().map(|(n, &at)| {
        let often = match (total, n) {
            (1, _) => String::new(),
            (_, 0) => format!(" in {} of {total} cases", won[at].cases),
            _ => format!(" in {}", won[at].cases),
        };
        format!("{}{often}{}", engines[at], range(&won[at], baseline))
    });
    let mut parts: Vec<String> = parts.collect();
    let equal = total - won.iter().map(|won| won.cases).sum::<usize>();
    if equal > 0 {
        parts.push(format!("no difference in {equal}"));
    }
    format!("{asked}: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Question<'_> = Question { best: "Most frames/s", better: Better::More };
    const LEAST: Question<'_> = Question { best: "Least unusable", better: Better::Less };

    fn case(question: Question<'static>, figures: &[f64]) -> Case {
        (question, figures.iter().copied().map(Some).collect())
    }

    #[test]
    fn one_case_has_its_change() {
        let cases = [case(MOST, &[100.0, 150.0, 120.0])];
        let said = sentence(&["vanilla", "freehold", "6.18"], &cases);
        assert_eq!(said.as_deref(), Some("Most frames/s: freehold (+50.0% against vanilla)."));
        let cases = [case(LEAST, &[0.2, 0.4])];
        assert_eq!(sentence(&["a", "b"], &cases).as_deref(), Some("Least unusable: a."));
    }

    #[test]
    fn several_cases_are_counted_losses_and_draws_too() {
        let cases = [&[10.0, 20.0], &[10.0, 15.0], &[30.0, 20.0], &[10.0, 10.05]]
            .map(|figures| case(MOST, figures));
        assert_eq!(
            sentence(&["vanilla", "freehold"], &cases).as_deref(),
            Some(
                "Most frames/s: freehold in 2 of 4 cases (+50.0% to +100.0% against vanilla), \
                 vanilla in 1, no difference in 1."
            )
        );
        // Less and more are never one range.
        let mixed = [cases[0].clone(), case(LEAST, &[0.2, 0.1]), case(LEAST, &[0.2, 0.15])];
        assert_eq!(
            sentence(&["vanilla", "freehold"], &mixed).as_deref(),
            Some(
                "Most frames/s: freehold (+100.0% against vanilla). \
                 Least unusable: freehold in 2 of 2 cases (-50.0% to -25.0% against vanilla)."
            )
        );
    }

    #[test]
    fn nothing_to_compare_and_nothing_that_differs() {
        assert_eq!(sentence(&["freehold"], &[case(MOST, &[1.0])]), None);
        assert_eq!(sentence(&["a", "b"], &[(MOST, vec![Some(1.0), None])]), None);
        let said = sentence(&["a", "b"], &[case(LEAST, &[0.0, 0.0])]);
        assert_eq!(said.as_deref(), Some("Least unusable: the engines do not differ."));
    }
}
