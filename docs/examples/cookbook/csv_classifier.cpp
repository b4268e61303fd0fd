// Reads a CSV file and trains a classifier with a validation set and early stopping.
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;
using axle::data::TensorDataset;

namespace {

void write_csv(const std::string& path) {
    const auto noise = axle::randn({600, 2}).to_vector();
    std::ofstream file(path);
    file << "length,weight,species\n";
    for (int row = 0, i = 0; row < 600; ++row, i += 2)
        file << 20 + 5 * (row % 3) + noise[i] << ',' << 900 - 200 * (row % 2) + 40 * noise[i + 1]
             << ',' << (row % 3) + 3 * (row % 2) << '\n';
}

// [read]
struct Table {
    Tensor features, labels;
};

Table read_csv(const std::string& path) {
    std::istringstream lines(axle::data::read_text(path));
    std::string line;
    std::getline(lines, line);  // the header
    std::vector<double> features;
    std::vector<std::int64_t> labels;
    while (std::getline(lines, line)) {
        double length = 0, weight = 0;
        std::int64_t species = 0;
        char comma = 0;
        if (!(std::istringstream(line) >> length >> comma >> weight >> comma >> species))
            throw axle::ValueError(axle::str(path, ": a row must have 3 numbers: ", line));
        features.insert(features.end(), {length, weight});
        labels.push_back(species);
    }
    return {axle::tensor(features, {std::ssize(labels), 2}),
            axle::tensor(labels, {std::ssize(labels)})};
}
// [/read]

}  // namespace

int main() {
    axle::manual_seed(1);
    write_csv("fish.csv");
    // [split]
    const Table table = read_csv("fish.csv");
    const std::int64_t rows = table.labels.size(0), for_training = rows * 8 / 10;
    const Tensor order =
        axle::tensor(axle::data::RandomSampler(rows, {.seed = 1}).indices(), {rows});
    const Tensor train_rows = order.slice(0, 0, for_training),
                 other_rows = order.slice(0, for_training);

    const Tensor known = index_select(table.features, 0, train_rows);
    const Tensor mean = known.mean({0}), deviation = var(known, {0}).sqrt();
    const auto rows_of = [&](const Tensor& index) {
        return TensorDataset({{"x", (index_select(table.features, 0, index) - mean) / deviation},
                              {"y", index_select(table.labels, 0, index)}});
    };
    // [/split]

    axle::Accelerator accelerator;
    axle::nn::Mlp net({2, 32, 6});
    axle::optim::AdamW adamw(net.parameters(), {.lr = 1e-2});
    axle::data::DataLoader train_loader(rows_of(train_rows), {.batch_size = 32, .shuffle = true});
    axle::data::DataLoader other_loader(rows_of(other_rows), {.batch_size = 64});
    auto [model, optimizer, loader, validation] =
        accelerator.prepare(net, adamw, train_loader, other_loader);

    // [stop]
    axle::accel::Mean validation_loss(accelerator);
    axle::accel::Accuracy accuracy(accelerator);
    axle::nn::Mlp best = model.clone();
    double lowest = std::numeric_limits<double>::infinity(), best_accuracy = 0;
    for (int epoch = 0, bad_epochs = 0; epoch < 200 && bad_epochs < 5; ++epoch) {
        model.train();
        for (auto& batch : loader) {
            accelerator.backward(cross_entropy(model(batch["x"]), batch["y"]));
            optimizer.step();
            optimizer.zero_grad();
        }
        model.eval();
        validation_loss.reset(), accuracy.reset();
        const axle::NoGrad no_grad;
        for (auto& batch : validation) {
            const Tensor logits = model(batch["x"]);
            accuracy.update(logits, batch["y"]);
            validation_loss.update(
                cross_entropy(logits, batch["y"], {.reduction = axle::Reduction::none}));
        }
        ++bad_epochs;
        if (const double loss = validation_loss.compute(); loss < lowest) {
            lowest = loss, best_accuracy = accuracy.compute(), bad_epochs = 0;
            best = model.clone();
        }
    }
    model.load_state_dict(best.state_dict());
    // [/stop]
    accelerator.print("validation loss ", lowest, ", accuracy ", best_accuracy);
    return best_accuracy > 0.9 ? 0 : 1;
}
