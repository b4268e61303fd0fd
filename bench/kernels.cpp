// The program bench_kernels: measures the CPU kernels without the overhead of tensors or autograd.
// The operands are allocated before the measurement.
//
// Most shapes are taken from two models. char-GPT has 4 layers of width 128 and 12 x 64 tokens. Its
// data fits into the caches, so its rows are hot. GPT-2 has 12 layers of width 768 and 4 x 64
// tokens. Its weights take half a gigabyte, so its rows with weights or logits are cold.
#include "bench/kernel_products.h"
#include "bench/kernel_streams.h"
#include "bench/row.h"

namespace axle::bench {
namespace {

void add_rows() {
    add_products();
    add_convolutions();
    add_elementwise();
    add_copies();
    add_reductions();
    add_norms(4096, 1024, true), add_norms(4096, 768, true);
    add_norms(256, 768, false), add_norms(768, 128, false);
    add_cross_entropy(256, 50257, true), add_cross_entropy(768, 65, false);
    add_attention(12, 4, 64, 32), add_attention(4, 12, 64, 64), add_attention(1, 12, 1024, 64);
    add_embedding();
    add_optimizer();
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    axle::bench::add_rows();
    return axle::bench::run_rows(argc, argv);
}
