// Cooperative groups: blocks, tiles, coalesced groups, partitions.
// arch: 80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void group_reduce(const int *x, int *y) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto quad = cg::tiled_partition<4>(warp);
    int v = x[block.thread_rank()];
    int a = cg::reduce(warp, v, cg::plus<int>());
    int b = cg::reduce(quad, v, cg::greater<int>());
    int c = cg::inclusive_scan(warp, v);
    block.sync();
    int d = 0;
    if (v & 1) {
        auto active = cg::coalesced_threads();
        d = active.size() * 100 + active.thread_rank();
    }
    y[block.thread_rank()] = a + 3 * b + 5 * c + 7 * d + 11 * quad.shfl(v, 1) + warp.ballot(v > 4 ? 1 : 0) % 13;
}

extern "C" __global__ void group_labels(const int *x, int *y) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto same = cg::labeled_partition(warp, x[threadIdx.x] % 3);
    y[threadIdx.x] = same.size() * 100 + same.meta_group_rank();
}
