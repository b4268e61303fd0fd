// Computes c = a b with blocking (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008). A block of a and a block of b are packed into scratch memory. Register
// tiles (gemm.cpp) iterate over them and accumulate c block by block along the depth. c is split
// into rectangles, one per task. If many tasks would pack the same operand, all threads pack it
// before the tasks; otherwise, each task packs the operands that it needs. An element's terms are
// added in the order of the depth, in blocks that depend only on K and on the unit of the packed
// operands. The bits of c therefore do not depend on the split, which can depend on the number of
// threads.
//
// If only few tiles would read a packed panel and the operand already has the panel's layout in
// memory, the tile reads the operand directly.
//
// f16 operands are converted to f32 when they are packed, and so are bf16 operands unless has_amx()
// or uses_bf16_pairs() returns true.
#include "kernels/ops/matmul.h"

#include "kernels/cpu/targets.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include <hwy/cache_control.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/gemm_grid.h"
#include "kernels/cpu/matmul/operand_block.h"
#include "kernels/cpu/matmul/tile_copy.h"
#include "kernels/walk.h"

namespace axle::kernels {
namespace {

// The sizes of the blocks of a (rows x depth) and b (depth x columns), chosen to fit in L2 and L3.
// The depth is counted in units (see UnitTraits). A panel of b exceeds L1, but L2 is fast enough
// for the tiles, and with deep blocks most products write c only once.
constexpr std::int64_t kDepth = 1024;
constexpr std::int64_t kRows = 11 * 14;
constexpr std::int64_t kColumns = 1024;
// The minimum number of elements of a matrix that is written without reading it into the caches
// first. Smaller ones can stay in the caches until they are read.
constexpr std::int64_t kStreamed = std::int64_t{1} << 19;
constexpr std::uintptr_t kVectorBytes = 64;  // of the largest vector
// The number of multiply-adds, or of packed units, that one thread computes without asking for more
// work.
constexpr std::int64_t kMultipliedAtOnce = std::int64_t{1} << 18, kPackedAtOnce = 1 << 15;

// Splits n into the smallest number of parts with at most `most` elements. Returns the size of
// equal parts, rounded up to a multiple of quantum, or n if n <= most.
std::int64_t even_part(std::int64_t n, std::int64_t most, std::int64_t quantum) {
    return n <= most ? n : round_up(divide_up(n, divide_up(n, most)), quantum);
}

// The rectangle of c that a task computes, in one matrix of the batch.
struct Rectangle {
    std::int64_t batch, row, rows, column, columns;
};

// A product on the CPU. Unit is the unit of the packed operands.
template <class Unit>
class Product {
    using T = SumOf<Unit>;
    using BlockOfA = std::conditional_t<kIsAmx<Unit>, Rows, Block<Unit>>;
    static constexpr std::int64_t kRowQuantum = UnitTraits<Unit>::kRowQuantum;
    static constexpr std::int64_t kSpeed = UnitTraits<Unit>::kSpeed;

  public:
    Product(Cpu& on, const ConstView& a, const ConstView& b, const View& c,
            const MatmulEpilogue& epilogue)
        : scratch_(on), a_(a), b_(b), c_(c), epilogue_(epilogue), kernels_(gemm_kernels<Unit>()) {
        m_ = c.back(2), n_ = c.back(1), k_ = a.back(1);
        for (int d = 0; d + 2 < c.ndim; ++d) batches_ *= c.shape[d];
        width_ = 2 * kernels_.lanes;
        depth_ = even_part(k_, kDepth * UnitTraits<Unit>::kTerms, kIsAmx<Unit> ? 32 : 8);
        c_in_place_ = is_lanes<T>(c.dtype, c.back_stride(1), 2);
        keeps_sums_ = !c_in_place_ && depth_ < k_;
        if (epilogue.slope_of.data == nullptr) activation_ = epilogue.activation;
        finishes_ = epilogue.bias.data != nullptr || epilogue.pre.data != nullptr ||
                    activation_ != Activation::none;
        if (epilogue.bias.data != nullptr)
            bias_ = load_lanes<T>(epilogue.bias.data, epilogue.bias.dtype,
                                  epilogue.bias.back_stride(1), n_, scratch_.take<T>(n_));
        streams_c_ = can_stream();
        cut();
    }

