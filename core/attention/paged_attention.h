// Attention to keys and values that are stored in pages, for text generation (nn/generation).
//
// On the CPU, a kernel reads the pages in place (kernels/ops/attention.h). For tensors on
// other devices, the pages are copied into contiguous tensors first, and
// scaled_dot_product_attention() computes the result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace axle {

// The keys and values of up to P consecutive tokens of a sequence in one layer. P is a multiple of
// 16 and equal for all pages. Both tensors are contiguous. Keys are stored by depth, because the
// scores of adjacent tokens are then computed together.
struct KeyValuePage {
    Tensor keys;    // [G, D, P]
    Tensor values;  // [G, P, E]
};

// The pages of one sequence, as indices in the order of the tokens. All pages except the last one
// are full.
struct PageTable {
    std::vector<std::int64_t> pages;
    std::int64_t length = 0;  // the number of tokens, at least 1
};

// Returns the attention [B, H, 1, E] of one query of each sequence, q [B, H, 1, D], to all tokens
// of its sequence. H is a multiple of G, and tables[b] has the pages of sequence b, in `pages`. The
// scores are multiplied by `scale`, by default 1 / sqrt(D). The result is not recorded for
// backward. Throws ShapeError unless q fits the tables and the pages, and DTypeError or DeviceError
// if the dtypes or the devices of q (after autocast) and the pages differ.
Tensor paged_attention(const Tensor& q, const std::vector<KeyValuePage>& pages,
                       const std::vector<PageTable>& tables, std::optional<double> scale = {});

// Returns the same from copies of the pages, on any device. paged_attention() calls this function
// for tensors that are not on the CPU. Unused tokens of the last pages must be finite.
Tensor gathered_attention(const Tensor& q, const std::vector<KeyValuePage>& pages,
                          const std::vector<PageTable>& tables, std::optional<double> scale = {});

}  // namespace axle
