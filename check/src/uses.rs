//! What a launch has accessed in global memory, by place.

/// Bytes of global memory that one place of a kernel has accessed: from, to, whether it wrote, position and the first thread.
pub(crate) type Use = (bool, u64, u64, (u32, (u64, u32, u32)));

/// Adds a use to a list: to the last one, if that is of the same place and reaches to where this begins.
pub(crate) fn add(list: &mut Vec<Use>, next: Use) {
    match list.last_mut() {
        Some(last) if last.0 == next.0 && last.3.0 == next.3.0 && (last.1..=last.2).contains(&next.1) => {
            last.2 = last.2.max(next.2);
        }
        _ => list.push(next),
    }
}

/// Uses in order, those of one place that overlap or follow each other as one.
pub(crate) fn joined(mut list: Vec<Use>) -> Vec<Use> {
    list.sort_unstable();
    let mut joined = Vec::new();
    list.into_iter().for_each(|next| add(&mut joined, next));
    joined
}
