// Tests op cases: values against PyTorch, each dtype against f64, documented properties of the
// results, and the meta device. Also tests type promotion against PyTorch.
#include <algorithm>
#include <map>

#include "core/autograd/autograd.h"
#include "core/files/safetensors.h"
#include "core/memory/memory.h"
#include "core/ops.h"
#include "tests/core/ops/every_op.h"

namespace axle::tests {

namespace {

// Returns the tensors recorded by tests/golden/record_ops.py for a family of cases.
const auto& golden(const std::string& family) {
    static std::map<std::string, std::map<std::string, Tensor>> files;
    const auto [file, is_new] = files.try_emplace(family);
    if (is_new)
        file->second =
            load_safetensors(str(AXLE_TESTS_DIR "/golden/ops/", family, ".safetensors")).tensors;
    return file->second;
}

Tensor recorded(const std::string& family, const std::string& name) {
    const auto found = golden(family).find(name);
    return found == golden(family).end() ? Tensor() : found->second;
}

class RecordedOp : public OpTest {};

TEST_P(RecordedOp, MatchesPyTorch) {
    const OpCase& c = op_case();
    for (std::size_t r = 0; r < c.rows.size(); ++r) {
        const Row& row = c.rows[r];
        const std::string prefix = str(c.name, "/", r, "/");
        SCOPED_TRACE(prefix + " " + describe(row));
        std::vector<Tensor> x;
        Result expected;
        for (std::size_t i = 0; i < row.size(); ++i) {
            x.push_back(recorded(c.family, str(prefix, "in", i)));
            ASSERT_TRUE(x[i].defined()) << "not recorded: run tests/golden/record_ops.py";
            ASSERT_EQ(x[i].shape(), row[i].shape)
                << "recorded with another shape: run record_ops.py";
            ASSERT_EQ(x[i].dtype(), row[i].floating() ? f32 : row[i].dtype);
            expected.grads.push_back(recorded(c.family, str(prefix, "grad", i)));
            const bool has_gradient = row[i].floating() && !row[i].frozen && c.gradient;
            ASSERT_EQ(expected.grads[i].defined(), has_gradient);
        }
        for (int k = 0; golden(c.family).contains(str(prefix, "out", k)); ++k)
            expected.outputs.push_back(recorded(c.family, str(prefix, "out", k)));
        ASSERT_FALSE(expected.outputs.empty()) << "not recorded: run tests/golden/record_ops.py";
        for (const DType dtype : {f64, f32}) {
            for (std::size_t i = 0; i < row.size(); ++i)
                if (row[i].floating()) x[i] = to(x[i], dtype);
            expect_result(c, row, run(c, row, x), expected, dtype);
        }
    }
}

TEST(RecordedValues, HaveAsManyRowsAsOpCases) {
    std::map<std::string, int> rows;
    for (const OpCase& c : op_cases())
        if (!c.torch.empty()) rows[c.family] += static_cast<int>(c.rows.size());
    for (const auto& [family, expected] : rows) {
        int recorded_rows = 0;
        for (const auto& [name, tensor] : golden(family))
            if (name.ends_with("/out0")) ++recorded_rows;
        EXPECT_EQ(recorded_rows, expected) << family << ": run tests/golden/record_ops.py";
    }
}

class FloatingPointOp : public OpTest {};

TEST_P(FloatingPointOp, MatchesF64ResultsInF32F16AndBf16) {
    const OpCase& c = op_case();
    std::vector<Row> rows = c.rows;
    if (!c.large.empty()) rows.push_back(c.large);
    for (const Row& row : rows) {
        SCOPED_TRACE(describe(row));
        for (const DType dtype : {f32, f16, bf16}) {
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            std::vector<Tensor> exact;
            for (std::size_t i = 0; i < x.size(); ++i)
                exact.push_back(row[i].floating() ? to(x[i], f64) : x[i]);
            expect_result(c, row, run(c, row, x), run(c, row, exact), dtype);
        }
    }
}

class OpOutputs : public OpTest {};

TEST_P(OpOutputs, HaveDocumentedProperties) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        for (const DType dtype : {f64, f32, f16, bf16}) {
            const std::vector<Tensor> x = make_inputs(c, row, dtype);
            EXPECT_EQ(c.check(x, forward(c, x)), "") << describe(row) << " " << dtype;
        }
    }
}

