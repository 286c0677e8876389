//! Undefined bits of a warp's registers.

use warpsmith_simt::machine::lanes::lanes_of;
use warpsmith_simt::machine::note::Reg;
use warpsmith_simt::machine::{CONST, Cx, LANES, PRED_SINK, PRED_TRUE};

/// One bit for each bit of the register file, in its layout, and a lane mask for each predicate; empty while nothing
/// has been undefined.
#[derive(Default)]
pub(super) struct Registers {
    /// Words of the register file; a row of 32-bit lanes has 32, one of 64-bit lanes 64.
    words: Vec<u32>,
    preds: Vec<u32>,
    /// Where a row's undefined bits came from: the last such value written to it.
    origins: Vec<u32>,
    pred_origins: Vec<u32>,
    /// How many words and predicates the deepest frame needs.
    need: (u32, u32),
}

impl Registers {
    pub(super) fn reserve(&mut self, words: u32, preds: u32) {
        self.need = (self.need.0.max(words), self.need.1.max(preds));
        if !self.words.is_empty() || !self.preds.is_empty() {
            self.make();
        }
    }

    /// Makes room for all that is needed.
    pub(super) fn make(&mut self) {
        let (words, preds) = (self.need.0 as usize, self.need.1 as usize);
        if self.words.len() < words || self.preds.len() < preds {
            self.words.resize(words, 0);
            self.origins.resize(words.div_ceil(LANES), 0);
            self.preds.resize(preds, 0);
            self.pred_origins.resize(preds, 0);
        }
    }

    pub(super) fn all_defined(&self) -> bool {
        self.words.iter().fold(0, |m, w| m | w) == 0 && self.preds.iter().fold(0, |m, w| m | w) == 0
    }

    /// A row that lanes may read before they write it; `at` is in bytes of the register file.
    pub(super) fn unset(&mut self, at: u32, wide: bool, lanes: u32) {
        self.make();
        let at = (at / 4) as usize;
        let per = if wide { 2 } else { 1 };
        for lane in lanes_of(lanes) {
            self.words[at + lane * per..][..per].fill(!0);
        }
        self.origins[at / LANES] = 0;
    }

    pub(super) fn unset_pred(&mut self, slot: u32, lanes: u32) {
        self.make();
        self.preds[slot as usize] |= lanes;
        self.pred_origins[slot as usize] = 0;
    }

    /// Lanes in which a predicate, counted from the start of the file, is undefined.
    pub(super) fn pred(&self, slot: u32) -> u32 {
        self.preds.get(slot as usize).copied().unwrap_or(0)
    }

    pub(super) fn pred_origin(&self, slot: u32) -> u32 {
        self.pred_origins.get(slot as usize).copied().unwrap_or(0)
    }

    pub(super) fn define_pred(&mut self, slot: u32, lanes: u32) {
        if let Some(p) = self.preds.get_mut(slot as usize) {
            *p &= !lanes;
        }
    }

    pub(super) fn set_pred(&mut self, cx: &Cx, slot: u16, lanes: u32, bits: u32, origin: u32) {
        if matches!(slot, PRED_TRUE | PRED_SINK) {
            return;
        }
        self.make();
        let at = (cx.frame_pred + u32::from(slot)) as usize;
        if let Some(p) = self.preds.get_mut(at) {
            *p = *p & !lanes | bits & lanes;
            if bits & lanes != 0 {
                self.pred_origins[at] = origin;
            }
        }
    }

    fn at(cx: &Cx, at: u32) -> usize {
        ((cx.frame_row + at) / 4) as usize
    }

    /// A lane's undefined bits.
    #[inline]
    pub(super) fn get(&self, cx: &Cx, reg: Reg, lane: usize) -> u64 {
        if reg.is_const() {
            return 0;
        }
        match reg {
            Reg::Narrow(at) => self.words.get(Self::at(cx, at) + lane).map_or(0, |&w| w.into()),
            Reg::Wide(at) => {
                let at = Self::at(cx, at) + 2 * lane;
                match self.words.get(at..at + 2) {
                    Some(&[low, high]) => u64::from(low) | u64::from(high) << 32,
                    _ => 0,
                }
            }
            Reg::Pred(slot) => {
                if self.pred(cx.frame_pred + u32::from(slot)) >> lane & 1 != 0 {
                    !0
                } else {
                    0
                }
            }
        }
    }

