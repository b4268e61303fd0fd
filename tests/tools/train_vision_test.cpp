// Tests the program train_vision on forty digits and on folders of images.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "data/images/decode.h"
#include "tests/tools/trainer_program.h"

namespace axle {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder

class TrainVision : public TrainerTest {
  protected:
    TrainVision() : TrainerTest("train_vision") {}

    // Returns the options of a run on the committed digits with its own output folder.
    Arguments tiny(const std::string& out, const Arguments& more = {}) {
        Arguments all = {"--preset", "tiny",        "--data",    AXLE_TESTS_DIR "/golden/images",
                         "--out",    folder_ / out, "--threads", "1"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(TrainVision, PrintsItsResultAsJsonAndWritesMetricsAndTheConfiguration) {
    const Ended ended = run(tiny("a"));
    ASSERT_EQ(ended.code, 0) << ended.text();
    const json result = ended.result();
    for (const char* key : {"accuracy", "val_loss", "steps", "seconds", "samples_per_s", "threads",
                            "device", "checkpoint"})
        EXPECT_TRUE(result.contains(key)) << key << " in " << result;
    EXPECT_EQ(result["steps"], 20);
    EXPECT_GE(result["accuracy"], 0);
    EXPECT_LE(result["accuracy"], 1);
    const auto rows = metrics("a");
    ASSERT_EQ(rows.size(), 20u);
    EXPECT_LT(rows.back()["loss"], rows.front()["loss"]);
    EXPECT_EQ(rows.back()["accuracy"], result["accuracy"]);
    EXPECT_EQ(json::parse(read_file(folder_ / "a/config.json"))["model_type"], "mlp");
}

TEST_F(TrainVision, TrainsEvaluatesAndReloadsThreeModels) {
    for (const char* model : {"lenet", "mlp", "resnet18"}) {
        const Arguments same = {"--model", model, "--batch-size", "2"};
        const auto with = [&](Arguments more) {
            more.insert(more.end(), same.begin(), same.end());
            return more;
        };
        const Ended trained = run(tiny(model, with({"--steps", "2"})));
        ASSERT_EQ(trained.code, 0) << model << trained.text();
        const Ended evaluated = run(tiny(model, with({"--eval-only"})));
        ASSERT_EQ(evaluated.code, 0) << model << evaluated.text();
        EXPECT_EQ(evaluated.result()["accuracy"], trained.result()["accuracy"]);
        const Ended tuned = run(tiny(
            "tuned", with({"--eval-only", "--init-from", folder_ / model + "/model.safetensors"})));
        ASSERT_EQ(tuned.code, 0) << model << tuned.text();
        EXPECT_EQ(tuned.result()["val_loss"], trained.result()["val_loss"]) << model;
    }
}

TEST_F(TrainVision, GivesTheSameResultForSeveralNumbersOfThreadsAndWorkers) {
    const Arguments more = {"--model", "lenet", "--steps", "6"};
    ASSERT_EQ(run(tiny("a", more)).code, 0);
    for (const Arguments& other :
         {Arguments{"--threads", "3"}, Arguments{"--workers", "0"}, Arguments{"--workers", "3"}}) {
        Arguments options = more;
        options.insert(options.end(), other.begin(), other.end());
        const Ended ended = run(tiny("b", options));
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(metrics("b"), metrics("a")) << other[0];
        EXPECT_TRUE(model("b") == model("a")) << other[0];
    }
}

TEST_F(TrainVision, TrainsWithAugmentationForAllNumbersOfWorkers) {
    for (const Arguments& more :
         {Arguments{"--augment", "trivial", "--mixup", "0.2", "--cutmix", "1"},
          Arguments{"--augment", "rand", "--color-jitter", "0.4", "--random-erasing", "0.5"}}) {
        ASSERT_EQ(run(tiny("plain")).code, 0);
        Arguments same = more, workers = more;
        ASSERT_EQ(run(tiny("a", same)).code, 0);
        EXPECT_NE(metrics("a"), metrics("plain"));
        workers.insert(workers.end(), {"--workers", "3"});
        ASSERT_EQ(run(tiny("b", workers)).code, 0);
        EXPECT_EQ(metrics("b"), metrics("a")) << more[1];
    }
}

TEST_F(TrainVision, ResumesWithTheSameAugmentationOnly) {
    const Arguments mixed = {"--mixup", "0.2", "--augment",    "trivial",
                             "--steps", "20",  "--batch-size", "3"};
    ASSERT_EQ(run(tiny("whole", mixed)).code, 0);
    // The checkpoint of step 10, which is in the middle of a pass.
    Arguments resumed = mixed;
    const std::string checkpoint = folder_ / "whole/checkpoints/checkpoint_10";
    resumed.insert(resumed.end(), {"--resume", checkpoint});
    ASSERT_EQ(run(tiny("rest", resumed)).code, 0);
    EXPECT_TRUE(model("rest") == model("whole"));
    expect_refused(tiny("a", {"--steps", "20", "--batch-size", "3", "--resume", checkpoint}),
                   {"augment: saved 'trivial, mixup 0.2', now missing"});
    Arguments other = resumed;
    other.insert(other.end(), {"--cutmix", "1"});
    expect_refused(tiny("a", other), {"augment", "trivial, mixup 0.2", "cutmix 1"});
    other.insert(other.end(), {"--allow-changed", "augment"});
    EXPECT_EQ(run(tiny("a", other)).code, 0);
}

TEST_F(TrainVision, ResumesAKilledRunExactly) {
    const Arguments more = {"--model", "lenet", "--steps", "300", "--save-every", "5"};
    ASSERT_EQ(run(tiny("whole", more)).code, 0);
    Arguments first = more, second = more;
    second.insert(second.end(), {"--resume", "latest"});
    ASSERT_TRUE(killed_at(23, std::chrono::milliseconds(3), "killed", tiny("killed", first)));
    const Ended ended = run(tiny("killed", second));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_EQ(metrics("killed"), metrics("whole"));
    EXPECT_TRUE(model("killed") == model("whole"));
}

TEST_F(TrainVision, ContinuesAFinishedRunWithMoreEpochs) {
    const Ended first = run(tiny("a", {"--epochs", "2"}));
    ASSERT_EQ(first.code, 0) << first.text();
    const Ended longer = run(tiny("a", {"--epochs", "4", "--resume", "latest"}));
    ASSERT_EQ(longer.code, 0) << longer.text();
    const auto steps = first.result()["steps"].get<std::size_t>();
    EXPECT_EQ(longer.result()["steps"], 2 * steps);
    const auto rows = metrics("a");
    ASSERT_EQ(rows.size(), 2 * steps);
    // The schedule of the longer run still rises at the step where the schedule of the first run
    // had ended.
    EXPECT_GT(rows[steps]["lr"], rows[steps - 1]["lr"]);
}

TEST_F(TrainVision, TrainsInF16WithAScaler) {
    const Ended ended = run(tiny("half", {"--mixed-precision", "fp16"}));
    ASSERT_EQ(ended.code, 0) << ended.text();
    const auto rows = metrics("half");
    EXPECT_LT(rows.back()["loss"], rows.front()["loss"]);
    EXPECT_TRUE(fs::exists(folder_ / "half/checkpoints/checkpoint_20/scaler.json"));
}

TEST_F(TrainVision, WritesReportTraceAndTrackerFiles) {
    const Ended ended =
        run(tiny("a", {"--sample", "3", "--log-with", "tensorboard,csv", "--epochs", "4"}));
    ASSERT_EQ(ended.code, 0) << ended.text();
    const std::string report = read_file(folder_ / "a/report.html");
    for (const char* part : {"<title>train_vision</title>", "Accuracy", "Gradient norm",
                             "Where the time went", "matmul", "image/png;base64", "batch-size"})
        EXPECT_NE(report.find(part), std::string::npos) << part;
    EXPECT_FALSE(json::parse(read_file(folder_ / "a/trace.json")).empty());
    EXPECT_EQ(lines_of(folder_ / "a/logs/metrics.csv").size(), 21u);
    std::size_t events = 0;
    for (const auto& file : fs::directory_iterator(folder_ / "a/logs"))
        events += file.path().filename().string().starts_with("events.out.tfevents.");
    EXPECT_EQ(events, 1u);
}

TEST_F(TrainVision, ReportsInvalidOptions) {
    expect_refused(tiny("a", {"--model", "lenett"}), {"lenett", "did you mean lenet?"});
    expect_refused(tiny("a", {"--data", folder_ / "none"}), {"none", "train-images-idx3-ubyte"});
    expect_refused(tiny("a", {"--log-with", "tensorbord"}), {"tensorbord", "tensorboard"});
    expect_refused(tiny("a", {"--device", "cuda:99"}), {"device: ", "'cuda:99'"});
    expect_refused(tiny("a", {"--augment", "random"}), {"unknown augment 'random'"});
    expect_refused(tiny("a", {"--random-erasing", "1.5"}), {"random-erasing", "1.5"});
    ASSERT_EQ(run(tiny("mlp")).code, 0);
    expect_refused(tiny("a", {"--model", "lenet", "--eval-only", "--init-from",
                              folder_ / "mlp/model.safetensors"}),
                   {"conv1.weight", "layers.0.weight"});
}

class TrainVisionOnImages : public TrainVision {
  protected:
    void SetUp() override {
        TrainVision::SetUp();
        if (!data::can_decode(data::ImageFormat::jpeg) || !data::can_decode(data::ImageFormat::png))
            GTEST_SKIP() << "this build has no libjpeg or no libpng";
    }
    // Writes four images of different sizes to a folder, whose path is returned.
    std::string write_images(const std::string& folder) {
        for (const char* name : {"color.png", "wide.png", "full.jpg", "gray.jpg"}) {
            fs::create_directories(folder_ / folder);
            fs::copy_file(AXLE_TESTS_DIR "/golden/pictures/" + std::string(name),
                          folder_ / folder + "/" + name);
        }
        return folder_ / folder;
    }
    Arguments on(const std::string& folder, const Arguments& more = {}) {
        Arguments all = {"--preset",      "tiny",      "--data", folder_ / folder, "--out",
                         folder_ / "out", "--threads", "1",      "--steps",        "2",
                         "--batch-size",  "2"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

TEST_F(TrainVisionOnImages, TrainsOnClassesOfImagesOfDifferentSizes) {
    for (const char* folder : {"pets/train/cat", "pets/train/dog", "pets/val/cat", "pets/val/dog"})
        write_images(folder);
    const Arguments small = {"--model", "resnet18", "--image-size", "16", "--sample", "8"};
    const Ended ended = run(on("pets", small));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_NE(ended.out[0].find("8 to train, 8 to test, [3, 16, 16], 2 classes"), std::string::npos)
        << ended.out[0];
    EXPECT_EQ(json::parse(read_file(folder_ / "out/config.json"))["classes"], (json{"cat", "dog"}));
    const std::string report = read_file(folder_ / "out/report.html");
    EXPECT_TRUE(report.find("(cat)") != std::string::npos ||
                report.find("(dog)") != std::string::npos);  // a wrong prediction, with its label
    const auto rows = metrics("out");
    Arguments workers = small;
    workers.insert(workers.end(), {"--workers", "3"});
    ASSERT_EQ(run(on("pets", workers)).code, 0);
    EXPECT_EQ(metrics("out"), rows);
    const Ended lenet = run(on("pets", {"--model", "lenet"}));
    ASSERT_EQ(lenet.code, 0) << lenet.text();
    EXPECT_NE(lenet.out[0].find("[1, 28, 28]"), std::string::npos) << lenet.out[0];
}

TEST_F(TrainVisionOnImages, DividesAFolderWithoutTrainingPart) {
    write_images("pets/cat"), write_images("pets/dog");
    const Ended ended = run(on("pets", {"--validation", "0.25"}));
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_NE(ended.out[0].find("6 to train, 2 to test, [3, 64, 64], 2 classes"), std::string::npos)
        << ended.out[0];
    expect_refused(on("pets", {"--validation", "0"}), {"--validation 0", "0 to test"});
}

TEST_F(TrainVisionOnImages, RejectsFoldersThatDoNotFit) {
    write_images("pets/train/cat");
    expect_refused(on("pets"), {"pets", "neither val/, validation/ nor test/"});
    write_images("pets/test/dog");
    expect_refused(on("pets"), {"pets/test must be those in train/"});
    write_images("other/cat");
    std::ofstream(folder_ / "other/cat/a.png") << "no image";
    expect_refused(on("other", {"--validation", "0.4"}),
                   {"other/cat/a.png: not a JPEG or PNG image"});
}

// Trains on MNIST, which is in the folder mnist of the folder that the variable AXLE_DATA names.
TEST_F(TrainVision, RecognizesHandwrittenDigitsInALongRun) {
    const char* folder = std::getenv("AXLE_DATA");
    if (folder == nullptr) GTEST_SKIP() << "AXLE_DATA names no folder with mnist/ in it";
    const Ended ended = run({"--data", std::string(folder) + "/mnist", "--out", folder_ / "a"});
    ASSERT_EQ(ended.code, 0) << ended.text();
    EXPECT_GE(ended.result()["accuracy"], 0.975);
}

}  // namespace
}  // namespace axle
