//! Barriers that have not opened: who has come first, and who has come.

/// Barriers of a block that warps have arrived at and that have not opened.
#[derive(Default)]
pub(super) struct Barriers {
    list: [Pending; 16],
}

/// One of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Pending {
    /// What the first one executed, and who that was; `None` if nobody has yet.
    pub first: Option<(u64, u32, u32, u32)>,
    /// Warps that have arrived.
    pub arrived: u32,
}

impl Barriers {
    /// A barrier, if there is one of that number.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Pending> {
        self.list.get_mut(id as usize)
    }

    /// Who arrived first at a barrier that has not opened: warp, lane and position.
    pub(super) fn first(&self, id: u32) -> Option<(u32, u32, u32)> {
        self.list.get(id as usize)?.first.map(|(_, warp, lane, pc)| (warp, lane, pc))
    }

    /// One has opened, and begins anew.
    pub(super) fn opened(&mut self, id: u32) {
        if let Some(b) = self.get_mut(id) {
            *b = Pending::default();
        }
    }
}
