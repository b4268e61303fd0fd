// Implements PowerSGD. Instead of a gradient M [n, m], processes send P [n, r] and Q [m, r], an
// approximation M ~ P Q^T of rank r. Each reduction computes one step of the power iteration: P =
// mean(M) Q, which is then orthonormalized, and Q = mean(M)^T P. The approximation error of a
// process is added to its next gradient (error feedback).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "dist/parallel/data_parallel.h"
#include "dist/parallel/mean.h"

namespace axle::dist {
namespace {

// A generator of normally distributed numbers. The numbers depend only on the seed, so they are
// equal on all ranks.
class Normal {
  public:
    explicit Normal(std::uint64_t seed) : state_(seed) {}
    double operator()() {
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return radius * std::cos(2 * std::numbers::pi * uniform());
    }

  private:
    // Returns a uniform number in (0, 1] with SplitMix64 (Steele, Lea, Flood, "Fast splittable
    // pseudorandom number generators", 2014).
    double uniform() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return (static_cast<double>((z ^ (z >> 31)) >> 11) + 1) * 0x1p-53;
    }

    std::uint64_t state_;
};

Tensor norm_of(const Tensor& column) { return sqrt(sum(mul(column, column))); }

// Returns column i without its components along the earlier columns. The components are subtracted
// twice, because rounding errors remain after the first subtraction.
Tensor without_earlier(const Tensor& matrix, std::int64_t i, Tensor column) {
    if (i == 0) return column;
    const Tensor earlier = narrow(matrix, 1, 0, i);
    for (int time = 0; time < 2; ++time)
        column = sub(column, matmul(earlier, matmul(transpose(earlier, 0, 1), column)));
    return column;
}

// Makes the columns orthonormal. A column that is linearly dependent on earlier columns is replaced
// by the same column of `otherwise`. If `otherwise` is undefined or its column is also dependent,
// the column is set to zero.
void make_orthonormal(const Tensor& matrix, const Tensor& otherwise = {}) {
    const double tolerance = matrix.dtype() == f64 ? 1e-12 : 1e-5;
    for (std::int64_t i = 0; i < matrix.size(1); ++i) {
        const auto independent = [&](const Tensor& from) {
            const Tensor column = without_earlier(matrix, i, from);
            const Tensor norm = norm_of(column);
            const Tensor counts = gt(norm, mul(norm_of(from), tolerance));
            return std::pair(where(counts, div(column, norm), zeros_like(column)), counts);
        };
        const Tensor own = narrow(matrix, 1, i, 1);
        auto [column, counts] = independent(own);
        if (otherwise.defined())
            column = where(counts, column, independent(narrow(otherwise, 1, i, 1)).first);
        own.detach().copy_(column);
    }
}

struct Factors {
    Tensor matrix;  // [n, m], a view of Reduction::input
    Tensor p, q;
};

// The state of a bucket between reductions.
struct Memory {
    std::vector<Tensor> parameters = {};  // the bucket's parameters
    Tensor error = {};
    Tensor q = {}, random = {};  // 1-d; `random` is the initial value of q
};

constexpr const char* kOp = "power_sgd_hook";

class PowerSgd : public CommHook {
  public:
    PowerSgd(PowerSgdOptions options, bool batched) : options_(options), batched_(batched) {
        if (options.matrix_approximation_rank < 1)
            throw ValueError(str(kOp, ": matrix_approximation_rank must be positive: ",
                                 options.matrix_approximation_rank));
        if (options.wrapper != f32 && !is_half(options.wrapper))
            throw DTypeError(str(
                kOp,
                ": wrapper must be float16, bfloat16 or float32 (no rounding): ", options.wrapper));
    }

    std::shared_ptr<CommHook> for_model() const override {
        return std::make_shared<PowerSgd>(options_, batched_);
    }

