// The plans of the models in nn/models. Names and styles are the same as in tp_plan of Hugging Face
// Transformers. Axle adds rules for the vocabulary and for sequence parallelism.
#include <string>
#include <utility>

#include "dist/tensor_parallel/tensor_parallel.h"
#include "nn/models/bert.h"
#include "nn/models/gpt.h"
#include "nn/models/llama.h"

namespace axle::dist {
namespace {

TensorParallelPlan gpt_plan() {
    return {{"transformer.wte", "embedding_rowwise"},
            {"lm_head", "colwise_rep"},
            {"transformer.h.*.attn.c_attn", "colwise", 3},
            {"transformer.h.*.attn.c_proj", "rowwise"},
            {"transformer.h.*.mlp.c_fc", "colwise"},
            {"transformer.h.*.mlp.c_proj", "rowwise"},
            {"transformer", "sequence_parallel"},
            {"transformer.h.*.ln_1", "sequence_parallel"},
            {"transformer.h.*.ln_2", "sequence_parallel"},
            {"transformer.h.*.attn.resid_dropout", "sequence_parallel"},
            {"transformer.h.*.mlp.dropout", "sequence_parallel"},
            {"transformer.ln_f", "sequence_parallel"}};
}

TensorParallelPlan llama_plan() {
    TensorParallelPlan plan = {{"model.embed_tokens", "embedding_rowwise"},
                               {"lm_head", "colwise_rep"},
                               {"model", "sequence_parallel"},
                               {"model.norm", "sequence_parallel"}};
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "mlp.gate_proj", "mlp.up_proj"})
        plan.push_back({std::string("model.layers.*.") + name, "colwise"});
    for (const char* name : {"self_attn.o_proj", "mlp.down_proj"})
        plan.push_back({std::string("model.layers.*.") + name, "rowwise"});
    for (const char* name : {"input_layernorm", "post_attention_layernorm"})
        plan.push_back({std::string("model.layers.*.") + name, "sequence_parallel"});
    return plan;
}

// Returns the plan of a BERT model. `prefix` is the name of the encoder in the model, followed by a
// dot.
TensorParallelPlan bert_plan(const std::string& prefix, bool has_language_head) {
    TensorParallelPlan plan = {{prefix + "embeddings.word_embeddings", "embedding_rowwise"},
                               {prefix + "encoder", "sequence_parallel"}};
    if (has_language_head) plan.push_back({"cls.predictions.decoder", "colwise_rep"});
    const auto add = [&](const char* name, const char* style) {
        plan.push_back({prefix + "encoder.layer.*." + name, style});
    };
    for (const char* name : {"attention.self.query", "attention.self.key", "attention.self.value",
                             "intermediate.dense"})
        add(name, "colwise");
    for (const char* name : {"attention.output.dense", "output.dense"}) add(name, "rowwise");
    for (const char* name : {"attention.output.LayerNorm", "attention.output.dropout",
                             "output.LayerNorm", "output.dropout"})
        add(name, "sequence_parallel");
    return plan;
}

template <class M>
bool is(nn::Module& model) {
    return dynamic_cast<M*>(&model) != nullptr;
}

}  // namespace

TensorParallelPlan tensor_parallel_plan(nn::Module& model) {
    if (is<nn::Gpt>(model)) return gpt_plan();
    if (is<nn::Llama>(model)) return llama_plan();
    if (is<nn::Bert>(model)) return bert_plan("", false);
    if (is<nn::BertForMaskedLM>(model)) return bert_plan("bert.", true);
    if (is<nn::BertForSequenceClassification>(model)) return bert_plan("bert.", false);
    return {};
}

}  // namespace axle::dist
