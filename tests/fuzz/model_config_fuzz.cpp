// Fuzzes the parsers of config.json.
#include <string>

#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"
#include "nn/models/text/mixtral.h"
#include "nn/models/text/t5.h"
#include "nn/models/vision/vit.h"
#include "tests/fuzz/fuzz.h"

namespace axle::tests {
namespace {

template <class Config>
void check(const std::string& text) {
    Config config;
    if (!accepts([&] { config = Config::from_json(text); })) return;
    const std::string written = config.to_json();
    require(Config::from_json(written).to_json() == written, "a written configuration is restored");
}

}  // namespace

void fuzz(Bytes input) {
    const std::string text(text_of(input));
    check<nn::GptConfig>(text);
    check<nn::BertConfig>(text);
    check<nn::LlamaConfig>(text);
    check<nn::MixtralConfig>(text);
    check<nn::T5Config>(text);
    check<nn::ViTConfig>(text);
}

}  // namespace axle::tests