    void run() {
        const std::int64_t tasks = batches_ * row_cuts_ * column_cuts_;
        const std::int64_t work =
            grid_.rows * grid_.columns * std::max<std::int64_t>(units_of<Unit>(k_), 1);
        const std::int64_t group = std::max<std::int64_t>(1, kSpeed * kMultipliedAtOnce / work);
        const std::int64_t size = slot_size();
        const std::int64_t slots = slots_for(tasks, group);
        std::byte* const memory = scratch_.take<std::byte>(slots * size);
        pack_shared();
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            multiply(rectangle(task), memory + slot * size);
        });
    }

  private:
    // Returns whether c is large and each of its elements is written only once, in whole vectors.
    bool can_stream() const {
        const bool once = depth_ >= k_ && !finishes_ && !epilogue_.accumulate &&
                          epilogue_.slope_of.data == nullptr;
        const std::int64_t lanes = kernels_.lanes;
        return epilogue_.bypasses_caches && once && c_in_place_ && c_.dtype == DType::f32 &&
               c_.ndim == 2 && m_ * n_ >= kStreamed && n_ % lanes == 0 &&
               c_.back_stride(2) % lanes == 0 &&
               reinterpret_cast<std::uintptr_t>(c_.data) % kVectorBytes == 0;
    }

    void cut() {
        const GridProblem problem = {
            .m = m_,
            .n = n_,
            .depth = units_of<Unit>(k_),
            .batches = batches_,
            .max_rows = kernels_.max_rows,
            .row_quantum = kRowQuantum,
            .lanes = kernels_.lanes,
            .max_columns = kColumns,
            .speed = kSpeed,
            .a_in_place = !kIsAmx<Unit> && Block<Unit>::is_packed(lines_of_a(0, 0)),
            .b_in_place = Block<Unit>::is_packed(lines_of_b(0, 0))};
        grid_ = choose_grid(problem, num_threads());
        row_cuts_ = divide_up(m_, grid_.rows), column_cuts_ = divide_up(n_, grid_.columns);
    }

    // Packs the operands that tasks share.
    void pack_shared() {
        if (grid_.shares_a) shared_a_ = {lines_of_a(0, 0), m_, k_, depth_, a_width(), kRowQuantum};
        if (grid_.shares_b) shared_b_ = {lines_of_b(0, 0), n_, k_, depth_, width_, kernels_.lanes};
        const std::int64_t of_a = shared_a_.tasks(), tasks = of_a + shared_b_.tasks();
        if (tasks == 0) return;
        shared_a_.set_memory(scratch_.take<Unit>(shared_a_.size()));
        shared_b_.set_memory(scratch_.take<Unit>(shared_b_.size()));
        const std::int64_t group = divide_up(kPackedAtOnce, depth_ * width_);
        const std::int64_t slots = slots_for(tasks, group);
        const std::int64_t buffer_size = pack_buffer(std::max(a_width(), width_), depth_);
        Unit* const buffers = scratch_.take<Unit>(slots * buffer_size);
        parallel_slots(tasks, group, slots, [&](std::int64_t task, std::int64_t slot) {
            Unit* const buffer = buffers + slot * buffer_size;
            if (task < of_a)
                shared_a_.pack(task, buffer);
            else
                shared_b_.pack(task - of_a, buffer);
        });
    }
    std::int64_t a_width() const { return kernels_.max_rows; }
    // Return the lines of an operand from depth p. The first line begins at an offset.
    Lines lines_of_a(std::int64_t offset, std::int64_t p) const {
        return {at(a_.data, a_.dtype, offset + p * a_.back_stride(1)), a_.dtype, a_.back_stride(2),
                a_.back_stride(1)};
    }
    Lines lines_of_b(std::int64_t offset, std::int64_t p) const {
        return {at(b_.data, b_.dtype, offset + p * b_.back_stride(2)), b_.dtype, b_.back_stride(1),
                b_.back_stride(2)};
    }

