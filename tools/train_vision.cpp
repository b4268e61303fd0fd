// The program train_vision: trains an image classifier on a folder of images, or on the files of
// MNIST or CIFAR.
//
// The program is an example to copy: it uses only the public API, and the helpers in
// tools/trainer/. The training loop is in train().
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "accel/metrics.h"
#include "accel/tracking/image.h"
#include "accel/tracking/png.h"
#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "data/loading/loader.h"
#include "nn/layers/mlp.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"
#include "optim/adam.h"
#include "optim/schedules/schedules.h"
#include "tools/trainer/images.h"
#include "tools/trainer/run.h"

namespace fs = std::filesystem;
using namespace axle;

// --- options

struct Settings : trainer::Options {
    std::string model = "lenet";
    std::int64_t workers = 1, sample = 16;
    trainer::ImageOptions images;
};

const std::vector<std::string> kModels = {"lenet", "mlp", "resnet18", "resnet50"};
const std::vector<std::string> kPresets = {"default", "tiny"};

Settings preset_of(const std::string& name) {
    Settings s;
    s.preset = name, s.out = "runs/vision";
    s.batch_size = 64, s.epochs = 12, s.lr = 3e-3, s.weight_decay = 0.05;
    s.eval_every = -1, s.save_every = 500;
    if (name == "default") return s;
    if (name == "tiny") {
        s.model = "mlp";
        s.batch_size = 8, s.epochs = 0, s.steps = 20, s.eval_every = 10, s.save_every = 10;
        return s;
    }
    trainer::throw_unknown("preset", name, kPresets);
}

// Parses the command line. Returns nullopt after --help or --version.
std::optional<Settings> parse(std::vector<std::string> arguments) {
    trainer::CommandLine line(
        "Trains an image classifier on a folder of images, or of MNIST's or CIFAR's files.\n\n"
        "  train_vision --data pets/ --model resnet18 --out runs/pets   train on pets/cat/1.jpg, "
        "...\n"
        "  train_vision --data mnist/ --model lenet --out runs/a    train\n"
        "  train_vision --data mnist/ --model lenet --out runs/a --resume latest   resume\n"
        "  train_vision --data mnist/ --model lenet --out runs/a --eval-only --sample 10\n",
        std::move(arguments));
    Settings s = preset_of(line.peek("preset").value_or(kPresets[0]));
    line.add(
        "data", s.data,
        "Folder with MNIST's idx files (also .gz), CIFAR's binary ones, or JPEG and PNG images "
        "in train/CLASS/ and val/CLASS/, or in CLASS/",
        true);
    line.add("image-size", s.images.size,
             "Side in pixels to which JPEG and PNG images are resized; 28 with lenet", 8, 4096);
    line.add("validation", s.images.validation,
             "Fraction of the images to test with if there is no train/", 0, 1);
    line.add("augment", s.images.augment,
             "Random operations on training images: none, trivial (TrivialAugmentWide) or rand "
             "(RandAugment)");
    line.add("color-jitter", s.images.color_jitter,
             "Largest random change of brightness, contrast and saturation, as a fraction", 0, 10);
    line.add("random-erasing", s.images.random_erasing,
             "Probability that a rectangle of a training image is erased", 0, 1);
    line.add("mixup", s.images.mixup, "Alpha of MixUp, for example 0.2; 0: off", 0, 1e6);
    line.add("cutmix", s.images.cutmix,
             "Alpha of CutMix, for example 1; with --mixup, each batch uses one of both; 0: off", 0,
             1e6);
    line.add("model", s.model, "lenet, mlp, resnet18 or resnet50");
    line.add("preset", s.preset, "Defaults: default or tiny");
    s.add_to(line);
    line.add("init-from", s.init_from, "Start from the weights of a .safetensors file");
    line.add("workers", s.workers, "Threads that prepare batches", 0, 256);
    line.add("sample", s.sample, "Predictions to show at the end");
    if (!line.parse()) return std::nullopt;
    if (std::find(kModels.begin(), kModels.end(), s.model) == kModels.end())
        trainer::throw_unknown("model", s.model, kModels);
    const auto& augmentations = trainer::kAugmentations;
    if (std::find(augmentations.begin(), augmentations.end(), s.images.augment) ==
        augmentations.end())
        trainer::throw_unknown("augment", s.images.augment, augmentations);
    s.values = line.values();
    return s;
}

// --- the models

// A model that maps images to logits: one of several architectures, whose name is saved with the
// model.
struct Classifier : nn::Model<Classifier> {
    using Any = std::variant<nn::LeNet, nn::Mlp, nn::ResNet>;

