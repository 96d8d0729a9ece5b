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

#[test]
fn patches_end_where_the_signature_begins() {
    let mail = "Hello\n---\ndiff --git a/a b/a\n-two\n+zwei\ndiff --git a/b b/b\n+eight\n-- \n\
                2.53\n> diff --git a/quoted b/quoted\ndiff --git a/c b/c\n-gone\n-- \n";
    let [both, last] = [
        "diff --git a/a b/a\n-two\n+zwei\ndiff --git a/b b/b\n+eight\n",
        "diff --git a/c b/c\n-gone\n",
    ];
    assert_eq!(patches(mail), [both, last]);
}