    Rectangle rectangle(std::int64_t task) const {
        Rectangle r;
        r.column = task % column_cuts_ * grid_.columns;
        task /= column_cuts_;
        r.row = task % row_cuts_ * grid_.rows;
        r.batch = task / row_cuts_;
        r.rows = std::min(grid_.rows, m_ - r.row);
        r.columns = std::min(grid_.columns, n_ - r.column);
        return r;
    }

    // Return the sizes of the parts of a slot's scratch memory. (Tasks that run at the same time
    // use different slots.) The parts are the blocks of a and b, the conversion buffer, and the
    // sums.
    std::int64_t a_rows() const { return even_part(grid_.rows, kRows, kernels_.max_rows); }
    std::int64_t b_columns() const { return even_part(grid_.columns, kColumns, width_); }
    std::int64_t a_size() const {
        return grid_.shares_a ? 0 : round_up(a_rows(), kRowQuantum) * units_of<Unit>(depth_);
    }
    std::int64_t b_size() const {
        return grid_.shares_b ? 0 : round_up(b_columns(), kernels_.lanes) * units_of<Unit>(depth_);
    }
    std::int64_t buffer_size() const {
        return pack_buffer(std::max(a_rows(), b_columns()), depth_);
    }
    std::int64_t sums_step() const { return round_up(b_columns(), kernels_.lanes); }
    std::int64_t sums_size() const {
        return keeps_sums_ ? round_up(grid_.rows, kRowQuantum) * sums_step() : 0;
    }
    // Returns the size of `count` elements in bytes, rounded up to a multiple of 64, the alignment
    // of every part.
    template <class U>
    static std::int64_t bytes_of(std::int64_t count) {
        return round_up(count * static_cast<std::int64_t>(sizeof(U)), 64);
    }
    std::int64_t slot_size() const {
        return bytes_of<Unit>(a_size()) + bytes_of<Unit>(b_size()) + bytes_of<Unit>(buffer_size()) +
               bytes_of<T>(sums_size());
    }

    void multiply(const Rectangle& r, std::byte* memory) const {
        auto* const a_memory = reinterpret_cast<Unit*>(memory);
        auto* const b_memory = reinterpret_cast<Unit*>(memory += bytes_of<Unit>(a_size()));
        auto* const buffer = reinterpret_cast<Unit*>(memory += bytes_of<Unit>(b_size()));
        auto* const sums = reinterpret_cast<T*>(memory + bytes_of<Unit>(buffer_size()));
        BlockOfA a(a_memory, buffer);
        Block<Unit> b(b_memory, buffer);
        const std::int64_t a_start = matrix_offset(a_, c_, r.batch) + r.row * a_.back_stride(2);
        const std::int64_t b_start = matrix_offset(b_, c_, r.batch) + r.column * b_.back_stride(1);
        for (std::int64_t j = 0; j < r.columns; j += b_columns()) {
            const std::int64_t columns = std::min(b_columns(), r.columns - j);
            // If the depth is 0, there is a single empty block, which writes zeros.
            std::int64_t p = 0;
            do {
                const std::int64_t depth = std::min(depth_, k_ - p);
                if (grid_.shares_b)
                    b.set_packed(shared_b_.panel(p, r.column + j), columns, depth, width_,
                                 kernels_.lanes);
                else
                    b.set(lines_of_b(b_start + j * b_.back_stride(1), p), columns, depth, width_,
                          kernels_.lanes, r.rows <= kInPlaceReaders * kernels_.max_rows);
                for (std::int64_t i = 0; i < r.rows; i += a_rows()) {
                    const std::int64_t rows = std::min(a_rows(), r.rows - i);
                    set_a(a, r.row + i, rows, lines_of_a(a_start + i * a_.back_stride(2), p), p,
                          depth, columns <= kInPlaceReaders * width_ && r.rows <= kInPlaceRows);
                    const Rectangle block = {r.batch, r.row + i, rows, r.column + j, columns};
                    multiply_blocks(a, b, block, depth, p == 0, p + depth == k_,
                                    sums + i * sums_step());
                }
                p += depth;
            } while (p < k_);
        }
        if (epilogue_.slope_of.data != nullptr) apply_slopes(r);
    }

