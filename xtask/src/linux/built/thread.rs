//! The RFC's patches, cut out of the text of the discussion in which they were posted. They are
//! read when a kernel is built and kept nowhere in this repository.

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
}
