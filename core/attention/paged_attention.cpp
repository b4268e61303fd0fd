#include "core/attention/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/attention.h"

namespace axle {
namespace {

constexpr const char* kPagedAttention = "paged_attention";

const KeyValuePage& page_at(const std::vector<KeyValuePage>& pages, std::int64_t index) {
    return pages.at(static_cast<std::size_t>(index));
}

void check_pages(const Tensor& q, const std::vector<KeyValuePage>& pages,
                 const std::vector<PageTable>& tables) {
    if (q.dim() != 4 || q.size(2) != 1 || q.size(0) != std::ssize(tables) || tables.empty())
        throw ShapeError(str(kPagedAttention, ": q must be [", tables.size(),
                             ", heads, 1, head size], one query for each table: q ", q.shape()));
    for (const PageTable& table : tables) {
        if (table.pages.empty())
            throw ShapeError(str(kPagedAttention, ": a table must have at least one page"));
        for (const std::int64_t index : table.pages) {
            const auto& [keys, values] = page_at(pages, index);
            check_device(kPagedAttention, {&q, &keys, &values});
            check_same_dtype(kPagedAttention, q, keys, "q", "keys");
            check_same_dtype(kPagedAttention, q, values, "q", "values");
            const bool fits = keys.dim() == 3 && values.dim() == 3 && keys.size(1) == q.size(3) &&
                              q.size(1) % keys.size(0) == 0 && values.size(0) == keys.size(0) &&
                              values.size(1) == keys.size(2) && keys.size(2) % 16 == 0;
            if (!fits)
                throw ShapeError(
                    str(kPagedAttention,
                        ": pages must have keys [G, D, P] and values [G, P, E], where P is a "
                        "multiple of 16 and q [B, H, 1, D] has a multiple of G heads: q ",
                        q.shape(), ", keys ", keys.shape(), ", values ", values.shape()));
            if (!keys.is_contiguous() || !values.is_contiguous())
                throw ShapeError(str(kPagedAttention, ": pages must be contiguous"));
        }
        const std::int64_t size = page_at(pages, table.pages.front()).keys.size(2);
        const std::int64_t needed = (table.length + size - 1) / size;
        if (needed != std::ssize(table.pages))
            throw ShapeError(str(kPagedAttention, ": a table of ", table.length,
                                 " tokens must have ", needed, " pages of ", size,
                                 " tokens: it has ", table.pages.size()));
    }
}

double scale_or_default(std::optional<double> scale, const Tensor& q) {
    return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
}

Tensor on_cpu(const Tensor& q, const std::vector<KeyValuePage>& pages,
              const std::vector<PageTable>& tables, double scale) {
    const KeyValuePage& first = page_at(pages, tables.front().pages.front());
    std::size_t count = 0;
    for (const PageTable& table : tables) count += table.pages.size();
    std::vector<const void*> keys, values;
    keys.reserve(count), values.reserve(count);
    std::vector<kernels::PagedSequence> sequences;
    sequences.reserve(tables.size());
    for (const PageTable& table : tables) {
        sequences.push_back(
            {keys.data() + keys.size(), values.data() + values.size(), table.length});
        for (const std::int64_t index : table.pages) {
            const KeyValuePage& page = page_at(pages, index);
            keys.push_back(page.keys.view().data), values.push_back(page.values.view().data);
        }
    }
    // Stored as [B, 1, H, E], so that merging the heads needs no copy.
    Tensor out = Tensor::empty({q.size(0), 1, q.size(1), first.values.size(2)},
                               {.dtype = q.dtype(), .device = q.device()})
                     .transpose(1, 2);
    launch_cpu(kPagedAttention, q.device(), [&](kernels::Cpu& on) {
        kernels::paged_attention(on, q.view(), sequences, first.keys.size(0), first.keys.size(2),
                                 scale, out.view());
    });
    return out;
}

}  // namespace

Tensor gathered_attention(const Tensor& query, const std::vector<KeyValuePage>& pages,
                          const std::vector<PageTable>& tables, std::optional<double> scale) {
    const NoGrad no_grad;
    const Tensor q = autocast(query);
    check_pages(q, pages, tables);
    std::size_t longest = 0;  // in pages
    std::vector<std::int64_t> lengths;
    for (const PageTable& table : tables) {
        longest = std::max(longest, table.pages.size());
        lengths.push_back(table.length);
    }
    // The last pages of shorter sequences are repeated.
    std::vector<Tensor> keys, values;
    for (const PageTable& table : tables)
        for (std::size_t i = 0; i < longest; ++i) {
            const KeyValuePage& page =
                page_at(pages, table.pages[std::min(i, table.pages.size() - 1)]);
            keys.push_back(page.keys), values.push_back(page.values);
        }
    const std::int64_t groups = keys.front().size(0), batch = q.size(0);
    const auto [least, most] = std::ranges::minmax(lengths);
    const Tensor k =
        cat(keys, 2).view({groups, q.size(3), batch, -1}).permute({2, 0, 3, 1}).narrow(2, 0, most);
    const Tensor v = cat(values, 1)
                         .view({groups, batch, -1, values.front().size(2)})
                         .permute({1, 0, 2, 3})
                         .narrow(2, 0, most);
    Tensor mask;
    if (least < most)
        mask = lt(arange(most, {.dtype = i64, .device = q.device()}),
                  tensor(lengths, {batch, 1}).to(q.device()))
                   .reshape({batch, 1, 1, most});
    return scaled_dot_product_attention(q, k, v,
                                        {.mask = mask, .scale = scale_or_default(scale, q)});
}

Tensor paged_attention(const Tensor& query, const std::vector<KeyValuePage>& pages,
                       const std::vector<PageTable>& tables, std::optional<double> scale) {
    if (!query.device().is_cpu()) return gathered_attention(query, pages, tables, scale);
    const profiler::OpScope scope(kPagedAttention);
    const NoGrad no_grad;
    const Tensor q = autocast(query);
    check_pages(q, pages, tables);
    return on_cpu(q, pages, tables, scale_or_default(scale, q));
}

}  // namespace axle
