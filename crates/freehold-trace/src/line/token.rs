//! Words of a line and the numbers they are.

pub(super) fn next_token<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    // One comparison a byte, control characters count as blanks: this is where most of the time
    // goes.
    let start = rest.iter().position(|&b| b > b' ').unwrap_or(rest.len());
    let text = &rest[start..];
    let end = text.iter().position(|&b| b <= b' ').unwrap_or(text.len());
    let (token, after) = text.split_at(end);
    *rest = after;
    token
}

pub(super) fn lossy(text: &[u8]) -> String {
    super::super::error::snippet(text)
}

/// Digits only, and it fits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// `0x...` or decimal: kernels up to 5.x printed frames in decimal.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let Some(hex) = text.strip_prefix(b"0x") else { return decimal(text) };
    if hex.is_empty() || hex.len() > 16 {
        return None;
    }
    hex.iter().try_fold(0u64, |n, &b| Some(n << 4 | u64::from(char::from(b).to_digit(16)?)))
}
