// Trains an LSTM to predict the next word, and prints generated text. The program of the same name
// in pytorch/examples trains on WikiText; this program generates sentences from a small grammar.
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <axle/axle.h>

using axle::Tensor;
namespace nn = axle::nn;

// [text]
// Returns random sentences. The verb agrees with the first noun, which is several words before it.
std::string make_text(std::int64_t sentences) {
    static const std::array<const char*, 4> kNouns{"cat", "dog", "bird", "horse"};
    static const std::array<const char*, 4> kVerbs{"see", "hear", "like", "follow"};
    static const std::array<const char*, 3> kPlaces{"near the river", "of the farmer",
                                                    "in the old house"};
    std::ostringstream text;
    for (std::int64_t i = 0; i < sentences; ++i) {
        const auto draw = [](std::int64_t n) {
            return static_cast<std::size_t>(axle::randint(0, n, {}).item_int());
        };
        const bool many = draw(2) == 1, many_objects = draw(2) == 1;
        text << "the " << kNouns[draw(4)] << (many ? "s " : " ") << kPlaces[draw(3)] << ' '
             << kVerbs[draw(4)] << (many ? " " : "s ") << "the " << kNouns[draw(4)]
             << (many_objects ? "s . " : " . ");
    }
    return text.str();
}

// Numbers words in the order in which they first occur.
class Dictionary {
  public:
    Tensor encode(const std::string& text) {
        std::istringstream words(text);
        std::vector<std::int64_t> ids;
        for (std::string word; words >> word; ids.push_back(ids_.at(word)))
            if (ids_.try_emplace(word, std::ssize(words_)).second) words_.push_back(word);
        return axle::tensor(ids);
    }
    const std::string& word(std::int64_t id) const {
        return words_.at(static_cast<std::size_t>(id));
    }
    std::int64_t size() const { return std::ssize(words_); }

  private:
    std::map<std::string, std::int64_t> ids_;
    std::vector<std::string> words_;
};
// [/text]

// [model]
class LanguageModel : public nn::Model<LanguageModel> {
  public:
    explicit LanguageModel(std::int64_t words, std::int64_t width = 64)
        : encoder(words, width),
          lstm(width, width, {.num_layers = 2, .dropout = 0.1}),
          decoder(width, words) {
        nn::init::uniform_(encoder.weight, -0.1, 0.1);
    }
    // Maps words [time, batch] and a state to logits [time, batch, words] and the next state.
    std::pair<Tensor, nn::LSTMState> operator()(const Tensor& ids,
                                                const nn::LSTMState& state = {}) {
        return Model::operator()(ids, state);
    }
    std::pair<Tensor, nn::LSTMState> forward(const Tensor& ids, const nn::LSTMState& state) {
        const auto [output, next] = lstm(dropout(encoder(ids)), state);
        return {decoder(dropout(output)), next};
    }
    void visit(nn::Visitor& v) override {
        v("encoder", encoder), v("lstm", lstm), v("decoder", decoder), v("dropout", dropout);
    }

    nn::Embedding encoder;
    nn::LSTM lstm;
    nn::Linear decoder;
    nn::Dropout dropout{0.1};
};
// [/model]

int main() {
    axle::manual_seed(1);
    constexpr std::int64_t kBatch = 16, kTime = 24;
    Dictionary dictionary;
    // Each column is a contiguous part of the text.
    const auto columns = [&](std::int64_t sentences) {
        const Tensor ids = dictionary.encode(make_text(sentences));
        const std::int64_t rows = ids.numel() / kBatch;
        return ids.slice(0, 0, rows * kBatch).view({kBatch, rows}).t().contiguous();
    };
    const Tensor train = columns(2000), test = columns(200);

    LanguageModel model(dictionary.size());
    axle::optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    axle::optim::StepLR scheduler(optimizer, 6, 0.3);
    // [loop]
    // Returns the mean loss of a text. In training mode, also trains the model on it.
    const auto run = [&](const Tensor& text) {
        nn::LSTMState state;
        double total = 0;
        std::int64_t parts = 0;
        for (std::int64_t start = 0; start + kTime < text.size(0); start += kTime, ++parts) {
            const Tensor input = text.narrow(0, start, kTime);
            const Tensor target = text.narrow(0, start + 1, kTime).flatten();
            const auto [logits, next] = model(input, state);
            const Tensor loss = cross_entropy(logits.flatten(0, 1), target);
            total += loss.item();
            state = {next.h.detach(), next.c.detach()};  // ends backpropagation through time
            if (!model.is_training()) continue;
            optimizer.zero_grad();
            loss.backward();
            axle::optim::clip_grad_norm_(model.parameters(), 0.25);
            optimizer.step();
        }
        return total / static_cast<double>(parts);
    };
    double perplexity = 0;
    for (int epoch = 0; epoch < 10; ++epoch) {
        model.train();
        run(train);
        scheduler.step();
        model.eval();
        const axle::NoGrad no_grad;
        perplexity = std::exp(run(test));
        std::cout << "epoch " << epoch << ": perplexity " << perplexity << '\n';
    }
    // [/loop]

    // [generate]
    const axle::NoGrad no_grad;
    nn::LSTMState state;
    Tensor id = dictionary.encode(".").view({1, 1});
    for (int i = 0; i < 40; ++i) {
        auto [logits, next] = model(id, state);
        id = multinomial(softmax(logits.view({1, -1}), 1), 1);
        std::cout << dictionary.word(id.item_int()) << ' ';
        state = next;
    }
    std::cout << '\n';
    // [/generate]
    // The choices of the grammar have a perplexity of 2.04 per word.
    return perplexity < 2.5 ? 0 : 1;
}
