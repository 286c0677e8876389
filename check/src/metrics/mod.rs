//! What a profile counts, and by which rules.
//!
//! Names and rules are those of Nsight Compute, as far as its documentation states them ("Kernel Profiling Guide": metrics
//! structure, memory tables) and NVIDIA's "CUDA C++ Programming Guide" does (device memory accesses, shared memory banks).
//! What is counted is the PTX that ran, not the machine code that an assembler would make of it.
//!
//! - **Sectors** are aligned pieces of 32 bytes. A request is one warp's execution of one access; it costs the distinct
//!   sectors that its active lanes touch, so a warp that loads 4, 8 or 16 consecutive bytes a lane costs 4, 8 or 16.
//! - **Bytes used** of a request are the distinct bytes that its lanes ask for; lanes that share a byte use it once.
//! - **Wavefronts** are passes over shared memory's 32 banks of 4 bytes. Lanes are served 32 at a time for up to 4 bytes
//!   a lane, 16 for 8 and 8 for 16 or more; a group needs as many passes as the busiest bank has distinct words to give.
//!   **Conflicts** are the passes beyond one for each group that has an active lane.
//!   `ldmatrix` and `stmatrix` take a pass for the eight rows of a matrix if these lie in different banks.
//! - `wmma.load` and `wmma.store` are one request each. How they deal elements to lanes the ISA leaves open, so they cost the
//!   sectors of the tile once, and as many passes as the busiest bank has words of it.
//! - A bulk copy is one request, and costs the sectors that it touches in global memory.
//! - **Uniform** is an execution of a conditional or indexed branch whose lanes all go one way.
//! - **FLOP** are additions and multiplications one each, fused multiply-adds two, both halves of packed types, and for
//!   matrix instructions two for each element of the product's volume.

use std::ops::AddAssign;

use warpsmith_simt::machine::note::Work;

mod lanes;
mod requests;

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident = $ncu:literal,)*) => {
        /// Sums over the executions of a line, or of a launch.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Metrics {
            fn add_assign(&mut self, other: Metrics) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }

        impl Metrics {
            /// Nsight Compute's name and the value of every sum, in declaration order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($ncu, self.$name)),*].into_iter()
            }

            /// The inverse of [`iter`](Metrics::iter): every sum by its name.
            pub fn named(value: impl Fn(&str) -> u64) -> Metrics {
                Metrics { $($name: value($ncu),)* }
            }
        }
    };
}

metrics! {
    /// Instructions that warps issued.
    warp_instructions = "smsp__inst_executed.sum",
    /// Lanes that were active at them, those whose guard was false included.
    thread_instructions = "smsp__thread_inst_executed.sum",
    /// Lanes that executed them.
    lane_instructions = "smsp__thread_inst_executed_pred_on.sum",
    /// Warp-wide loads from global memory.
    global_load_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    /// Their sectors.
    global_load_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    /// Their distinct bytes.
    global_load_bytes = "smsp__sass_data_bytes_mem_global_op_ld.sum",
    /// Warp-wide stores to global memory.
    global_store_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    /// Their sectors.
    global_store_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    /// Their distinct bytes.
    global_store_bytes = "smsp__sass_data_bytes_mem_global_op_st.sum",
    /// Asynchronous copies from global to shared memory: warp-wide ones, and bulk copies.
    global_copy_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    /// Their sectors.
    global_copy_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    /// Their distinct bytes.
    global_copy_bytes = "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
    /// Sectors that loads and copies were the first of the launch to ask for: what memory delivers if no cache forgets.
    global_first_sectors = "lts__t_sectors_op_read_lookup_miss.sum",
    /// Warp-wide atomics in global memory that give the old value.
    global_atom_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    /// Their sectors.
    global_atom_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    /// Warp-wide reductions in global memory.
    global_red_requests = "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    /// Their sectors.
    global_red_sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    /// Lanes' atomics and reductions, in global and shared memory.
    atomic_lanes = "smsp__thread_inst_executed_op_atom.sum",
    /// Warp-wide loads from local memory.
    local_load_requests = "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    /// Their sectors.
    local_load_sectors = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    /// Warp-wide stores to local memory.
    local_store_requests = "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    /// Their sectors.
    local_store_sectors = "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    /// Warp-wide loads from shared memory.
    shared_load_requests = "smsp__inst_executed_op_shared_ld.sum",
    /// Their passes.
    shared_load_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    /// Their passes beyond the ideal.
    shared_load_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    /// Warp-wide stores to shared memory, by asynchronous copies too.
    shared_store_requests = "smsp__inst_executed_op_shared_st.sum",
    /// Their passes.
    shared_store_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    /// Their passes beyond the ideal.
    shared_store_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    /// Warp-wide atomics in shared memory.
    shared_atom_requests = "smsp__inst_executed_op_shared_atom.sum",
    /// Their passes.
    shared_atom_wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    /// Their passes beyond the ideal.
    shared_atom_conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    /// Executions of conditional and indexed branches.
    branches = "smsp__sass_branch_targets.sum",
    /// Those whose lanes disagreed.
    divergent_branches = "smsp__sass_branch_targets_threads_divergent.sum",
    /// Arrivals of warps at block barriers.
    barriers = "smsp__inst_executed_op_barrier.sum",
    /// Lanes' f32 additions.
    fadd = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    /// Lanes' f32 multiplications.
    fmul = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    /// Lanes' f32 fused multiply-adds.
    ffma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    /// Lanes' f64 additions.
    dadd = "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum",
    /// Lanes' f64 multiplications.
    dmul = "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    /// Lanes' f64 fused multiply-adds.
    dfma = "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    /// Additions in f16 and bf16, two for a packed one.
    hadd = "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum",
    /// Multiplications in f16 and bf16, two for a packed one.
    hmul = "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum",
    /// Fused multiply-adds in f16 and bf16, two for a packed one.
    hfma = "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum",
    /// Operations of matrix instructions: two for each element of the product's volume.
    tensor = "sm__ops_path_tensor.sum",
}

