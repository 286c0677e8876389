// Cooperative groups that need the driver: barriers of the whole grid, whose workspace %envreg1 and %envreg2 name, and tiles of
// several warps, which keep their barriers in the shared memory that is reserved for the system.
// arch: 80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void phases(unsigned *x, unsigned *y, int rounds) {
    cg::grid_group grid = cg::this_grid();
    unsigned n = (unsigned)grid.num_threads(), i = (unsigned)grid.thread_rank();
    for (int r = 0; r < rounds; r++) {
        y[i] = x[(i + 1) % n] * 3 + r;
        grid.sync();
        x[i] = y[(i + 7) % n] ^ i;
        grid.sync();
    }
}

extern "C" __global__ void is_valid(int *o) { o[0] = cg::this_grid().is_valid(); }

extern "C" __global__ void wide_tiles(const unsigned *x, unsigned *sums, unsigned *largest, unsigned *any) {
    cg::thread_block block = cg::this_thread_block();
    auto two = cg::tiled_partition<64>(block);
    auto four = cg::tiled_partition<128>(block);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    sums[i] = cg::reduce(two, v, cg::plus<unsigned>());
    largest[i] = cg::reduce(four, v, cg::greater<unsigned>());
    two.sync();
    any[i] = four.any(v % 100 == 7) | two.all(v % 2 == 0) << 1;
}