    #[inline]
    pub(super) fn set(&mut self, cx: &Cx, reg: Reg, lane: usize, bits: u64) {
        match reg {
            Reg::Narrow(at) => {
                if let Some(w) = self.words.get_mut(Self::at(cx, at) + lane) {
                    *w = bits as u32;
                }
            }
            Reg::Wide(at) => {
                let at = Self::at(cx, at) + 2 * lane;
                if let Some([low, high]) = self.words.get_mut(at..at + 2) {
                    (*low, *high) = (bits as u32, (bits >> 32) as u32);
                }
            }
            Reg::Pred(slot) => self.set_pred(cx, slot, 1 << lane, if bits != 0 { !0 } else { 0 }, 0),
        }
    }

    /// The words of a row.
    pub(super) fn row(&self, cx: &Cx, reg: Reg) -> &[u32] {
        let (at, n) = match reg {
            Reg::Narrow(at) if at & CONST == 0 => (at, LANES),
            Reg::Wide(at) if at & CONST == 0 => (at, 2 * LANES),
            _ => return &[],
        };
        let at = Self::at(cx, at);
        self.words.get(at..at + n).unwrap_or(&[])
    }

    /// Whether some lane of a register is undefined, active or not.
    pub(super) fn touched(&self, cx: &Cx, reg: Reg) -> bool {
        match reg {
            Reg::Pred(slot) => slot != PRED_TRUE && self.pred(cx.frame_pred + u32::from(slot)) != 0,
            _ => self.row(cx, reg).iter().fold(0, |m, w| m | w) != 0,
        }
    }

    /// Those of `lanes` in which a register is not wholly defined.
    pub(super) fn undefined(&self, cx: &Cx, reg: Reg, lanes: u32) -> u32 {
        if !self.touched(cx, reg) {
            return 0;
        }
        lanes_of(lanes).filter(|&l| self.get(cx, reg, l) != 0).fold(0, |m, l| m | 1 << l)
    }

    pub(super) fn define(&mut self, cx: &Cx, reg: Reg, lanes: u32) {
        match reg {
            Reg::Pred(slot) => self.define_pred(cx.frame_pred + u32::from(slot), lanes),
            _ if self.touched(cx, reg) => lanes_of(lanes).for_each(|l| self.set(cx, reg, l, 0)),
            _ => {}
        }
    }

    /// Makes a register undefined in `lanes`.
    pub(super) fn mark(&mut self, cx: &Cx, reg: Reg, lanes: u32, short: bool, origin: u32) {
        if lanes == 0 {
            return;
        }
        let Reg::Pred(slot) = reg else {
            lanes_of(lanes).for_each(|l| self.set(cx, reg, l, if short { 0xffff } else { !0 }));
            return self.came(cx, reg, origin);
        };
        self.set_pred(cx, slot, lanes, !0, origin);
    }

    pub(super) fn origin(&self, cx: &Cx, reg: Reg) -> u32 {
        match reg {
            Reg::Pred(slot) => self.pred_origin(cx.frame_pred + u32::from(slot)),
            Reg::Narrow(at) | Reg::Wide(at) => self.origins.get(Self::at(cx, at) / LANES).copied().unwrap_or(0),
        }
    }

    /// Notes where a register's undefined bits came from.
    pub(super) fn came(&mut self, cx: &Cx, reg: Reg, origin: u32) {
        let to = match reg {
            Reg::Pred(slot) => self.pred_origins.get_mut((cx.frame_pred + u32::from(slot)) as usize),
            Reg::Narrow(at) | Reg::Wide(at) => self.origins.get_mut(Self::at(cx, at) / LANES),
        };
        if let Some(to) = to {
            *to = origin;
        }
    }
}