impl Metrics {
    /// Mean lanes that execute an instruction, of 32.
    pub fn lanes_active(&self) -> f64 {
        ratio(self.lane_instructions, self.warp_instructions)
    }

    /// Floating-point operations outside matrix instructions.
    pub fn flop(&self) -> u64 {
        let (once, twice) =
            (self.fadd + self.fmul + self.dadd + self.dmul + self.hadd + self.hmul, self.ffma + self.dfma + self.hfma);
        once + 2 * twice
    }

    /// Sectors between the multiprocessors and the L2 cache if no cache in between helped: loads and stores once, atomics
    /// there and back.
    pub fn global_sectors(&self) -> u64 {
        let once = self.global_load_sectors + self.global_store_sectors + self.global_copy_sectors;
        once + 2 * (self.global_atom_sectors + self.global_red_sectors)
    }

    /// Passes over the banks of shared memory.
    pub fn shared_wavefronts(&self) -> u64 {
        self.shared_load_wavefronts + self.shared_store_wavefronts + self.shared_atom_wavefronts
    }

    /// Passes beyond the ideal.
    pub fn shared_conflicts(&self) -> u64 {
        self.shared_load_conflicts + self.shared_store_conflicts + self.shared_atom_conflicts
    }

    /// Nsight Compute's names and values of the quotients; those of nothing are left out.
    pub fn ratios(&self) -> Vec<(&'static str, f64)> {
        let uniform = 100.0 * ratio(self.branches - self.divergent_branches, self.branches);
        let all = [
            (
                "smsp__thread_inst_executed_per_inst_executed.ratio",
                self.thread_instructions,
                self.warp_instructions,
                1.0,
            ),
            (
                "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
                self.lane_instructions,
                self.warp_instructions,
                1.0,
            ),
            (
                "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
                self.global_load_sectors,
                self.global_load_requests,
                1.0,
            ),
            (
                "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
                self.global_store_sectors,
                self.global_store_requests,
                1.0,
            ),
            (
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
                self.global_load_bytes,
                self.global_load_sectors,
                1.0,
            ),
            (
                "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
                self.global_store_bytes,
                self.global_store_sectors,
                1.0,
            ),
            ("smsp__sass_average_branch_targets_threads_uniform.pct", 0, self.branches, uniform),
        ];
        let value = |(name, a, b, scale): (&'static str, u64, u64, f64)| {
            (b != 0).then(|| (name, if name.ends_with(".pct") { scale } else { ratio(a, b) * scale }))
        };
        all.into_iter().filter_map(value).collect()
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

impl Metrics {
    pub(super) fn work(&mut self, work: Work, lanes: u64) {
        match work {
            Work::None => {}
            Work::Fadd => self.fadd += lanes,
            Work::Fmul => self.fmul += lanes,
            Work::Ffma => self.ffma += lanes,
            Work::Dadd => self.dadd += lanes,
            Work::Dmul => self.dmul += lanes,
            Work::Dfma => self.dfma += lanes,
            Work::Hadd(n) => self.hadd += lanes * u64::from(n),
            Work::Hmul(n) => self.hmul += lanes * u64::from(n),
            Work::Hfma(n) => self.hfma += lanes * u64::from(n),
            Work::Tensor(n) => self.tensor += u64::from(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fused_operation_counts_twice() {
        let mut m = Metrics::default();
        m.work(Work::Fadd, 32);
        m.work(Work::Ffma, 10);
        m.work(Work::Hfma(2), 3);
        m.work(Work::Tensor(4096), 32);
        assert_eq!((m.flop(), m.tensor, m.hfma), (32 + 20 + 12, 4096, 6));
    }
}