    Pending start(GradientBucket& bucket, ProcessGroup& group) override {
        const NoGrad no_grad;
        const bool compresses = iteration_ >= options_.start_powerSGD_iter;
        if (bucket.is_last) ++iteration_;
        if (!compresses) return start_mean(bucket.buffer, group, options_.wrapper);
        return compress(bucket, group);
    }

    // Returns the saved state. The error feedback differs between ranks; the rest of the state is
    // equal on all ranks.
    Tree state_dict(const std::vector<GradientBucket>& buckets) const override {
        Tree saved = Tree::list();
        for (const GradientBucket& bucket : buckets) {
            saved.push_back(Tree::map());
            const Memory* const memory = find_memory(bucket);
            if (memory == nullptr) continue;
            if (memory->error.defined()) saved.elements().back().set("error", memory->error);
            if (memory->q.defined() && memory->q.numel() > 0)
                saved.elements().back().set("q", memory->q);
        }
        return Tree{{"iteration", iteration_},
                    {"matrix_approximation_rank", options_.matrix_approximation_rank},
                    {"min_compression_rate", options_.min_compression_rate},
                    {"batched", batched_},
                    {"buckets", std::move(saved)}};
    }

    bool load_state_dict(const Tree& state, const std::vector<GradientBucket>& buckets,
                         Source source) override {
        const NoGrad no_grad;
        const std::int64_t iteration = state.empty() ? 0 : state["iteration"].integer();
        if (iteration < 0)
            throw ValueError(str(kOp, ": the saved iteration must be at least 0: ", iteration));
        const bool is_equal =
            !state.empty() && source != Source::other_buckets &&
            state["matrix_approximation_rank"].integer() == options_.matrix_approximation_rank &&
            state["min_compression_rate"].number() == options_.min_compression_rate &&
            state["batched"].boolean() == batched_;
        const Tree saved = state.empty() ? Tree::list() : state["buckets"];
        if (is_equal && saved.size() != buckets.size())
            throw ValueError(
                str(kOp, ": the state has ", saved.size(), " buckets instead of ", buckets.size()));
        bool is_complete = true;
        for (const Tree& bucket : saved.elements())
            if (!is_equal ? !bucket.empty() : source != Source::own && bucket.contains("error"))
                is_complete = false;
        std::vector<Memory> loaded(buckets.size());
        for (std::size_t i = 0; i < buckets.size() && is_equal; ++i)
            loaded[i] = memory_from(saved[i], buckets[i], source == Source::own);
        iteration_ = iteration;
        for (std::size_t i = 0; i < buckets.size(); ++i)
            if (loaded[i].error.defined() || loaded[i].q.defined() || find_memory(buckets[i]))
                memory_of(buckets[i]) = std::move(loaded[i]);
        return is_complete;
    }

  private:
    // The state of one reduction of one bucket.
    struct Reduction {
        Tensor buffer;  // the buffer of the bucket
        Tensor input;   // the buffer plus the error; if batched, padded to a square matrix
        std::vector<Tensor> whole;
        std::vector<Factors> factors;
        Tensor rest, p, q;  // 1-d: uncompressed gradients, and all P and all Q
        Pending mean_of_rest = {}, mean_of_p = {};
    };

    Pending compress(GradientBucket& bucket, ProcessGroup& group) {
        Memory& memory = memory_of(bucket);
        const auto reduction = std::make_shared<Reduction>(cut(bucket));
        Reduction& r = *reduction;
        if (options_.use_error_feedback) {
            if (memory.error.defined()) r.input.add_(memory.error);
            memory.error = clone(r.input);
        }
        begin_q(r, memory, bucket.index);
        if (!r.whole.empty()) {
            std::vector<Tensor> flats;
            flats.reserve(r.whole.size());
            for (const Tensor& t : r.whole) flats.push_back(flatten(t));
            r.rest = cat(flats);
            r.mean_of_rest = start_mean(r.rest, group, options_.wrapper);
        }
        if (!r.factors.empty()) {
            for (const Factors& f : r.factors) f.p.detach().copy_(matmul(f.matrix, f.q));
            r.mean_of_p = start_mean(r.p, group, options_.wrapper);
        }
        return {[this, reduction, &memory, &group] { finish(*reduction, memory, group); }};
    }