    // Sets the block of a that begins with row i of its matrix.
    void set_a(BlockOfA& a, std::int64_t i, std::int64_t rows, const Lines& lines, std::int64_t p,
               std::int64_t depth, bool in_place) const {
        if constexpr (!kIsAmx<Unit>) {
            if (grid_.shares_a)
                return a.set_packed(shared_a_.panel(p, i), rows, depth, a_width(), kRowQuantum);
        }
        a.set(lines, rows, depth, a_width(), kRowQuantum, in_place);
    }

    // Adds one block of depth to a rectangle of c. Iterates over tiles from top to bottom, then to
    // the next columns.
    void multiply_blocks(const BlockOfA& a, const Block<Unit>& b, const Rectangle& r,
                         std::int64_t depth, bool first, bool last, T* sums) const {
        const std::int64_t c_start = matrix_offset(c_, c_, r.batch);
        const bool add_c = !first || epilogue_.accumulate;
        alignas(64) T buffer[kMaxTileRows * kMaxTileColumns];
        if constexpr (kIsAmx<Unit>) kernels_.start();
        for (std::int64_t j = 0; j < r.columns; j += width_) {
            const std::int64_t columns = std::min(width_, r.columns - j);
            const std::int64_t vectors = divide_up(columns, kernels_.lanes);
            const Panel<Unit> b_panel = b.panel(j);
            for (std::int64_t i = 0; i < r.rows; i += kernels_.max_rows) {
                const std::int64_t rows = std::min<std::int64_t>(kernels_.max_rows, r.rows - i);
                const std::int64_t quanta = divide_up(rows, kRowQuantum);
                const auto tile = kernels_.tiles[quanta - 1][vectors - 1];
                const Panel<Unit> a_panel = a.panel(i);
                const Rectangle part = {r.batch, r.row + i, rows, r.column + j, columns};
                T* to = buffer;
                std::int64_t step = width_;
                bool add = false;
                if (keeps_sums_) {
                    to = sums + i * sums_step() + j, step = sums_step(), add = !first;
                } else if (c_in_place_ && !streams_c_ && rows == kRowQuantum * quanta &&
                           columns == vectors * kernels_.lanes && !(last && finishes_)) {
                    to = c_.as<T>() + c_start + part.row * c_.back_stride(2) + part.column;
                    step = c_.back_stride(2), add = add_c;
                }
                tile(units_of<Unit>(depth), a_panel.data, a_panel.step, b_panel.data, b_panel.step,
                     to, step, add);
                if (streams_c_)
                    stream(to, part);
                else if (to == buffer || (keeps_sums_ && last))
                    finish(to, step, part, c_start, add_c && !keeps_sums_, last);
            }
        }
        if constexpr (kIsAmx<Unit>) kernels_.stop();
        if (streams_c_) hwy::FlushStream();
    }

    void stream(const T* tile, const Rectangle& part) const {
        if constexpr (std::is_same_v<T, float>)
            stream_tile(tile, width_, part.rows, part.columns,
                        c_.as<float>() + part.row * c_.back_stride(2) + part.column,
                        c_.back_stride(2));
    }

    // Multiplies a complete rectangle by slopes. The rows of a tile are short and far apart, so
    // reading slope_of tile by tile would be slower.
    void apply_slopes(const Rectangle& r) const {
        const ConstView& s = epilogue_.slope_of;
        const std::int64_t c_start = place(c_, r), s_start = place(s, r);
        for (std::int64_t i = 0; i < r.rows; ++i)
            multiply_slopes(epilogue_, c_.dtype,
                            at(c_.data, c_.dtype, c_start + i * c_.back_stride(2)),
                            c_.back_stride(1), at(s.data, s.dtype, s_start + i * s.back_stride(2)),
                            s.back_stride(1), r.columns);
    }

    // Returns the offset of the rectangle in v, which has c's shape.
    template <class AnyView>
    std::int64_t place(const AnyView& v, const Rectangle& part) const {
        return matrix_offset(v, c_, part.batch) + part.row * v.back_stride(2) +
               part.column * v.back_stride(1);
    }

