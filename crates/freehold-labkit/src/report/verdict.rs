//! One sentence on top of a table of many machines: which engine does best, how often, and by how
//! much beside the first.

use super::percent;
use crate::better::Better;

/// Figures nearer to each other than this share are called equal.
const EQUAL: f64 = 0.01;

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
    /// Cases in which its figure is no figure of the engine's.
    by_think: usize,
}

/// The place of the engine that is best, unless another is practically as good or has no rival.
fn best((question, figures): &Case) -> Option<usize> {
    let known = figures.iter().enumerate().filter_map(|(at, figure)| Some((at, (*figure)?)));
    let sign = if question.better == Better::More { -1.0 } else { 1.0 };
    let mut known: Vec<(usize, f64)> = known.collect();
    known.sort_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign)));
    let [(first, best), (_, second), ..] = known[..] else { return None };
    ((best - second).abs() > EQUAL * best.abs().max(second.abs())).then_some(first)
}

/// The least and the greatest change of one engine beside the first, in words, and what has no
/// change to be told.
fn range(won: &Won, baseline: &str) -> String {
    let mut changes: Vec<&(f64, f64)> =
        won.changes.iter().filter(|(base, _)| *base != 0.0).collect();
    changes.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let text = |&&(base, value): &&(f64, f64)| percent(base, value);
    let (least, most) = (changes.first().and_then(text), changes.last().and_then(text));
    let told = match (least, most) {
        (Some(least), Some(most)) if least == most => Some(format!("{least} beside {baseline}")),
        (Some(least), Some(most)) => Some(format!("{least} to {most} beside {baseline}")),
        _ => None,
    };
    match (told, won.by_think) {
        (None, 0) => String::new(),
        (Some(told), 0) => format!(" ({told})"),
        (None, n) if n == won.cases => " (bound by think time)".to_owned(),
        (None, n) => format!(" (bound by think time in {n})"),
        (Some(told), n) => format!(" ({told}; bound by think time in {n})"),
    }
}

/// The sentence, or `None` where there is nothing to compare. Where cases ask different questions,
/// `all` stands for them.
pub fn sentence(engines: &[&str], cases: &[Case], all: &str) -> Option<String> {
    sentence_but(engines, cases, all, |_, _| false)
}

/// The sentence where `by_think` says of a case and an engine that the figure is the think time's:
/// no change is told then.
pub fn sentence_but(
    engines: &[&str],
    cases: &[Case],
    all: &str,
    by_think: impl Fn(usize, usize) -> bool,
) -> Option<String> {
    let compared: Vec<(usize, &Case)> = cases
        .iter()
        .enumerate()
        .filter(|(_, (_, figures))| figures.iter().flatten().count() > 1)
        .collect();
    let (_, (question, _)) = compared.first()?;
    let baseline = engines.first()?;
    let mut won = vec![Won::default(); engines.len()];
    for (n, case) in &compared {
        let Some(at) = best(case) else { continue };
        won[at].cases += 1;
        if by_think(*n, at) {
            won[at].by_think += 1;
        } else if let (Some(base), Some(value), true) = (case.1[0], case.1[at], at > 0) {
            won[at].changes.push((base, value));
        }
    }
    let is_one = compared.iter().all(|(_, (other, _))| other.best == question.best);
    let what = if is_one { question.best } else { all };
    let mut order: Vec<usize> = (0..engines.len()).filter(|&at| won[at].cases > 0).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(won[at].cases));
    if order.is_empty() {
        return Some(format!("{what}: the engines do not differ."));
    }
    let total = compared.len();
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
    Some(format!("{what}: {}.", parts.join(", ")))
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
        let said = sentence(&["vanilla", "freehold", "6.18"], &cases, "");
        assert_eq!(said.as_deref(), Some("Most frames/s: freehold (+50.0% beside vanilla)."));
        let cases = [case(LEAST, &[0.2, 0.4])];
        assert_eq!(sentence(&["a", "b"], &cases, "").as_deref(), Some("Least unusable: a."));
    }

    #[test]
    fn several_cases_are_counted_losses_and_draws_too() {
        let cases = [&[10.0, 20.0], &[10.0, 15.0], &[30.0, 20.0], &[10.0, 10.05]]
            .map(|figures| case(MOST, figures));
        assert_eq!(
            sentence(&["vanilla", "freehold"], &cases, "").as_deref(),
            Some(
                "Most frames/s: freehold in 2 of 4 cases (+50.0% to +100.0% beside vanilla), vanilla in 1, no difference in 1."
            )
        );
        let mixed = [cases[0].clone(), case(LEAST, &[0.0, 0.5])];
        assert_eq!(
            sentence(&["vanilla", "freehold"], &mixed, "Best").as_deref(),
            Some("Best: vanilla in 1 of 2 cases, freehold in 1 (+100.0% beside vanilla).")
        );
    }

    #[test]
    fn a_figure_of_the_think_time_has_no_change() {
        let cases = [&[10.0, 20.0], &[10.0, 15.0]].map(|figures| case(MOST, figures));
        let said = |bound: &'static [usize]| {
            sentence_but(&["a", "b"], &cases, "", |case, engine| {
                engine == 1 && bound.contains(&case)
            })
            .unwrap()
        };
        assert_eq!(said(&[0, 1]), "Most frames/s: b in 2 of 2 cases (bound by think time).");
        assert_eq!(
            said(&[1]),
            "Most frames/s: b in 2 of 2 cases (+100.0% beside a; bound by think time in 1)."
        );
        // Whose baseline alone is bound has a change: it is no less than that.
        let first = sentence_but(&["a", "b"], &cases[..1], "", |_, engine| engine == 0).unwrap();
        assert_eq!(first, "Most frames/s: b (+100.0% beside a).");
    }

    #[test]
    fn nothing_to_compare_and_nothing_that_differs() {
        assert_eq!(sentence(&["freehold"], &[case(MOST, &[1.0])], ""), None);
        assert_eq!(sentence(&["a", "b"], &[(MOST, vec![Some(1.0), None])], ""), None);
        let said = sentence(&["a", "b"], &[case(LEAST, &[0.0, 0.0])], "");
        assert_eq!(said.as_deref(), Some("Least unusable: the engines do not differ."));
    }
}