    void finish(Reduction& r, Memory& memory, ProcessGroup& group) const {
        const NoGrad no_grad;
        if (r.mean_of_rest.finish) r.mean_of_rest.finish();
        std::int64_t at = 0;
        for (const Tensor& t : r.whole) {
            t.detach().copy_(view(narrow(r.rest, 0, at, t.numel()), t.shape()));
            at += t.numel();
        }
        if (!r.factors.empty()) finish_factors(r, group);
        if (options_.use_error_feedback) update_error(r, memory);
        if (options_.warm_start)
            memory.q = r.q;
        else
            memory.q = {};
        if (!r.input.is_same(r.buffer)) r.buffer.copy_(narrow(r.input, 0, 0, r.buffer.numel()));
    }

    void finish_factors(Reduction& r, ProcessGroup& group) const {
        r.mean_of_p.finish();
        for (const Factors& f : r.factors) {
            make_orthonormal(f.p);
            f.q.detach().copy_(matmul(transpose(f.matrix, 0, 1), f.p));
        }
        start_mean(r.q, group, options_.wrapper).finish();
        for (const Factors& f : r.factors)
            f.matrix.detach().copy_(matmul(f.p, transpose(f.q, 0, 1)));
    }

    // Sets the error feedback to the input minus the reconstruction. This is zero for gradients
    // that are sent uncompressed.
    static void update_error(const Reduction& r, Memory& memory) {
        memory.error = sub(memory.error, r.input);
        for (const Tensor& t : r.whole) {
            const std::int64_t start = t.impl()->offset - r.input.impl()->offset;
            narrow(memory.error, 0, start, t.numel()).zero_();
        }
    }

    // Returns the state of a bucket, or nullptr if no state belongs to the bucket's parameters.
    Memory* find_memory(const GradientBucket& bucket) const {
        if (bucket.index >= memories_.size() || !memories_[bucket.index]) return nullptr;
        Memory& memory = *memories_[bucket.index];
        const bool is_same = std::equal(
            memory.parameters.begin(), memory.parameters.end(), bucket.parameters.begin(),
            bucket.parameters.end(), [](const Tensor& a, const Tensor& b) { return a.is_same(b); });
        return is_same ? &memory : nullptr;
    }

    Memory& memory_of(const GradientBucket& bucket) {
        if (Memory* const memory = find_memory(bucket)) return *memory;
        if (bucket.index >= memories_.size()) memories_.resize(bucket.index + 1);
        if (memories_[bucket.index] == nullptr)
            memories_[bucket.index] = std::make_unique<Memory>();
        return *memories_[bucket.index] = {.parameters = bucket.parameters};
    }

    // Returns the saved state of a bucket. Throws ValueError if a saved tensor does not have the
    // shape and dtype that the bucket needs, or contains infinities or NaN.
    Memory memory_from(const Tree& saved, const GradientBucket& bucket, bool has_error) const {
        Memory memory{.parameters = bucket.parameters};
        const Reduction r = cut(bucket);
        const auto load = [&](const char* name, const Tensor& like) -> Tensor {
            const Tree* const found = saved.find(name);
            if (found == nullptr) return {};
            const Tensor& x = found->tensor();
            if (x.shape() != like.shape() || x.dtype() != like.dtype())
                throw ValueError(str(kOp, ": '", name, "' of bucket ", bucket.index, " is ",
                                     x.dtype(), ' ', x.shape(), " instead of ", like.dtype(), ' ',
                                     like.shape()));
            // x * 0 is NaN for infinities and NaN.
            if (x.numel() > 0 && sum(mul(x, 0)).item() != 0)
                throw ValueError(str(kOp, ": '", name, "' of bucket ", bucket.index,
                                     " contains infinities or NaN"));
            return clone(to(x, like.device()));
        };
        const Tensor error = load("error", r.input), q = load("q", r.q);
        if (options_.use_error_feedback && has_error) memory.error = error;
        if (options_.warm_start) memory.q = q;
        return memory;
    }

