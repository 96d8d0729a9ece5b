//! The RFC's patches, cut out of the text of the discussion in which they were posted. They are
//! read when a kernel is built and kept nowhere in this repository.

use std::fmt::Write as _;

/// The patches of that text, in its order: from the first `diff --git` to the line that mail
/// programs put before a signature.
pub(super) fn patches(text: &str) -> Vec<String> {
    let mut patches: Vec<String> = Vec::new();
    let mut within = false;
    for line in text.lines().map(|line| line.trim_end_matches('\r')) {
        if line.starts_with("diff --git ") && !within {
            patches.push(String::new());
            within = true;
        }
        within &= line != "-- ";
        if let (true, Some(patch)) = (within, patches.last_mut()) {
            patch.push_str(line);
            patch.push('\n');
        }
    }
    patches
}

/// The first line that a hunk's head names, in the old file and in the new one, and what follows
/// the head.
fn head(line: &str) -> Option<(&str, &str, &str)> {
    let (ranges, rest) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    Some((old.split(',').next()?, new.split(',').next()?, rest))
}

/// The patch with the lengths that its hunks have: a mended one has other lengths than it says.
pub(super) fn recounted(patch: &str) -> String {
    let lines: Vec<&str> = patch.lines().collect();
    let mut out = String::with_capacity(patch.len());
    for (at, line) in lines.iter().enumerate() {
        match head(line) {
            Some((old, new, rest)) => {
                let body = lines[at + 1..]
                    .iter()
                    .take_while(|line| line.is_empty() || line.starts_with([' ', '+', '-']));
                let (mut before, mut after) = (0, 0);
                for line in body {
                    before += usize::from(!line.starts_with('+'));
                    after += usize::from(!line.starts_with('-'));
                }
                let _ = write!(out, "@@ -{old},{before} +{new},{after} @@{rest}");
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "\
Hello,
---
 a | 2 +-

diff --git a/a b/a
--- a/a
+++ b/a
@@ -1,3 +1,3 @@ here
 one
-two
+zwei
 three
diff --git a/b b/b
--- a/b
+++ b/b
@@ -7 +7,2 @@
 seven
+eight
-- 
2.53.0

> diff --git a/quoted b/quoted
diff --git a/c b/c
--- a/c
+++ b/c
@@ -1 +0,0 @@
-gone
-- 
";

    #[test]
    fn patches_end_where_the_signature_begins() {
        let found = patches(MAIL);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("diff --git a/a b/a\n") && found[0].ends_with("+eight\n"));
        assert!(found[1].starts_with("diff --git a/c b/c\n") && found[1].ends_with("-gone\n"));
    }

    #[test]
    fn a_mended_hunk_says_how_long_it_is() {
        let patch = &patches(MAIL)[0];
        let counted = recounted(patch);
        assert!(
            counted.contains("@@ -1,3 +1,3 @@ here\n") && counted.contains("@@ -7,1 +7,2 @@\n")
        );
        // A hunk that becomes two, and a line less.
        let mended = patch.replace("+zwei\n", "@@ -3 +2 @@\n").replace("+eight\n", "");
        let counted = recounted(&mended);
        assert!(counted.contains("@@ -1,2 +1,1 @@ here\n"), "{counted}");
        assert!(counted.contains("@@ -3,1 +2,1 @@\n") && counted.contains("@@ -7,1 +7,1 @@\n"));
    }
}
