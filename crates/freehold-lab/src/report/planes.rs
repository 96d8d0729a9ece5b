//! Planes of a memory map, as `crate::replay::memory_map` says that they are written.

/// Applies a plane to the cells of the moment before.
pub(super) fn decode(text: &str, cells: &mut [u64]) -> Result<(), String> {
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("'{word}' is not a number"));
    let words: Vec<u64> = text.split_ascii_whitespace().map(number).collect::<Result<_, _>>()?;
    let mut at = 0u64;
    for triple in words.chunks(3) {
        let &[skip, run, value] = triple else {
            return Err(format!("{} numbers are no triples", words.len()));
        };
        let start = at.saturating_add(skip);
        at = start.saturating_add(run);
        if at > cells.len() as u64 {
            return Err(format!("cell {at} of {}", cells.len()));
        }
        cells[start as usize..at as usize].fill(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::replay::memory_map::encode;

    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let mut cells = vec![0; 300];
        let mut state = 1u64;
        for _ in 0..50 {
            let before = cells.clone();
            let mut now = before.clone();
            for cell in &mut now {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                if state >> 60 == 0 {
                    *cell = state >> 33 & 3;
                }
            }
            decode(&encode(&before, &now), &mut cells).unwrap();
            assert_eq!(cells, now);
        }
    }

    #[test]
    fn damaged_planes_are_refused() {
        for text in ["1", "1 2", "0 5 1", "a b c", "0 1 -1", "18446744073709551615 2 1"] {
            assert!(decode(text, &mut [0; 4]).is_err(), "{text}");
        }
    }
}
