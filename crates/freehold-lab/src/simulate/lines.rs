//! Which CPU wrote a cache line last: whoever else needs it has to have it brought over.
//!
//! Two bytes a line in memory that the system zeroes on first use, so that a machine of terabytes costs only what its
//! workload touches.

/// The last writers of a run of lines.
#[derive(Debug)]
pub struct Lines {
    /// CPU + 1; 0 = nobody yet.
    last: Vec<u16>,
}

impl Lines {
    /// That many lines, written by nobody.
    #[must_use]
    pub fn new(count: u64) -> Self {
        Self { last: vec![0; count as usize] }
    }

    /// `cpu` writes a line (or reads one that others write): from whom it comes, `None` where `cpu` has it, or where
    /// nobody does.
    pub fn touch(&mut self, line: u64, cpu: u16) -> Option<u16> {
        let last = self.last.get_mut(line as usize)?;
        let before = std::mem::replace(last, cpu + 1);
        before.checked_sub(1).filter(|&other| other != cpu)
    }

    /// Who wrote it last.
    #[must_use]
    pub fn last(&self, line: u64) -> Option<u16> {
        self.last.get(line as usize)?.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_from_whoever_had_it() {
        let mut lines = Lines::new(2);
        assert_eq!(
            [lines.touch(0, 3), lines.touch(0, 3), lines.touch(0, 0), lines.touch(0, 3)],
            [None, None, Some(3), Some(0)]
        );
        assert_eq!((lines.last(0), lines.last(1), lines.touch(9, 1)), (Some(3), None, None));
    }
}