    Classifier(std::string name_, const Shape& image, std::int64_t classes)
        : name(std::move(name_)), model(make(name, image, classes)) {}

    Tensor forward(const Tensor& images) {
        return std::visit(
            [&](auto& m) {
                constexpr bool flat = std::is_same_v<std::remove_reference_t<decltype(m)>, nn::Mlp>;
                return flat ? m(images.flatten(1)) : m(images);
            },
            model);
    }
    Tensor loss(const Tensor& images, const Tensor& labels) {
        return enter([&] { return cross_entropy(forward(images), labels); });
    }
    void visit(nn::Visitor& v) override {
        std::visit([&](auto& m) { m.visit(v); }, model);
    }

    std::string name;
    Any model;

  private:
    static Any make(const std::string& name, const Shape& image, std::int64_t classes) {
        if (name == "lenet") return nn::LeNet(classes);
        if (name == "mlp") return nn::Mlp({image[0] * image[1] * image[2], 512, 512, classes});
        nn::ResNetConfig config = name == "resnet18" ? nn::resnet18() : nn::resnet50();
        config.num_classes = classes;
        config.in_channels = image[0];
        config.small_images = image[1] <= 64;
        return nn::ResNet(config);
    }
};

// Writes model.safetensors, which has the weights, and config.json, which has the constructor's
// arguments.
void save(const Classifier& model, const trainer::Images& images, const std::string& folder) {
    const auto path = [&](const char* file) { return (fs::path(folder) / file).string(); };
    Tree classes = Tree::list();
    for (const std::string& name : images.classes) classes.push_back(name);
    save_safetensors(path("model.safetensors"), model.saved_state(), {{"format", "pt"}});
    write_file_atomically(
        path("config.json"),
        to_json(Tree{{"model_type", model.name},
                     {"num_classes", std::ssize(images.classes)},
                     {"classes", classes},
                     {"image", Tree::list({images.shape[0], images.shape[1], images.shape[2]})}}) +
            "\n");
}

// --- training

Device device_of(const Classifier& model) { return model.parameters()[0].device(); }

// Returns the accuracy from 0 to 1 and the mean loss in nats over the test images. The loader is
// prepared after --resume, because its position is not part of a checkpoint.
Tree evaluate(Accelerator& accelerator, Classifier& model, data::DataLoader& test) {
    const NoGrad no_grad;
    model.eval();
    accel::Accuracy accuracy(accelerator);
    accel::Mean loss(accelerator);
    for (auto& batch : accelerator.prepare(test)) {
        const Tensor logits = model(batch["image"]);
        accuracy.update(logits, batch["label"]);
        loss.update(cross_entropy(logits, batch["label"], {.reduction = Reduction::none}));
    }
    model.train();
    return Tree{{"accuracy", accuracy.compute()}, {"val_loss", loss.compute()}};
}

trainer::Run::Plan plan_for(const Settings& s, const trainer::Images& images,
                            Accelerator& accelerator, Classifier& model) {
    const auto test = std::make_shared<data::DataLoader>(
        images.test, data::LoaderOptions{.batch_size = 4 * s.batch_size,
                                         .num_workers = static_cast<int>(s.workers)});
    const auto samples = static_cast<double>(images.train->size());
    return {
        .steps = s.updates(samples),
        .unit = "samples",
        .per_update = static_cast<double>(s.samples_per_update()),
        .per_epoch = samples,
        .evaluate = [&accelerator, &model, test] { return evaluate(accelerator, model, *test); }};
}

// Evaluates a checkpoint. Loads only the model, so that the options of the training are not needed.
trainer::Outcome only_evaluate(const Settings& s, const trainer::Images& images,
                               Classifier& classifier) {
    Accelerator accelerator(s.accelerator());
    accelerator.prepare(classifier);
    trainer::Run::Plan plan = plan_for(s, images, accelerator, classifier);
    plan.steps = 0;
    return trainer::Run(s, accelerator, std::move(plan)).finish();
}

