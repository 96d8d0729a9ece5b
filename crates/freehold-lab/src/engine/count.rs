//! Records of counts, added and subtracted field by field.

/// What can be added up, and of which an earlier state can be taken away.
pub trait Count: Sized {
    fn add(&mut self, more: &Self);

    /// Takes `before` away, which is no more in any field.
    fn subtract(&mut self, before: &Self);

    /// What has been added since `before`.
    #[must_use]
    fn since(mut self, before: &Self) -> Self {
        self.subtract(before);
        self
    }
}

impl Count for u64 {
    #[inline]
    fn add(&mut self, more: &Self) {
        *self += more;
    }

    #[inline]
    fn subtract(&mut self, before: &Self) {
        *self -= before;
    }
}

impl<T: Count, const N: usize> Count for [T; N] {
    #[inline]
    fn add(&mut self, more: &Self) {
        self.iter_mut().zip(more).for_each(|(into, more)| into.add(more));
    }

    #[inline]
    fn subtract(&mut self, before: &Self) {
        self.iter_mut().zip(before).for_each(|(into, before)| into.subtract(before));
    }
}

/// Makes a record of counts one itself. All its fields are named, or the compiler says which is
/// missing.
macro_rules! count {
    ($record:ident: $($field:ident)+) => {
        impl $crate::engine::Count for $record {
            #[inline]
            fn add(&mut self, more: &Self) {
                let Self { $($field),+ } = more;
                $($crate::engine::Count::add(&mut self.$field, $field);)+
            }

            #[inline]
            fn subtract(&mut self, before: &Self) {
                let Self { $($field),+ } = before;
                $($crate::engine::Count::subtract(&mut self.$field, $field);)+
            }
        }
    };
}
pub(crate) use count;
