// Scaled dot product attention, out = softmax(scale q k^T + mask) v. A call needs scratch memory
// that is linear in the sequence length. cuDNN also needs memory for a copy of the mask, and up to
// 2 GiB for deterministic gradients.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/exec.h"
#include "kernels/philox.h"
#include "kernels/view.h"

namespace axle::kernels {

// The random generator that decides which weights dropout removes.
enum class DropoutGenerator : std::uint8_t {
    own,     // AttentionParams::random (always on the CPU)
    library  // cuDNN's generator, seeded from AttentionParams::random
};

// The sizes of the whole attention, if a call computes only some of its heads, queries or keys.
// Dropout uses the same random number for a weight in every division of the attention. If the sizes
// are 0, the call computes the whole attention.
struct WeightGrid {
    std::int64_t heads = 0, queries = 0, keys = 0;
    // The indices of the call's first head, query and key.
    std::int64_t first_head = 0, first_query = 0, first_key = 0;
};

struct AttentionParams {
    double scale = 1;
    bool causal = false;
    // If causal is true, query i attends to keys j <= i + causal_offset.
    std::int64_t causal_offset = 0;
    // The probability p of dropping a weight. With DropoutGenerator::own, weight (b, h, i, j) of
    // `grid` is kept if the uniform number ((b heads + h) queries + i) keys + j of `random` is at
    // least p. A kept weight is multiplied by 1 / (1 - p).
    double dropout_p = 0;
    WeightGrid grid = {};
    Philox random = {};
    // The generator that attention() returned. Used by attention_backward only.
    DropoutGenerator generator = DropoutGenerator::own;
};

// Computes attention.
//
// q and out are [B, H, Tq, D]; k and v are [B, G, Tk, D], where H is a multiple of G. Query head h
// uses key and value head h / (H / G). These tensors have one floating dtype and any strides. mask
// is [B, H, Tq, Tk] (stride 0 broadcasts), either boolean (true: attend) or floating (added to the
// scores); its data is null if there is no mask. lse [B, H, Tq], f64 for f64 and f32 otherwise,
// receives the log-sum-exp of each row of scores. If a query can attend to no key, its lse is
// -infinity and its row of out is zero. Outputs must not overlap inputs.
//
// Returns the generator that dropped weights, which is `own` if `on` is deterministic. The result
// has no meaning if dropout_p is 0.
DropoutGenerator attention(Cpu& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                           const AttentionParams& params, View out, View lse);
DropoutGenerator attention(Cuda& on, ConstView q, ConstView k, ConstView v, ConstView mask,
                           const AttentionParams& params, View out, View lse);

// Computes the gradients dq, dk and dv from dout. out and lse are the results of attention(), and
// params must be the same as in that call. dout has out's shape. dq, dk and dv have the shapes and
// dtypes of q, k and v, any strides, and must not overlap inputs. A gradient whose view has null
// data is not computed. Throws DeviceError if cuDNN dropped weights and cannot compute the
// gradients.
void attention_backward(Cpu& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv);
void attention_backward(Cuda& on, ConstView dout, ConstView q, ConstView k, ConstView v,
                        ConstView mask, ConstView out, ConstView lse, const AttentionParams& params,
                        View dq, View dk, View dv);

// The keys and values of one sequence. The pages are contiguous arrays. All pages except the last
// one are full.
struct PagedSequence {
    const void* const* keys = nullptr;    // pages [G, D, page_size]
    const void* const* values = nullptr;  // pages [G, page_size, E]
    std::int64_t length = 0;              // the number of tokens, at least 1
};

// Computes the attention of one query of each sequence to keys and values in pages, for text
// generation. q is [B, H, 1, D] and out is [B, H, 1, E], where H is a multiple of G. They and the
// pages have one floating dtype; q and out have any strides. Query head h uses key and value head
// h / (H / G). There is one sequence for each of the B queries. page_size is a
// multiple of 16. If all scores of a query are -infinity, its row of out is zero. Sums are in f64
// for f64, and in f32 otherwise. out must not overlap the inputs.
void paged_attention(Cpu& on, ConstView q, std::span<const PagedSequence> sequences,
                     std::int64_t groups, std::int64_t page_size, double scale, View out);

}  // namespace axle::kernels
