// Tests StepCapture and StepRecord, the host side of captured steps, without a GPU.
#include "accel/capture/step_capture.h"

#include <memory>

#include "optim/schedules/metric_schedules.h"
#include "optim/sgd.h"
#include "tests/accel/training.h"

namespace axle::accel {
namespace {

using tests::SmallNet;

// The prepared objects of a training loop. The optimizer has two schedules, which therefore step on
// the host. A single schedule would step on the device.
struct Prepared {
    explicit Prepared(int num_steps = 1) {
        loop->accumulation.set_num_steps(num_steps);
        preparation.prepare(net);
        preparation.prepare(sgd);
        preparation.prepare(halving);
        preparation.prepare(doubling);
    }
    double lr() { return sgd.param_groups()[0].lr; }

    SmallNet net;
    optim::SGD sgd{net.parameters(), {.lr = 1}};
    optim::ExponentialLR halving{sgd, 0.5}, doubling{sgd, 2};
    PartialState processes{{.cpu = true, .process_group = dist::ProcessGroup::alone()}};
    std::shared_ptr<LoopState> loop = std::make_shared<LoopState>();
    Preparation preparation{{}, processes, loop};
    StepCapture capture{preparation, *loop, Device::cpu()};
};

TEST(StepCapture, ListsOneParameterAndOneStoragePerModelParameter) {
    Prepared run;
    EXPECT_EQ(run.capture.parameters().size(), run.net.parameters().size());
    EXPECT_EQ(run.capture.memory(run.capture.parameters()).size(), run.net.parameters().size());
}

TEST(StepCapture, RestoresCountsSchedulersAndLearningRatesOnRewind) {
    Prepared run(2);
    const StepCapture::Snapshot before = run.capture.snapshot();
    run.loop->accumulation.begin_micro_batch();
    run.halving.advance();
    EXPECT_EQ(run.lr(), 0.5);
    run.capture.rewind(before);
    EXPECT_EQ(run.lr(), 1);
    EXPECT_EQ(run.halving.step_count(), 1);
    EXPECT_EQ(run.capture.micro_batches(), 0);
    EXPECT_TRUE(run.loop->accumulation.sync_gradients());
}

TEST(StepCapture, AdvancesMicroBatchCountAndSchedulerInEveryReplay) {
    Prepared run;
    StepRecord record;
    run.capture.begin_recording(record);
    run.loop->recorder.add_micro_batch();
    run.sgd.step();
    run.halving.step();
    run.capture.end_recording(record);
    EXPECT_EQ(run.lr(), 1);  // the step is recorded, but not executed
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(run.capture.can_replay(record));
        run.capture.before_replay(record);
        run.capture.after_replay(record, run.capture.parameters());
    }
    EXPECT_EQ(run.lr(), 0.25);
    EXPECT_EQ(run.capture.micro_batches(), 2);
}

TEST(StepCapture, ChangesTheStepKeyIfTrainingModeOrPreparedObjectsChange) {
    Prepared run;
    const std::string key = run.capture.step_key(false);
    EXPECT_EQ(run.capture.step_key(false), key);
    run.net.eval();
    EXPECT_NE(run.capture.step_key(false), key);
    run.net.train();
    optim::SGD other(run.net.parameters(), {.lr = 1});
    run.preparation.prepare(other);
    EXPECT_NE(run.capture.step_key(false), key);
}

TEST(StepRecord, ListsEarlySchedulersSeparatelyAndRejectsSchedulersBetweenTwoOptimizerSteps) {
    Prepared run;
    StepRecord record;
    record.add_step(run.halving);
    record.add_step(run.sgd);
    record.add_step(run.doubling);
    EXPECT_EQ(record.early_schedulers, std::vector<optim::Scheduler*>{&run.halving});
    EXPECT_EQ(record.schedulers, std::vector<optim::Scheduler*>{&run.doubling});
    EXPECT_THROW(record.add_step(run.sgd),
                 UsageError);  // throws because a schedule stepped after the first step of sgd
}

TEST(StepRecord, RejectsSchedulersThatNeedAMetric) {
    Prepared run;
    optim::ReduceLROnPlateau plateau(run.sgd);
    StepRecord record;
    EXPECT_THROW(record.add_step(plateau), UsageError);
}

}  // namespace
}  // namespace axle::accel
