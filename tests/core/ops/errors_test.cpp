// Tests the bad calls of every op case. The error must have the expected type. Its message must
// start with the expected name (usually of the op) and contain the expected words, such as shapes.
#include "core/ops.h"
#include "tests/core/ops/every_op.h"

namespace axle::tests {

namespace {

class OpErrors : public OpTest {};

TEST_P(OpErrors, HaveTheExpectedTypeAndText) {
    const OpCase& c = op_case();
    for (std::size_t i = 0; i < c.bad_calls.size(); ++i) {
        const BadCall& bad = c.bad_calls[i];
        SCOPED_TRACE(str("bad call ", i));
        try {
            bad.call();
            ADD_FAILURE() << "no error, but a message that starts with '" << bad.prefix
                          << "' is expected";
        } catch (const Error& error) {
            const std::string text = error.what();
            EXPECT_TRUE(bad.is_expected(error)) << "another type of error: " << text;
            EXPECT_TRUE(text.starts_with(bad.prefix)) << text << "\nstart: " << bad.prefix;
            for (const std::string& word : bad.words)
                EXPECT_NE(text.find(word), std::string::npos) << text << "\nmissing: " << word;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpErrors, testing::ValuesIn(names_of([](const OpCase& c) {
                             return !c.bad_calls.empty();
                         })),
                         test_name);

}  // namespace

}  // namespace axle::tests