    // Selects the gradients that are compressed (min_compression_rate; if batched, the whole buffer
    // as one matrix), and allocates their P and Q.
    Reduction cut(const GradientBucket& bucket) const {
        Reduction r;
        r.buffer = bucket.buffer;
        std::vector<Tensor> matrices;
        if (batched_) {
            const auto numel = bucket.buffer.numel();
            auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(numel)));
            while (side * side < numel) ++side;
            r.input = zeros({side * side}, options_of(bucket.buffer));
            narrow(r.input, 0, 0, numel).copy_(bucket.buffer);
            matrices.push_back(view(r.input, {side, side}));
        } else {
            r.input = bucket.buffer;
            for (const Tensor& g : bucket.gradients) {
                if (g.dim() >= 2 && g.numel() > 0 && is_worth_compressing(view(g, {g.size(0), -1})))
                    matrices.push_back(view(g, {g.size(0), -1}));
                else
                    r.whole.push_back(g);
            }
        }
        std::int64_t ps = 0, qs = 0;
        for (const Tensor& m : matrices) ps += m.size(0) * rank(m), qs += m.size(1) * rank(m);
        r.p = empty({ps}, options_of(bucket.buffer));
        r.q = empty({qs}, options_of(bucket.buffer));
        ps = qs = 0;
        for (const Tensor& m : matrices) {
            r.factors.push_back({m, matrix_in(r.p, ps, m.size(0), rank(m)),
                                 matrix_in(r.q, qs, m.size(1), rank(m))});
            ps += m.size(0) * rank(m), qs += m.size(1) * rank(m);
        }
        return r;
    }

    // Sets Q to the Q of the previous reduction, or to random numbers, and orthonormalizes it.
    void begin_q(Reduction& r, Memory& memory, std::size_t index) const {
        if (r.factors.empty()) return;
        const bool is_warm = memory.q.defined();
        if (!is_warm || !memory.random.defined()) {
            Normal normal(options_.random_seed * 0x2545f4914f6cdd1d + index * 0x9e3779b9 +
                          static_cast<std::uint64_t>(options_.warm_start ? 0 : iteration_));
            std::vector<double> values(static_cast<std::size_t>(r.q.numel()));
            for (double& v : values) v = normal();
            memory.random = to(tensor(values, r.q.shape(), {r.q.dtype()}), r.q.device());
        }
        r.q.copy_(is_warm ? memory.q : memory.random);
        std::int64_t at = 0;
        for (const Factors& f : r.factors) {
            make_orthonormal(f.q, matrix_in(memory.random, at, f.q.size(0), f.q.size(1)));
            at += f.q.numel();
        }
    }

    std::int64_t rank(const Tensor& matrix) const {
        return std::min({matrix.size(0), matrix.size(1), options_.matrix_approximation_rank});
    }
    bool is_worth_compressing(const Tensor& matrix) const {
        const auto compressed =
            static_cast<double>((matrix.size(0) + matrix.size(1)) * rank(matrix));
        return compressed * options_.min_compression_rate < static_cast<double>(matrix.numel());
    }
    static TensorOptions options_of(const Tensor& t) {
        return {.dtype = t.dtype(), .device = t.device()};
    }
    static Tensor matrix_in(const Tensor& flat, std::int64_t start, std::int64_t rows,
                            std::int64_t columns) {
        return view(narrow(flat, 0, start, rows * columns), {rows, columns});
    }

    PowerSgdOptions options_;
    bool batched_;
    std::int64_t iteration_ = 0;
    std::vector<std::unique_ptr<Memory>> memories_;  // one per bucket
};

}  // namespace

std::shared_ptr<CommHook> power_sgd_hook(PowerSgdOptions options, bool batched) {
    return std::make_shared<PowerSgd>(options, batched);
}

}  // namespace axle::dist
