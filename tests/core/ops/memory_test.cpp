// Tests ops with strided operands, with guard bytes around their operands, and with several numbers
// of threads.
#include <cstring>

#include "core/ops.h"
#include "kernels/thread_pool.h"
#include "tests/close.h"
#include "tests/core/ops/every_op.h"

namespace axle::tests {

namespace {

const char* name_of(Layout layout) {
    switch (layout) {
        case Layout::contiguous:
            return "contiguous";
        case Layout::transposed:
            return "transposed";
        case Layout::sliced:
            return "sliced";
        case Layout::expanded:
            return "expanded";
    }
    return "";
}

void expect_same_result(const Result& actual, const Result& expected, double tolerance) {
    const auto expect_same = [&](const Tensor& a, const Tensor& e) {
        tolerance == 0 ? expect_same_bits(a, e) : expect_close(a, e, tolerance);
    };
    ASSERT_EQ(actual.outputs.size(), expected.outputs.size());
    for (std::size_t k = 0; k < expected.outputs.size(); ++k) {
        SCOPED_TRACE(str("output ", k));
        expect_same(actual.outputs[k], expected.outputs[k]);
    }
    for (std::size_t i = 0; i < expected.grads.size(); ++i) {
        SCOPED_TRACE(str("gradient of operand ", i));
        expect_same(actual.grads[i], expected.grads[i]);
    }
}

class StridedOp : public OpTest {};

TEST_P(StridedOp, GivesSameResultForTransposedSlicedAndExpandedOperands) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        for (const DType dtype : {f64, f32, bf16}) {
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            for (const Layout layout : {Layout::transposed, Layout::sliced, Layout::expanded}) {
                SCOPED_TRACE(str(describe(row), " ", dtype, " ", name_of(layout)));
                std::vector<Tensor> strided, dense;
                for (const Tensor& t : x) {
                    strided.push_back(with_layout(t, layout));
                    dense.push_back(with_layout(strided.back(), Layout::contiguous));
                }
                const double tolerance = dtype == f64    ? 1e-12
                                         : c.layout_bits ? 0
                                                         : c.tolerance.of(dtype);
                expect_same_result(run(c, row, strided), run(c, row, dense), tolerance);
            }
        }
    }
}

// One operand is strided, and the other operands are contiguous.
TEST_P(StridedOp, GivesSameResultForMixedLayouts) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        const std::vector<Tensor> x = make_inputs(c, row, f32);
        for (std::size_t odd = 0; row.size() > 1 && odd < row.size(); ++odd) {
            SCOPED_TRACE(str(describe(row), ", operand ", odd, " transposed or sliced"));
            std::vector<Tensor> mixed = x;
            const bool flat = x[odd].dim() < 2;
            mixed[odd] = with_layout(x[odd], flat ? Layout::sliced : Layout::transposed);
            expect_same_result(run(c, row, mixed), run(c, row, x),
                               c.layout_bits ? 0 : c.tolerance.f32);
        }
    }
}

// Memory between two ranges of guard bytes.
class Guarded {
  public:
    explicit Guarded(const Tensor& x)
        : size_(static_cast<std::size_t>(x.numel() * size_of(x.dtype()))) {
        bytes_.assign(size_ + 2 * kGuard, kByte);
        if (size_ > 0) std::memcpy(bytes_.data() + kGuard, x.raw_data(), size_);
        before_ = bytes_;
    }
    Tensor tensor(const Tensor& like) {
        return Tensor::from_blob(bytes_.data() + kGuard, like.shape(), like.dtype());
    }
    bool intact() const { return bytes_ == before_; }

  private:
    static constexpr std::size_t kGuard = 256;
    static constexpr unsigned char kByte = 0xa5;
    std::size_t size_;
    std::vector<unsigned char> bytes_, before_;
};

class OpOperands : public OpTest {};

TEST_P(OpOperands, AreNotModifiedOrOverrun) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        for (const DType dtype : {f32, bf16}) {
            std::vector<Guarded> guards;
            std::vector<Tensor> x;
            const std::vector<Tensor> values = make_inputs(c, row, dtype);
            for (const Tensor& t : values) guards.emplace_back(t);
            for (std::size_t i = 0; i < guards.size(); ++i)
                x.push_back(guards[i].tensor(values[i]));
            run(c, row, x);
            for (std::size_t i = 0; i < guards.size(); ++i)
                EXPECT_TRUE(guards[i].intact())
                    << "bytes of operand " << i << " or around it changed, " << describe(row);
        }
    }
}

class LargeOp : public OpTest {
  protected:
    LargeOp() : threads_(kernels::num_threads()) {}
    ~LargeOp() override { kernels::set_num_threads(threads_); }

  private:
    int threads_;
};

TEST_P(LargeOp, GivesSameResultForSeveralNumbersOfThreads) {
    const OpCase& c = op_case();
    for (const DType dtype : {f32, bf16}) {
        const Row& row = c.large;
        const std::vector<Tensor> x = make_inputs(c, row, dtype);
        kernels::set_num_threads(1);
        const Result alone = run(c, row, x);
        for (const int threads : {2, 3}) {
            SCOPED_TRACE(str(threads, " threads, ", dtype));
            kernels::set_num_threads(threads);
            expect_same_result(run(c, row, x), alone, 0);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, StridedOp, testing::ValuesIn(names_of([](const OpCase& c) {
                             return c.strided && c.values && !c.rows[0].empty();
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpOperands, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.rows[0].empty();
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, LargeOp, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.large.empty();
                         })),
                         test_name);

}  // namespace

}  // namespace axle::tests