trainer::Outcome train(const Settings& s, const trainer::Images& images, Classifier& classifier) {
    Accelerator accelerator(s.accelerator());
    const trainer::Run::Plan plan = plan_for(s, images, accelerator, classifier);
    data::DataLoader train_loader(images.train, {.batch_size = s.batch_size,
                                                 .shuffle = true,
                                                 .num_workers = static_cast<int>(s.workers),
                                                 .seed = s.seed});
    optim::AdamW adamw = trainer::adamw(classifier, {.lr = s.lr, .weight_decay = s.weight_decay});
    optim::OneCycleLR one_cycle(adamw, s.lr, plan.steps);

    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(classifier, adamw, train_loader, one_cycle);
    trainer::Run run(s, accelerator, plan);
    one_cycle.set_total_steps(plan.steps);  // a checkpoint may contain another number of steps
    while (!run.done()) {
        for (auto& batch : loader) {
            auto scope = accelerator.accumulate(model);
            const Tensor loss = model.loss(batch["image"], batch["label"]);
            accelerator.backward(loss);
            run.add_loss(loss);
            if (accelerator.sync_gradients())
                run.note("grad_norm", accelerator.clip_grad_norm_(model.parameters(), s.clip));
            run.note("lr", scheduler.get_last_lr()[0]);
            optimizer.step();
            scheduler.step();
            optimizer.zero_grad();
            if (accelerator.sync_gradients()) run.end_update();
            if (run.done()) break;
        }
    }
    accelerator.on_main_process([&] { save(model, images, s.out); });
    return run.finish();
}

// Returns pictures of the first test images. A caption has the predicted class, its probability
// and, if the prediction is wrong, the label.
std::vector<trainer::ReportPicture> predictions(const Settings& s, const trainer::Images& images,
                                                Classifier& model) {
    const NoGrad no_grad;
    model.eval();
    std::vector<trainer::ReportPicture> pictures;
    for (std::int64_t i = 0; i < std::min(s.sample, images.test->size()); ++i) {
        const Tree sample = images.test->get(i);
        const Tensor& image = sample["image"];
        const Tensor chances = softmax(model(image.unsqueeze(0).to(device_of(model))));
        const auto guess = static_cast<std::int64_t>(chances.argmax(-1).item());
        const std::int64_t label = trainer::label_of(sample);
        const auto name = [&](std::int64_t c) {
            return images.classes[static_cast<std::size_t>(c)];
        };
        const double percent = std::round(1000 * chances.max().item()) / 10;
        const Tensor low = image.min(), range = image.max() - low;
        const accel::Image pixels =
            accel::to_image((image - low) / clamp(range, 1e-6, std::nullopt));
        pictures.push_back(
            {.png = accel::encode_png(pixels.pixels, pixels.height, pixels.width, pixels.channels),
             .caption = str(name(guess), ", ", percent, " %",
                            guess == label ? "" : str(" (", name(label), ")")),
             .wrong = guess != label});
    }
    return pictures;
}

int run(Settings s) {
    s.apply();
    s.images.folder = s.data, s.images.seed = s.seed;
    if (s.model == "lenet") s.images.gray = true, s.images.size = 28;
    const trainer::Images images = trainer::load_images(s.images);
    Classifier model(s.model, images.shape, std::ssize(images.classes));
    if (!s.init_from.empty()) {
        const auto tensors = load_safetensors(s.init_from).tensors;
        model.load_state_dict({tensors.begin(), tensors.end()});
    }
    s.identity = {{"model", s.model}, {"data", str(images.train->size(), " images")}};
    const std::string augmentation = s.images.augmentation();
    if (!augmentation.empty()) s.identity.emplace_back("augment", augmentation);
    std::cout << "model: " << s.model << ", " << model.num_parameters()
              << " parameters; images: " << images.train->size() << " to train, "
              << images.test->size() << " to test, " << images.shape << ", "
              << images.classes.size() << " classes\n"
              << std::flush;

    const trainer::Outcome outcome = (s.eval_only ? only_evaluate : train)(s, images, model);
    const auto pictures = predictions(s, images, model);
    if (!s.eval_only)
        std::cout << "report: "
                  << trainer::write_report(s, outcome,
                                           {.title = "train_vision", .pictures = pictures})
                  << '\n';

    for (std::size_t i = 0; i < pictures.size(); ++i)
        std::cout << "test image " << i << ": " << pictures[i].caption << '\n';
    std::cout << "accuracy " << outcome.summary["accuracy"].number() << " on "
              << images.test->size() << " test images\n"
              << to_json(outcome.summary, -1) << std::endl;
    return 0;
}

int main(int argc, char** argv) {
    try {
        const auto settings = parse({argv + 1, argv + argc});
        return settings ? run(*settings) : 0;
    } catch (const trainer::Stopped& stopped) {
        std::cerr << "train_vision: stopped by a signal; resume with --resume "
                  << stopped.checkpoint << '\n';
        return trainer::kStopped;
    } catch (const std::exception& error) {
        std::cerr << "train_vision: " << error.what() << '\n';
        return 1;
    }
}