class OpOnMetaDevice : public OpTest {};

TEST_P(OpOnMetaDevice, ComputesShapesAndDTypesWithoutMemory) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        const Result real = run(c, row, make_inputs(c, row, f32));
        const std::vector<Tensor> x = make_inputs(c, row, f32, Device::meta());
        const std::int64_t before = host_memory::stats().allocations;
        const Result meta = run(c, row, x);
        EXPECT_EQ(host_memory::stats().allocations, before) << "memory was allocated";
        const auto expect_alike = [](const Tensor& a, const Tensor& e) {
            ASSERT_EQ(a.defined(), e.defined());
            if (!a.defined()) return;
            EXPECT_TRUE(a.device().is_meta());
            EXPECT_EQ(a.shape(), e.shape());
            EXPECT_EQ(a.dtype(), e.dtype());
        };
        ASSERT_EQ(meta.outputs.size(), real.outputs.size());
        for (std::size_t k = 0; k < real.outputs.size(); ++k)
            expect_alike(meta.outputs[k], real.outputs[k]);
        ASSERT_EQ(meta.grads.size(), real.grads.size());
        for (std::size_t i = 0; i < real.grads.size(); ++i)
            expect_alike(meta.grads[i], real.grads[i]);
    }
}

class OpThatReadsValues : public OpTest {};

TEST_P(OpThatReadsValues, ThrowsDeviceErrorOnMetaDevice) {
    const OpCase& c = op_case();
    for (const Row& row : c.rows) {
        SCOPED_TRACE(describe(row));
        EXPECT_THROW(forward(c, make_inputs(c, row, f32, Device::meta())), DeviceError);
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, RecordedOp, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.torch.empty();
                         })),
                         test_name);
// The suite excludes cases with neither a PyTorch expression nor a gradient, such as cases of
// random ops, because their results can differ between dtypes.
INSTANTIATE_TEST_SUITE_P(Cases, FloatingPointOp, testing::ValuesIn(names_of([](const OpCase& c) {
                             return (!c.torch.empty() || c.gradient) && has_floats(c.rows[0]);
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpOutputs, testing::ValuesIn(names_of([](const OpCase& c) {
                             return c.check != nullptr;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpOnMetaDevice, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.rows[0].empty() && !c.reads_values;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Cases, OpThatReadsValues, testing::ValuesIn(names_of([](const OpCase& c) {
                             return c.reads_values;
                         })),
                         test_name);

// The test compares the result dtypes of mul for all pairs of dtypes. The right operand has
// dimensions, is 0-d, or is an integer or floating-point number.
TEST(TypePromotion, MatchesRecordedPyTorchDTypes) {
    const DType dtypes[] = {f64, f32, f16, bf16, i64, i32, u8, boolean};
    const auto expect_table = [&](const std::string& name, auto&& right, std::size_t columns) {
        const auto table = recorded("promotion", name).to_vector();
        for (std::size_t a = 0; a < std::size(dtypes); ++a)
            for (std::size_t b = 0; b < columns; ++b) {
                const Tensor y = right(ones({2}, {dtypes[a]}), b);
                const DType expected_dtype =
                    dtypes[static_cast<std::size_t>(table[a * columns + b])];
                EXPECT_EQ(y.dtype(), expected_dtype)
                    << name << ": " << dtypes[a] << " with column " << b;
            }
    };
    expect_table(
        "promotion/tensors",
        [&](const Tensor& x, std::size_t b) { return mul(x, ones({2}, {dtypes[b]})); }, 8);
    expect_table(
        "promotion/scalars",
        [&](const Tensor& x, std::size_t b) { return mul(x, ones({}, {dtypes[b]})); }, 8);
    expect_table(
        "promotion/numbers",
        [](const Tensor& x, std::size_t b) { return b == 0 ? mul(x, 2) : mul(x, 2.5); }, 2);
}

}  // namespace

}  // namespace axle::tests
