// Tests that dropout does not depend on the numbers of processes that share sequences and divide
// layers. Each rank is a process, because the threads of a process share a random generator.
#include <chrono>
#include <cmath>
#include <string>

#include "dist/group/mesh.h"
#include "dist/sequence/context_parallel.h"
#include "dist/sequence/ulysses.h"
#include "dist/tensor_parallel/tensor_parallel.h"
#include "tests/dist/sequence/sequences.h"
#include "tests/job.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Group;

constexpr std::int64_t kDropoutSteps = 3;

enum class Sharing { all_gather, ring, ulysses };

std::string text_of(const tests::SequenceRun& run) {
    std::string text;
    for (const double loss : run.losses) text += str(std::llround(loss * 1e9), ' ');
    return text;
}

// The sizes of the groups into which the processes of a job are divided.
struct Processes {
    int sharing = 2;  // the number of processes that share sequences
    int tp = 1;       // the number of processes that divide layers
    bool sequence_parallel = false;
};

// Returns the losses of training with dropout as text.
template <class Model>
std::string train_with_dropout(const Group& job, Sharing sharing, const Processes& processes) {
    Model model = tests::model_of<Model>(f64, 0.2);
    const dist::DeviceMesh mesh(job, {{"sp", processes.sharing}, {"tp", processes.tp}});
    const Group group = mesh.get_group("sp");
    dist::tensor_parallelize(model, mesh.get_group("tp"),
                             {.sequence_parallel = processes.sequence_parallel});
    manual_seed(11);
    const tests::SequenceParts parts =
        sharing == Sharing::ulysses
            ? tests::ulysses_parts(group)
            : tests::context_parts(group, sharing == Sharing::ring
                                              ? dist::ContextExchange::ring
                                              : dist::ContextExchange::all_gather);
    return text_of(tests::train_parts(model, group, kDropoutSteps, parts));
}

template <class Model>
void expect_same_dropout(const Processes& processes) {
    Model whole = tests::model_of<Model>(f64, 0.2);
    manual_seed(11);
    const std::string expected = text_of(tests::train_whole_sequences(whole, kDropoutSteps));
    Model without = tests::model_of<Model>(f64);
    EXPECT_NE(expected, text_of(tests::train_whole_sequences(without, kDropoutSteps)));
    for (const Sharing sharing : {Sharing::all_gather, Sharing::ring, Sharing::ulysses}) {
        tests::Job job(processes.sharing * processes.tp, [&](const dist::Environment& environment) {
            return train_with_dropout<Model>(
                dist::ProcessGroup::create(environment, {.join_timeout = 30s}), sharing, processes);
        });
        for (const tests::RankOutcome& outcome : job.wait(120s))
            EXPECT_EQ(outcome.text, expected)
                << "sharing " << static_cast<int>(sharing) << ", tp " << processes.tp;
    }
}

// Covers 17.CP, 17.SP.
TEST(SequenceDropout, DoesNotDependOnTheNumberOfProcesses) {
    expect_same_dropout<nn::Gpt>({});
    expect_same_dropout<nn::Llama>({});
    expect_same_dropout<nn::BertForMaskedLM>({});
}

// The processes of a tensor parallel group have different heads and, with sequence parallelism,
// different parts of the tokens.
// Covers 17.CP, 17.SP, 17.TP.
TEST(SequenceDropout, DoesNotDependOnTheNumberOfSlices) {
    for (const bool sequence_parallel : {false, true}) {
        const Processes four{.tp = 2, .sequence_parallel = sequence_parallel};
        expect_same_dropout<nn::Gpt>(four);
        expect_same_dropout<nn::Llama>(four);
        expect_same_dropout<nn::BertForMaskedLM>(four);
    }
}

}  // namespace
}  // namespace axle