    // Writes a tile of sums to c, with bias and activation after the last block of depth. If tiles
    // cannot be accumulated in c itself, c is read and written only once, after the last block.
    void finish(const T* tile, std::int64_t step, const Rectangle& part, std::int64_t c_start,
                bool add_c, bool last) const {
        alignas(64) T added[kMaxTileRows * kMaxTileColumns];
        alignas(64) T pre[kMaxTileRows * kMaxTileColumns];
        alignas(64) T out[kMaxTileRows * kMaxTileColumns];
        const View& p = epilogue_.pre;
        TileFinish<T> how;
        if (last) {
            how.activation = activation_;
            if (bias_ != nullptr) how.bias = bias_ + part.column;
            if (p.data != nullptr) how.pre = pre, how.pre_step = part.columns;
            how.stores_slopes = epilogue_.stores_slopes;
        }
        const std::int64_t c_at =
            c_start + part.row * c_.back_stride(2) + part.column * c_.back_stride(1);
        how.out = out, how.out_step = part.columns;
        if (c_in_place_) {
            how.out = c_.as<T>() + c_at, how.out_step = c_.back_stride(2);
            if (add_c) how.add = how.out, how.add_step = how.out_step;
        } else if (epilogue_.accumulate) {
            load_tile(c_, c_at, part.rows, part.columns, added);
            how.add = added, how.add_step = part.columns;
        }
        const std::int64_t pre_at = p.data == nullptr ? 0 : place(p, part);
        if (c_.dtype == DType::bf16 && c_.back_stride(1) == 1 &&
            (how.pre == nullptr || p.back_stride(1) == 1)) {
            how.out_bf16 = c_.as<BFloat16>() + c_at, how.out_step = c_.back_stride(2);
            if (how.pre != nullptr)
                how.pre_bf16 = p.as<BFloat16>() + pre_at, how.pre_step = p.back_stride(2);
            return finish_tile(tile, step, part.rows, part.columns, how);
        }
        if (how.pre != nullptr && is_lanes<T>(p.dtype, p.back_stride(1), 2))
            how.pre = p.as<T>() + pre_at, how.pre_step = p.back_stride(2);
        finish_tile(tile, step, part.rows, part.columns, how);
        if (how.pre == pre) store_tile(pre, p, pre_at, part.rows, part.columns);
        if (how.out == out) store_tile(out, c_, c_at, part.rows, part.columns);
    }

    Scratch scratch_;
    const ConstView& a_;
    const ConstView& b_;
    const View& c_;
    const MatmulEpilogue& epilogue_;
    const GemmKernels<Unit>& kernels_;
    std::int64_t m_, n_, k_, batches_ = 1;
    std::int64_t width_;  // columns of a full tile
    std::int64_t depth_;  // depth of a block
    bool c_in_place_;     // whether tiles are accumulated in c itself
    bool keeps_sums_;     // whether tiles are accumulated in scratch memory
    bool streams_c_;      // whether c is written without reading it into the caches first
    bool finishes_;       // whether an epilogue is applied to the sums
    const T* bias_ = nullptr;
    // The activation that is applied to a tile, or none if the product is multiplied by the slope
    // of an activation.
    Activation activation_ = Activation::none;
    Grid grid_;
    SharedOperand<Unit> shared_a_, shared_b_;
    std::int64_t row_cuts_ = 1, column_cuts_ = 1;
};

}  // namespace

void matmul(Cpu& on, ConstView a, ConstView b, View c, const MatmulEpilogue& epilogue) {
    if (c.numel() == 0) return;
    if (is_integral(c.dtype)) return integer_matmul(a, b, c, epilogue.accumulate);
    if (c.back(1) == 1 || c.back(2) == 1 || is_few_rows(a, b, c))
        return vector_matmul(on, a, b, c, epilogue);
    if (a.dtype == DType::f64 || c.dtype == DType::f64)
        return Product<double>(on, a, b, c, epilogue).run();
    if (a.dtype == DType::bf16 && has_amx()) return Product<AmxPair>(on, a, b, c, epilogue).run();
    if (a.dtype == DType::bf16 && uses_bf16_pairs())
        return Product<BFloat16Pair>(on, a, b, c, epilogue).run();
    Product<float>(on, a, b, c, epilogue).run();
}

}  // namespace axle::kernels
